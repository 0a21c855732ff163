"""The tensors of an update: the model that its training starts from, and the trained parts put back into a model.

Everything that the schedule does not train keeps its values, bit by bit.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph.changes import Change
from dihedral.learn.trainer import Phase, Start, Trainer, build_objective
from dihedral.models import Model, Relations, restore_relations
from dihedral.models.registry import grow, joined, known_rows
from dihedral.objectives.recipe import Recipe
from dihedral.scoring.embedding import EmbeddingScorer
from dihedral.store.trained import TrainedModel
from dihedral.update.background import Anchor, make_background
from dihedral.update.folding import place_rows
from dihedral.update.schedule import Schedule, trained_epochs

FIRST_STEP = 0.25  # on new facts, relative to the step that would reach the minimum of a quadratic loss
ALIGNED = 10  # the curvature along a gradient is that of single coordinates times (their number / ALIGNED)
NEW_RELATION_INIT = 0.1  # spread of what new relations start with, relative to the recipe's


@dataclass(frozen=True, eq=False)
class UpdateParts:
    """A trained model, how its graph changes, and what is trained."""

    trained: TrainedModel
    recipe: Recipe
    change: Change
    schedule: Schedule
    relations: bool  # whether the relations that the graph had before are trained, too
    seed: int

    def __post_init__(self) -> None:
        if self.relations and (self.trained.optimiser is None or self.trained.latents is None):
            raise DihedralError(
                "known relations can be trained further only in a model that holds the state of its optimiser: one "
                "that was trained with --keep-optimiser (keep_optimiser=True), and saved with optimiser=True and "
                "latents=True"
            )

    @property
    def old(self) -> Model:
        return self.trained.model

    @property
    def batch_size(self) -> int:
        """The facts of a batch in training."""
        return min(self.recipe.batch_size, max(1, len(self.trained.graph.train)))

    def fresh_rows(self) -> Tensor:
        """bool [N]: the rows that are new or start over."""
        assert self.schedule.fresh.rows is not None
        return torch.from_numpy(self.schedule.fresh.rows).to(self.trained.device)

    # --- before training -------------------------------------------------------------------------

    def start(self) -> Start:
        """Known rows, fresh rows as placed by their facts, and relations that may grow."""
        table = self._table()
        operator, relation_rows = self._relations()
        model = Model(table, operator)
        sums = self._sums(model)
        scorer = EmbeddingScorer(Model(table, self.old.relations).requires_grad_(False))
        return Start(model, self._phases(scorer, sums["entities"]), relation_rows, sums, self._digest)

    def _table(self) -> Tensor:
        """The entity table with fresh rows, placed by their facts in a bilinear model, and else random."""
        old, graph, fresh = self.old, self.change.after, self.fresh_rows()
        generator = torch.Generator().manual_seed(self.seed)
        table = torch.empty(graph.num_entities, old.dimension, device=fresh.device)
        table[~fresh] = old.entities.detach()[~fresh[: len(old.entities)]]
        drawn = torch.randn(int(fresh.sum()), old.dimension, generator=generator).mul_(self.recipe.entity_init)
        table[fresh] = drawn.to(fresh.device)
        if old.relations.is_bilinear and fresh.any():
            known = graph.train[graph.train[:, 1] < old.num_relations]  # new relations have no operators yet
            scorer = EmbeddingScorer(Model(table, old.relations).requires_grad_(False))
            table[fresh] = place_rows(scorer, self.recipe, known, fresh.cpu().numpy(), self.seed)
        return table

    def _relations(self) -> tuple[Relations, Tensor]:
        """The relations, and which rows of their parameters are trained (bool)."""
        old, recipe = self.old, self.recipe
        if not self.change.num_new_relations and not self.relations:
            return old.relations, torch.zeros(0, dtype=torch.bool)
        options = {
            "name": recipe.model, "dimension": recipe.dimension, "K": recipe.K, "levels": recipe.levels,
            "relation_init": NEW_RELATION_INIT * recipe.relation_init, "scaled": recipe.relation_scale,
            "reciprocal": recipe.reciprocal,
        }  # fmt: skip
        grown = grow(old.relations, self.change.after.num_relations, options, self.seed)
        known = known_rows(grown, old.num_relations)
        if not self.relations:
            return grown, ~known
        assert self.trained.latents is not None
        for name, parameter in grown.named_parameters():
            parameter.data[known] = self.trained.latents[name].to("cpu", parameter.dtype)
        return grown, torch.ones_like(known)

    def _phases(self, scorer: EmbeddingScorer, sums: Tensor) -> tuple[Phase, ...]:
        """The phases with facts, and what their rows learn from the others; sums [N, 2L]: of Adagrad, changed."""
        schedule, recipe, phases = self.schedule, self.recipe, []
        if schedule.fresh or not any(schedule.phases):
            background = make_background(scorer, schedule.others, schedule.fresh, recipe, self.seed)
            phases.append(replace(schedule.fresh, extra=background))
        for phase in (schedule.known, schedule.linked):
            if phase:
                anchor = self._anchor(scorer, sums, phase)
                step = recipe.entity_lr / (FIRST_STEP * len(phase.facts))
                sums[anchor.rows] = (step * anchor.curvature) ** 2
                phases.append(replace(phase, extra=anchor))
        return tuple(phases)

    def _anchor(self, scorer: EmbeddingScorer, sums: Tensor, phase: Phase) -> Anchor:
        """The curvature is estimated by the squared gradients of all facts, which Adagrad adds up in one epoch.

        These are per coordinate. Gradients of similar facts point the same way, so along the gradient of a new fact the
        curvature is higher, the more so the more coordinates there are (`ALIGNED`). New relations need rows that move.
        """
        assert phase.rows is not None
        is_known, background = phase is self.schedule.known, None
        # a softmax over all entities keeps linked rows from rising as wrong answers; with it, a background costs
        # accuracy in the new relation
        if is_known or self.recipe.objective == "logistic":
            background = make_background(scorer, self.schedule.others, phase, self.recipe, self.seed, started=True)
        rows = torch.from_numpy(np.flatnonzero(phase.rows)).to(scorer.device)
        curvature = sums[rows] * (self.batch_size**2 / trained_epochs(self.trained))
        if is_known:
            curvature.mul_(max(1.0, self.old.dimension / ALIGNED))
        return Anchor(rows, scorer.entities[rows], curvature, background)

    def _sums(self, model: Model) -> dict[str, Tensor]:
        """Adagrad's sums: those that the model was stored with, or an estimate; 0 for fresh rows and new relations.

        The estimate: all uses of rows had as large gradients as those of one batch have now.
        """
        sums, trained, count = _zeros(model), self.trained, len(self.old.entities)
        if trained.optimiser is not None:
            sums["entities"][:count] = trained.optimiser["entities"].to(trained.device)
            for name in sums.keys() & trained.optimiser.keys() - {"entities"}:
                known, total = known_rows(model.relations, self.old.num_relations), trained.optimiser[name]
                if total.shape != (int(known.sum()), *sums[name].shape[1:]):
                    raise DihedralError(f"the optimiser's state of {name} is {list(total.shape)}, which is damaged")
                sums[name][known] = total.to("cpu")
        elif self.schedule.known or self.schedule.linked:
            uses = np.bincount(trained.graph.train[:, [0, 2]].ravel(), minlength=count) * trained_epochs(trained)
            size = mean_square(trained, self.recipe, self.seed)
            sums["entities"][:count] = torch.from_numpy(uses).float().to(trained.device)[:, None] * size
        sums["entities"][self.fresh_rows()] = 0.0
        return sums

    def _digest(self) -> str:
        """Identifies the model that is updated and what is done with it."""
        phases = self.schedule.phases
        found = hashlib.sha256(f"{[phase.epochs for phase in phases]} {self.relations}".encode())
        tensors = [self.old.entities.detach(), *self.old.relations.stored().values()]
        arrays = [array for phase in phases for array in (phase.rows, phase.facts)]
        for array in (*(each.cpu().numpy() for each in tensors), *arrays):
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()

    # --- after training --------------------------------------------------------------------------

    def result(self, trainer: Trainer) -> TrainedModel:
        """The trained rows and relations in a model that is otherwise the old one."""
        old, trained = self.old, self.trained
        model, latents = trainer.best_model()
        table = model.entities.detach().clone()
        changed = [phase.rows for phase in self.schedule.phases if phase.rows is not None]
        kept = torch.from_numpy(~np.logical_or.reduce(changed)).to(trained.device)
        table[kept] = old.entities.detach()[kept[: len(old.entities)]]
        operator, known = old.relations, known_rows(model.relations, old.num_relations)
        if self.change.num_new_relations or self.relations:
            tensors = model.relations.stored()
            if not self.relations:
                tensors = joined(old.relations.stored(), tensors, known)
            operator = restore_relations(
                self.recipe.model, tensors, self.change.after.num_relations, old.dimension, old.relations.settings()
            ).to(trained.device)
        if trained.latents is not None and latents and not self.relations:
            latents = joined(trained.latents, latents, known)
        return TrainedModel(
            Model(table, operator).requires_grad_(False),
            self.change.after,
            recipe=trained.recipe,
            latents=None if trained.latents is None else trained.latents | latents,
            optimiser=None if trained.optimiser is None else self._optimiser(trained.optimiser, trainer),
        )

    def _optimiser(self, before: dict[str, Tensor], trainer: Trainer) -> dict[str, Tensor]:
        """The sums of Adagrad after training; those of known rows stay."""
        after = before | {name: each.sum for name, each in trainer.optimisers.items()}
        fresh, known, linked = self.schedule.phases
        if fresh:  # as if their facts had been trained on as long as the others, in batches of the same size
            share = min(len(fresh.facts), self.batch_size) / self.batch_size
            after["entities"][self.fresh_rows()] *= share**2 * (trained_epochs(self.trained) / fresh.epochs)
        assert known.rows is not None and linked.rows is not None
        stays = torch.from_numpy((known.rows | linked.rows)[: len(self.old.entities)])
        after["entities"][: len(stays)][stays] = before["entities"][stays].to(self.trained.device)
        return after


def _zeros(model: Model) -> dict[str, Tensor]:
    return {name: torch.zeros_like(each.data) for name, each in model.named_parameters()}


@torch.no_grad()
def mean_square(trained: TrainedModel, recipe: Recipe, seed: int) -> Tensor:
    """The mean square of the entries of a gradient in a training batch, for each use of a row."""
    graph, model = trained.graph, trained.model
    chosen = np.random.default_rng(seed).permutation(len(graph.train))[: recipe.batch_size]
    batch = torch.from_numpy(graph.train[chosen]).to(trained.device).long()
    generator = torch.Generator(trained.device).manual_seed(seed)
    objective, table = build_objective(recipe, model, graph), model.entities.detach()
    gradient = objective(table, model.relations.operators(), batch[:, 1], batch, generator).entities
    if not isinstance(gradient, Tensor):
        gradient = gradient.dense(len(table))
    return gradient.square().mean(1).sum() / (2 * len(batch))
