"""A server under load and attack: mixed traffic, a replaced model, a restart, and no failed request.

Clients and attackers run in separate processes on the same machine. After a third of the time, the model folder is
overwritten and the server reloads it. After two thirds, a second server takes over the socket and the first stops.
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

import dihedral as dh
from benchmarks.record import RESULTS, save
from dihedral.serve.connections import MAX_HEAD_SECONDS, MAX_READ_SECONDS
from dihedral.serve.server import listen
from soak.attacks import attack
from soak.traffic import Client, TrafficRequest, TrafficStats, generate_requests

MEAN_PAUSE = 0.1  # seconds between a response and the client's next request
WARMUP_SECONDS = 60  # in which memory may grow: caches fill, threads start
MAX_GROWTH = 64.0  # MB between minimum and maximum memory after the warm-up
MAX_SLOPE = 60.0  # MB per hour over the second half of a server's life
MIN_SLOPE_SECONDS = 240  # a slope over a shorter time is not judged
SLACK = 10.0  # seconds that a slow client may exceed the limits on a busy machine
MAX_CLIENT_SECONDS = max(MAX_HEAD_SECONDS, MAX_READ_SECONDS)


class Running:
    """A server process that inherits a listening socket."""

    def __init__(self, folder: Path, listener: socket.socket, script: str = "", *options: str) -> None:
        fd = listener.fileno()
        command = [sys.executable, "-c", f"{script}\nfrom dihedral.cli.main import main; main()"]
        self.process = subprocess.Popen(
            [*command, "serve", f"model={folder}", "--fd", str(fd), *options], pass_fds=[fd], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self.started, self.output = 0.0, ""
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

    def reload(self) -> str:
        """Make the server reload its model; returns its message."""
        assert self.process.stderr is not None
        self.process.send_signal(signal.SIGHUP)
        return self.process.stderr.readline().strip()

    def stop(self) -> tuple[int, str]:
        """Stop the server; returns the exit code and its messages."""
        self.process.send_signal(signal.SIGTERM)
        self.output, errors = self.process.communicate(timeout=300)
        return self.process.returncode, errors.strip()

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def peak_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1e3

    def sample(self) -> None:
        self.memory.append((time.monotonic() - self.started, self.resident_mb()))


def train_model(seed: int) -> dh.Predictor:
    return dh.train(dh.make_family(300), "demo/family", epochs=30, seed=seed, progress=False, device="cpu")


def run_clients(address: str, num_clients: int, seconds: float, seed: int, results: Any) -> None:
    """Well-behaved clients, one thread each; runs in a separate process."""
    graph, stats, end = dh.make_family(300), TrafficStats(), time.monotonic() + seconds

    def work(client: int) -> None:
        rng = random.Random(seed + client)
        http = Client(address, stats)
        for request in generate_requests(graph, rng):
            if time.monotonic() > end:
                break
            http.send(request)
            time.sleep(rng.expovariate(1 / MEAN_PAUSE))
        http.close()

    threads = [threading.Thread(target=work, args=(client,)) for client in range(num_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((dict(stats.seconds), dict(stats.losses), stats.reopened))


def run_campaign(seconds: float, num_clients: int, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The measurements and the losses of a campaign."""
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
        processes = [
            context.Process(target=run_clients, args=(address, num_clients, seconds, 0, good), daemon=True),
            context.Process(
                target=attack, args=((host, port), seconds, 4, MAX_CLIENT_SECONDS + 2 * SLACK, 0, bad), daemon=True
            ),
        ]
        for process in processes:
            process.start()
        started = time.monotonic()

        def watch_until(share: float) -> None:
            while time.monotonic() < started + share * seconds:
                servers[-1].sample()
                time.sleep(1)

        watch_until(1 / 3)
        second_model.save(folder, overwrite=True)
        message = servers[0].reload()
        if "was reloaded" not in message or served_seed(address) != 2:
            losses.append(f"the model was not replaced: {message}")
        watch_until(2 / 3)
        servers.append(start())
        losses += _check_stop(servers[0])
        watch_until(1)
        traffic, attacks = good.get(), bad.get()
        for process in processes:
            process.join()
        losses += _check_stop(servers[1])
    measurements, more = _evaluate(traffic, attacks, [_memory(server) for server in servers])
    return measurements, losses + more


