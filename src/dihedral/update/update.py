"""`update`: change a trained model with its graph, without training it again from the start.

Of a path model the graph changes, and nothing else: its answers are computed from the graph as it is. New relations are
trained (`path_relations`).

Of a model with entity vectors, one run with the model's own recipe trains

- the rows of new entities, on all of their facts,
- the rows of known entities that gain facts, on the added facts alone,
- the codes of new relations.

A `Background` stands for the facts that are not trained on. All other rows stay as they are, bit by bit.

To forget a fact, the rows of its entities start over from the facts that they keep, and so do those of entities nearby
that learned from them: they are trained as those of new entities are. Where a fact is a negligible part of what an
entity's row was trained on, only the row of the other entity starts over. If most rows would, a new model is trained:
this takes no longer, and its relations have not seen removed facts either.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from dihedral.errors import DihedralError, check_seed
from dihedral.graph.changes import Change, change_graph, read_facts
from dihedral.io.files import path_within
from dihedral.learn.checkpoint import UPDATE, RunFolder
from dihedral.learn.defaults import num_threads
from dihedral.learn.finish import finish, measure, try_to_fit_probabilities, use_reviews
from dihedral.learn.loop import Callback, Event
from dihedral.learn.trainer import Trainer
from dihedral.objectives.recipe import Recipe
from dihedral.probability.corrections import usable
from dihedral.runtime.device import choose_device
from dihedral.runtime.threads import at_most
from dihedral.scoring.path_scorer import PathScorer
from dihedral.store.folder import load_model, save_model, saved_options
from dihedral.store.manifest import MANIFEST, holds_model
from dihedral.store.reviews import FILE as REVIEWS
from dihedral.store.reviews import Decision, Reviews
from dihedral.store.trained import NOT_CALIBRATED, History, TrainedModel
from dihedral.update.lineage import record_graph_update, record_update, versions_of
from dihedral.update.parts import UpdateParts
from dihedral.update.path_relations import train_new_relations
from dihedral.update.schedule import make_schedule, trained_epochs

NEW_RELATION_LR = 3.0  # relative to the recipe's: new relations take fewer steps than in training


def update(
    trained: TrainedModel,
    *,
    add: Any = None,
    remove: Any = None,
    relations: bool = False,
    epochs: int | None = None,
    seed: int = 0,
    calibrate: bool | None = None,
    progress: bool = True,
    callback: Callback | Sequence[Callback] = (),
    checkpoints: str | Path | None = None,
    resume: bool = False,
) -> TrainedModel:
    """A model of the changed graph; the given one stays as it is.

    add: facts of known and new entities and relations, as triples of names or as anything that `load_graph` reads. They
    become training facts; those that the graph holds already, in any split, are left out.
    remove: facts that the graph holds.
    relations: also train the relations that the graph had before; otherwise they keep their codes, unless most rows
    start over. It needs a model that was trained with `keep_optimiser`.
    epochs: over the facts of the update; chosen by default. A new model, which is trained if most rows start over, has
    those of the recipe.
    calibrate: fit the probabilities again, and measure a path model. By default a path model keeps its probabilities
    and is not measured, unless relations are new.
    checkpoints: a folder for them, one per minute. resume: continue from the last of them.

    The latest version in the history of the result says what was done: facts, rows that changed, MRR before and after,
    what cannot be undone, and whether to train again.

    >>> from dihedral import make_family, train
    >>> predictor = train(make_family(40), "demo/family", epochs=2, progress=False)
    >>> updated = update(predictor.trained, add=[("zoe", "sibling", "man_0001")], progress=False)
    >>> updated.history.latest.new_entities
    1
    """
    started = time.perf_counter()
    check_seed(seed)
    change = change_graph(trained.graph, read_facts(add), read_facts(remove))
    recipe = trained.recipe
    if recipe is None:
        raise DihedralError("this model has no recipe, so an update does not know how to train it; train it again")
    if isinstance(trained.scorer, PathScorer):
        if relations or epochs is not None or resume:
            raise DihedralError(
                "an update of a path model trains no known relation; leave out relations, epochs and resume"
            )
        return _update_paths(trained, recipe, change, seed, calibrate, started)
    if resume and checkpoints is None:
        raise DihedralError("resume is True without a folder to resume from; give `checkpoints`")
    schedule = make_schedule(change, trained, epochs)
    parts = UpdateParts(trained, recipe, change, schedule, relations, seed)
    with ExitStack() as stack:
        callbacks = [callback] if callable(callback) else list(callback)
        if progress:
            from dihedral.learn.loggers import show_progress

            callbacks.append(stack.enter_context(show_progress()))
        trainer = _trainer(parts, None if checkpoints is None else Path(checkpoints), callbacks)
        before_resume = _begin(trainer, resume)
        if len(schedule.facts):  # there are none if only valid and test facts are removed
            with at_most(num_threads(trainer.recipe, change.after, trained.device)):
                trainer.run()
    seconds = time.perf_counter() - started + before_resume
    result = _finish(parts, trainer)
    result.history = History(versions_of(trained))  # new names have no facts in valid, which probabilities allow for
    if calibrate is not False:
        _calibrate(trained, result, seed)
    record_update(parts, result, epochs=trainer.state.epoch, seconds=seconds)
    return result


def _update_paths(
    trained: TrainedModel, recipe: Recipe, change: Change, seed: int, calibrate: bool | None, started: float
) -> TrainedModel:
    """A path model over the changed graph; without `calibrate` it keeps its probabilities and has no metrics."""
    assert isinstance(trained.scorer, PathScorer)
    model, epochs = trained.scorer.model, 0
    if change.num_new_relations:
        model, epochs = train_new_relations(model, change.after, recipe, seed)
    about = {key: value for key, value in trained.metrics.items() if key not in ("valid", "test")}
    scorer = PathScorer(model, change.after.train_index)
    result = replace(trained, source=scorer, graph=change.after, metrics=about, history=History(versions_of(trained)))
    seconds = time.perf_counter() - started
    if calibrate or (calibrate is None and change.num_new_relations):
        measure(result)
        _calibrate(trained, result, seed)
    elif change.num_new_relations:
        result.calibration, result.why_not_calibrated = None, NOT_CALIBRATED
    record_graph_update(trained, result, change, epochs=epochs, seconds=seconds)
    return result


def _calibrate(before: TrainedModel, after: TrainedModel, seed: int) -> None:
    """Fit the probabilities again, with the corrections by reviewers."""
    try_to_fit_probabilities(after, seed)
    if before.calibration is not None and after.calibration is not None:
        after.calibration = after.calibration.corrected(before.calibration.corrections, after.graph.relations)


def _trainer(parts: UpdateParts, out: Path | None, callbacks: Sequence[Callback]) -> Trainer:
    """The run that trains what the schedule has, or a new model if all rows start over."""

    def announce(event: Event) -> None:
        for each in callbacks:
            each(event)

    trained, recipe, seed, start = parts.trained, parts.recipe, parts.seed, None
    if parts.schedule.starts_over:
        if trained.metrics.get("stopped_by") == "minutes":  # as many epochs as there was time for
            recipe = recipe.replace(epochs=trained_epochs(trained))
        first = trained.metrics.get("seed")  # from a file
        seed += first if isinstance(first, int) else 0
    else:  # without a selection on valid; the temperature reaches its floor
        start, epochs = parts.start(), parts.schedule.epochs
        fastest = math.log(max(1.0, recipe.temperature / recipe.temperature_floor)) / epochs
        recipe = recipe.adapt(
            epochs=epochs,
            validate_every=0,
            patience=0,
            cooling=max(recipe.cooling, fastest),
            relation_lr=recipe.relation_lr * (1.0 if parts.relations else NEW_RELATION_LR),
        )
    graph, device = parts.change.after, trained.device
    return Trainer(graph, recipe, seed=seed, device=device, out=out, callback=announce, start=start)


def _begin(trainer: Trainer, resume: bool) -> float:
    """Restore the checkpoint of a run, or clear its folder; returns the seconds that it took before."""
    if trainer.folder is None:
        return 0.0
    trainer.folder.restart = "leave out --resume to start over"
    if not resume:
        trainer.folder.clear()  # of an update that was stopped
        return 0.0
    trainer.resume()
    return trainer.state.seconds


def _finish(parts: UpdateParts, trainer: Trainer) -> TrainedModel:
    """The updated or new model, measured, with what the old one was stored with."""
    trained = parts.trained
    about = {key: value for key, value in trained.metrics.items() if key not in ("valid", "test")}
    if not parts.schedule.starts_over:
        result = replace(parts.result(trainer), metrics=about)
        measure(result)
        return result
    new = finish(trainer)
    latents = None if trained.latents is None else new.latents
    optimiser = None if trained.optimiser is None else new.optimiser
    return replace(new, recipe=trained.recipe, metrics=about | new.metrics, latents=latents, optimiser=optimiser)


def update_folder(
    folder: Path,
    *,
    out: Path | None = None,
    device: str = "auto",
    add: Any = None,
    remove: Any = None,
    reviews: bool = False,
    resume: bool = False,
    **options: Any,
) -> TrainedModel:
    """Update the model in a folder, and write it there, or to the folder `out`, in one atomic step.

    reviews: also add the facts that reviewers accepted. The decisions beside the model correct the new probabilities,
    and go with the model to `out`.
    resume: continue the same update, which was stopped, from its last checkpoint in the folder that is written.
    options: others of `update`. A second update or training run in the folder that is written is refused.
    """
    target, decisions = folder if out is None else out, Reviews(folder)
    moves = target.resolve() != folder.resolve()
    if not holds_model(folder):
        raise DihedralError(f"{str(folder)!r} is not a model folder: it has no {MANIFEST}")
    if moves and holds_model(target):
        raise DihedralError(f"folder {str(target)!r} already holds a model; choose another")
    if moves and (target / REVIEWS).exists():
        raise DihedralError(f"folder {str(target)!r} already holds decisions of reviewers; choose another")
    run, checkpoints = RunFolder(target), path_within(target, UPDATE, "training").parent
    with run.locked():
        try:
            kept = saved_options(folder)
            trained = load_model(folder, device=choose_device(device))
            add, remove = read_facts(add), read_facts(remove)
            accepted = decisions.pending(trained.graph) if reviews else []
            if reviews and not (accepted or add or remove):
                raise DihedralError("no accepted fact is missing from the graph; accept some with `dihedral review`")
            add = [*add, *(fact for fact in accepted if fact not in remove)]
            updated = update(trained, add=add, remove=remove, checkpoints=checkpoints, resume=resume, **options)
            if updated.calibration is not None and usable(decisions.standing().values()):
                use_reviews(updated, decisions)
            kept["latents"] = kept["latents"] and updated.latents is not None
            save_model(target, updated, overwrite=True, **kept)
            removed = set(decisions.pending(updated.graph)) - set(decisions.pending(trained.graph))
            if moves:
                decisions.copy_to(target)
            # an accepted fact that is removed is not to be added again, nor listed as missing
            rejected = (Decision(fact, "reject", "update", "", "removed from the graph") for fact in sorted(removed))
            Reviews(target).add(*rejected)
            if updated.history.latest.trained_again:
                RunFolder(checkpoints).log.replace(run.log)
            RunFolder(checkpoints).remove()
            with suppress(OSError):
                run.folder.rmdir()  # that the lock created; one with the log of a training is not empty
        except BaseException:
            if not (begun := RunFolder(checkpoints)).checkpoint.exists():  # nothing to resume
                begun.remove()
            for empty in (run.folder, target):  # that the lock created; others are not empty
                with suppress(OSError):
                    empty.rmdir()
            raise
    return updated
