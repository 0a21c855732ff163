"""The paper's grid on WN18RR and FB15k-237, under two readings of its λ.

λ is the weight of L2 on the entities of the positives, or of all sampled triples (`regularise_negatives`). The plane of
λ and learning rate is trained whole, with batches of 1024 and 10 negatives. The cell with the best valid MRR is then
trained with the grid's other batch sizes and numbers of negatives.

    python -m benchmarks.paper_grid --workers 8
    python -m benchmarks.paper_grid --draw docs/images/paper-grid.png
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

import dihedral as dh
from benchmarks.record import RESULTS, device_name
from dihedral.errors import TrainingError
from dihedral.graph import Graph
from dihedral.io.files import make_folder
from dihedral.io.jsonl import append_line, read_lines
from dihedral.learn.checkpoint import run_identity
from dihedral.learn.loop import Event
from dihedral.objectives.recipe import Recipe, load_recipe
from dihedral.runtime.device import choose_device
from dihedral.tune.space import PAPER_GRIDS, combinations, with_both_lr

Row = dict[str, Any]

GRAPHS = ("FB15k-237", "WN18RR")
ESTIMATORS = ("ste", "gumbel")
EPOCHS = {"FB15k-237": 60, "WN18RR": 200}
AXES = ("regulariser_weight", "lr")
PLANE = {"batch_size": 1024, "negatives": 10}
_GRAPHS: dict[str, Graph] = {}


def recipe(graph: str, estimator: str) -> Recipe:
    epochs = EPOCHS[graph]
    found = load_recipe(f"paper/{graph.lower()}-d4-{estimator}").replace(**PLANE)
    return found.replace(epochs=epochs, validate_every=epochs // 10, patience=3)


def cells(graph: Graph, estimator: str, choices: Mapping[str, list[Any]]) -> list[Row]:
    about = {"data": graph.fingerprint, "graph": graph.name, "seed": 0}
    base = recipe(graph.name, estimator)
    return [
        about | {"changes": changes, "recipe": base.replace(**with_both_lr(changes)).to_dict()}
        for changes in combinations(choices)
    ]


def plane(estimator: str) -> dict[str, list[Any]]:
    grid = PAPER_GRIDS[estimator]
    return {"regularise_negatives": [False, True]} | {key: grid[key] for key in AXES}


def beside(best: Row, estimator: str) -> dict[str, list[Any]]:
    """The cell of the plane with every batch size and number of negatives of the grid."""
    grid, settings = PAPER_GRIDS[estimator], best["recipe"]
    fixed = {key: [settings[key]] for key in ("regularise_negatives", "regulariser_weight")}
    return fixed | {"lr": [settings["entity_lr"]]} | {key: grid[key] for key in ("batch_size", "negatives")}


def cost(row: Row) -> float:
    """Relative time of a run."""
    settings = row["recipe"]
    return (3 if row["graph"] == "FB15k-237" else 1) * settings["epochs"] / settings["batch_size"]


def is_done(row: Row, log: Path) -> bool:
    return any(same_run(each, row["recipe"]) and each["data"] == row["data"] for each in read_lines(log))


def train_all(rows: Iterable[Row], out: Path, workers: int, deadline: float) -> None:
    """Train rows concurrently, the longest first, and append each to the log of its graph."""
    waiting = sorted((row for row in rows if not is_done(row, log_of(row, out))), key=cost, reverse=True)
    make_folder(out)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for future in as_completed([pool.submit(_train, row, deadline) for row in waiting]):
            if (row := future.result()) is not None:
                append_line(log_of(row, out), row)
                print(row["graph"], row["changes"], row.get("valid", {}).get("mrr"), row["seconds"], flush=True)


def log_of(row: Row, out: Path) -> Path:
    return out / f"{row['graph'].lower()}.jsonl"


def _train(row: Row, deadline: float) -> Row | None:
    if time.time() > deadline:
        return None
    name = row["graph"]
    if name not in _GRAPHS:
        _GRAPHS[name] = dh.load_graph(name)
    curve: list[list[float]] = []

    def on_event(event: Event) -> None:
        if event["event"] == "epoch" and "valid_mrr" in event:
            curve.append([event["epoch"], event["loss"], event["valid_mrr"]])

    started, settings = time.perf_counter(), Recipe.from_dict(row["recipe"])
    try:
        metrics = dh.train(_GRAPHS[name], settings, seed=row["seed"], callback=on_event, progress=False).metrics
        row |= {"valid": metrics["valid"]["both"], "test": metrics["test"]["both"]}
        row |= {"test_seen_only": metrics["test"]["seen_only"], "best_epoch": metrics["best_epoch"], "curve": curve}
        row["train_seconds"] = metrics["train_seconds"]
    except TrainingError as error:
        row["failed"] = str(error)
    row |= {"seconds": round(time.perf_counter() - started, 2), "device": device_name(choose_device("auto"))}
    return row | {"versions": {"dihedral": dh.__version__, "torch": str(torch.__version__)}}


def best_of(rows: list[Row], out: Path) -> Row | None:
    """The trained row of these with the highest valid MRR."""
    logged = (row for row in read_lines(log_of(rows[0], out)) if "valid" in row)
    found = [row for row in logged if any(same_run(row, each["recipe"]) for each in rows)]
    return max(found, key=lambda row: row["valid"]["mrr"], default=None)


READINGS = {False: "λ on positives", True: "λ on all sampled triples"}
Cell = tuple[bool, float, float]  # whether λ is on all sampled triples, λ, learning rate


def draw(out: Path, path: Path) -> None:
    """Heat maps of valid MRR over λ and learning rate; the best cell of a graph and model has a frame."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = [(estimator, reading) for estimator in ESTIMATORS for reading in READINGS]
    widths = [len(PAPER_GRIDS[estimator]["lr"]) for estimator, _ in columns]
    options: dict[str, Any] = {"figsize": (13, 6), "layout": "constrained", "width_ratios": widths, "squeeze": False}
    figure, axes = plt.subplots(len(GRAPHS), len(columns), **options)
    for graph, line in zip(GRAPHS, axes, strict=True):
        found = {estimator: trained_cells(graph, estimator, out) for estimator in ESTIMATORS}
        top = max(value for values in found.values() for value in values.values())
        for (estimator, reading), axis in zip(columns, line, strict=True):
            _draw_plane(axis, estimator, reading, found[estimator], top)
            name = "STE" if estimator == "ste" else "Gumbel"
            axis.set_title(f"{graph}, D4-{name}\n{READINGS[reading]}", size=9)
        line[0].set_ylabel("λ")
    figure.savefig(path, dpi=110)


