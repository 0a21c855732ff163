"""Training of embeddings: an entity table and relation operators, by the gradients of an objective and Adagrad."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.engine.adagrad import Adagrad, RowGradients
from dihedral.engine.cuda import CapturedStep
from dihedral.errors import DihedralError
from dihedral.graph import Graph, GraphIndex
from dihedral.graph.triples import Triples
from dihedral.learn.loop import Parameters, Run
from dihedral.models import Model, Relations, build_model, restore_relations
from dihedral.models.dihedral import temperature_at
from dihedral.objectives.base import Objective, grouped
from dihedral.objectives.logistic import LogisticLoss, SkewNegatives
from dihedral.objectives.recipe import Recipe
from dihedral.objectives.regularisers import make_regulariser
from dihedral.objectives.softmax import SoftmaxLoss
from dihedral.objectives.walks import Compositions, Walks
from dihedral.scoring.embedding import EmbeddingScorer
from dihedral.store.trained import TrainedModel

STEPS_BEFORE_CAPTURE = 3  # kernels compile and allocators warm up in these
MIN_CAPTURED = 100  # full batches that repay the time of a capture
BY_ENTITY_LR = ("entities", "relations.log_scales")


class ExtraGradient(Protocol):
    """What some rows of entities learn from, besides the facts of a run."""

    @property
    def rows(self) -> Tensor:
        """int64 [n]: the entities."""

    def gradient(self, relations: Relations, table: Tensor, generator: torch.Generator) -> Tensor:
        """The gradient [n, 2L] of a loss that is a sum over facts, for one step."""


@dataclass(frozen=True, eq=False)
class Start:
    """The model that a run starts from, and what the run trains; everything else keeps its values, bit by bit."""

    model: Model
    facts: Triples
    rows: NDArray[np.bool_] | None = None  # [N]: the entities to train; None trains all
    extra: ExtraGradient | None = None
    relation_rows: Tensor | None = None  # bool: the rows of relation parameters to train; None trains all
    sums: Mapping[str, Tensor] = field(default_factory=dict)  # of Adagrad, by parameter; those missing start at 0
    digest: Callable[[], str | None] = lambda: None  # a checkpoint with another digest is not resumed

    @classmethod
    def new(cls, graph: Graph, recipe: Recipe, seed: int) -> Start:
        """A new model, of which everything is trained on all facts."""
        model = build_model(
            recipe.model, graph.num_entities, graph.num_relations, seed=seed, dimension=recipe.dimension, K=recipe.K,
            scaled=recipe.relation_scale, entity_init=recipe.entity_init, relation_init=recipe.relation_init,
            levels=recipe.levels, reciprocal=recipe.reciprocal,
        )  # fmt: skip
        return cls(model, graph.train)


class Trainer(Run):
    """A run that trains embeddings: the model, its optimisers and its objective."""

    def __init__(
        self, graph: Graph, recipe: Recipe, *, seed: int = 0, start: Start | None = None, **options: Any
    ) -> None:
        """start: a part of a model to continue with, instead of a new one. options: those of `Run`, such as device."""
        super().__init__(graph, recipe, seed=seed, **options)
        self.start = start or Start.new(graph, recipe, seed)
        self.model = self.start.model.to(self.device).requires_grad_()
        self.shard = self.model.shard
        rows = self.start.relation_rows
        self.relation_rows = None if rows is None else rows.to(self.device)
        self.trains_relations = rows is None or bool(rows.any())
        self.optimisers = {
            name: Adagrad(parameter, recipe.entity_lr if name in BY_ENTITY_LR else recipe.relation_lr)
            for name, parameter in self.model.named_parameters()
            if name == "entities" or self.trains_relations
        }
        for name in self.start.sums.keys() & self.optimisers.keys():
            self.optimisers[name].sum.copy_(self.start.sums[name])
        trained = {name: each.parameter for name, each in self.optimisers.items()}
        self.parameters = Parameters(trained, recipe.averaging)
        self.temperature = torch.ones((), device=self.device)
        self.rows = None if self.start.rows is None else torch.from_numpy(self.start.rows).to(self.device)
        self.triples = torch.from_numpy(self.start.facts).to(self.device).long()
        self.index: GraphIndex | None = None  # of the facts, if questions are grouped
        self.captured: CapturedStep | None = None
        self.steps_before_capture = math.inf  # steps that are not captured, of all that could be
        full_batches = recipe.epochs * (len(self.triples) // recipe.batch_size)
        capturable = self.device.type == "cuda" and self.shard.is_single and full_batches >= MIN_CAPTURED
        if recipe.group_questions:
            index = GraphIndex.build([self.start.facts], graph.num_entities, graph.num_relations)
            self.index, self.questions = index.to(self.device), index.keys.to(self.device)
        elif capturable and not recipe.candidates:  # the size of a sample varies
            self.steps_before_capture = STEPS_BEFORE_CAPTURE
        self.objective = build_objective(recipe, self.model, graph)
        self.uses_kernels = self.objective.compiled and self.device.type == "cpu"

    def begin_epoch(self) -> None:
        self.temperature.fill_(self._temperature(self.state.epoch))

    def epoch_values(self) -> dict[str, float]:
        is_used = self.model.relations.uses_temperature
        return {"temperature": self._temperature(self.state.epoch - 1)} if is_used else {}

    def _temperature(self, epoch: int) -> float:
        recipe = self.recipe
        return temperature_at(epoch, recipe.temperature, recipe.temperature_floor, recipe.cooling)

    def scorer(self) -> EmbeddingScorer:
        return EmbeddingScorer(self.model)

    def tensors(self) -> dict[str, Tensor]:
        return super().tensors() | {f"adagrad.{name}": each.sum for name, each in self.optimisers.items()}

    def digest(self) -> str | None:
        return self.start.digest()

    # --- one step ------------------------------------------------------------------------------

    def train_on(self, batch: Tensor) -> Tensor:
        """Train on a batch [B, 3]; on CUDA, full batches replay a captured step after a few plain ones."""
        if len(batch) < self.recipe.batch_size or self.steps_before_capture > 0:
            self.steps_before_capture -= len(batch) == self.recipe.batch_size
            return self.step(batch)
        self.captured = self.captured or CapturedStep(self.step, batch, self.generator)
        return self.captured(batch)

    def step(self, batch: Tensor) -> Tensor:
        """One plain step on a batch [B, 3], or on questions [Q]; returns its loss."""
        asked, used = (batch, batch[:, 1]) if self.index is None else grouped(self.index, batch)
        relations, table = self.model.relations, self.model.entities.detach()
        needs_all = self.recipe.relation_weight or self.recipe.paths
        if self.device.type == "cpu" and not needs_all:
            which, index = torch.unique(used, return_inverse=True)
        else:  # on a GPU, counting the relations in use would wait for the device
            which, index = None, used
        noise: Any = self.generator
        if self.index is not None and self.device.type == "cpu":
            noise = np.random.default_rng(int(torch.randint(2**62, (), generator=self.generator)))
        operators = relations.operators(which, noise, self.temperature)
        found = self.objective(table, operators, index, asked, self.generator)
        sums = self.shard.begin_sums([found.operators, found.loss, self.requests])
        entities = found.entities
        if (extra := self.start.extra) is not None:
            slopes = extra.gradient(relations, table, self.generator) / len(self.triples)
            if isinstance(entities, Tensor):
                entities.index_add_(0, extra.rows, slopes)
            else:
                entities = entities.joined(RowGradients(extra.rows, slopes))
        self.step_entities(entities)
        operator_gradient, loss, self.requests = sums()
        if self.trains_relations:
            self.step_relations(operators, operator_gradient)
        return loss

    def step_entities(self, gradient: RowGradients | Tensor) -> None:
        """Train entities with a gradient."""
        optimiser, rows = self.optimisers["entities"], self.rows
        if isinstance(gradient, Tensor):
            optimiser.step(gradient if rows is None else _masked(gradient, rows))
        else:
            optimiser.step_rows(gradient if rows is None else gradient.only(rows))

    def step_relations(self, operators: Tensor, gradient: Tensor) -> None:
        """Train relations with the gradient of the loss by their operators."""
        names, parameters = zip(*self.model.relations.named_parameters(), strict=True)
        gradients = torch.autograd.grad(operators, parameters, gradient)
        for name, found in zip(names, gradients, strict=True):
            kept = found if self.relation_rows is None else _masked(found, self.relation_rows)
            self.optimisers[f"relations.{name}"].step(kept)

    # --- the result ----------------------------------------------------------------------------

    def result(self) -> TrainedModel:
        model, latents = self.best_model()
        return TrainedModel(model, self.graph, recipe=self.recipe, latents=latents, optimiser=self.relation_sums())

    def relation_sums(self) -> dict[str, Tensor]:
        """The sums of Adagrad of the relations that are trained, by the name of the parameter."""
        return {name: each.sum for name, each in self.optimisers.items() if name != "entities"}

    def best_model(self) -> tuple[Model, dict[str, Tensor]]:
        """The model to keep, with the relations as they are stored, and the latent parameters that they come from."""
        self.parameters.set(self.parameters.best or self.parameters.average)
        relations, recipe = self.model.relations, self.recipe
        latents = {name: parameter.detach().clone() for name, parameter in relations.named_parameters()}
        stored = {name: tensor.clone() for name, tensor in relations.stored().items()}
        about = relations.num_relations, recipe.dimension, relations.settings()
        kept = restore_relations(recipe.model, stored, *about)
        model = Model(self.model.entities.detach(), kept.to(self.device), self.shard)
        return model.requires_grad_(False), latents


def _masked(gradient: Tensor, rows: Tensor) -> Tensor:
    """A gradient with zeros in the rows that are not in a mask; Adagrad leaves those as they are."""
    return gradient * rows.view(-1, *[1] * (gradient.ndim - 1))


def build_objective(recipe: Recipe, model: Model, graph: Graph) -> Objective:
    """The objective of a recipe."""
    shard, device, relations = model.shard, model.entities.device, model.relations
    for name in ("component_weight", "regularise_negatives", "candidates"):  # they need all negatives in one place
        if not shard.is_single and getattr(recipe, name):
            raise DihedralError(
                f"{name} is {getattr(recipe, name)} with {shard.world} processes; leave it out or use one process"
            )
    kind = SoftmaxLoss if recipe.objective == "softmax" else LogisticLoss
    settings = {each.name: getattr(recipe, each.name) for each in fields(kind) if hasattr(recipe, each.name)}
    own, weight = recipe.regulariser, recipe.regulariser_weight
    settings |= {"regulariser": make_regulariser(own, weight, recipe.regularise_relations), "shard": shard}
    if kind is SoftmaxLoss:
        walks = Walks.build(graph, device) if recipe.paths else None
        compositions = Compositions.build(graph, device) if recipe.composition_weight else None
        return SoftmaxLoss(relations, walks=walks, compositions=compositions, **settings)
    skew = SkewNegatives.build(graph.train_index, recipe.skew_probability, device) if recipe.skew_probability else None
    return LogisticLoss(relations, graph.num_entities, skew=skew, **settings)
