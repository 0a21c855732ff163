"""Clients that ask for heavy work and go away, while honest clients predict; then a stop under load.

`python -m soak.vanishing` records results/soak-vanishing.json. Exit code 1 if an honest prediction failed, if their
99th percentile is above 500 ms, if memory grew, or if the stop took more than 10 s or left a request without an answer.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import os
import random
import socket
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

import dihedral as dh
from benchmarks.record import RESULTS
from dihedral.serve.server import listen
from soak.server import Running
from soak.tally import finish

PEOPLE = 3000
MAX_P99_MS, MAX_GROWTH_MB, MAX_STOP_SECONDS = 500.0, 1000.0, 10.0
MAX_STAY = 1.0  # seconds until an abandoning client goes away


def heavy_paths(graph: dh.Graph, rng: random.Random) -> str:
    head, relation, tail = next(iter(graph.names_of(graph.train[[rng.randrange(len(graph.train))]])))
    return rng.choice(
        [
            "/v1/missing?among=all&top=1000",
            f"/v1/missing?relation={relation}&among=range",
            "/v1/rules",
            f"/v1/explain?head={head}&relation={relation}&tail={tail}&top=50",
            f"/v1/query?start={head}&via={relation}&via=~{relation}&via={relation}&top=1000",
            f"/v1/compose?steps={relation}&steps=~{relation}&top=1000",
        ]
    )


def predict_path(fact: tuple[str, str, str]) -> str:
    return f"/v1/predict?head={fact[0]}&relation={fact[1]}"


def abandon(address: tuple[str, int], path: str, stay: float) -> None:
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        time.sleep(stay)


def status_of(address: tuple[str, int], path: str) -> tuple[str, float]:
    """The status of a request, or why there is none, and the seconds until then."""
    started = time.perf_counter()
    try:
        connection = http.client.HTTPConnection(*address, timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return str(answer.status), time.perf_counter() - started
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__, time.perf_counter() - started


def predict(
    address: tuple[str, int], facts: list[tuple[str, str, str]], clients: int, stop: Event, results: Queue[Any]
) -> None:
    """Honest clients, one thread each; runs in a separate process."""
    honest: list[tuple[str, float]] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        while not stop.is_set():
            honest.append(status_of(address, predict_path(rng.choice(facts))))
            time.sleep(0.02)

    with ThreadPoolExecutor(clients) as pool:
        working = [pool.submit(work, number) for number in range(clients)]
        results.put("begun")
        for each in working:
            each.result()
    results.put(honest)


def run(folder: Path, abandoned: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    graph, rng = dh.make_family(PEOPLE), random.Random(seed)
    dh.train(graph, "demo/family", epochs=2, progress=False, device="cpu").save(folder)
    facts = list(graph.names_of(graph.train[:1000]))
    context = multiprocessing.get_context("spawn")  # a process of their own: many threads would delay each other
    stop, results = context.Event(), context.Queue()
    with listen("127.0.0.1", 0) as listener, Running(folder, listener) as server, ThreadPoolExecutor(50) as pool:
        server.wait_until_ready()
        address = listener.getsockname()
        warm = [status_of(address, predict_path(fact)) for fact in facts[:50]]
        before = server.resident_mb()
        predicting = context.Process(target=predict, args=(address, facts, 4, stop, results), daemon=True)
        predicting.start()
        results.get()  # they have begun
        gone = [
            pool.submit(abandon, address, heavy_paths(graph, rng), rng.uniform(0, MAX_STAY)) for _ in range(abandoned)
        ]
        for each in gone:
            each.result()
        time.sleep(2)
        stop.set()
        honest = results.get()
        memory = server.peak_mb()
        staying = [pool.submit(status_of, address, heavy_paths(graph, rng)) for _ in range(30)]
        staying += [
            pool.submit(status_of, address, "/v1/predict?head={}&relation={}".format(*fact[:2])) for fact in facts[:20]
        ]
        time.sleep(0.5)
        started = time.monotonic()
        code, message = server.stop()
        stopped = time.monotonic() - started
        answers = Counter(each.result()[0] for each in staying)
    milliseconds = 1000 * np.array([seconds for _, seconds in honest])
    statuses = Counter(status for status, _ in honest + warm)
    p50, p99 = (round(float(each), 1) for each in np.percentile(milliseconds, [50, 99]))
    measured = {
        "load": [round(each, 1) for each in os.getloadavg()],
        "abandoned": abandoned, "predictions": len(honest), "statuses": dict(statuses),
        "latency_ms": {"p50": p50, "p99": p99, "max": round(float(milliseconds.max()), 1)},
        "memory_mb": {"before": round(before, 1), "peak": round(memory, 1)},
        "stop": {"seconds": round(stopped, 1), "answers": dict(answers)},
    }  # fmt: skip
    checks = {
        f"honest predictions: {dict(statuses)}": set(statuses) == {"200"},
        f"the 99th percentile is {p99} ms": p99 <= MAX_P99_MS,
        f"memory grew from {before:.0f} to {memory:.0f} MB": memory - before <= MAX_GROWTH_MB,
        f"the stop took {stopped:.1f} s": stopped <= MAX_STOP_SECONDS,
        f"answers during the stop: {dict(answers)}": set(answers) <= {"200", "503"},
        f"the server exited with {code}: {message[-500:]}": (code, message) == (0, "stopped"),
    }
    return measured, [what for what, held in checks.items() if not held]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m soak.vanishing", description=__doc__)
    parser.add_argument("--abandoned", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured, losses = run(Path(folder) / "model", options.abandoned, options.seed)
    finish("soak-vanishing", options.seed, measured, losses, options.out)


if __name__ == "__main__":
    main()
