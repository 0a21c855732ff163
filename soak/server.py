"""A server under load and attack: mixed traffic, a model swap and a restart in the middle, and no failed request.

Clients and attackers are processes of their own on the same machine. At a third of the time the model's folder is
overwritten and the server told to open it again; at two thirds a second server takes the socket over and the first is
told to stop.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.record import RESULTS, save

import dihedral as dh
from dihedral.serving.connections import HEAD_SECONDS, SEND_SECONDS
from dihedral.serving.server import listen
from soak.attacks import attack
from soak.traffic import Ask, Client, Tally, asks

PAUSE = 0.1  # mean seconds between an answer and a client's next request
WARM_SECONDS = 60  # after its start a server's memory may grow: caches fill, threads start
MAX_GROWTH = 64.0  # MB between the least and the most memory of a warm server
MAX_SLOPE = 60.0  # MB an hour over the second half of a server's life
SLOPE_SECONDS = 240  # of which a slope says something
SLACK = 10.0  # seconds that a slow client may be held beyond the limits, on a busy machine


class Running:
    """A server as a process, that takes a listening socket over."""

    def __init__(self, folder: Path, listener: socket.socket, script: str = "") -> None:
        fd = listener.fileno()
        command = [sys.executable, "-c", f"{script}\nfrom dihedral.cli.main import main; main()"]
        self.process = subprocess.Popen(
            [*command, "serve", f"model={folder}", "--fd", str(fd)], pass_fds=[fd], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self.started = 0.0
        self.memory: list[tuple[float, float]] = []  # seconds since the start, MB

    def wait_until_ready(self) -> Running:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("serving"):
            raise RuntimeError(f"the server did not start: {self.process.communicate()[1]}")
        self.started = time.monotonic()
        self.sample()
        return self

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def swap(self) -> str:
        """Tell it to open its model again; what it says to that."""
        assert self.process.stderr is not None
        self.process.send_signal(signal.SIGHUP)
        return self.process.stderr.readline().strip()

    def stop(self) -> tuple[int, str]:
        """The exit code, and what it said."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors.strip()

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def sample(self) -> None:
        self.memory.append((time.monotonic() - self.started, self.resident_mb()))


def train_model(seed: int) -> dh.Predictor:
    return dh.train(dh.make_family(300), "demo/family", epochs=30, seed=seed, progress=False, device="cpu")


