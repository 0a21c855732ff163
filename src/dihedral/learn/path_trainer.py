"""Training of path models: both questions of every fact, each asked of the graph without that fact, by Adam."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dihedral.engine.path_engine import path_loss
from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.triples import Triples
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

    def __init__(
        self,
        graph: Graph,
        recipe: Recipe,
        *,
        seed: int = 0,
        start: PathModel | None = None,
        facts: Triples | None = None,
        **options: Any,
    ) -> None:
        """start: a model to continue with, instead of a new one. facts: to train on, if not all of the graph."""
        super().__init__(graph, recipe, seed=seed, **options)
        if self.device.type not in ("cpu", "cuda"):
            raise DihedralError(f"device is {str(self.device)!r}; path models are trained on cpu or cuda")
        if start is None:
            generator = torch.Generator().manual_seed(seed)
            relations = build_relations(
                recipe.model, graph.num_relations, recipe.dimension, generator=generator, K=recipe.K,
                relation_init=recipe.relation_init, levels=recipe.levels,
            )  # fmt: skip
            start = PathModel(relations, recipe.steps, gated=recipe.update == "gate", generator=generator)
        self.model = start.to(self.device)
        self.uses_kernels = self.device.type == "cpu"
        self.shard = Shard.mine(graph.num_entities)
        trained = {name: each.data for name, each in self.model.named_parameters()}
        self.parameters = Parameters(trained, recipe.averaging)
        self.path_scorer = PathScorer(self.model, graph.train_index)
        self.triples = torch.from_numpy(graph.train if facts is None else facts).long().to(self.device)
        self.epoch_size = min(recipe.facts_per_epoch or len(self.triples), len(self.triples))
        self.optimiser = torch.optim.Adam(self.model.parameters(), recipe.relation_lr)
        for each in self.model.parameters():  # before the first step, so that a checkpoint can fill it
            moments = {name: torch.zeros_like(each) for name in ("exp_avg", "exp_avg_sq")}
            self.optimiser.state[each] = {"step": torch.tensor(0.0), **moments}
        with torch.no_grad():  # compiles the kernels before the time of the run begins
            self.loss(self.triples[:1])
        self.num_steps = recipe.epochs * -(-self.epoch_size // recipe.batch_size)

    def scorer(self) -> PathScorer:
        return self.path_scorer

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
        loss, passed = torch.zeros((), device=self.device), torch.tensor([self.clock.share], device=self.device)
        self.optimiser.zero_grad()
        if len(part):
            loss = self.loss(part) * (len(part) / len(batch))
            loss.backward()
        if not self.shard.is_single:
            parameters = list(self.model.parameters())
            gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
            *totals, passed = self.shard.begin_sums([*gradients, passed / self.shard.world])()
            for each, total in zip(parameters, totals, strict=True):
                each.grad = total
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        done = float(next(iter(self.optimiser.state.values()))["step"])
        falling = (1 - max(done / self.num_steps, min(1.0, float(passed)))) / (1 - FULL_RATE)
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.relation_lr * min(1.0, (done + 1) / WARM_UP, falling)
        self.optimiser.step()
        return self.shard.sum(loss.detach())

    def loss(self, facts: Tensor) -> Tensor:
        """The mean loss of both questions of facts [n, 3], each asked of the graph without its fact."""
        head, relation, tail = facts.unbind(1)
        entities, answers = torch.cat([head, tail]), torch.cat([tail, head])
        steps = torch.cat([relation, relation + self.graph.num_relations])
        operators = self.model.relations.operators(generator=self.generator)
        questions, weights = self.model.weights(entities, steps, operators)
        known = self.path_scorer.index.answers(entities, steps)
        edges = self.path_scorer.edges
        return path_loss(edges, questions, answers, known, weights, without_pair=self.recipe.without_pair)
