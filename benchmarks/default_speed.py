"""The default on a CPU with questions grouped, and with single facts: valid MRR and CPU seconds of one thread.

Both train until patience, the last epoch, or `--seconds` of CPU time, without validations. `--epochs` times epochs of
both in turns. Rows go to out/default-speed.jsonl, and `--summary` writes results/default-speed.json. At equal time, a
form counts with its best valid MRR within the CPU seconds of the shorter run.

    python -m benchmarks.default_speed --graphs umls nations kinships --seeds 0 1
    python -m benchmarks.default_speed --epochs 3 --graphs FB15k-237-2000 FB15k-237
    python -m benchmarks.default_speed --summary
"""

from __future__ import annotations

import argparse
import math
from statistics import median
from time import process_time
from typing import Any

import torch

from benchmarks.record import RESULTS, save
from benchmarks.small_graphs import EMBEDDING, open_graph
from dihedral.evaluation import Evaluator
from dihedral.graph import Graph
from dihedral.io.files import make_folder
from dihedral.io.jsonl import append_line, read_lines
from dihedral.learn.defaults import answers_per_question, choose_recipe
from dihedral.learn.trainer import Trainer
from dihedral.objectives.recipe import Recipe

LOG = RESULTS.parent / "out" / "default-speed.jsonl"
GRAPHS = ["umls", "nations", "kinships", "family", "family-neural-lp", "FB15k-237-2000", "FB15k-1000"]


def forms(graph: Graph) -> dict[str, Recipe]:
    """The default for the graph in both forms."""
    chosen = choose_recipe(graph, EMBEDDING)
    size = chosen.batch_size // 2 if chosen.group_questions else chosen.batch_size
    single = {"group_questions": False, "batch_size": size, "entity_lr": 0.1, "relation_lr": 1.0, "patience": 3}
    grouped = {"group_questions": True, "batch_size": 2 * size, "entity_lr": 0.2, "relation_lr": 2.0, "patience": 5}
    return {"single": chosen.replace(**single), "grouped": chosen.replace(**grouped)}


def about(graph: Graph, form: str) -> dict[str, Any]:
    answers = round(answers_per_question(graph), 2)
    return {"graph": graph.name, "triples": len(graph.train), "answers_per_question": answers, "form": form}


def train(graph: Graph, form: str, seed: int, seconds: float) -> dict[str, Any]:
    """One run: its best valid MRR, the test MRR of that model, and each validation after how much CPU time."""
    recipe = forms(graph)[form]
    trainer, used, curve = Trainer(graph, recipe, seed=seed), 0.0, []
    evaluator, trainer.evaluator = trainer.evaluator, None
    assert evaluator is not None
    while not trainer.stopped_by and used < seconds:
        started = process_time()
        trainer.run_epoch()
        used += process_time() - started
        if trainer.state.epoch % recipe.validate_every == 0:
            curve.append([trainer.state.epoch, round(used, 2), round(trainer._validate(evaluator), 5)])
    trainer.parameters.set(trainer.parameters.best or {})
    test = Evaluator(graph, "test")(trainer.scorer()).mrr
    row = {"seed": seed, "valid": max(point[2] for point in curve), "test": round(test, 5)}
    row |= {"epochs": trainer.state.epoch, "cpu_seconds": round(used, 2), "stopped_by": trainer.stopped_by or "seconds"}
    return about(graph, form) | row | {"curve": curve}


def time_epochs(graph: Graph, count: int) -> list[dict[str, Any]]:
    """The median CPU time of an epoch of both forms, after one that warms up."""
    trainers = {form: Trainer(graph, recipe.replace(validate_every=0)) for form, recipe in forms(graph).items()}
    taken: dict[str, list[float]] = {form: [] for form in trainers}
    for _ in range(count):
        for form, trainer in trainers.items():
            started = process_time()
            trainer.run_epoch()
            taken[form].append(process_time() - started)
    return [about(graph, form) | {"epoch_cpu_seconds": round(median(taken[form]), 3)} for form in trainers]


def at_equal_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per graph and seed, the best valid MRR of both forms in the CPU time of the shorter run."""
    found = []
    for row in rows:
        others = [each for each in rows if (each["graph"], each["seed"]) == (row["graph"], row["seed"])]
        if row["form"] == "single" and len(others) == 2:
            limit = min(each["cpu_seconds"] for each in others)
            best = {
                each["form"]: max((mrr for _, used, mrr in each["curve"] if used <= limit), default=math.nan)
                for each in others
            }
            found.append({"graph": row["graph"], "seed": row["seed"], "cpu_seconds": limit, **best})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    parser.add_argument("--forms", nargs="+", default=["grouped", "single"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--epochs", type=int, default=0, help="Time this many epochs of each form.")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    make_folder(LOG.parent)
    if options.summary:
        rows = list(read_lines(LOG))
        runs = [row for row in rows if "curve" in row]
        epochs = [row for row in rows if "curve" not in row]
        save("default-speed", {"protocol": __doc__, "epochs": epochs, "runs": runs, "equal_time": at_equal_time(runs)})
        return
    for name in options.graphs:
        graph = open_graph(name)
        jobs = [(form, seed) for seed in options.seeds for form in options.forms]
        for row in time_epochs(graph, options.epochs) if options.epochs else (
            train(graph, form, seed, options.seconds) for form, seed in jobs
        ):  # fmt: skip
            append_line(LOG, row)
            print({key: value for key, value in row.items() if key != "curve"}, flush=True)


if __name__ == "__main__":
    main()
