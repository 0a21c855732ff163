"""`update`: change a trained model with its graph, without training it again from the start.

New entities are placed by their facts (`update.folding`). Then rows are trained with the model's own recipe:

1. those of new entities, on all of their facts. They are wrong answers to the questions of all other facts, for which
   a `Background` stands.
2. those of known entities that gain facts with each other, or many with fresh ones: on the added facts alone. An
   `Anchor` stands for the facts that they had.
3. those of known entities that gain facts of new relations, which find their codes at the same time.

All other rows stay as they are, bit by bit.

To forget a fact, the rows of its entities start over from the facts that they keep, and so do those of entities nearby
that learned from them: such rows are fresh, as those of new entities are. Where a fact is a negligible part of what an
entity's row was trained on, only the row of the other entity starts over. If most rows would, a new model is trained:
this takes no longer, and its relations have not seen removed facts either.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dihedral.errors import DihedralError, check_seed
from dihedral.graph.changes import Change, change_graph, read_facts
from dihedral.graph.triples import Triples
from dihedral.io.files import below, remove_tree
from dihedral.learn.checkpoint import UPDATE, RunFolder
from dihedral.learn.estimates import num_threads
from dihedral.learn.finish import finish, measure, try_to_fit_probabilities, use_reviews
from dihedral.learn.loop import Callback, Event, Phase, Start, Trainer
from dihedral.learn.objective import build_objective
from dihedral.models import Model, restore_relations
from dihedral.models.growth import grow, joined, known_rows
from dihedral.objectives.recipe import Recipe
from dihedral.probability.corrections import usable
from dihedral.runtime.device import choose_device
from dihedral.runtime.threads import at_most
from dihedral.scoring.embedding import EmbeddingScorer
from dihedral.store.folder import load_model, save_model, saved_options
from dihedral.store.history import History
from dihedral.store.manifest import MANIFEST, holds_model
from dihedral.store.reviews import FILE as REVIEWS
from dihedral.store.reviews import Decision, Reviews
from dihedral.store.trained import TrainedModel
from dihedral.update.background import Anchor, Background, make_background
from dihedral.update.folding import place_rows
from dihedral.update.lineage import record_update, versions_of
from dihedral.update.plan import Part, Plan, make_plan, trained_epochs

STEP = 0.25  # the first step on new facts, relative to the one that would reach the minimum of a quadratic loss
ALIGNED = 10  # the curvature along a gradient is that of single coordinates times (their number / ALIGNED)
NEW_RATE = 3.0  # of the learning of new relations, relative to the recipe's: they take fewer steps than in training
NEW_SPREAD = 0.1  # of what they start with, relative to the recipe's


def update(
    predictor: TrainedModel,
    *,
    add: Any = None,
    remove: Any = None,
    relations: bool = False,
    epochs: int | None = None,
    seed: int = 0,
    calibrate: bool = True,
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
    epochs: over the facts of fresh rows, and over the added facts of known entities; chosen by default. A new model,
    which is trained if most rows start over, has those of the recipe.
    calibrate: fit the probabilities again.
    checkpoints: a folder for them, one per minute. resume: continue from the last of them.

    The latest version in the history of the result says what was done: facts, rows that changed, MRR before and after,
    what cannot be undone, and whether to train again.

    >>> from dihedral import make_family, train
    >>> predictor = train(make_family(40), "demo/family", epochs=2, progress=False)
    >>> updated = update(predictor.trained, add=[("zoe", "sibling", "man_0001")], progress=False)
    >>> updated.history.latest.new_entities
    1
    """
    started, before_resume = time.perf_counter(), 0.0
    check_seed(seed)
    change = change_graph(predictor.graph, read_facts(add), read_facts(remove))
    recipe = _recipe(predictor)
    if relations and (predictor.optimiser is None or predictor.latents is None):
        raise DihedralError(
            "known relations can be trained further only in a model that holds the state of its optimiser: one that "
            "was trained with --keep-optimiser (keep_optimiser=True), and saved with optimiser=True and latents=True"
        )
    if resume and checkpoints is None:
        raise DihedralError("resume is True without a folder to resume from; give `checkpoints`")
    plan = make_plan(change, predictor, epochs)
    with ExitStack() as stack:
        callbacks: list[Callback] = [callback] if callable(callback) else list(callback)
        if progress:
            from dihedral.learn.progress import show_progress

            callbacks.append(stack.enter_context(show_progress()))
        announce = partial(_announce, callbacks)
        out = None if checkpoints is None else Path(checkpoints)
        where: dict[str, Any] = {"device": predictor.device, "out": out, "callback": announce}
        if plan.starts_over:
            first = predictor.metrics.get("seed")  # from a file
            again = seed + (first if isinstance(first, int) else 0)
            trainer = Trainer(change.after, _whole(recipe, predictor), seed=again, **where)
        else:
            start = _start(predictor, change, plan, recipe, relations, seed)
            short = _short(recipe, start.phases, 1.0 if relations else NEW_RATE)
            trainer = Trainer(change.after, short, seed=seed, start=start, **where)
        if trainer.folder is not None:
            trainer.folder.restart = "leave out --resume to start over"
            if resume:
                trainer.resume()
                before_resume = trainer.state.seconds
            else:
                trainer.folder.clear()  # of an update that was stopped
        if any(plan.parts):  # there are none if only valid and test facts are removed
            with at_most(num_threads(trainer.recipe, change.after, predictor.device)):
                trainer.run()
    result = _new(predictor, trainer) if plan.starts_over else _result(predictor, change, plan, trainer, relations)
    seconds = time.perf_counter() - started + before_resume
    if not plan.starts_over:
        measure(result)
    if calibrate:
        result.history = History(versions_of(predictor))  # new names have no facts in valid
        try_to_fit_probabilities(result, seed)
        if predictor.calibration is not None and result.calibration is not None:
            corrections = predictor.calibration.corrections
            result.calibration = result.calibration.corrected(corrections, change.after.relations)
    over = int(plan.fresh.rows[: predictor.graph.num_entities].sum())
    options: dict[str, Any] = {"relations": relations, "started_over": over, "trained_again": plan.starts_over}
    record_update(predictor, result, change, epochs=trainer.state.epoch, seconds=seconds, **options)
    return result