def trained_cells(graph: str, estimator: str, out: Path) -> dict[Cell, float]:
    """Valid MRR of the cells of the plane that the log holds."""
    logged = [row for row in read_lines(out / f"{graph.lower()}.jsonl") if "valid" in row]
    found = {}
    for reading, weight, rate in itertools.product(READINGS, *(PAPER_GRIDS[estimator][key] for key in AXES)):
        settings = {"regulariser_weight": weight, "entity_lr": rate, "relation_lr": rate}
        cell = recipe(graph, estimator).replace(**settings, regularise_negatives=reading).to_dict()
        for row in logged:
            if same_run(row, cell):
                found[reading, weight, rate] = float(row["valid"]["mrr"])
    return found


def _draw_plane(axis: Any, estimator: str, reading: bool, found: dict[Cell, float], top: float) -> None:
    weights, rates = (PAPER_GRIDS[estimator][key] for key in AXES)
    values = [[found.get((reading, weight, rate), float("nan")) for rate in rates] for weight in weights]
    axis.imshow(values, vmin=0, vmax=top, cmap="viridis", aspect="auto")
    best = max(found, key=lambda cell: found[cell], default=None)
    for (y, weight), (x, rate) in itertools.product(enumerate(weights), enumerate(rates)):
        value = found.get((reading, weight, rate))
        text = "not run" if value is None else f"{value:.3f}".lstrip("0")
        colour = "gray" if value is None else "black" if value > 0.6 * top else "white"
        axis.text(x, y, text, ha="center", va="center", size=8, color=colour)
        if best == (reading, weight, rate):
            edges = (
                [x - 0.48, x + 0.48, x + 0.48, x - 0.48, x - 0.48],
                [y - 0.46, y - 0.46, y + 0.46, y + 0.46, y - 0.46],
            )
            axis.plot(*edges, color="red", linewidth=2)
    axis.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    axis.set_yticks(range(len(weights)), [f"{weight:g}" for weight in weights])
    axis.set_xlabel("learning rate", size=8)


def same_run(logged: Row, cell: Mapping[str, Any]) -> bool:
    """Whether a logged row has these settings."""
    return run_identity(logged["recipe"], 0, "") == run_identity(cell, 0, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", type=Path, metavar="PNG", help="Draw what the logs hold instead of training.")
    parser.add_argument("--out", type=Path, default=RESULTS / "search", help="The folder of the logs.")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6, help="No run starts after this time.")
    arguments = parser.parse_args()
    if arguments.draw:
        draw(arguments.out, arguments.draw)
        return
    deadline = time.time() + 60 * arguments.minutes
    planes = {(name, each): cells(dh.load_graph(name), each, plane(each)) for name in GRAPHS for each in ESTIMATORS}
    train_all([row for rows in planes.values() for row in rows], arguments.out, arguments.workers, deadline)
    more = []
    for (name, estimator), rows in planes.items():
        if best := best_of(rows, arguments.out):
            more += cells(dh.load_graph(name), estimator, beside(best, estimator))
    train_all(more, arguments.out, arguments.workers, deadline)


if __name__ == "__main__":
    main()
