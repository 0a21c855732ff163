"""`train`: from a graph and a recipe to a predictor, evaluated and stored."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.io.files import read_json
from dihedral.learn.checkpoint import MAY_CHANGE_ON_RESUME, RunFolder, find_difference, run_identity
from dihedral.learn.defaults import DEFAULT_MINUTES, choose_recipe, in_words
from dihedral.learn.finish import finish, try_to_fit_probabilities
from dihedral.learn.loop import Callback, Run, announcing
from dihedral.learn.trainer import make_run
from dihedral.models import Model
from dihedral.objectives.recipe import Recipe, load_recipe
from dihedral.predict.predictor import Predictor, load
from dihedral.runtime.device import choose_device
from dihedral.runtime.distributed import any_rank, joined, on_rank_zero, rank, restarted, world_size
from dihedral.scoring.path_scorer import PathScorer
from dihedral.store.folder import check_options, describe, save_model
from dihedral.store.manifest import holds_model
from dihedral.store.trained import TrainedModel

FEW_FACTS = 5  # nothing can be learned from fewer


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
    minutes: float | None = None,
    progress: bool = True,
    callback: Callback | Sequence[Callback] = (),
    dtype: str = "float32",
    shard_mb: float | None = None,
    **settings: Any,
) -> Predictor:
    """Train a model on a graph and evaluate it on valid and test.

    recipe: a name, a TOML file or a Recipe; by default one is chosen by the size of the graph.
    settings: replace single settings of the recipe.
    out: the model's folder; checkpoints and the log are kept in its `training` folder.
    resume: resume from the last checkpoint in `out`, also of a run whose time was up.
    minutes: limit on the time of training; by default 10 without a recipe, and none with one. If the time was up, a
    resume gets as much again.
    progress: show a progress bar in a terminal, and elsewhere print a line per validation.
    callback: one or several functions that are called with every event, such as `dihedral.learn.loggers`.
    """
    if recipe is None and minutes is None:
        minutes = DEFAULT_MINUTES
    if not isinstance(graph, Graph):
        raise DihedralError(f"graph is a {type(graph).__name__}; give a Graph, such as dh.load_graph({graph!r:.40})")
    if recipe is not None:
        wanted = load_recipe(recipe).changed(settings)
    else:
        wanted = choose_recipe(graph, settings, minutes=minutes, device=choose_device(device))
        wanted = begun_recipe(out, wanted, settings) if resume and out else wanted
        if progress:
            chosen = in_words(wanted, "{}={!r}".format)
            print(f"{chosen}; `predictor.recipe` holds them", file=sys.stderr)
    check_options(dtype, shard_mb)
    if wanted.objective == "paths" and (dtype != "float32" or shard_mb is not None):
        raise DihedralError("a path model is stored whole; leave out dtype and shard_mb, or set model=dihedral-gumbel")
    folder = Path(out) if out is not None else None
    if folder is None and world_size() > 1:
        raise DihedralError(f"{world_size()} processes train one model, which needs an output folder; give `out`")
    if rank() > 0:  # rank zero reports for all
        callback, progress = (), False
    with ExitStack() as stack:
        here = stack.enter_context(joined(choose_device(device)))
        begun = rank() == 0 and restarted() and folder is not None and RunFolder(folder).begun_by_this_launch()
        is_restart = folder is not None and any_rank(begun, here)
        if folder is not None and holds_model(folder) and not overwrite:
            finished, overwrite = _finished(folder, graph, wanted, seed, here, resume or is_restart), True
            if not RunFolder(folder).checkpoint.exists():  # otherwise its time was up
                return finished
        announce = stack.enter_context(announcing(callback, progress))
        trainer = make_run(
            graph, wanted, seed=seed, device=here, out=folder, checkpoint_minutes=checkpoint_minutes, minutes=minutes,
            callback=announce,
        )  # fmt: skip
        _begin(trainer, stack, resume=resume, is_restart=is_restart, overwrite=overwrite, progress=progress)
        trainer.run()
        trained = finish(trainer)
        if trainer.shard.is_single:
            try_to_fit_probabilities(trained, seed)
        _store(trainer, trained, dtype=dtype, shard_mb=shard_mb, overwrite=overwrite)
        announce({"event": "measured", "metrics": trained.metrics})
    return Predictor(trained) if trainer.shard.is_single or folder is None else load(folder, device=here)


def begun_recipe(out: str | Path, chosen: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """The recipe that the run in a folder was begun with, if there is one: the choice depends on the time to train."""
    folder = Path(out)
    with suppress(DihedralError, KeyError, TypeError):  # what is wrong is reported when the run is resumed
        is_model = holds_model(folder)
        begun = describe(folder) if is_model else read_json(RunFolder(folder).checkpoint)["identity"]
        chosen = chosen.replace(**begun["recipe"]).replace(**settings)
    return chosen


def _begin(trainer: Run, stack: ExitStack, *, resume: bool, is_restart: bool, overwrite: bool, progress: bool) -> None:
    """Lock and prepare the run's folder, if there is one, and restore its checkpoint on a resume."""
    run, facts = trainer.folder, len(trainer.graph.train)
    if facts < FEW_FACTS and rank() == 0:
        few = "one fact" if facts == 1 else f"{facts} facts"
        print(f"warning: {few} to train on; a model needs hundreds, and the answers of this one mean nothing",
              file=sys.stderr)  # fmt: skip
    if run is not None:
        resume = resume or any_rank(is_restart and run.checkpoint.exists(), trainer.device)
        on_rank_zero(lambda: _prepare(run, stack, resume, overwrite), trainer.device)
    if resume:
        trainer.resume()
        if progress:
            print(f"resuming after epoch {trainer.state.epoch}", file=sys.stderr)