def _announce(callbacks: Sequence[Callback], event: Event) -> None:
    for each in callbacks:
        each(event)


def update_folder(
    folder: Path, *, out: Path | None = None, device: str = "auto", reviews: bool = False, resume: bool = False,
    **options: Any,
) -> TrainedModel:  # fmt: skip
    """Update the model in a folder, and write it there, or to the folder `out`, in one atomic step.

    reviews: also add the facts that reviewers accepted. The decisions beside the model correct the new probabilities,
    and go with the model to `out`.
    resume: continue the same update, which was stopped, from its last checkpoint in the folder that is written.
    options: those of `update`. A second update or training run in the folder that is written is refused.
    """
    target, decisions = folder if out is None else out, Reviews(folder)
    if not holds_model(folder):
        raise DihedralError(f"{str(folder)!r} is not a model folder: it has no {MANIFEST}")
    if out is not None and holds_model(out) and out.resolve() != folder.resolve():
        raise DihedralError(f"folder {str(out)!r} already holds a model; choose another")
    if out is not None and (out / REVIEWS).exists() and out.resolve() != folder.resolve():
        raise DihedralError(f"folder {str(out)!r} already holds decisions of reviewers; choose another")
    run, checkpoints = RunFolder(target), below(target, UPDATE, "training").parent
    with run.locked():
        try:
            kept = saved_options(folder)
            predictor = load_model(folder, device=choose_device(device))
            if reviews:
                options["add"] = _with_accepted(predictor, decisions, options)
            updated = update(predictor, checkpoints=checkpoints, resume=resume, **options)
            if updated.calibration is not None and usable(decisions.standing().values()):
                use_reviews(updated, decisions)
            kept["latents"] = kept["latents"] and updated.latents is not None
            save_model(target, updated, overwrite=True, **kept)
            removed = set(decisions.pending(updated.graph)) - set(decisions.pending(predictor.graph))
            if target.resolve() != folder.resolve():
                decisions.copy_to(target)
            _reject(Reviews(target), sorted(removed))
            if updated.history.latest.trained_again:
                RunFolder(checkpoints).log.replace(run.log)
            remove_tree(checkpoints)
            with suppress(OSError):
                run.folder.rmdir()  # that the lock created; one with the log of a training is not empty
        except BaseException:
            if not RunFolder(checkpoints).checkpoint.exists():  # nothing to resume
                remove_tree(checkpoints)
            for empty in (run.folder, target):  # that the lock created; others are not empty
                with suppress(OSError):
                    empty.rmdir()
            raise
    return updated


