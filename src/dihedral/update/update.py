"""`update`: change a trained model with its graph.

Of a path model the graph changes, and nothing else: its answers are computed from the graph as it is. New relations are
trained (`path_relations`).

Of a model with entity vectors, the graph changes and new entities get vectors (`placing`), in later updates again, with
all of their facts. All other vectors stay as they are. They can neither forget a fact nor know a new relation, so that
a new model is trained if training facts are removed or relations are new.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dihedral.errors import DihedralError, check_seed
from dihedral.graph.changes import Change, change_graph, read_facts
from dihedral.learn.checkpoint import RunFolder
from dihedral.learn.finish import finish, measure, try_to_fit_probabilities, use_reviews
from dihedral.learn.loop import Callback, announcing
from dihedral.learn.trainer import make_run
from dihedral.models import Model
from dihedral.objectives.recipe import Recipe
from dihedral.probability.corrections import usable
from dihedral.runtime.device import choose_device
from dihedral.scoring.embedding import EmbeddingScorer, need_embeddings
from dihedral.scoring.path_scorer import PathScorer
from dihedral.store.folder import load_model, save_model, saved_options
from dihedral.store.manifest import holds_model, read_manifest
from dihedral.store.reviews import FILE as REVIEWS
from dihedral.store.reviews import Decision, Reviews
from dihedral.store.trained import NOT_CALIBRATED, History, TrainedModel, Version
from dihedral.update.path_relations import train_new_relations
from dihedral.update.placing import place


def update(
    trained: TrainedModel,
    *,
    add: Any = None,
    remove: Any = None,
    retrain: bool = False,
    seed: int = 0,
    calibrate: bool | None = None,
    progress: bool = True,
    callback: Callback | Sequence[Callback] = (),
) -> TrainedModel:
    """A model of the changed graph; the given one stays as it is.

    add: facts of known and new entities and relations, as triples of names or as anything that `load_graph` reads. They
    become training facts; those that the graph holds already, in any split, are left out.
    remove: facts that the graph holds.
    retrain: train a new model on the changed graph, also if none would be needed.
    calibrate: measure valid and test, and fit the probabilities again; by default only if something was trained.

    The latest version in the history of the result says what was done.
    """
    started = time.perf_counter()
    check_seed(seed)
    change = change_graph(trained.graph, read_facts(add), read_facts(remove), may_be_none=retrain)
    has_paths = isinstance(trained.scorer, PathScorer)
    retrain = retrain or (not has_paths and bool(len(change.removed) or change.num_new_relations))
    if retrain:
        result = _train_again(trained, change, seed, callback, progress)
        epochs = result.metrics["epochs"]
    else:
        source, epochs = _changed_paths(trained, change, seed) if has_paths else (_placed(trained, change, seed), 0)
        result = replace(trained, source=source, graph=change.after, metrics=_about(trained))
    result.history = History(_versions(trained))  # new names have no facts in valid, which probabilities allow for
    seconds = time.perf_counter() - started
    if calibrate or (calibrate is None and epochs):
        if not retrain:
            measure(result)
        try_to_fit_probabilities(result, seed)
        if trained.calibration is not None and result.calibration is not None:
            corrections = trained.calibration.corrections
            result.calibration = result.calibration.corrected(corrections, change.after.relations)
    elif epochs:
        result.calibration, result.why_not_calibrated = None, NOT_CALIBRATED
    versions, now = result.history.versions, datetime.now(UTC).isoformat(timespec="seconds")
    parent, counts = versions[-1].version, change.to_dict() | _sizes_and_mrr(result)
    about = {"trained_again": retrain, "epochs": epochs, "train_seconds": round(seconds, 3)}
    version = Version(version=parent + 1, parent=parent, time=now, **counts, **about)
    result.history = History((*versions, version))
    return result


def _about(trained: TrainedModel) -> dict[str, Any]:
    """The metrics that do not depend on the graph."""
    return {key: value for key, value in trained.metrics.items() if key not in ("valid", "test")}


def _recipe(trained: TrainedModel) -> Recipe:
    if trained.recipe is None:
        raise DihedralError("this model has no recipe, so an update does not know how to train it; train it again")
    return trained.recipe


def _changed_paths(trained: TrainedModel, change: Change, seed: int) -> tuple[PathScorer, int]:
    """The path model over the changed graph, and the epochs that new relations were trained for."""
    assert isinstance(trained.scorer, PathScorer)
    model, epochs = trained.scorer.model, 0
    if change.num_new_relations:
        model, epochs = train_new_relations(model, change.after, _recipe(trained), seed)
    return PathScorer(model, change.after.train_index), epochs


def _placed(trained: TrainedModel, change: Change, seed: int) -> Model:
    """The model with vectors for the entities that it was not trained on, whichever update added them."""
    model = need_embeddings(trained.scorer, "an update").model
    train = change.after.train
    count = History(_versions(trained)).since_training[0].entities or model.num_entities
    is_placed = (train[:, [0, 2]] >= count).any(axis=1)
    if not is_placed.any():
        return model
    base = EmbeddingScorer(Model(model.entities.detach()[:count], model.relations).requires_grad_(False))
    facts = train[~is_placed], train[is_placed]
    table = place(base, trained.recipe or Recipe(), *facts, change.after.num_entities, seed)
    return Model(table, model.relations).requires_grad_(False)


def _train_again(
    trained: TrainedModel, change: Change, seed: int, callback: Callback | Sequence[Callback], progress: bool
) -> TrainedModel:
    """A new model of the changed graph, by the recipe of the old one."""
    recipe = _recipe(trained)
    if trained.metrics.get("stopped_by") == "minutes":  # as many epochs as there was time for
        recipe = recipe.replace(epochs=int(trained.metrics.get("epochs", 0)) or recipe.epochs)
    first = trained.metrics.get("seed")  # from a file
    seed += first if isinstance(first, int) else 0
    with announcing(callback, progress) as announce:
        trainer = make_run(change.after, recipe, seed=seed, device=trained.device, callback=announce)
        trainer.run()
    new = finish(trainer)
    return replace(new, recipe=trained.recipe, metrics=_about(trained) | new.metrics)


def _versions(trained: TrainedModel) -> tuple[Version, ...]:
    """The versions of a model; one that was never updated has version 0."""
    if trained.history.versions:
        return trained.history.versions
    return (Version(version=0, **_sizes_and_mrr(trained)),)


def _sizes_and_mrr(trained: TrainedModel) -> dict[str, Any]:
    graph = trained.graph
    sizes = {"facts": len(graph.train), "entities": graph.num_entities, "relations": graph.num_relations}
    reports = {split: trained.metrics.get(split) for split in ("valid", "test")}
    return sizes | {f"{split}_mrr": round(report["both"]["mrr"], 5) for split, report in reports.items() if report}


def update_folder(
    folder: Path,
    *,
    out: Path | None = None,
    device: str = "auto",
    add: Any = None,
    remove: Any = None,
    reviews: bool = False,
    **options: Any,
) -> TrainedModel:
    """Update the model in a folder, and write it there, or to the folder `out`, in one atomic step.

    reviews: also add the facts that reviewers accepted. The decisions beside the model correct the new probabilities,
    and go with the model to `out`.
    options: others of `update`. A second update or training run in the folder that is written is refused.
    """
    target, decisions = folder if out is None else out, Reviews(folder)
    moves = target.resolve() != folder.resolve()
    read_manifest(folder)  # a folder without a model is left alone
    if moves and holds_model(target):
        raise DihedralError(f"folder {str(target)!r} already holds a model; choose another")
    if moves and (target / REVIEWS).exists():
        raise DihedralError(f"folder {str(target)!r} already holds decisions of reviewers; choose another")
    run = RunFolder(target)
    with run.locked():
        try:
            kept = saved_options(folder)
            trained = load_model(folder, device=choose_device(device))
            add, remove = read_facts(add), read_facts(remove)
            accepted = decisions.pending(trained.graph) if reviews else []
            if reviews and not (accepted or add or remove or options.get("retrain")):
                raise DihedralError("no accepted fact is missing from the graph; accept some with `dihedral review`")
            add = [*add, *(fact for fact in accepted if fact not in remove)]
            updated = update(trained, add=add, remove=remove, **options)
            if updated.calibration is not None and usable(decisions.standing().values()):
                use_reviews(updated, decisions)
            save_model(target, updated, overwrite=True, **kept)
            removed = set(decisions.pending(updated.graph)) - set(decisions.pending(trained.graph))
            if moves:
                decisions.copy_to(target)
            # an accepted fact that is removed is not to be added again, nor listed as missing
            rejected = (Decision(fact, "reject", "update", "", "removed from the graph") for fact in sorted(removed))
            Reviews(target).add(*rejected)
            if updated.history.latest.trained_again:
                run.log.unlink(missing_ok=True)  # of the old model
        finally:
            for empty in (run.folder, target):  # that the lock created; others are not empty
                with suppress(OSError):
                    empty.rmdir()
    return updated