def clients(address: str, number: int, seconds: float, seed: int, found: Any) -> None:
    """Good clients for a while, each a thread; a process of its own."""
    graph, tally, end = dh.make_family(300), Tally(), time.monotonic() + seconds

    def work(client: int) -> None:
        rng = random.Random(seed + client)
        http = Client(address, tally)
        for asked in asks(graph, rng):
            if time.monotonic() > end:
                break
            http.ask(asked)
            time.sleep(rng.expovariate(1 / PAUSE))
        http.close()

    threads = [threading.Thread(target=work, args=(client,)) for client in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.put((dict(tally.seconds), dict(tally.losses), tally.reopened))


def campaign(seconds: float, number: int, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The figures, and what was lost."""
    train_model(1).save(folder)
    second_model = train_model(2)
    losses: list[str] = []
    with listen("127.0.0.1", 0) as listener, ExitStack() as stack:

        def start() -> Running:
            return stack.enter_context(Running(folder, listener)).wait_until_ready()

        host, port = listener.getsockname()
        address = f"{host}:{port}"
        servers = [start()]
        context = multiprocessing.get_context("spawn")
        good, bad = context.Queue(), context.Queue()
        held_limit = max(HEAD_SECONDS, SEND_SECONDS) + 2 * SLACK
        processes = [
            context.Process(target=clients, args=(address, number, seconds, 0, good), daemon=True),
            context.Process(target=attack, args=((host, port), seconds, 4, held_limit, 0, bad), daemon=True),
        ]
        for process in processes:
            process.start()
        begin = time.monotonic()

        def watch_until(share: float) -> None:
            while time.monotonic() < begin + share * seconds:
                servers[-1].sample()
                time.sleep(1)

        def seed_served() -> Any:
            return json.loads(Client(address, Tally()).ask(Ask("info", "/v1/info")))["metrics"]["seed"]

        watch_until(1 / 3)
        second_model.save(folder, overwrite=True)
        said = servers[0].swap()
        if "was opened again" not in said or seed_served() != 2:
            losses.append(f"the model was not swapped: {said}")
        watch_until(2 / 3)
        servers.append(start())
        losses += _check_stop(servers[0])
        watch_until(1)
        times, failed, reopened = good.get()
        statuses, held = bad.get()
        for process in processes:
            process.join()
        losses += _check_stop(servers[1])
    losses += [f"{count} x {loss}" for loss, count in failed.items()]
    losses += [f"an attack, {each}" for each in statuses if _is_loss(each)]
    longest = max(HEAD_SECONDS, SEND_SECONDS) + SLACK
    losses += [f"a client, {kind}, held for {most:.0f} s" for kind, (_, most) in held.items() if most > longest]
    memory = [_memory(server) for server in servers]
    losses += [f"memory is not flat: {each}" for each in memory if not _is_flat(each)]
    everything = np.concatenate([np.array(each) for each in times.values()])
    figures = {
        "requests": len(everything), "failed": sum(failed.values()), "reopened_connections": reopened,
        "latency_ms": {"all": _latency(everything)} | {kind: _latency(np.array(times[kind])) for kind in sorted(times)},
        "memory": memory,
        "attacks": dict(sorted(statuses.items())),
        "slow_clients": {
            kind: {"connections": count, "longest_s": round(most, 1)} for kind, (count, most) in held.items()
        },
    }  # fmt: skip
    return figures, losses


def _check_stop(server: Running) -> list[str]:
    code, said = server.stop()
    return [] if (code, said) == (0, "stopped") else [f"a server ended with {code}: {said[-1000:]}"]


def _is_loss(attack: str) -> bool:
    """Whether an attack led to 5xx or hung, or a trick with a path to an answer."""
    kind, status = attack.split(": ")
    return status[0] in "5h" or (kind == "path tricks" and status[0] == "2")


def _is_flat(memory: dict[str, Any]) -> bool:
    """A server that lived for less than its warm-up is not judged, nor a slope over less than minutes."""
    if "judged" in memory:
        return True
    steady = memory["slope_over_s"] < SLOPE_SECONDS or memory["slope_mb_per_hour"] < MAX_SLOPE
    return steady and memory["range_mb"] < MAX_GROWTH


def _latency(seconds: Any) -> dict[str, Any]:
    p50, p95, p99 = (round(1000 * float(value), 1) for value in np.percentile(seconds, [50, 95, 99]))
    most = round(1000 * float(seconds.max()), 1)
    return {"requests": len(seconds), "p50": p50, "p95": p95, "p99": p99, "max": most}


def _memory(server: Running) -> dict[str, Any]:
    """Over time, and once the server is warm: least, most, and the slope of the second half."""
    found: dict[str, Any] = {
        "seconds": round(server.memory[-1][0]),
        "mb_every_10_s": [round(mb, 1) for _, mb in server.memory[::10]],
    }
    warm = np.array([each for each in server.memory if each[0] > WARM_SECONDS])
    late = warm[len(warm) // 2 :]
    if len(late) < 2:
        return found | {"judged": "no: it did not live long enough"}
    slope = 3600 * float(np.polyfit(late[:, 0], late[:, 1], 1)[0])
    return found | {
        "least_mb": round(float(warm[:, 1].min()), 1), "most_mb": round(float(warm[:, 1].max()), 1),
        "range_mb": round(float(np.ptp(warm[:, 1])), 1), "slope_mb_per_hour": round(slope, 1),
        "slope_over_s": round(float(np.ptp(late[:, 0]))),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures, losses = campaign(60 * options.minutes, options.clients, Path(folder) / "model")
    about = {"minutes": options.minutes, "clients": options.clients, "losses": losses}
    path = save("soak-server", about | figures, options.out)
    print(json.dumps({"requests": figures["requests"], **about, "memory": figures["memory"]}))
    print(f"written to {path}")
    sys.exit(1 if losses else 0)


if __name__ == "__main__":
    main()
