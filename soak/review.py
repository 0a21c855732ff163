"""SIGKILL at random times while reviewers send decisions: none that was acknowledged may be lost.

`python -m soak.review` records results/soak-review.json. Exit code 1 if a decision was lost.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import dihedral as dh
from benchmarks.record import RESULTS
from dihedral.serve.server import listen
from dihedral.store.reviews import FILE, VERDICTS
from soak.server import Running
from soak.tally import finish

REVIEWERS = ("Ann", "Bob", "Cho")
MAX_LIFE = 1.0  # seconds from the first answer of a server until it is killed
MAX_START = 300.0  # seconds until that answer
FACTS = 500


class Reviewer:
    """Sends decisions until it is told to stop; each has a note of its own."""

    def __init__(self, name: str, address: tuple[str, int], facts: list[dict[str, str]]) -> None:
        self.name, self.address, self.facts = name, address, facts
        self.rng, self.numbers = random.Random(name), count()
        self.acknowledged: set[str] = set()
        self.seconds: list[float] = []
        self.sent = 0

    def work(self, stop: threading.Event) -> None:
        while not stop.is_set():
            note = f"{self.name} {next(self.numbers)}"
            body = {**self.rng.choice(self.facts), "decision": self.rng.choice(VERDICTS)}
            body |= {"reviewer": self.name, "note": note}
            self.sent += 1
            started = time.perf_counter()
            if self._post(body):
                self.acknowledged.add(note)
                self.seconds.append(time.perf_counter() - started)

    def _post(self, body: dict[str, str]) -> bool:
        try:
            connection = http.client.HTTPConnection(*self.address, timeout=10)
            connection.request("POST", "/v1/review", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status == 200
        except (OSError, http.client.HTTPException):
            return False


def _acknowledged(reviewers: list[Reviewer]) -> int:
    return sum(len(each.acknowledged) for each in reviewers)


def stored_notes(path: Path) -> Iterator[str]:
    """The notes of all lines that are complete."""
    for line in path.read_bytes().split(b"\n"):
        try:
            yield json.loads(line)["note"]
        except (ValueError, KeyError):
            continue


def run(folder: Path, kills: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    dh.train(dh.make_family(300), "demo/family", epochs=5, progress=False, device="cpu").save(folder)
    rows = dh.missing_facts(dh.load(folder), top=FACTS).select(["head", "relation", "tail"]).to_pylist()
    rng, losses, torn = random.Random(seed), [], 0
    with listen("127.0.0.1", 0) as listener:
        reviewers = [Reviewer(name, listener.getsockname(), rows) for name in REVIEWERS]
        for number in range(1, kills + 1):
            with Running(folder, listener) as server:
                server.wait_until_ready()
                stop = threading.Event()
                threads = [threading.Thread(target=each.work, args=(stop,)) for each in reviewers]
                for thread in threads:
                    thread.start()
                before, end = _acknowledged(reviewers), time.monotonic() + MAX_START
                while _acknowledged(reviewers) == before and time.monotonic() < end:
                    time.sleep(0.001)
                time.sleep(rng.uniform(0, MAX_LIFE))
                server.process.kill()
                stop.set()
                for thread in threads:
                    thread.join()
            kept = set(stored_notes(folder / FILE))
            torn += not (folder / FILE).read_bytes().endswith(b"\n")
            lost = set.union(*(each.acknowledged for each in reviewers)) - kept
            losses += [f"after kill {number}: {note!r}" for note in sorted(lost)]
            print(f"{number} of {kills} kills, {len(kept)} decisions kept, {len(lost)} lost", flush=True)
    milliseconds = 1000 * np.array([value for each in reviewers for value in each.seconds])
    p50, p99 = (round(float(each), 1) for each in np.percentile(milliseconds, [50, 99]))
    acknowledged = _acknowledged(reviewers)
    measured = {
        "kills": kills, "reviewers": len(reviewers), "sent": sum(each.sent for each in reviewers),
        "acknowledged": acknowledged, "kept": len(kept), "kept_without_answer": len(kept) - acknowledged,
        "lines_cut_short": torn, "latency_ms": {"p50": p50, "p99": p99},
    }  # fmt: skip
    return measured, losses


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m soak.review", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured, losses = run(Path(folder) / "model", options.kills, options.seed)
    finish("soak-review", options.seed, measured, losses, options.out)


if __name__ == "__main__":
    main()
