"""Training: recipes, objectives, the loop and its checkpoints; `train` goes from a graph to a predictor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from dihedral.errors import DihedralError
from dihedral.evaluation import Evaluator
from dihedral.graph import Graph
from dihedral.graph.triples import keys_fit
from dihedral.inference.calibration import MIN_VALID
from dihedral.inference.predictor import Predictor, load
from dihedral.models import Model
from dihedral.runtime.device import choose_device
from dihedral.runtime.distributed import any_rank, joined, on_rank_zero, rank, restarted, world_size
from dihedral.storage.folder import check_options, holds_model
from dihedral.training.checkpoint import RunFolder
from dihedral.training.defaults import choose_recipe
from dihedral.training.loop import Callback, Event, Interrupted, Trainer
from dihedral.training.recipe import Recipe, load_recipe, recipe_names

__all__ = ["Interrupted", "Recipe", "Trainer", "choose_recipe", "load_recipe", "recipe_names", "train"]


def train(
    graph: Graph,
    recipe: str | Path | Recipe | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_minutes: float = 1.0,
    progress: bool = True,
    callback: Callback | Sequence[Callback] = (),
    keep_latents: bool = False,
    dtype: str = "float32",
    shard_mb: float | None = None,
    **settings: Any,
) -> Predictor:
    """Train a model on a graph and measure it on valid and test.

    recipe: a name, a TOML file or a Recipe; by default one is chosen by the size of the graph, and stderr says
    which; `settings` override single values of it.
    out: the model's folder; checkpoints and the log are kept in its `training` folder.
    resume: go on from the last checkpoint in `out`.
    progress: draw a progress bar where stderr is a terminal.
    callback: called with every event of the run, one or several: for loggers (`dihedral.training.loggers`).
    """
    if not isinstance(graph, Graph):
        raise DihedralError(f"graph is a {type(graph).__name__}; give a Graph, such as dh.load_graph({graph!r:.40})")
    if recipe is None:
        recipe = choose_recipe(graph)
        if progress:
            print(f"no recipe given: {recipe.about}", file=sys.stderr)
    recipe = load_recipe(recipe).changed(settings)
    check_options(dtype, shard_mb)
    folder = Path(out) if out is not None else None
    if folder is None and world_size() > 1:
        raise DihedralError(f"{world_size()} processes train one model, which is put together in a folder; give `out`")
    callbacks: list[Callback] = [callback] if callable(callback) else list(callback)
    if rank() > 0:  # the first of several processes speaks for all
        callbacks, progress = [], False

    def announce(event: Event) -> None:
        for each in callbacks:
            each(event)

    with ExitStack() as stack:
        here = stack.enter_context(joined(choose_device(device)))
        again = False  # processes of this run that were started again
        if folder is not None:
            again = any_rank(rank() == 0 and restarted() and RunFolder(folder).begun_by_this_launch(), here)
            if holds_model(folder) and not overwrite:
                if resume or again:
                    return _finished(folder, graph, recipe, seed)
                raise DihedralError(f"folder {str(folder)!r} already holds a model; choose another or pass --overwrite")
        if progress and sys.stderr.isatty():
            from dihedral.training.progress import ProgressBar

            callbacks.append(stack.enter_context(ProgressBar()))
        trainer = Trainer(
            graph,
            recipe,
            seed=seed,
            device=here,
            out=folder,
            checkpoint_minutes=checkpoint_minutes,
            callback=announce,
        )
        going_on, run = resume, trainer.folder
        if run is not None:
            going_on = resume or any_rank(again and run.checkpoint.exists(), here)
            on_rank_zero(lambda: _prepare(run, stack, going_on, overwrite), here)
        if going_on:
            trainer.resume()
            if progress:
                print(f"going on from epoch {trainer.state.epoch}", file=sys.stderr)
        trainer.run()
        predictor = finish(trainer)
        if len(graph.valid) >= MIN_VALID and keys_fit(graph.num_entities, graph.num_relations):
            predictor.calibrate(seed=seed)
        entities = trainer.shard.gather(predictor.model.entities.detach())

        def save() -> None:
            assert folder is not None and run is not None and entities is not None
            whole = Model(entities, predictor.model.relations).requires_grad_(False)
            kept = Predictor(
                whole, graph, recipe=predictor.recipe, metrics=predictor.metrics, latents=predictor.latents
            )
            kept.save(folder, dtype=dtype, shard_mb=shard_mb, latents=keep_latents, overwrite=overwrite)  # type: ignore[arg-type]
            run.drop_checkpoint()

        if folder is not None:
            on_rank_zero(save, here)
        announce({"event": "measured", "metrics": predictor.metrics})
    return predictor if trainer.shard.is_single or folder is None else load(folder)


def _prepare(run: RunFolder, stack: ExitStack, going_on: bool, overwrite: bool) -> None:
    """Keep other runs out of a folder, and clear it for a run that begins."""
    if going_on:
        if run.checkpoint.exists():  # else the trainer says so, and no folder is made
            stack.enter_context(run.locked())
            run.begin()
        return
    stack.enter_context(run.locked())
    if run.checkpoint.exists() and not overwrite:
        raise DihedralError(
            f"folder {str(run.folder.parent)!r} holds an unfinished run; add --resume to go on "
            "or --overwrite to start anew"
        )
    run.clear()
    run.begin()


def _finished(folder: Path, graph: Graph, recipe: Recipe, seed: int) -> Predictor:
    """The model of a run that is done already, if it is the run that was asked for."""
    predictor = load(folder)
    asked = {key: value for key, value in recipe.to_dict().items() if key not in ("name", "about")}
    found = {key: predictor.recipe.get(key) for key in asked}
    if (found, predictor.metrics.get("seed"), predictor.graph.fingerprint) != (asked, seed, graph.fingerprint):
        raise DihedralError(
            f"folder {str(folder)!r} holds a finished model of another recipe, seed or data, which cannot go on; "
            "choose another folder or overwrite it (--overwrite)"
        )
    return predictor


def finish(trainer: Trainer) -> Predictor:
    """The best model of a run as a predictor, measured on valid and test."""
    model, latents = trainer.best_model()
    progress = trainer.state
    metrics: dict[str, Any] = {
        "seed": trainer.seed,
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch if progress.best_epoch >= 0 else progress.epoch,
        "train_seconds": round(progress.seconds, 3),
        "device": str(trainer.device),
        "processes": trainer.shard.world,
        "torch": torch.__version__,
    }
    predictor = Predictor(model, trainer.graph, recipe=trainer.recipe.to_dict(), metrics=metrics, latents=latents)
    for split in ("valid", "test"):
        if len(trainer.graph.split(split)):
            metrics[split] = Evaluator(trainer.graph, split, device=trainer.device)(predictor.scorer).to_dict()
    return predictor
