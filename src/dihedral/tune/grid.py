"""Grid search: train every combination of settings and log each run as a JSON line, so that a search can resume."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from dihedral.errors import DihedralError, TrainingError, check_seed
from dihedral.graph import Graph
from dihedral.io.files import make_folder
from dihedral.io.jsonl import append_line, read_lines
from dihedral.learn.finish import finish
from dihedral.learn.identity import run_identity
from dihedral.learn.loop import Callback, Trainer
from dihedral.models import MODELS
from dihedral.objectives.recipe import Recipe
from dihedral.runtime.device import choose_device, device_name
from dihedral.version import package_version

Row = dict[str, Any]
Choices = Mapping[str, Sequence[Any]]

# the grids of Xu & Li (ACL 2019), from their section on the experimental setup
PAPER_GRIDS: dict[str, dict[str, list[Any]]] = {
    "gumbel": {
        "K": [4, 6, 8],
        "regulariser_weight": [1e-5, 1e-4, 1e-3],
        "lr": [0.5, 1.0],
        "batch_size": [512, 1024, 2048],
        "negatives": [1, 6, 10],
    },
    "ste": {
        "K": [4, 6],
        "regulariser_weight": [0.001, 0.01, 0.1, 0.2],
        "lr": [0.01, 0.02, 0.03, 0.05, 0.1],
        "batch_size": [512, 1024, 2048],
        "negatives": [1, 6, 10],
    },
}


def paper_grid(recipe: Recipe) -> dict[str, list[Any]]:
    """The paper's grid for a recipe's variant of DihEdral.

    >>> paper_grid(Recipe(model="dihedral-ste"))["K"]
    [4, 6]
    """
    estimator = MODELS[recipe.model].estimator
    if estimator not in PAPER_GRIDS:
        raise DihedralError(
            f"model is {recipe.model!r}; the paper has grids for its Gumbel-softmax and straight-through models: "
            "give your own with --choose, such as --choose lr=0.1,0.5"
        )
    choices = dict(PAPER_GRIDS[estimator])
    if recipe.objective == "softmax":  # draws no negatives, so each run would be repeated three times
        del choices["negatives"]
    return choices


def check_lr(choices: Choices, where: str) -> None:
    """Refuse choices of lr together with one of the settings that it sets."""
    if "lr" in choices and (also := [key for key in ("entity_lr", "relation_lr") if key in choices]):
        raise DihedralError(f"{where} lr and {also[0]}; lr sets both entity_lr and relation_lr: choose either")


def with_both_lr(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a recipe, where `lr` sets both entity_lr and relation_lr."""
    found = dict(settings)
    if "lr" in found:
        found["entity_lr"] = found["relation_lr"] = found.pop("lr")
    return found


def plan(graph: Graph, recipe: Recipe, choices: Choices, seed: int = 0) -> list[Row]:
    """The rows to train: each combination once, with validated settings; the last setting changes fastest.

    choices: values per setting; also `seed`, and `lr` for both entity_lr and relation_lr.
    """
    check_lr(choices, "the grid has")
    rows: dict[str, Row] = {}
    for values in itertools.product(*choices.values()):
        settings = with_both_lr(dict(zip(choices, values, strict=True)))
        run_seed = settings.pop("seed", seed)
        if isinstance(run_seed, str) and run_seed.isdecimal():  # from the command line
            run_seed = int(run_seed)
        read = recipe.replace(**settings).to_dict()
        typed = {**read, "seed": check_seed(run_seed), "lr": read["entity_lr"]}
        row: Row = {"data": graph.fingerprint, "graph": graph.name, "seed": run_seed}
        row |= {"changes": {key: typed[key] for key in choices}, "recipe": read}
        rows.setdefault(_key(row), row)
    return list(rows.values())


def grid_search(
    graph: Graph,
    planned: Sequence[Row],
    log: Path,
    *,
    device: str = "cpu",
    callback: Callback | None = None,
    on_tick: Callable[[list[Row]], None] = lambda rows: None,
) -> list[Row]:
    """Train each planned row once and return all rows, sorted by valid MRR, best first.

    Runs that the log already holds for the same data, settings and seed are not repeated.

    on_tick: called with the finished rows, first with those in the log.
    """
    check_valid(graph)
    chosen_device = choose_device(device)
    make_folder(log.parent)
    done = {}
    for row in read_lines(log):
        with contextlib.suppress(DihedralError, KeyError, TypeError):  # settings that this version does not know
            done[_key(row)] = row
    rows = [done[_key(row)] | {"changes": row["changes"]} for row in planned if _key(row) in done]
    on_tick(rows)
    for row in planned:
        if _key(row) in done:
            continue
        interrupted = train_row(graph, row, chosen_device, callback)
        _append(log, row)
        rows.append(row)
        on_tick(rows)
        if interrupted:
            raise KeyboardInterrupt
    return sorted(rows, key=lambda row: -valid_mrr(row))


def check_valid(graph: Graph) -> None:
    if len(graph.valid) == 0:
        raise DihedralError(f"graph {graph.name!r} has no valid triples; a search selects settings by valid MRR")


def valid_mrr(row: Row) -> float:
    """The valid MRR of a row; -1 if its run failed."""
    return row.get("valid", {}).get("mrr", -1.0)


def train_row(graph: Graph, row: Row, device: torch.device, callback: Callback | None = None) -> bool:
    """Train one combination and add its metrics to the row; return whether Ctrl-C arrived in its last epoch."""
    started = time.perf_counter()
    trainer = Trainer(graph, Recipe.from_dict(row["recipe"]), seed=row["seed"], device=device, callback=callback)
    try:
        trainer.run()
        metrics = finish(trainer).metrics
        row |= {
            "valid": metrics["valid"]["both"],
            "test": metrics.get("test", {}).get("both"),
            "test_seen_only": metrics.get("test", {}).get("seen_only"),
            "best_epoch": metrics["best_epoch"],
            "train_seconds": metrics["train_seconds"],
            "curve": [[r["epoch"], r["loss"], r["valid_mrr"]] for r in trainer.state.history if "valid_mrr" in r],
        }
    except TrainingError as error:
        row["failed"] = str(error)
    row |= {"seconds": round(time.perf_counter() - started, 2), "device": device_name(trainer.device)}
    row["versions"] = {"dihedral": package_version(), "torch": str(torch.__version__)}
    return trainer.interrupted


def _append(log: Path, row: Row) -> None:
    try:
        append_line(log, row)
    except DihedralError as error:
        raise TrainingError(f"{error}; the runs in it are kept: continue with the same command") from None


def _key(row: Row) -> str:
    """The identity of a row's run; a setting that was added after the row was logged has its default."""
    return json.dumps(run_identity(row["recipe"], row["seed"], row["data"]), sort_keys=True)
