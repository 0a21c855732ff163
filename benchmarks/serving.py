"""Throughput and latency of single predictions over HTTP: `python -m benchmarks.serving`.

The model has the size of WN18RR and random weights, because the time of an embedding does not depend on them; --model
gives a stored one, such as a path model. The server runs in a separate process. The clients are threads of this process
on the same machine, each with one open connection. The CPU time of the server is what other programs change least.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

import dihedral as dh
from benchmarks.record import RESULTS, save
from dihedral.models import build_model
from dihedral.predict.predictor import Predictor
from dihedral.serve.batching import MAX_BATCH
from dihedral.store.trained import TrainedModel


def write_model(folder: Path, graph: dh.Graph, dimension: int) -> None:
    model = build_model("dihedral-gumbel", graph.num_entities, graph.num_relations, dimension=dimension)
    Predictor(TrainedModel(model.requires_grad_(False), graph)).save(folder)


def start_server(models: list[str], at_once: int = MAX_BATCH) -> tuple[subprocess.Popen[str], str]:
    """Start a server and return its process and address; with at_once=1 it answers every query separately."""
    script = f"import dihedral.cli.main as m, dihedral.serve.batching as b; b.MAX_BATCH = {at_once}; m.main()"
    command = [sys.executable, "-c", script, "serve", *models, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert server.stdout is not None
    line = server.stdout.readline()
    return server, line.rsplit("http://", 1)[1].strip()


def cpu_seconds(server: subprocess.Popen[str]) -> float:
    """The CPU time of a process so far."""
    fields = Path(f"/proc/{server.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(address: str, paths: list[str], clients: int, seconds: float, rate: float | None) -> dict[str, Any]:
    """Send queries from many clients; with a rate, queries are sent at fixed times even if others are unanswered."""
    times: list[list[float]] = [[] for _ in range(clients)]
    begin = time.perf_counter() + 0.2

    def ask(client: int) -> None:
        connection = http.client.HTTPConnection(address)
        number = 0
        while True:
            due = max(time.perf_counter(), begin) if rate is None else begin + (number * clients + client) / rate
            if due > begin + seconds:
                break
            time.sleep(max(0.0, due - time.perf_counter()))
            connection.request("GET", paths[(number * clients + client) % len(paths)])
            response = connection.getresponse()
            response.read()
            assert response.status == 200, response.status
            times[client].append(time.perf_counter() - due)  # includes the wait for an earlier answer
            number += 1
        connection.close()

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begin
    all_times = 1000 * np.concatenate([np.array(each) for each in times])
    p50, p95, p99 = (round(float(value), 2) for value in np.percentile(all_times, [50, 95, 99]))
    return {
        "clients": clients, "asked_per_second": rate, "answered_per_second": round(len(all_times) / took, 1),
        "requests": len(all_times), "p50_ms": p50, "p95_ms": p95, "p99_ms": p99,
        "max_ms": round(float(all_times.max()), 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph", default="wn18rr")
    parser.add_argument("--model", type=Path, help="the folder of a stored model, instead of random weights")
    parser.add_argument("--dimension", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=200.0, help="questions per second that eight clients send")
    parser.add_argument("--name", default="serving", help="name of the record")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    stored = dh.load(options.model) if options.model else None
    graph = stored.graph if stored else dh.load_graph(options.graph)
    rng = np.random.default_rng(0)
    paths = [
        f"/v1/predict?head={quote(head, safe='')}&relation={quote(relation, safe='')}"
        for head, relation, _ in graph.names_of(graph.train[rng.integers(len(graph.train), size=1000)])
    ]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or Path(folder) / "model"
        if not stored:
            write_model(model, graph, options.dimension)
        for at_once in (MAX_BATCH, 1):
            server, address = start_server([str(model)], at_once)
            try:
                load(address, paths, 8, 2, None)
                for clients, rate in ((1, None), (8, None), (8, options.rate)):
                    before = cpu_seconds(server)
                    row = {"at_once": at_once} | load(address, paths, clients, options.seconds, rate)
                    row["cpu_ms_per_request"] = round(1000 * (cpu_seconds(server) - before) / row["requests"], 2)
                    rows.append(row)
                    print(json.dumps(rows[-1]), flush=True)
            finally:
                server.terminate()
                server.wait()
    about = {"model": repr(stored)} if stored else {"dimension": options.dimension}
    about |= {"graph": graph.name if stored else options.graph, "entities": graph.num_entities}
    save(options.name, {**about, "triples": graph.num_triples, "load": os.getloadavg()[0], "rows": rows}, options.out)


if __name__ == "__main__":
    main()