def served_seed(address: str) -> int:
    """The seed of the model that a server uses now."""
    content = Client(address, TrafficStats()).send(TrafficRequest("info", "/v1/info"))
    return int(json.loads(content)["metrics"]["seed"])


def _evaluate(traffic: Any, attacks: Any, memory: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Measurements and losses from what the clients and the attackers observed."""
    times, failed, reopened = traffic
    statuses, held = attacks
    losses = [f"{count} x {loss}" for loss, count in failed.items()]
    losses += [f"an attack, {each}" for each in statuses if _is_loss(each)]
    losses += [
        f"a client, {kind}, held for {longest:.0f} s"
        for kind, (_, longest) in held.items()
        if longest > MAX_CLIENT_SECONDS + SLACK
    ]
    losses += [f"memory is not flat: {each}" for each in memory if not _is_flat(each)]
    everything = np.concatenate([np.array(each) for each in times.values()])
    measurements = {
        "requests": len(everything), "failed": sum(failed.values()), "reopened_connections": reopened,
        "latency_ms": {"all": _latency(everything)} | {kind: _latency(np.array(times[kind])) for kind in sorted(times)},
        "memory": memory,
        "attacks": dict(sorted(statuses.items())),
        "slow_clients": {
            kind: {"connections": count, "max_s": round(longest, 1)} for kind, (count, longest) in held.items()
        },
    }  # fmt: skip
    return measurements, losses


def _check_stop(server: Running) -> list[str]:
    code, message = server.stop()
    return [] if (code, message) == (0, "stopped") else [f"a server exited with {code}: {message[-1000:]}"]


def _is_loss(attack: str) -> bool:
    """Whether an attack led to a status of 5xx or a hang, or a path trick to a status of 2xx."""
    kind, status = attack.split(": ")
    return status[0] in "5h" or (kind == "path tricks" and status[0] == "2")


def _is_flat(memory: dict[str, Any]) -> bool:
    """Whether memory is flat; short runs and short slopes are not judged."""
    if "judged" in memory:
        return True
    steady = memory["slope_over_s"] < MIN_SLOPE_SECONDS or memory["slope_mb_per_hour"] < MAX_SLOPE
    return steady and memory["range_mb"] < MAX_GROWTH


def _latency(seconds: Any) -> dict[str, Any]:
    p50, p95, p99 = (round(1000 * float(value), 1) for value in np.percentile(seconds, [50, 95, 99]))
    longest = round(1000 * float(seconds.max()), 1)
    return {"requests": len(seconds), "p50": p50, "p95": p95, "p99": p99, "max": longest}


def _memory(server: Running) -> dict[str, Any]:
    """Memory over time, and after the warm-up its minimum, maximum, and slope over the second half."""
    found: dict[str, Any] = {
        "seconds": round(server.memory[-1][0]),
        "mb_every_10_s": [round(mb, 1) for _, mb in server.memory[::10]],
    }
    warm = np.array([each for each in server.memory if each[0] > WARMUP_SECONDS])
    late = warm[len(warm) // 2 :]
    if len(late) < 2:
        return found | {"judged": "no: it did not run long enough"}
    slope = 3600 * float(np.polyfit(late[:, 0], late[:, 1], 1)[0])
    return found | {
        "min_mb": round(float(warm[:, 1].min()), 1), "max_mb": round(float(warm[:, 1].max()), 1),
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
        measurements, losses = run_campaign(60 * options.minutes, options.clients, Path(folder) / "model")
    about = {"minutes": options.minutes, "clients": options.clients, "losses": losses}
    path = save("soak-server", about | measurements, options.out)
    print(json.dumps({"requests": measurements["requests"], **about, "memory": measurements["memory"]}))
    print(f"written to {path}")
    sys.exit(1 if losses else 0)


if __name__ == "__main__":
    main()
