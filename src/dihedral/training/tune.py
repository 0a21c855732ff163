"""A grid search: every combination of settings trained, logged as JSON lines, and resumable from its log."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dihedral.device import device_name
from dihedral.errors import DihedralError, TrainingError
from dihedral.files import make_folder
from dihedral.graph import Graph
from dihedral.training import finish
from dihedral.training.loop import Callback, Trainer
from dihedral.training.recipe import Recipe

Row = dict[str, Any]


def grid(choices: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination, the last setting changing fastest.

    >>> list(grid({"K": [4, 6], "seed": [0]}))
    [{'K': 4, 'seed': 0}, {'K': 6, 'seed': 0}]
    """
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def tune(
    graph: Graph,
    recipe: Recipe,
    choices: Mapping[str, Sequence[Any]],
    log: Path,
    *,
    device: str = "cpu",
    seed: int = 0,
    callback: Callback | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Train each combination of `choices` once and return all rows, the best on valid first.

    Rows that the log already holds for the same data, settings and seed are not trained again.
    """
    if len(graph.valid) == 0:
        raise DihedralError(f"graph {graph.name!r} has no valid triples; a search selects on them")
    make_folder(log.parent)
    if log.exists() and not log.read_bytes().endswith(b"\n"):  # the last line was cut short
        with log.open("ab") as stream:
            stream.write(b"\n")
    done = {_key(row): row for row in read_log(log)}
    rows = []
    for changes in grid(choices):
        wanted = recipe.replace(**{key: value for key, value in changes.items() if key != "seed"})
        run_seed = int(changes.get("seed", seed))
        row: Row = {"data": graph.fingerprint, "graph": graph.name, "seed": run_seed, "changes": changes}
        row["recipe"] = wanted.to_dict()
        if _key(row) in done:
            rows.append(done[_key(row)])
            continue
        started = time.perf_counter()
        trainer = Trainer(graph, wanted, seed=run_seed, device=device, callback=callback)
        try:
            trainer.run()
            metrics = finish(trainer).metrics
            row |= {
                "valid": metrics["valid"]["both"],
                "test": metrics.get("test", {}).get("both"),
                "test_seen_only": metrics.get("test", {}).get("seen_only"),
                "best_epoch": metrics["best_epoch"],
                "train_seconds": metrics["train_seconds"],
                "curve": [
                    [r["epoch"], r["loss"], r["valid_mrr"]] for r in trainer.progress.history if "valid_mrr" in r
                ],
            }
        except TrainingError as error:
            row["failed"] = str(error)
        row |= {"seconds": round(time.perf_counter() - started, 2), "device": device_name(trainer.device)}
        with log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        rows.append(row)
        if on_row:
            on_row(row)
    return sorted(rows, key=lambda row: -row.get("valid", {}).get("mrr", -1.0))


def read_log(log: Path) -> list[Row]:
    """The rows of a log; a last line that was cut short is left out."""
    if not log.exists():
        return []
    rows = []
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def _key(row: Row) -> str:
    settings = {key: value for key, value in row["recipe"].items() if key not in ("name", "about")}
    return json.dumps([row["data"], row["seed"], settings], sort_keys=True)
