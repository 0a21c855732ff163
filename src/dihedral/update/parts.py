"""The tensors of an update: the model that it starts from, and what it trained; the rest stays as it is, bit by bit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph.changes import Change
from dihedral.learn.trainer import Start, Trainer
from dihedral.models import Model, Relations, restore_relations
from dihedral.models.registry import grow, joined, known_rows
from dihedral.objectives.recipe import Recipe
from dihedral.scoring.embedding import EmbeddingScorer
from dihedral.store.trained import TrainedModel
from dihedral.update.background import Background, QuestionSample
from dihedral.update.schedule import Schedule, in_facts

SAMPLE = 8192  # questions of other facts
MAX_PER_STEP, MIN_PER_STEP = 1024, 16  # of them; a step takes about as many scores for them as for its batch
PULL = 0.1  # of each fact of a known row back to its start, relative to the mean squared norm of vectors
NEW_RELATION_PULL = 0.003  # the same for rows with facts of new relations, which have to move to find codes
NEW_RELATION_INIT = 0.1  # spread of what new relations start with, relative to the recipe's
FIRST_STEP = 0.25  # of known rows, relative to the step that would reach the minimum of a quadratic loss


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

    # --- before training -------------------------------------------------------------------------

    def start(self) -> Start:
        """Known rows, random fresh rows, and relations that may grow."""
        operator, relation_rows = self._relations()
        model = Model(self._table(), operator)
        background, schedule = self._background(model.entities.detach()), self.schedule
        sums = self._relation_sums(model) | {"entities": torch.zeros_like(model.entities.detach())}
        quadratic = self.recipe.entity_lr * background.pull / max(1, len(schedule.facts))
        sums["entities"][background.rows] = (quadratic / FIRST_STEP) ** 2
        return Start(model, schedule.facts, schedule.rows, background, relation_rows, sums, self._digest)

    def _table(self) -> Tensor:
        old, fresh = self.old.entities.detach(), torch.from_numpy(self.schedule.fresh).to(self.trained.device)
        drawn = torch.randn(len(fresh), old.shape[1], generator=torch.Generator().manual_seed(self.seed))
        table = drawn.mul_(self.recipe.entity_init).to(old.device)
        table[~fresh] = old[~fresh[: len(old)]]
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

    def _relation_sums(self, model: Model) -> dict[str, Tensor]:
        """The sums of Adagrad that the relations were stored with; 0 for new ones."""
        found, known = {}, known_rows(model.relations, self.old.num_relations)
        for name, parameter in model.relations.named_parameters():
            stored = (self.trained.optimiser or {}).get(f"relations.{name}")
            if stored is not None:
                if stored.shape != (int(known.sum()), *parameter.shape[1:]):
                    raise DihedralError(f"the optimiser's state of {name} is {list(stored.shape)}, which is damaged")
                found[f"relations.{name}"] = total = torch.zeros_like(parameter.data)
                total[known] = stored.to(total.device)
        return found

    def _background(self, table: Tensor) -> Background:
        """In a softmax over all entities, rows with facts of new relations do without the sample, which slows them."""
        schedule, recipe, added = self.schedule, self.recipe, self.change.added
        scorer = EmbeddingScorer(Model(table, self.old.relations).requires_grad_(False))
        rows, fresh = (torch.from_numpy(each).to(table.device) for each in (schedule.rows, schedule.fresh))
        known, count = ~fresh, int(schedule.rows.sum())
        of_new = in_facts(added[added[:, 1] >= self.old.num_relations], len(table))
        degrees = np.bincount(self.trained.graph.train[:, [0, 2]].ravel(), minlength=len(table))
        pull = torch.from_numpy(degrees * np.where(of_new, NEW_RELATION_PULL, PULL)).to(table) * known
        loose = torch.from_numpy(of_new).to(known.device) & known & (recipe.objective == "softmax")
        per_question = len(table) if recipe.objective == "softmax" else 8 * recipe.negatives
        return Background(
            rows=rows.nonzero()[:, 0],
            start=table[rows],
            pull=(pull * self.old.entities.detach().square().sum(1).mean())[rows, None],
            now_weight=(~loose)[rows].float(),
            start_weight=(known & ~loose)[rows].float(),
            sample=QuestionSample.draw(scorer, schedule.others, recipe, size=SAMPLE, seed=self.seed, left_out=fresh),
            per_step=max(MIN_PER_STEP, min(MAX_PER_STEP, recipe.batch_size * per_question // max(1, count))),
        )

    def _digest(self) -> str:
        """Identifies the model that is updated and what is done with it."""
        found = hashlib.sha256(f"{self.schedule.epochs} {self.relations}".encode())
        tensors = [self.old.entities.detach(), *self.old.relations.stored().values()]
        arrays = [self.schedule.fresh, self.schedule.known, self.schedule.facts]
        for array in (*(each.cpu().numpy() for each in tensors), *arrays):
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()

    # --- after training --------------------------------------------------------------------------

    def result(self, trainer: Trainer) -> TrainedModel:
        """The trained rows and relations in a model that is otherwise the old one."""
        old, trained = self.old, self.trained
        model, latents = trainer.best_model()
        table = model.entities.detach().clone()
        kept = torch.from_numpy(~self.schedule.rows).to(trained.device)
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
            optimiser=None if trained.optimiser is None else trained.optimiser | trainer.relation_sums(),
        )
