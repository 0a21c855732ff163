"""A hub of a million edges: time and memory of training, predictions, explanations, rules and the explorer's pages.

A hub is joined with every other entity; a tenth of these are also joined in a chain, forwards and backwards. Each
operation runs in a process of its own, `--runs` times; the record holds medians. The limits are 30 seconds and 2 GB.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np

import dihedral as dh
from benchmarks.record import RESULTS, save
from dihedral.graph.triples import Graph
from dihedral.graph.vocabulary import Vocabulary
from dihedral.serve.server import listen
from soak.server import Running

MAX_SECONDS, MAX_GB = 30.0, 2.0
RELATIONS = ["member", "next", "previous"]
RECIPE = dh.Recipe(dimension=32, epochs=1)


class Measured(NamedTuple):
    seconds: float
    gb: float  # peak memory
    cpu_seconds: float | None = None  # of all cores, with imports: less depends on what else the machine does


def make_hub(leaves: int, seed: int = 0) -> Graph:
    """All facts are for training: calibration scores two billion pairs of any large graph, hub or not."""
    leaf = np.arange(1, leaves + 1)
    linked = np.random.default_rng(seed).permutation(leaf)[: leaves // 10]
    parts = [(np.zeros_like(leaf), 0, leaf), (linked[:-1], 1, linked[1:]), (linked[1:], 2, linked[:-1])]
    facts = np.concatenate([np.stack([h, np.full_like(h, r), t], axis=1) for h, r, t in parts]).astype(np.int32)
    entities = Vocabulary([f"e{i}" for i in range(leaves + 1)])
    return Graph(
        entities, Vocabulary(["member", "next", "previous"], "relation"), facts, facts[:0], facts[:0], name="hub"
    )


def train(folder: Path, leaves: int) -> None:
    dh.train(make_hub(leaves), RECIPE, progress=False, device="cpu").save(folder, overwrite=True)


def predict(folder: Path, leaves: int) -> None:
    predictor = dh.load(folder)
    for known in ("include", "exclude"):
        predictor.predict(head="e0", relation="member", known=known)
        predictor.predict(tail="e1", relation="member", known=known)


def explain(folder: Path, leaves: int) -> None:
    predictor = dh.load(folder)
    chain = next(iter(predictor.graph.names_of(predictor.graph.facts_of(1)[:1])))
    for triple in (("e0", "member", "e1"), chain, ("e1", "next", "e2")):
        dh.explain(predictor, *triple)


def count(folder: Path, leaves: int) -> None:
    """Rules through the hub, which an explanation counts if the model supports them."""
    from dihedral.graph.patterns import count_rules

    found = count_rules(dh.load(folder).graph.train_index, [3, 0], [0, 1, 2])
    assert found[0].interval is not None and abs(found[0].pairs / leaves / leaves - 1) < 0.01


def rules(folder: Path, leaves: int) -> None:
    dh.find_rules(dh.load(folder))


OPERATIONS: dict[str, Callable[[Path, int], None]] = {
    "train": train,
    "predict": predict,
    "explain": explain,
    "count": count,
    "rules": rules,
}


def _measured(name: str, folder: Path, leaves: int, results: Any) -> None:
    started = time.perf_counter()
    OPERATIONS[name](folder, leaves)
    used = resource.getrusage(resource.RUSAGE_SELF)
    results.put((time.perf_counter() - started, used.ru_maxrss / 1e6, used.ru_utime + used.ru_stime))


def measure(name: str, folder: Path, leaves: int) -> Measured:
    """Time and memory of an operation in another process."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=_measured, args=(name, folder, leaves, results))
    process.start()
    found = Measured(*results.get(timeout=600))
    process.join()
    return found


def pages(folder: Path) -> dict[str, Measured]:
    """The slowest request of each page of the explorer, and the server's memory after it."""
    questions = [
        {"head": "e0", "relation": name, "top": 4, "known": "exclude"} for name in ("member", "next", "previous")
    ]
    requests: dict[str, list[tuple[str, Any]]] = {
        "page: start": [("/v1/info", None), ("/v1/entities?top=18", None), ("/v1/rules?mine=false", None)],
        "page: relations": [("/v1/relations", None)],
        "page: relation": [("/v1/relation?name=member&mine=false", None)],
        "page: hub": [("/v1/entity?name=e0&top=500", None), ("/v1/predict", {"questions": questions})],
        "page: neighbourhood": [("/v1/neighbourhood?name=e0&top=500", None)],
        "page: map": [("/v1/map", None)],
        "page: review": [("/v1/review?top=100", None)],
        "page: why": [(f"/v1/explain?{urlencode({'head': 'e0', 'relation': 'member', 'tail': 'e1'})}", None)],
        "page: compose": [("/v1/compose?steps=~member&steps=member", None)],
    }
    found = {}
    with listen("127.0.0.1", 0) as listener, Running(folder, listener) as server:
        server.wait_until_ready()
        for name, sent in requests.items():
            slowest = 0.0
            for path, body in sent:
                connection = http.client.HTTPConnection(*listener.getsockname(), timeout=120)
                started = time.perf_counter()
                connection.request("POST" if body else "GET", path, json.dumps(body) if body else None,
                                   {"Content-Type": "application/json"})  # fmt: skip
                answer = connection.getresponse()
                content = answer.read()
                slowest = max(slowest, time.perf_counter() - started)
                assert answer.status == 200, (path, answer.status, content[:500])
            found[name] = Measured(slowest, server.peak_mb() / 1e3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    measured: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        for _ in range(options.runs):
            found = {name: measure(name, model, options.edges) for name in OPERATIONS} | pages(model)
            for name, each in found.items():
                measured.setdefault(name, []).append(each)
    rows = {}
    for name, runs in measured.items():
        rows[name] = {"seconds": round(statistics.median(run.seconds for run in runs), 2),
                      "max_seconds": round(max(run.seconds for run in runs), 2),
                      "gb": round(max(run.gb for run in runs), 2)}  # fmt: skip
        cpu = [run.cpu_seconds for run in runs if run.cpu_seconds is not None]
        if cpu:
            rows[name]["cpu_seconds"] = round(statistics.median(cpu), 2)
    beyond = [name for name, row in rows.items() if row["seconds"] > MAX_SECONDS or row["gb"] > MAX_GB]
    note = "medians"
    load = [round(each, 1) for each in os.getloadavg()]
    about = {"edges": options.edges, "runs": options.runs, "note": note, "load": load, "beyond_limits": beyond}
    path = save("hub", about | {"rows": rows}, options.out)
    for name, row in rows.items():
        print(f"{name:16} {row['seconds']:7.2f} s  {row['gb']:5.2f} GB")
    print(f"beyond the limits: {', '.join(beyond) or 'none'}; recorded in {path}")
    sys.exit(1 if beyond else 0)


if __name__ == "__main__":
    main()
