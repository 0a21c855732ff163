"""Training of path models: both questions of every fact, each asked of the graph without that fact, by Adam."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dihedral.engine.path_engine import path_loss
from dihedral.graph import Graph
from dihedral.learn.loop import Parameters, Run
from dihedral.models.path_model import PathModel
from dihedral.models.registry import build_relations
from dihedral.objectives.recipe import Recipe
from dihedral.runtime.distributed import Shard
from dihedral.scoring.path_scorer import PathScorer
from dihedral.store.trained import TrainedModel

WARM_UP = 50  # steps in which the learning rate rises
FULL_RATE = 0.5  # share of the steps before the learning rate falls to 0
MAX_NORM = 1.0  # of a gradient


class PathTrainer(Run):
    """A run that trains a path model."""

    def __init__(self, graph: Graph, recipe: Recipe, *, seed: int = 0, **options: Any) -> None:
        super().__init__(graph, recipe, seed=seed, **options)
        generator = torch.Generator().manual_seed(seed)
        relations = build_relations(
            recipe.model, graph.num_relations, recipe.dimension, recipe.K, recipe.relation_init,
            generator=generator, levels=recipe.levels,
        )  # fmt: skip
        self.model = PathModel(
            relations, recipe.steps, gated=recipe.update == "gate", frontier=recipe.frontier, generator=generator
        )
        self.model.to(self.device)
        self.uses_kernels = self.device.type == "cpu"
        self.shard = Shard.mine(graph.num_entities)
        self.parameters = Parameters(
            {name: each.data for name, each in self.model.named_parameters()}, recipe.averaging
        )
        self.asked = PathScorer(self.model, graph.train_index)
        self.triples = torch.from_numpy(graph.train).long().to(self.device)
        self.epoch_size = min(recipe.facts_per_epoch or len(self.triples), len(self.triples))
        self.optimiser = torch.optim.Adam(self.model.parameters(), recipe.relation_lr)
        for each in self.model.parameters():  # before the first step, so that a checkpoint can fill it
            moments = {name: torch.zeros_like(each) for name in ("exp_avg", "exp_avg_sq")}
            self.optimiser.state[each] = {"step": torch.tensor(0.0), **moments}
        self.num_steps = recipe.epochs * -(-self.epoch_size // recipe.batch_size)

    def scorer(self) -> PathScorer:
        return self.asked

    def result(self) -> TrainedModel:
        self.parameters.set(self.parameters.best or self.parameters.average)
        model = self.model.with_codes().requires_grad_(False)
        return TrainedModel(PathScorer(model, self.graph.train_index), self.graph, recipe=self.recipe)

    def tensors(self) -> dict[str, Tensor]:
        states = {name: self.optimiser.state[each] for name, each in self.model.named_parameters()}
        adam = {f"adam.{name}.{key}": tensor for name, state in states.items() for key, tensor in state.items()}
        return super().tensors() | adam

    def train_on(self, batch: Tensor) -> Tensor:
        """One step of Adam on both questions of the facts of a batch [B, 3], of which each process has a part."""
        part = batch[self.shard.rank :: self.shard.world]
        head, relation, tail = part.unbind(1)
        steps = torch.cat([relation, relation + self.graph.num_relations])
        loss = self.loss(torch.cat([head, tail]), steps, torch.cat([tail, head])) * (len(part) / len(batch))
        self.optimiser.zero_grad()
        loss.backward()
        if not self.shard.is_single:
            parameters = list(self.model.parameters())
            gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
            for each, total in zip(parameters, self.shard.begin_sums(gradients)(), strict=True):
                each.grad = total
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        done = float(next(iter(self.optimiser.state.values()))["step"])
        falling = (1 - max(done / self.num_steps, min(1.0, self.clock.share))) / (1 - FULL_RATE)
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.relation_lr * min(1.0, (done + 1) / WARM_UP, falling)
        self.optimiser.step()
        return self.shard.sum(loss.detach())

    def loss(self, entities: Tensor, steps: Tensor, answers: Tensor) -> Tensor:
        """The mean loss of questions (entities [n], steps [n]), each without its own fact in the graph."""
        questions, weights = self.model.weights(entities, steps, generator=self.generator, temperature=1.0)
        known = self.asked.index.answers(entities, steps)
        return path_loss(self.asked.edges, questions, answers, known, weights, without_pair=self.recipe.without_pair)
