"""A new entity from a few facts, without training again.

The relations and the other entities stay as they are, so a score is linear in the new vector x: φ = ⟨x, Rt⟩ where it is
the head and ⟨x, Rᵀh⟩ where it is the tail. Least squares asks that its facts score as high as facts of their relations
do, and the same questions with random entities as low as random triples do.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from dihedral.errors import DihedralError, check_triples
from dihedral.graph.prefixes import expand
from dihedral.graph.steps import Side
from dihedral.graph.triples import Vocabulary
from dihedral.inference.predictor import Predictor
from dihedral.models import Model

RANDOM = 64  # entities that a fact's question is asked with besides its own
RIDGE = 0.3  # of the mean squared length of a question: keeps the vector short where facts say nothing


@torch.no_grad()
def fold_in(predictor: Predictor, name: str, facts: Sequence[tuple[str, str, str]], *, seed: int = 0) -> Predictor:
    """A predictor that knows one entity more; every fact names it once, as head or as tail, beside a known entity."""
    graph, model = predictor.graph, predictor.model
    check_triples(facts)
    full = lambda each: expand(each, graph.entities.prefixes)  # noqa: E731
    name, facts = full(name), list(dict.fromkeys((full(h), r, full(t)) for h, r, t in facts))
    if not name:
        raise DihedralError("the new entity has no name; give one")
    if name in graph.entities:
        raise DihedralError(f"entity {name!r} is in the graph already; a new one needs another name")
    if not facts:
        raise DihedralError(f"entity {name!r} has no facts; give at least one to place it by")
    if model.candidates().shape[1] != model.dimension:
        raise DihedralError(f"a {model.relations.kind!r} model is not bilinear; a new entity needs one that is")
    new = graph.num_entities
    triples = []
    for head, relation, tail in facts:
        if (head == name) == (tail == name):
            raise DihedralError(f"fact {(head, relation, tail)!r} must name {name!r} once, as head or as tail")
        h, t = (new if each == name else graph.entities.id(each) for each in (head, tail))
        triples.append((h, graph.relations.id(relation), t))
    own = np.array(triples, graph.train.dtype)
    vector = _solve(predictor, torch.from_numpy(own.astype(np.int64)).to(predictor.device), new, seed)
    names = Vocabulary([*graph.entities, name], prefixes=graph.entities.prefixes)
    wider = replace(graph, entities=names, train=np.concatenate([graph.train, own]))
    grown = Model(torch.cat([model.entities.detach(), vector[None]]), model.relations)
    kept = {key: deepcopy(predictor.metrics[key]) for key in ("calibration",) if key in predictor.metrics}
    return Predictor(grown, wider, recipe=predictor.recipe, metrics=kept)  # no longer the model that was measured


def _solve(predictor: Predictor, facts: Tensor, new: int, seed: int) -> Tensor:
    """The vector [2L] by ridge regression over the facts' questions and random ones."""
    model, operators = predictor.model, predictor.operators
    entities = model.entities.detach()
    generator = torch.Generator().manual_seed(seed)
    questions, targets, weights = [], [], []
    for h, r, t in facts.tolist():
        side: Side = "head" if h == new else "tail"  # the new entity is what is asked for
        other = t if h == new else h
        random = torch.randint(len(entities), (RANDOM,), generator=generator).to(entities.device)
        anchors = torch.cat([torch.tensor([other], device=entities.device), random])
        relation = torch.full((len(anchors),), r, device=entities.device)
        asked = model.relations.queries(operators, relation, entities[anchors], side)  # [1 + RANDOM, 2L]
        high, low = _levels(predictor, r, generator)
        questions.append(asked)
        targets.append(torch.cat([high[None], low.expand(RANDOM)]))
        weights.append(torch.cat([torch.ones(1), torch.full((RANDOM,), 1 / RANDOM)]).to(entities.device))
    matrix, target, weight = torch.cat(questions), torch.cat(targets), torch.cat(weights)
    gram = matrix.T @ (matrix * weight[:, None])
    ridge = RIDGE * matrix.square().sum(dim=1).mean() * torch.eye(len(gram), device=gram.device)
    return torch.linalg.solve(gram + ridge, matrix.T @ (target * weight))


def _levels(predictor: Predictor, relation: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The mean scores of the relation's training facts and of random triples of it."""
    facts = predictor.graph.train[predictor.graph.train[:, 1] == relation]
    true = torch.from_numpy(facts[:RANDOM].astype(np.int64))
    random = torch.randint(predictor.graph.num_entities, (RANDOM, 2), generator=generator)
    false = torch.stack([random[:, 0], torch.full((RANDOM,), relation), random[:, 1]], dim=1)
    low = predictor.model.score(false.to(predictor.device), predictor.operators).mean()
    if not len(true):
        return low, low
    return predictor.model.score(true.to(predictor.device), predictor.operators).mean(), low
