"""The proposals that probabilities are fitted on: a random share of all, and the best ones.

A graph may have millions of proposals, most of them hopeless. A random share is enough to fit the curves of evidence,
but has too few of the best to say how many of those hold. So a first model, fitted on the random share, finds the best
of all, and these replace the best of the random share. Which proposals are drawn depends on their evidence and not on
whether they hold. So the share that holds among similar ones is that of all proposals.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.graph import Graph
from dihedral.graph.triples import Triples
from dihedral.probability.additive import AdditiveModel, fit_curves
from dihedral.probability.evidence import Evidence, Features
from dihedral.probability.proposals import PER_ENTITY, propose, select

MAX_SCORES = 2e9  # pairs scored to find proposals, for the random share and again for the best
MAX_PROPOSALS = 5e5  # in the random share, about
BEST = 20_000  # proposals, about

Sides = dict[int, list[NDArray[np.int64]]]  # per relation, the entities that fit its head and its tail


def sample_proposals(
    evidence: Evidence, graph: Graph, seed: int = 0, names: tuple[int, int] | None = None
) -> tuple[Tensor, Features, NDArray[np.bool_]]:
    """Proposals [n, 3], their evidence, and which of them valid holds; those that test holds are left out.

    names: the numbers of entities and relations when valid was drawn. Valid holds no fact of later names, true or not,
    so proposals about them are left out.
    """
    sides = sides_of(evidence)
    if names is not None:
        sides = {each: [one[one < names[0]] for one in both] for each, both in sides.items() if each < names[1]}
    shares = _shares(sides)
    triples, scores = _not_in(graph.test, *draw(evidence, sides, shares, seed), graph.num_entities)
    features, relations = evidence.features(triples, scores), triples[:, 1].numpy()
    held = is_among(triples, graph.valid, graph.num_entities)
    if min(shares.values(), default=1.0) >= 1 or not held.any():
        return triples, features, held
    model = fit_curves(features, relations, held, graph.num_relations)
    z = model.logits(features, relations)
    order = np.argsort(-z)
    stands_for = 1 / np.array([shares[each] for each in relations[order].tolist()])  # proposals
    least = float(z[order[min(int(np.searchsorted(stands_for.cumsum(), BEST)), len(z) - 1)]])
    chosen = {each: sides[each] for each in np.unique(relations[z >= least]).tolist()}
    best, of_best = _best(evidence, graph, chosen, model, least, seed)
    triples = torch.cat([triples[torch.from_numpy(z < least)], best])
    features = np.concatenate([features[z < least], of_best])
    return triples, features, is_among(triples, graph.valid, graph.num_entities)


def _best(
    evidence: Evidence, graph: Graph, sides: Sides, model: AdditiveModel, least: float, seed: int
) -> tuple[Tensor, Features]:
    """The proposals of some relations with a value z of at least `least`, and their evidence."""
    share = min(1.0, MAX_SCORES / max(sum(map(_num_pairs, sides.values())), 1))
    triples, features = [], []
    for relation in sides:
        drawn = draw(evidence, sides, {relation: share}, seed)
        found = select(evidence, model, *_not_in(graph.test, *drawn, graph.num_entities), least)
        triples.append(found[0])
        features.append(found[2])
    return torch.cat(triples), np.concatenate(features)


def sides_of(evidence: Evidence) -> Sides:
    """The entities that fit each relation with facts."""
    count = evidence.facts.num_relations
    used = [relation for relation in range(count) if len(evidence.facts.members(relation))]
    return {each: [evidence.signatures.candidates(step) for step in (each, each + count)] for each in used}


def draw(evidence: Evidence, sides: Sides, shares: dict[int, float], seed: int = 0) -> tuple[Tensor, Tensor]:
    """A share of the proposals [n, 3] of some relations, and their scores [n]."""
    found = [propose(evidence, each, *sides[each], share=share, seed=seed) for each, share in shares.items()]
    if not found:
        return torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0)
    triples, scores = zip(*found, strict=True)
    return torch.cat(triples), torch.cat(scores)


def _shares(sides: Sides) -> dict[int, float]:
    """Of the proposals of each relation, so that few enough are drawn and few enough pairs are scored."""
    expected = PER_ENTITY * sum(len(heads) + len(tails) for heads, tails in sides.values())
    limit = min(1.0, MAX_PROPOSALS / max(expected, 1))
    return {each: min(limit, MAX_SCORES / max(2 * _num_pairs(both) * len(sides), 1)) for each, both in sides.items()}


def _num_pairs(sides: list[NDArray[np.int64]]) -> float:
    heads, tails = sides
    return float(len(heads)) * len(tails)


def is_among(triples: Tensor, wanted: Triples, num_entities: int) -> NDArray[np.bool_]:
    """Which triples [n, 3] are among others."""

    def keys(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        head, relation, tail = rows.T
        key: NDArray[np.int64] = (relation * num_entities + head) * num_entities + tail
        return key

    return np.isin(keys(triples.numpy()), keys(wanted.astype(np.int64)))


def _not_in(others: Triples, triples: Tensor, scores: Tensor, num_entities: int) -> tuple[Tensor, Tensor]:
    kept = torch.from_numpy(~is_among(triples, others, num_entities))
    return triples[kept], scores[kept]
