"""Fold-in: a new entity from a few facts, without training.

The relations and the other entities stay fixed, so a score is linear in the new vector x: φ = ⟨x, Rt⟩ where it is the
head and ⟨x, Rᵀh⟩ where it is the tail. Least squares asks that its facts score as high as facts of their relations do,
and that the same questions with random entities score as low as random triples do.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor

from dihedral.errors import DihedralError, check_triples
from dihedral.graph import Graph
from dihedral.graph.prefixes import expand
from dihedral.graph.vocabulary import Vocabulary
from dihedral.inference.predictor import Predictor
from dihedral.inference.scorer import Scorer
from dihedral.models import Model

NUM_RANDOM = 64  # random entities that each fact's question is also asked with
RIDGE = 0.3  # relative to the mean squared length of a query: keeps the vector short where facts say nothing


@torch.no_grad()
def fold_in(predictor: Predictor, name: str, facts: Sequence[tuple[str, str, str]], *, seed: int = 0) -> Predictor:
    """A predictor that knows one more entity; every fact names it once, with a known entity on the other side."""
    graph, scorer = predictor.graph, predictor.scorer
    model = scorer.model
    check_triples(facts)
    full = lambda each: expand(each, graph.entities.prefixes)  # noqa: E731
    name, facts = full(name), list(dict.fromkeys((full(h), r, full(t)) for h, r, t in facts))
    if not name:
        raise DihedralError("the new entity has no name; give one")
    if name in graph.entities:
        raise DihedralError(f"entity {name!r} is in the graph already; a new one needs another name")
    if not facts:
        raise DihedralError(f"entity {name!r} has no facts; give at least one to place it by")
    if scorer.candidates.shape[1] != model.dimension:
        raise DihedralError(f"a {model.relations.kind!r} model is not bilinear; fold-in needs a bilinear model")
    new = graph.num_entities
    triples = []
    for head, relation, tail in facts:
        if (head == name) == (tail == name):
            raise DihedralError(f"fact {(head, relation, tail)!r} must name {name!r} once, as head or as tail")
        h, t = (new if each == name else graph.entities.id(each) for each in (head, tail))
        triples.append((h, graph.relations.id(relation), t))
    own = np.array(triples, graph.train.dtype)
    vector = _solve(scorer, graph, own, new, seed)
    names = Vocabulary([*graph.entities, name], prefixes=graph.entities.prefixes)
    wider = graph.replace(entities=names, train=np.concatenate([graph.train, own]))
    grown = Model(torch.cat([scorer.entities, vector[None]]), model.relations)
    kept = {key: deepcopy(predictor.metrics[key]) for key in ("calibration",) if key in predictor.metrics}
    return Predictor(grown, wider, recipe=predictor.recipe, metrics=kept)  # no longer the model that was measured


def _solve(scorer: Scorer, graph: Graph, facts: np.ndarray, new: int, seed: int) -> Tensor:
    """The vector [2L] by ridge regression over the facts' questions and random ones."""
    entities, device = scorer.entities, scorer.device
    generator = torch.Generator().manual_seed(seed)
    questions, targets, weights = [], [], []
    for h, r, t in facts.tolist():
        # the new entity is the answer: of a step backwards from the tail, or forwards from the head
        other, step = (t, graph.num_relations + r) if h == new else (h, r)
        random = torch.randint(len(entities), (NUM_RANDOM,), generator=generator).to(device)
        anchors = torch.cat([torch.tensor([other], device=device), random])
        high, low = _levels(scorer, graph, r, generator)
        questions.append(scorer.queries(anchors, torch.full_like(anchors, step)))  # [1 + NUM_RANDOM, 2L]
        targets.append(torch.cat([high[None], low.expand(NUM_RANDOM)]))
        weights.append(torch.cat([torch.ones(1), torch.full((NUM_RANDOM,), 1 / NUM_RANDOM)]).to(device))
    matrix, target, weight = torch.cat(questions), torch.cat(targets), torch.cat(weights)
    gram = matrix.T @ (matrix * weight[:, None])
    ridge = RIDGE * matrix.square().sum(dim=1).mean() * torch.eye(len(gram), device=gram.device)
    return torch.linalg.solve(gram + ridge, matrix.T @ (target * weight))


def _levels(scorer: Scorer, graph: Graph, relation: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The mean scores of the relation's training facts and of random triples of it."""
    true = torch.from_numpy(graph.facts_of(relation)[:NUM_RANDOM].astype(np.int64))
    random = torch.randint(graph.num_entities, (NUM_RANDOM, 2), generator=generator)
    false = torch.stack([random[:, 0], torch.full((NUM_RANDOM,), relation), random[:, 1]], dim=1)
    low = scorer.score(false).mean()
    return (scorer.score(true).mean() if len(true) else low), low