def _prepare(run: RunFolder, stack: ExitStack, resume: bool, overwrite: bool) -> None:
    """Lock a folder against other runs, and clear it for a run that starts over."""
    if resume and not run.checkpoint.exists():
        return  # the trainer reports it, and no folder is created
    stack.enter_context(run.locked())
    if not resume:
        if run.checkpoint.exists() and not overwrite:
            raise DihedralError(
                f"folder {str(run.folder.parent)!r} holds an unfinished run; add --resume to continue it "
                "or --overwrite to start over"
            )
        run.drop_checkpoint()
        run.log.unlink(missing_ok=True)
    run.begin()


def _store(trainer: Run, trained: TrainedModel, **options: Any) -> None:
    """Save the model, gathered from all ranks, in the run's folder, if there is one.

    Its checkpoint is deleted unless the time was up: then the run can be resumed.
    """
    run = trainer.folder
    if run is None:
        return
    has_vectors = not isinstance(trained.scorer, PathScorer)
    entities = trainer.shard.gather(trained.model.entities.detach()) if has_vectors else None

    def save() -> None:
        whole = trained
        if entities is not None:
            model = Model(entities, trained.model.relations).requires_grad_(False)
            whole = replace(trained, source=model)
        if not trainer.shard.is_single:
            try_to_fit_probabilities(whole, trainer.seed)
        save_model(run.folder.parent, whole, **options)
        if not trainer.out_of_time:
            run.drop_checkpoint()

    on_rank_zero(save, trainer.device)


def _finished(folder: Path, graph: Graph, recipe: Recipe, seed: int, device: torch.device, resume: bool) -> Predictor:
    """The model of a finished run, if it is the run that was requested."""
    if not resume:
        raise DihedralError(f"folder {str(folder)!r} already holds a model; choose another or pass --overwrite")
    predictor = load(folder, device=device)
    part: str | None = "recipe"
    if predictor.recipe is not None:
        found = run_identity(predictor.recipe, predictor.metrics.get("seed", -1), predictor.graph.fingerprint)
        ignore = MAY_CHANGE_ON_RESUME if RunFolder(folder).checkpoint.exists() else ()
        part = find_difference(found, run_identity(recipe, seed, graph.fingerprint), ignore)
    if part:
        raise DihedralError(
            f"folder {str(folder)!r} holds a finished model with another {part}, which cannot be resumed; "
            "choose another folder or overwrite it (--overwrite)"
        )
    return predictor
