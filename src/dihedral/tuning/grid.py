"""A grid search: every combination of settings trained, logged as JSON lines, and resumable from its log."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import dihedral
from dihedral.errors import DihedralError, TrainingError, check_seed
from dihedral.graph import Graph
from dihedral.io.files import make_folder
from dihedral.models import MODELS
from dihedral.runtime.device import choose_device, device_name
from dihedral.training.identity import run_identity
from dihedral.training.loop import Callback, Trainer
from dihedral.training.recipe import Recipe
from dihedral.training.train import finish

Row = dict[str, Any]
Choices = Mapping[str, Sequence[Any]]

# what Xu & Li (ACL 2019) searched, as their section on the experimental setup lists it
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
    if recipe.objective == "softmax":  # it draws no negatives: each run would be made three times
        del choices["negatives"]
    return choices


def grid(choices: Choices) -> Iterator[dict[str, Any]]:
    """Every combination, the last setting changing fastest.

    >>> list(grid({"K": [4, 6], "seed": [0]}))
    [{'K': 4, 'seed': 0}, {'K': 6, 'seed': 0}]
    """
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def plan(graph: Graph, recipe: Recipe, choices: Choices, seed: int = 0) -> list[Row]:
    """The rows of a search before training: each combination once, all of them checked."""
    if "lr" in choices and (also := [key for key in ("entity_lr", "relation_lr") if key in choices]):
        raise DihedralError(f"the grid has lr and {also[0]}; lr sets entity_lr and relation_lr: choose it or them")
    rows: dict[str, Row] = {}
    for changes in grid(choices):
        settings = dict(changes)
        if "lr" in settings:
            settings["entity_lr"] = settings["relation_lr"] = settings.pop("lr")
        run_seed = settings.pop("seed", seed)
        if isinstance(run_seed, str) and run_seed.isdecimal():  # from a command line
            run_seed = int(run_seed)
        read = recipe.replace(**settings).to_dict()
        typed = {**read, "seed": check_seed(run_seed), "lr": read["entity_lr"]}
        row: Row = {"data": graph.fingerprint, "graph": graph.name, "seed": run_seed}
        row |= {"changes": {key: typed[key] for key in changes}, "recipe": read}
        rows.setdefault(_key(row), row)
    return list(rows.values())


def tune(
    graph: Graph,
    recipe: Recipe,
    choices: Choices,
    log: Path,
    *,
    device: str = "cpu",
    seed: int = 0,
    callback: Callback | None = None,
    on_start: Callable[[list[Row], int], None] | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Train each combination of `choices` once and return all rows, the best on valid first.

    Rows that the log already holds for the same data, settings and seed are not trained again.

    choices: settings by name, also `seed`, and `lr` for entity_lr and relation_lr together.
    on_start: called with the rows that the log holds already and the number of all combinations.
    on_row: called with each row that was trained.
    """
    if len(graph.valid) == 0:
        raise DihedralError(f"graph {graph.name!r} has no valid triples; a search selects on them")
    chosen_device = choose_device(device)
    planned = plan(graph, recipe, choices, seed)
    make_folder(log.parent)
    if log.exists() and not log.read_bytes().endswith(b"\n"):  # the last line was cut short
        _append(log, "\n")
    done = _by_key(read_log(log))
    rows = [done[_key(row)] | {"changes": row["changes"]} for row in planned if _key(row) in done]
    if on_start:
        on_start(rows, len(planned))
    for row in planned:
        if _key(row) in done:
            continue
        started = time.perf_counter()
        wanted = Recipe.from_dict(row["recipe"])
        trainer = Trainer(graph, wanted, seed=row["seed"], device=chosen_device, callback=callback)
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
        row["versions"] = {"dihedral": dihedral.__version__, "torch": str(torch.__version__)}
        _append(log, json.dumps(row) + "\n")
        rows.append(row)
        if on_row:
            on_row(row)
        if trainer.interrupted:
            raise KeyboardInterrupt
    return sorted(rows, key=lambda row: -row.get("valid", {}).get("mrr", -1.0))


def _append(log: Path, text: str) -> None:
    try:
        with log.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise TrainingError(
            f"{str(log)!r} cannot be written: {error.strerror}; the runs in it are kept: go on with the same command"
        ) from None


def read_log(log: Path) -> list[Row]:
    """The rows of a log; a last line that was cut short is left out."""
    if not log.exists():
        return []
    rows = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def _by_key(rows: list[Row]) -> dict[str, Row]:
    """The rows that today's settings can express; others, as from another version, match nothing."""
    found = {}
    for row in rows:
        with contextlib.suppress(DihedralError, KeyError, TypeError):
            found[_key(row)] = row
    return found


def _key(row: Row) -> str:
    """The identity of a row's run; a setting that was added after the row was logged has its default."""
    return json.dumps(run_identity(row["recipe"], row["seed"], row["data"]), sort_keys=True)
