"""Default settings against a random search, on graphs of 1,000 to 300,000 triples.

The search draws its settings once and trains all of them on each graph, at most 60 epochs; the first is the default
itself. Valid MRR selects. `--extend` trains the best trial of each graph again with as many epochs and as much patience
as the default has. `--fresh` takes the graphs that were not looked at while the defaults were chosen. `--summary`
writes the default and the best trial of each graph to results/defaults-search.jsonl.

    python -m benchmarks.defaults --workers 8
    python -m benchmarks.defaults --workers 8 --extend
    python -m benchmarks.defaults --summary
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import RESULTS, device_name
from benchmarks.small_graphs import EMBEDDING, FRESH_GRAPHS, GRAPHS, open_graph
from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.io.jsonl import append_line, read_lines
from dihedral.learn.defaults import choose_recipe
from dihedral.learn.finish import finish
from dihedral.learn.trainer import Trainer
from dihedral.objectives.recipe import Recipe
from dihedral.runtime.device import choose_device

LOG = RESULTS.parent / "out" / "defaults-search.jsonl"
TRIALS = 40
SPACE: dict[str, list[Any]] = {
    "K": [4, 4, 8],
    "levels": ["1", "1,1/2,1/4,0"],
    "dimension": [200, 400],
    "regulariser": ["dura", "dura", "l2", "n3"],
    "regulariser_weight": [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0],
    "entity_lr": [0.05, 0.1, 0.2],
    "relation_lr": [0.3, 1.0],
    "dropout": [0.0, 0.1, 0.3, 0.5],
    "relation_weight": [0.0, 0.5, 2.0],
    "averaging": [0.8, 0.9],
    "cooling": [0.02, 0.05, 0.1],
    "relation_scale": [False, True],
    "entity_init": [0.01, 0.05],
    "steps": [40, 100],  # per epoch
}
EXTENDED: dict[str, Any] = {"epochs": 100, "patience": 3}
_GRAPHS: dict[str, Graph] = {}

Job = tuple[str, int | str, dict[str, Any]]  # a graph, a trial and its settings


def drawn(trial: int) -> dict[str, Any]:
    """The settings of a trial; the first is the default."""
    if trial == 0:
        return {}
    generator = random.Random(trial)
    return {key: generator.choice(values) for key, values in SPACE.items()}


def recipe_of(graph: Graph, settings: dict[str, Any]) -> Recipe:
    """The default for the graph with other settings."""
    chosen = choose_recipe(graph, EMBEDDING)
    if not settings:
        return chosen
    settings = dict(settings)
    steps = settings.pop("steps", None)
    if steps:
        settings["batch_size"] = min(1024, max(32, 2 ** round(math.log2(len(graph.train) / steps))))
    base = chosen.replace(objective="softmax", epochs=60, validate_every=5, patience=2)
    return base.replace(**settings)


def attempt(name: str, trial: int | str, settings: dict[str, Any], deadline: float) -> dict[str, Any] | None:
    """Train one trial; None after the deadline."""
    if time.time() > deadline:
        return None
    if name not in _GRAPHS:
        _GRAPHS.clear()
        _GRAPHS[name] = open_graph(name)
    graph, device = _GRAPHS[name], choose_device("auto")
    recipe = recipe_of(graph, settings)
    row: dict[str, Any] = {"graph": name, "triples": len(graph.train), "entities": graph.num_entities, "trial": trial}
    row |= {"settings": settings, "recipe": recipe.to_dict(), "seed": 0, "device": device_name(device)}
    started = time.perf_counter()
    trainer = Trainer(graph, recipe, device=device)
    try:
        trainer.run()
        metrics = finish(trainer).metrics
        row |= {split: round(metrics[split]["both"]["mrr"], 5) for split in ("valid", "test")}
        row |= {"best_epoch": metrics["best_epoch"], "epochs": metrics["epochs"]}
        row["curve"] = [[r["epoch"], round(r["valid_mrr"], 4)] for r in trainer.state.history if "valid_mrr" in r]
    except DihedralError as error:
        row["failed"] = str(error)
    return row | {"seconds": round(time.perf_counter() - started, 1)}


def train_all(jobs: list[Job], log: Path, workers: int, deadline: float) -> None:
    done = {(row["graph"], row["trial"]) for row in read_lines(log)}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        futures = [pool.submit(attempt, *job, deadline) for job in jobs if job[:2] not in done]
        for future in as_completed(futures):
            if row := future.result():
                append_line(log, row)
                print(row["graph"], row["trial"], row.get("valid"), row["seconds"], flush=True)


def best_trials(log: Path, names: list[str]) -> list[Job]:
    """The best trial of each graph that is not the default, with the default's epochs and patience."""
    found: dict[str, dict[str, Any]] = {}
    for row in read_lines(log):
        if row["graph"] in names and row["trial"] != 0 and "valid" in row:
            best = found.setdefault(row["graph"], row)
            found[row["graph"]] = max(best, row, key=lambda each: each["valid"])
    return [(name, f"{row['trial']} extended", row["settings"] | EXTENDED) for name, row in found.items()]


def summary(log: Path) -> list[dict[str, Any]]:
    """The default and the best trial of each graph, without recipes and curves."""
    graphs: dict[str, list[dict[str, Any]]] = {}
    for row in read_lines(log):
        if "valid" in row:
            graphs.setdefault(row["graph"], []).append(row)
    found = []
    for tried in graphs.values():
        default = next((row for row in tried if row["trial"] == 0), None)
        if default is not None:
            best = max(tried, key=lambda row: row["valid"])
            for role, row in (("default", default), ("best", best)):
                kept = {key: value for key, value in row.items() if key not in ("recipe", "curve")}
                found.append({"role": role, "trials": len(tried)} | kept)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6, help="No run starts after this time.")
    parser.add_argument("--log", type=Path, default=LOG)
    parser.add_argument("--extend", action="store_true")
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    if arguments.summary:
        lines = [json.dumps(row) for row in summary(arguments.log)]
        (RESULTS / arguments.log.name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    names = FRESH_GRAPHS if arguments.fresh else arguments.graphs
    jobs: list[Job] = [(name, trial, drawn(trial)) for name in names for trial in range(arguments.trials)]
    if arguments.extend:
        jobs = best_trials(arguments.log, names)
    train_all(jobs, arguments.log, arguments.workers, time.time() + 60 * arguments.minutes)


if __name__ == "__main__":
    main()