def _reject(decisions: Reviews, removed: Sequence[tuple[str, str, str]]) -> None:
    """An accepted fact that is removed is not to be added again, nor listed as missing."""
    decisions.add(*(Decision(fact, "reject", "update", "", "removed from the graph") for fact in removed))


def _with_accepted(predictor: TrainedModel, decisions: Reviews, options: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The facts to add, and those that were accepted and are to be neither added nor removed otherwise."""
    accepted, (add, remove) = (
        decisions.pending(predictor.graph),
        (read_facts(options.get(name)) for name in ("add", "remove")),
    )
    if not accepted and not add and not remove:
        raise DihedralError("no accepted fact is missing from the graph; accept some with `dihedral review`")
    return [*add, *(fact for fact in accepted if fact not in remove)]


def _recipe(predictor: TrainedModel) -> Recipe:
    if predictor.recipe is None:
        raise DihedralError("this model has no recipe, so an update does not know how to train it; train it again")
    return predictor.recipe


def _short(recipe: Recipe, phases: Sequence[Phase], rate: float) -> Recipe:
    """The recipe for an update: no selection on valid; the temperature reaches its floor in the longest phase."""
    fastest = math.log(max(1.0, recipe.temperature / recipe.temperature_floor)) / max(each.epochs for each in phases)
    settings: dict[str, Any] = {"epochs": sum(each.epochs for each in phases), "validate_every": 0, "patience": 0}
    settings["relation_lr"] = rate * recipe.relation_lr
    return recipe.adapt(**settings, cooling=max(recipe.cooling, fastest))


def _whole(recipe: Recipe, predictor: TrainedModel) -> Recipe:
    """The recipe for a new model, with as many epochs as there was time for."""
    if predictor.metrics.get("stopped_by") == "minutes":
        return recipe.replace(epochs=trained_epochs(predictor))
    return recipe


def _batch_size(predictor: TrainedModel) -> int:
    return min(_recipe(predictor).batch_size, max(1, len(predictor.graph.train)))


def _start(predictor: TrainedModel, change: Change, plan: Plan, recipe: Recipe, relations: bool, seed: int) -> Start:
    """The model to start from: known rows, fresh rows as placed by their facts, and relations that may grow."""
    old, graph, device = predictor.model, change.after, predictor.device
    generator = torch.Generator().manual_seed(seed)
    kept = torch.from_numpy(~plan.fresh.rows).to(device)
    table = torch.empty(graph.num_entities, old.dimension, device=device)
    table[kept] = old.entities.detach()[kept[: len(old.entities)]]
    drawn = torch.randn(int(plan.fresh.rows.sum()), old.dimension, generator=generator).mul_(recipe.entity_init)
    table[~kept] = drawn.to(device)
    is_bilinear = old.relations.is_bilinear
    if is_bilinear and plan.fresh.rows.any():
        placed_by = graph.train[graph.train[:, 1] < change.before.num_relations]  # the others have no operators yet
        scorer = EmbeddingScorer(Model(table, old.relations).requires_grad_(False))
        table[~kept] = place_rows(scorer, recipe, placed_by, plan.fresh.rows, seed)
    operator, relation_rows = old.relations, None
    if change.num_new_relations or relations:
        options = {"name": recipe.model, "dimension": recipe.dimension, "K": recipe.K, "levels": recipe.levels}
        options |= {"relation_init": NEW_SPREAD * recipe.relation_init, "scaled": recipe.relation_scale}
        operator = grow(old.relations, graph.num_relations, options | {"reciprocal": recipe.reciprocal}, seed)
        known = known_rows(operator, old.num_relations)
        relation_rows = torch.ones_like(known) if relations else ~known
        if relations:
            assert predictor.latents is not None
            for name, parameter in operator.named_parameters():
                parameter.data[known] = predictor.latents[name].to("cpu", parameter.dtype)
    model = Model(table, operator)
    sums = _sums(predictor, change, plan, model, seed)
    scorer, phases = EmbeddingScorer(Model(table, old.relations).requires_grad_(False)), []
    if plan.fresh or not any(plan.parts):
        background = _background(scorer, plan.others, plan.fresh, recipe, seed)
        phases.append(Phase(torch.from_numpy(plan.fresh.rows), plan.fresh.facts, plan.fresh.epochs, background))
    for part in (plan.known, plan.linked):
        if part:
            # a softmax over all entities keeps linked rows from rising as wrong answers; with it, a background costs
            # accuracy in the new relation
            needed = part is plan.known or recipe.objective == "logistic"
            background = _background(scorer, plan.others, part, recipe, seed, started=True) if needed else None
            anchor = _anchor(scorer, sums["entities"], part, predictor, background)
            if part is plan.known:  # new relations need rows that move
                anchor.curvature.mul_(max(1.0, old.dimension / ALIGNED))
            sums["entities"][anchor.rows] = (recipe.entity_lr / (STEP * len(part.facts)) * anchor.curvature) ** 2
            phases.append(Phase(torch.from_numpy(part.rows), part.facts, part.epochs, anchor))
    return Start(model, tuple(phases), relation_rows, sums, partial(_digest, old, plan, relations))


def _background(
    scorer: EmbeddingScorer, others: Triples, part: Part, recipe: Recipe, seed: int, *, started: bool = False
) -> Background | None:
    options: dict[str, Any] = {"batch_size": recipe.batch_size, "seed": seed, "started": started}
    options["negatives"] = None if recipe.objective == "softmax" else recipe.negatives
    return make_background(scorer, others, part.rows, num_asked=2 * part.epochs * len(part.facts), **options)


def _anchor(
    scorer: EmbeddingScorer, sums: Tensor, part: Part, predictor: TrainedModel, background: Background | None
) -> Anchor:
    """The curvature is estimated by the squared gradients of all facts, which Adagrad adds up in one epoch.

    These are per coordinate. Gradients of similar facts point the same way, so along the gradient of a new fact the
    curvature is higher, the more so the more coordinates there are (`ALIGNED`).
    """
    rows = torch.from_numpy(np.flatnonzero(part.rows)).to(scorer.device)
    curvature = sums[rows] * (_batch_size(predictor) ** 2 / trained_epochs(predictor))
    return Anchor(rows, scorer.entities[rows], curvature, background)


def _digest(model: Model, plan: Plan, relations: bool) -> str:
    """Of the model that is updated and what is done with it."""
    found = hashlib.sha256(f"{[part.epochs for part in plan.parts]} {relations}".encode())
    tensors = [model.entities.detach(), *model.relations.stored().values()]
    arrays = [array for part in plan.parts for array in (part.rows, part.facts)]
    for array in (*(each.cpu().numpy() for each in tensors), *arrays):
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _sums(predictor: TrainedModel, change: Change, plan: Plan, model: Model, seed: int) -> dict[str, Tensor]:
    """Adagrad's sums: those that the model was stored with, or an estimate; 0 for fresh rows and new relations.

    The estimate: all uses of rows had as large gradients as those of one batch have now.
    """
    sums, old = {name: torch.zeros_like(each.data) for name, each in model.named_parameters()}, predictor.model
    count = len(old.entities)
    if predictor.optimiser is not None:
        sums["entities"][:count] = predictor.optimiser["entities"].to(predictor.device)
        for name in sums.keys() & predictor.optimiser.keys() - {"entities"}:
            known, total = known_rows(model.relations, old.num_relations), predictor.optimiser[name]
            if total.shape != (int(known.sum()), *sums[name].shape[1:]):
                raise DihedralError(f"the optimiser's state of {name} is {list(total.shape)}, which is damaged")
            sums[name][known] = total.to("cpu")
    elif plan.known or plan.linked:
        uses = np.bincount(change.before.train[:, [0, 2]].ravel(), minlength=count) * trained_epochs(predictor)
        size = _mean_square(predictor, seed)
        sums["entities"][:count] = torch.from_numpy(uses).float().to(predictor.device)[:, None] * size
    sums["entities"][torch.from_numpy(plan.fresh.rows).to(predictor.device)] = 0.0
    return sums


@torch.no_grad()
def _mean_square(predictor: TrainedModel, seed: int) -> Tensor:
    """The mean square of the entries of a gradient in a training batch, for each use of a row."""
    graph, model, recipe = predictor.graph, predictor.model, _recipe(predictor)
    chosen = np.random.default_rng(seed).permutation(len(graph.train))[: recipe.batch_size]
    batch = torch.from_numpy(graph.train[chosen]).to(predictor.device).long()
    generator = torch.Generator(predictor.device).manual_seed(seed)
    objective, table = build_objective(recipe, model, graph), model.entities.detach()
    gradient = objective(table, model.relations.operators(), batch[:, 1], batch, generator).entities
    if not isinstance(gradient, Tensor):
        gradient = gradient.dense(len(table))
    return gradient.square().mean(1).sum() / (2 * len(batch))


def _kept(predictor: TrainedModel) -> dict[str, Any]:
    """The metrics that an update does not measure again."""
    return {key: value for key, value in predictor.metrics.items() if key not in ("valid", "test")}


def _new(predictor: TrainedModel, trainer: Trainer) -> TrainedModel:
    """A new model, with what the old one was stored with."""
    result = finish(trainer)
    result.metrics = _kept(predictor) | result.metrics
    result.recipe = predictor.recipe
    if predictor.optimiser is None:
        result.optimiser = None
    if predictor.latents is None:
        result.latents = None
    return result


def _result(predictor: TrainedModel, change: Change, plan: Plan, trainer: Trainer, relations: bool) -> TrainedModel:
    """The trained rows and relations in a model that is otherwise the old one."""
    trained, latents = trainer.best_model()
    old, rows = predictor.model, torch.from_numpy(plan.rows).to(predictor.device)
    table = trained.entities.detach().clone()
    kept = ~rows
    table[kept] = old.entities.detach()[kept[: len(old.entities)]]
    operator = old.relations
    if change.num_new_relations or relations:
        tensors = trained.relations.stored()
        if not relations:
            known = known_rows(trained.relations, old.num_relations)
            tensors = joined(old.relations.stored(), tensors, known)
        settings = old.relations.settings()
        operator = restore_relations(
            trainer.recipe.model, tensors, change.after.num_relations, old.dimension, settings
        ).to(predictor.device)
    metrics = _kept(predictor)
    model = Model(table, operator).requires_grad_(False)
    optimiser = None
    if predictor.optimiser is not None:
        optimiser = predictor.optimiser | {name: each.sum for name, each in trainer.optimisers.items()}
        if plan.fresh:  # as if their facts had been trained on as long as the others, in batches of the same size
            share = min(len(plan.fresh.facts), _batch_size(predictor)) / _batch_size(predictor)
            longer = trained_epochs(predictor) / plan.fresh.epochs
            optimiser["entities"][torch.from_numpy(plan.fresh.rows)] *= share**2 * longer
        known = torch.from_numpy((plan.known.rows | plan.linked.rows)[: len(old.entities)])
        optimiser["entities"][: len(known)][known] = predictor.optimiser["entities"][known].to(predictor.device)
    kept_latents = None
    if predictor.latents is not None:
        if latents and not relations:
            latents = joined(predictor.latents, latents, known_rows(trainer.model.relations, old.num_relations))
        kept_latents = predictor.latents | latents
    return TrainedModel(model, change.after, predictor.recipe, metrics, latents=kept_latents, optimiser=optimiser)
