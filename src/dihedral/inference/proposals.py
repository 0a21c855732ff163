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

from dihedral.graph.ways import distinct
from dihedral.inference.evidence import CHUNK, Evidence
from dihedral.runtime import interruption

PER_ENTITY = 10  # proposals by score for each head and for each tail
MIN_CONFIDENCE = 0.1  # of a rule whose pairs are proposed whatever their score
TILE = 1 << 21  # scores at a time

Ids = NDArray[np.int64]


def propose(evidence: Evidence, relation: int, heads: Ids, tails: Ids, *, share: float = 1.0, seed: int = 0) -> Tensor:
    """Distinct unknown triples [n, 3] of a relation with these heads and tails.

    share: of the heads and of the tails that are asked for their best partners, drawn at random.
    """
    step, count = relation, evidence.facts.num_entities
    rng = np.random.default_rng([seed, relation])
    keys = []
    for side, own, other in ((step, heads, tails), (step + evidence.facts.num_relations, tails, heads)):
        asked = own if share >= 1 else own[rng.random(len(own)) < share]
        if not len(asked) or not len(other):
            continue
        for anchors, answers in _best(evidence, side, asked, other):
            keys.append(anchors * count + answers if side == step else answers * count + anchors)
        if side == step:
            keys += [
                _implied(evidence, relation, part, tails) for part in np.array_split(asked, -(-len(asked) // CHUNK))
            ]
    found = distinct(np.concatenate(keys)) if keys else np.zeros(0, np.int64)
    head, tail = np.divmod(found, count)
    triples = torch.from_numpy(np.stack([head, np.full_like(head, relation), tail], axis=1))
    known = evidence.facts.locate(*triples.unbind(1)) >= 0
    return triples[~known & (triples[:, 0] != triples[:, 2])]


def _best(evidence: Evidence, step: int, anchors: Ids, answers: Ids) -> Iterator[tuple[Ids, Ids]]:
    """The unknown answers with the highest scores for each anchor, tile by tile."""
    scorer, facts = evidence.scorer, evidence.facts
    allowed = torch.from_numpy(answers).to(scorer.device)
    candidates = scorer.candidates[allowed]
    place = np.full(facts.num_entities, -1)
    place[answers] = np.arange(len(answers))
    for part in np.array_split(anchors, -(-len(anchors) * len(answers) // TILE)):
        interruption.check()
        asked = torch.from_numpy(part)
        steps = torch.full_like(asked, step)
        scores = scorer.queries(asked.to(scorer.device), steps.to(scorer.device)) @ candidates.T
        row, ends = facts.answers(asked, steps)
        column = torch.from_numpy(place[ends.numpy()])
        scores[row[column >= 0], column[column >= 0]] = float("-inf")
        best = scores.topk(min(PER_ENTITY, len(answers))).indices.cpu()
        yield np.repeat(part, best.shape[1]), answers[best.numpy().ravel()]


def _implied(evidence: Evidence, relation: int, heads: Ids, tails: Ids) -> Ids:
    """Pairs head · N + tail that a rule of high confidence implies."""
    keys, confidence = evidence.rules.implied(evidence.facts, relation, heads)
    row, tail = np.divmod(keys[confidence >= MIN_CONFIDENCE], evidence.facts.num_entities)
    kept = np.isin(tail, tails)
    result: Ids = heads[row[kept]] * evidence.facts.num_entities + tail[kept]
    return result
