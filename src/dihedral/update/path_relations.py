"""New relations of a path model: their elements, gates and question vectors are trained, and nothing else.

They are trained on their facts and as many others, which say what answers to other questions lose or gain by paths
along the new relations.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from dihedral.graph import Graph
from dihedral.learn.loop import Callback
from dihedral.learn.path_trainer import PathTrainer
from dihedral.models import BlockRelations
from dihedral.models.path_model import PathModel
from dihedral.models.registry import grow, known_rows
from dihedral.objectives.recipe import Recipe
from dihedral.scoring.path_scorer import PathScorer

NUM_STEPS = 400  # of training, at least


def train_new_relations(
    model: PathModel, graph: Graph, recipe: Recipe, seed: int, callback: Callback | None = None
) -> tuple[PathModel, int]:
    """The model with the relations that a graph has besides the first, and the epochs that they were trained for."""
    known, rng = model.num_relations, np.random.default_rng(seed)
    is_new = graph.train[:, 1] >= known
    others = rng.permutation(np.flatnonzero(~is_new))[: is_new.sum()]
    facts = graph.train[np.concatenate([np.flatnonzero(is_new), others])]
    epochs = -(-NUM_STEPS // -(-len(facts) // recipe.batch_size))
    recipe = recipe.adapt(epochs=epochs, facts_per_epoch=0, validate_every=0, patience=0)
    device = model.vectors.device
    start = with_relations(model, graph.num_relations, recipe, seed).to(device)
    run = PathTrainer(graph, recipe, seed=seed, device=device, callback=callback, start=start, facts=facts)
    run.run()
    scorer = run.result().scorer
    assert isinstance(scorer, PathScorer)
    return scorer.model, epochs


def with_relations(model: PathModel, num_relations: int, recipe: Recipe, seed: int) -> PathModel:
    """The model with more relations, whose parameters are random and the only ones to have gradients."""
    known, L = model.num_relations, model.relations.dimension // 2
    options = {"name": recipe.model, "dimension": 2 * L, "K": recipe.K, "levels": recipe.levels,
               "relation_init": recipe.relation_init}  # fmt: skip
    relations = grow(model.relations, num_relations, options, seed)
    assert isinstance(relations, BlockRelations)
    generator = torch.Generator().manual_seed(seed)
    grown = PathModel(relations, model.num_steps, gated=model.mixing is not None, generator=generator)
    step = torch.arange(2 * num_relations) % num_relations < known
    gate = step.repeat_interleave(L)
    of_steps = {"vectors": step[:, None], "gate_weights": gate[:, None], "gate_bias": gate,
                "reading": step[:, None, None], "bias": step}  # fmt: skip
    for name, tensor in model.stored().items():
        parameter = grown.get_parameter(name)
        kept = of_steps.get(name, torch.ones((), dtype=torch.bool)).expand_as(parameter)
        parameter.data[kept] = tensor.flatten().cpu()
        _train_only(parameter, ~kept)
    rows = known_rows(relations, known)
    for parameter in relations.parameters():
        _train_only(parameter, ~rows.view(-1, *[1] * (parameter.ndim - 1)))
    return grown


def _train_only(parameter: nn.Parameter, part: Tensor) -> None:
    """Let a part of a parameter have gradients; Adam leaves the rest as it is."""
    parameter.register_hook(lambda gradient: gradient * part.to(gradient.device))
