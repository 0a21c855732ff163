"""Training of embeddings: an entity table and relation operators, by the gradients of an objective and Adagrad."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dihedral.engine.adagrad import Adagrad
from dihedral.engine.cuda import CapturedStep
from dihedral.errors import DihedralError
from dihedral.graph import Graph, GraphIndex
from dihedral.learn.loop import Parameters, Run
from dihedral.learn.path_trainer import PathTrainer
from dihedral.models import Model, build_model, restore_relations
from dihedral.models.dihedral import temperature_at
from dihedral.objectives.base import grouped
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


class Trainer(Run):
    """A run that trains embeddings: the model, its optimisers and its objective."""

    def __init__(self, graph: Graph, recipe: Recipe, *, seed: int = 0, **options: Any) -> None:
        """options: those of `Run`, such as device."""
        super().__init__(graph, recipe, seed=seed, **options)
        model = build_model(
            recipe.model, graph.num_entities, graph.num_relations, seed=seed, dimension=recipe.dimension, K=recipe.K,
            scaled=recipe.relation_scale, entity_init=recipe.entity_init, relation_init=recipe.relation_init,
            levels=recipe.levels, reciprocal=recipe.reciprocal,
        )  # fmt: skip
        self.model = model.to(self.device).requires_grad_()
        self.shard = self.model.shard
        self.optimisers = {
            name: Adagrad(parameter, recipe.entity_lr if name in BY_ENTITY_LR else recipe.relation_lr)
            for name, parameter in self.model.named_parameters()
        }
        trained = {name: each.parameter for name, each in self.optimisers.items()}
        self.parameters = Parameters(trained, recipe.averaging)
        self.temperature = torch.ones((), device=self.device)
        self.triples = torch.from_numpy(graph.train).to(self.device).long()
        self.index: GraphIndex | None = None  # of the facts, if questions are grouped
        self.captured: CapturedStep | None = None
        self.steps_before_capture = math.inf  # steps that are not captured, of all that could be
        full_batches = recipe.epochs * (len(self.triples) // recipe.batch_size)
        capturable = self.device.type == "cuda" and self.shard.is_single and full_batches >= MIN_CAPTURED
        if recipe.group_questions:
            self.index = graph.train_index.to(self.device)
            self.questions = self.index.keys
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

    def train_on(self, batch: Tensor) -> Tensor:
        """Train on a batch [B, 3]; on CUDA, full batches replay a captured step after a few plain ones."""
        if len(batch) < self.recipe.batch_size or self.steps_before_capture > 0:
            self.steps_before_capture -= len(batch) == self.recipe.batch_size
            return self.step(batch)
        self.captured = self.captured or CapturedStep(self.step, batch, self.generator)
        return self.captured(batch)

    def step(self, batch: Tensor) -> Tensor:
        """One plain step on a batch [B, 3], or on questions [Q]; returns its loss."""
        asked: Any  # facts, or questions with all of their answers
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
        self.optimisers["entities"].step(found.entities)
        operator_gradient, loss, self.requests = sums()
        names, parameters = zip(*relations.named_parameters(), strict=True)
        gradients = torch.autograd.grad(operators, parameters, operator_gradient)
        for name, gradient in zip(names, gradients, strict=True):
            self.optimisers[f"relations.{name}"].step(gradient)
        return loss

    def result(self) -> TrainedModel:
        return TrainedModel(self.best_model(), self.graph, recipe=self.recipe)

    def best_model(self) -> Model:
        """The model to keep, with the relations as they are stored."""
        self.parameters.set(self.parameters.best or self.parameters.average)
        relations, recipe = self.model.relations, self.recipe
        stored = {name: tensor.clone() for name, tensor in relations.stored().items()}
        about = relations.num_relations, recipe.dimension, relations.settings()
        kept = restore_relations(recipe.model, stored, *about)
        return Model(self.model.entities.detach(), kept.to(self.device), self.shard).requires_grad_(False)


def make_run(graph: Graph, recipe: Recipe, **options: Any) -> Run:
    """The run of a recipe, of a path model or of embeddings; options: those of `Run`, such as seed."""
    return (PathTrainer if recipe.objective == "paths" else Trainer)(graph, recipe, **options)


def build_objective(recipe: Recipe, model: Model, graph: Graph) -> LogisticLoss | SoftmaxLoss:
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
