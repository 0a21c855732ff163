"""New relations of a path model: their elements, gates and question vectors are trained, and nothing else.

They are trained on their facts and as many others, which say what answers to other questions lose or gain by paths
along the new relations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dihedral.graph import Graph
from dihedral.learn.path_trainer import PathTrainer
from dihedral.models import BlockRelations
from dihedral.models.path_model import PathModel
from dihedral.models.registry import build_relations, restore_relations
from dihedral.objectives.recipe import Recipe
from dihedral.scoring.path_scorer import PathScorer

NUM_STEPS = 400  # of training, at least
CLOSED = -3.0  # bias that gates of new steps start with: answers to other questions hardly change at first


def train_new_relations(model: PathModel, graph: Graph, recipe: Recipe, seed: int) -> tuple[PathModel, int]:
    """The model with the further relations of a graph, and the epochs that they were trained for."""
    is_new = graph.train[:, 1] >= model.num_relations
    others = np.random.default_rng(seed).permutation(np.flatnonzero(~is_new))[: is_new.sum()]
    facts = graph.train[np.concatenate([np.flatnonzero(is_new), others])]
    epochs = -(-NUM_STEPS // -(-len(facts) // recipe.batch_size))
    recipe = recipe.adapt(epochs=epochs, facts_per_epoch=0, validate_every=0, patience=0)
    start = _with_relations(model, graph.num_relations, recipe, seed)
    run = PathTrainer(graph, recipe, seed=seed, device=model.vectors.device, start=start, facts=facts)
    run.run()
    scorer = run.result().scorer
    assert isinstance(scorer, PathScorer) and isinstance(scorer.model.relations, _Extended)
    scorer.model.relations = scorer.model.relations.whole(recipe.model)
    return scorer.model, epochs


class _Extended(BlockRelations):
    """Known relations, which stay as they are, and new ones."""

    def __init__(self, known: BlockRelations, new: BlockRelations) -> None:
        super().__init__(known.num_relations + new.num_relations, known.dimension)
        self.new, self._known = new, [known]  # in a list, so that it is no part of this module
        self.register_buffer("fixed", known.exact().detach())
        self.fixed: Tensor

    def operators(self, which: Tensor | None = None, generator: Any = None, temperature: Any = 1.0) -> Tensor:
        found = torch.cat([self.fixed, self.new.operators(None, generator, temperature)])
        return found if which is None else found[which]

    def whole(self, kind: str) -> BlockRelations:
        """All of them as relations of a stored model."""
        known, new = self._known[0], self.new.stored()
        tensors = {name: torch.cat([tensor, new[name]]) for name, tensor in known.stored().items()}
        found = restore_relations(kind, tensors, self.num_relations, self.dimension, known.settings())
        assert isinstance(found, BlockRelations)
        return found.to(self.fixed.device).requires_grad_(False)


def _with_relations(model: PathModel, num_relations: int, recipe: Recipe, seed: int) -> PathModel:
    """The model with more relations, whose parameters are random and the only ones that have gradients."""
    known, L, device = model.num_relations, model.relations.dimension // 2, model.vectors.device
    generator = torch.Generator().manual_seed(seed)
    new = build_relations(
        recipe.model, num_relations - known, 2 * L, generator=generator, K=recipe.K, levels=recipe.levels,
        relation_init=recipe.relation_init,
    )  # fmt: skip
    relations = _Extended(model.relations, new.to(device))
    grown = PathModel(relations, model.num_steps, gated=model.mixing is not None, generator=generator).to(device)
    step = torch.arange(2 * num_relations, device=device) % num_relations < known
    gate = step.repeat_interleave(L)
    grown.gate_bias.data[:, ~gate] = CLOSED
    of_steps = {"vectors": step[:, None], "gate_weights": gate[:, None], "gate_bias": gate,
                "reading": step[:, None, None], "bias": step}  # fmt: skip
    for name, tensor in model.stored().items():
        parameter = grown.get_parameter(name)
        kept = of_steps.get(name, torch.ones((), dtype=torch.bool, device=device)).expand_as(parameter)
        parameter.data[kept] = tensor.flatten()
        parameter.register_hook(lambda gradient, new=~kept: gradient * new)  # Adam leaves the rest as it is
    return grown
