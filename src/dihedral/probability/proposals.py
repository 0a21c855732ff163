"""Proposals: facts that the graph does not hold and that could be missing from it.

The candidates of a relation are the pairs of entities that fit its two sides. Of these, the proposals are the best
tails of each head and the best heads of each tail by score, and the pairs that counted rules imply.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.probability.additive import AdditiveModel
from dihedral.probability.evidence import CHUNK, Evidence, Features
from dihedral.runtime import interruption

PER_ENTITY = 10  # proposals by score for each head and for each tail
MIN_CONFIDENCE = 0.1  # pairs that such a rule implies are proposed whatever their score
TILE = 1 << 21  # scores at a time

Ids = NDArray[np.int64]
Values = NDArray[np.float32]


def propose(
    evidence: Evidence, relation: int, heads: Ids, tails: Ids, *, share: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Distinct unknown triples [n, 3] of a relation with these heads and tails, and their scores [n].

    share: of the heads and of the tails that are asked for their best partners, drawn at random.
    """
    count = evidence.facts.num_entities
    rng = np.random.default_rng([seed, relation])
    asked = [own if share >= 1 else own[rng.random(len(own)) < share] for own in (heads, tails)]
    if share >= 1:
        found = list(_best(evidence, relation, heads, tails, of_heads=True, of_tails=True))
    else:
        found = [*_best(evidence, relation, asked[0], tails, of_heads=True)]
        found += _best(evidence, relation, heads, asked[1], of_tails=True)
    by_score, values = [np.concatenate(each) for each in zip(*found, strict=True)] if found else [np.zeros(0, int)] * 2
    parts = np.array_split(asked[0], -(-len(asked[0]) // CHUNK) or 1)
    implied = [_implied(evidence, relation, part, tails) for part in parts]
    keys, first = np.unique(np.concatenate([by_score, *implied]), return_index=True)
    head, tail = np.divmod(keys, count)
    triples = torch.from_numpy(np.stack([head, np.full_like(head, relation), tail], axis=1))
    unknown = (evidence.facts.locate(*triples.unbind(1)) < 0) & (triples[:, 0] != triples[:, 2])
    triples, first = triples[unknown], first[unknown.numpy()]
    has_score = first < len(by_score)
    scores = torch.empty(len(triples))
    scores[has_score] = torch.from_numpy(values[first[has_score]]).float()
    scores[~has_score] = evidence.scorer.score(triples[~has_score]).float().cpu()
    return triples, scores


def select(
    evidence: Evidence, model: AdditiveModel, triples: Tensor, scores: Tensor, least: float
) -> tuple[Tensor, Tensor, Features, NDArray[np.float64]]:
    """The triples [n, 3] with a value z of at least `least`, their scores, evidence and z.

    Rules are looked up only for triples that may reach it.
    """
    may = model.logits(evidence.features(triples, scores, of_rules=False), triples[:, 1].numpy()) >= least
    triples, scores = triples[torch.from_numpy(may)], scores[torch.from_numpy(may)]
    features = evidence.features(triples, scores)
    z = model.logits(features, triples[:, 1].numpy())
    kept = torch.from_numpy(z >= least)
    return triples[kept], scores[kept], features[z >= least], z[z >= least]


def _best(
    evidence: Evidence, relation: int, heads: Ids, tails: Ids, *, of_heads: bool = False, of_tails: bool = False
) -> Iterator[tuple[Ids, Values]]:
    """Pairs head · N + tail of the unknown tails with the highest scores for each head, or heads for each tail."""
    if not len(heads) or not len(tails):
        return
    best, which = torch.empty(0, len(tails)), torch.empty(0, len(tails), dtype=torch.int64)  # heads of each tail
    for part, scores in _tiles(evidence, relation, heads, tails):
        if of_heads:
            top = scores.topk(min(PER_ENTITY, len(tails)))
            keys = part[:, None] * evidence.facts.num_entities + tails[top.indices.cpu().numpy()]
            yield keys.ravel(), top.values.cpu().numpy().ravel()
        if of_tails:
            top = scores.T.contiguous().topk(min(PER_ENTITY, len(part)))
            best = torch.cat([best, top.values.T.cpu()])
            which = torch.cat([which, torch.from_numpy(part)[top.indices.T.cpu()]])
            best, order = best.topk(min(PER_ENTITY, len(best)), dim=0)
            which = which.gather(0, order)
    if of_tails:
        yield (which * evidence.facts.num_entities + torch.from_numpy(tails)).numpy().ravel(), best.numpy().ravel()


def _tiles(evidence: Evidence, relation: int, heads: Ids, tails: Ids) -> Iterator[tuple[Ids, Tensor]]:
    """Some heads at a time, and their scores with all tails: -inf for known facts."""
    facts, score_rows = evidence.facts, evidence.scorer.rows(torch.from_numpy(tails))
    place = np.full(facts.num_entities, -1)
    place[tails] = np.arange(len(tails))
    for part in np.array_split(heads, -(-len(heads) * len(tails) // TILE)):
        interruption.check()
        asked = torch.from_numpy(part)
        steps = torch.full_like(asked, relation)
        scores = score_rows(asked, steps)
        row, ends = facts.answers(asked, steps)
        column = torch.from_numpy(place[ends.numpy()])
        scores[row[column >= 0], column[column >= 0]] = float("-inf")
        yield part, scores


def _implied(evidence: Evidence, relation: int, heads: Ids, tails: Ids) -> Ids:
    """Pairs head · N + tail that a rule of high confidence implies."""
    keys, confidence = evidence.rules.implied(evidence.facts, relation, heads)
    row, tail = np.divmod(keys[confidence >= MIN_CONFIDENCE], evidence.facts.num_entities)
    kept = np.isin(tail, tails)
    result: Ids = heads[row[kept]] * evidence.facts.num_entities + tail[kept]
    return result
