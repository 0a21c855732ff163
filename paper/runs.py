"""Training runs and their records; each run is trained once and recorded in results/runs/NAME-sSEED.json."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import environment
from dihedral.errors import DihedralError
from dihedral.evaluation import Evaluator
from dihedral.graph import Graph, load_graph, make_family
from dihedral.io.files import make_folder, read_json, write_json
from dihedral.learn import Recipe, Trainer
from dihedral.learn.checkpoint import find_difference, run_identity
from dihedral.learn.finish import finish
from dihedral.learn.loop import Callback, Event
from dihedral.predict.predictor import Predictor
from dihedral.runtime.device import choose_device
from dihedral.scoring.embedding import EmbeddingScorer
from paper.studies import STUDIES

Record = dict[str, Any]
TRAIN_SAMPLE = 5000  # number of training triples ranked for the training curve


@dataclass(frozen=True)
class Run:
    """One training run: its graph, recipe and seed, and the studies made of the trained model."""

    graph: str  # a benchmark, or family-1 or family-2: FAMILY with one or two parents per person
    recipe: Recipe
    seed: int = 0
    studies: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.recipe.name}-s{self.seed}"

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}.json"


def open_graph(name: str, cache: dict[str, Graph]) -> Graph:
    """Return the graph of a run; each graph is loaded once per cache."""
    if name not in cache:
        cache[name] = make_family(parents=int(name[-1])) if name in ("family-1", "family-2") else load_graph(name)
    return cache[name]


def find_record(run: Run, folder: Path) -> Record | None:
    """The record of a finished run, if it has the same settings and studies."""
    path = run.path(folder)
    if not path.exists():
        return None
    try:
        record: Record = read_json(path)
        found = run_identity(record["recipe"], record["seed"], record["graph"])  # the graph is not loaded for this
        differs = find_difference(found, run_identity(run.recipe, run.seed, run.graph))
        return None if differs or not set(run.studies) <= set(record["studies"]) else record
    except (DihedralError, KeyError):  # truncated, or of another version: it is trained again
        return None


def perform(
    run: Run, folder: Path, *, device: str = "auto", callback: Callback | None = None,
    cache: dict[str, Graph] | None = None, concurrent: int = 0,
) -> Record:  # fmt: skip
    """Train a model, evaluate it, run the studies, and write the record.

    concurrent: the number of other runs on the same machine; the record states it next to the times.
    """
    started = time.perf_counter()
    graph = open_graph(run.graph, {} if cache is None else cache)
    chosen = torch.device(choose_device(device))
    train_curve: list[float] = []
    trainer = Trainer(graph, run.recipe, seed=run.seed, device=chosen, callback=callback)
    if "curves" in run.studies:
        sample = np.random.default_rng(0).choice(len(graph.train), min(TRAIN_SAMPLE, len(graph.train)), replace=False)
        on_train = Evaluator(graph, "train", triples=graph.train[sample], device=chosen)

        def watch(event: Event) -> None:
            if "valid_mrr" in event:
                with trainer.parameters.averaged():
                    train_curve.append(on_train(EmbeddingScorer(trainer.model)).mrr)
            if callback:
                callback(event)

        trainer.callback = watch
    trainer.run()
    predictor = Predictor(finish(trainer))
    metrics = predictor.metrics
    validated = [row for row in trainer.state.history if "valid_mrr" in row]
    made = environment()
    record: Record = {
        "environment": made,
        "hardware": torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else made["cpu"],
        "concurrent_runs": concurrent,
        "graph": run.graph,
        "data": graph.fingerprint,
        "seed": run.seed,
        "recipe": run.recipe.to_dict(),
        "epochs": metrics["epochs"],
        "best_epoch": metrics["best_epoch"],
        "train_seconds": metrics["train_seconds"],
        "curve": [[row["epoch"], row["loss"], row["valid_mrr"]] for row in validated],
        "train_curve": train_curve,
        **{split: _short(metrics[split]) for split in ("valid", "test")},
        "studies": {},
    }
    for name in run.studies:
        record["studies"][name] = STUDIES[name](predictor) if name in STUDIES else {}
    record["seconds"] = round(time.perf_counter() - started, 2)
    path = run.path(folder)
    make_folder(path.parent)
    write_json(path, record)
    return record


def _short(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metrics.items() if key not in ("per_relation", "per_category")}


def perform_all(
    runs: Sequence[Run],
    folder: Path,
    *,
    device: str = "auto",
    workers: int = 1,
    on_event: Callable[[Run, Event], None] | None = None,
    on_done: Callable[[Run, Record | str], None] | None = None,
) -> None:
    """Perform runs one after the other, or concurrently in `workers` processes.

    If a run fails, `on_done` receives its error message and the remaining runs continue.
    """
    done = on_done or (lambda run, record: None)
    if workers == 1:
        cache: dict[str, Graph] = {}
        for run in runs:
            callback = (lambda event, run=run: on_event(run, event)) if on_event else None
            done(run, _attempt(run, folder, device, callback, cache))
        return
    context = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // workers)  # more threads than cores slow each other down
    with ProcessPoolExecutor(workers, context, torch.set_num_threads, (threads,)) as pool:
        waiting = {pool.submit(_attempt, run, folder, device, None, None, workers - 1): run for run in runs}
        for future in as_completed(waiting):
            done(waiting[future], future.result())


_CACHE: dict[str, Graph] = {}  # graphs loaded by a worker process


def _attempt(
    run: Run, folder: Path, device: str, callback: Callback | None, cache: dict[str, Graph] | None, concurrent: int = 0
) -> Record | str:
    try:
        cache = _CACHE if cache is None else cache
        return perform(run, folder, device=device, callback=callback, cache=cache, concurrent=concurrent)
    except (DihedralError, RuntimeError) as error:  # a diverged loss, missing data, or too little memory
        return f"{type(error).__name__}: {error}"
