"""The order of answers: by score, or by probability, which also uses rules, counts and types.

Only the best answers by score are ordered again. Which order ranks the valid triples better is measured when
probabilities are fitted, with the evidence of the training facts alone.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.graph import Graph
from dihedral.graph.steps import SIDES, Side, anchors_and_targets, question_steps
from dihedral.probability.calibration import Calibration, OrderReport
from dihedral.probability.evidence import Evidence
from dihedral.scoring.scorer import AnswerLookup, Scorer

POOL = 200  # answers of a question that are ordered again
SAMPLE = 1000  # valid triples to compare the orders on
AT_ONCE = 4096  # questions whose evidence is in memory


def as_triples(side: Side, anchors: Tensor, relations: Tensor, answers: Tensor) -> Tensor:
    """Answers [n, k] of questions about anchors [n] and relations [n] as triples [n, k, 3]."""
    given, which = anchors[:, None].expand_as(answers), relations[:, None].expand_as(answers)
    return torch.stack([given, which, answers] if side == "tail" else [answers, which, given], dim=-1)


def by_probability(
    calibration: Calibration, evidence: Evidence, triples: Tensor, scores: Tensor
) -> tuple[Tensor, NDArray[np.float64]]:
    """The places of answers [n, k, 3] in order of probability [n, k], and their probabilities as they were given.

    Answers with a score of -inf are places that no answer fills; they come last.
    """
    shape = tuple(scores.shape)
    found, z = calibration.estimate(evidence, triples.reshape(-1, 3), scores.flatten())
    found, z = found.reshape(shape), z.reshape(shape)
    is_empty = np.isneginf(scores.cpu().numpy())
    keys = -scores.cpu().numpy(), -z, -found, is_empty  # the last key counts first
    order = np.lexsort(keys, axis=-1)
    return torch.from_numpy(order), found


class Ranker:
    """Filtered ranks of the answers of triples as they are shown in order of probability.

    The evidence is that of the training facts. Known answers do not count, as in the ranks by score. Answers beyond the
    `POOL` best by score keep their rank, and so do those that tie with others beyond.
    """

    def __init__(self, scorer: Scorer, graph: Graph, calibration: Calibration) -> None:
        self.scorer, self.calibration = scorer, calibration
        self.evidence = Evidence(scorer, graph.train_index, calibration.rules)

    def rank_counts(
        self, triples: Tensor, side: Side, known: AnswerLookup, by_score: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """How many other candidates come before the answers of triples [n, 3], and how many tie with them."""
        greater, equal = (each.clone() for each in by_score)
        inside = (greater + equal < POOL).nonzero()[:, 0]
        for part in inside.split(AT_ONCE):
            greater[part], equal[part] = self._counts_in_pool(triples[part].long(), side, known)
        return greater, equal

    def _counts_in_pool(self, triples: Tensor, side: Side, known: AnswerLookup) -> tuple[Tensor, Tensor]:
        anchors, relation, targets = anchors_and_targets(triples, side)
        steps = question_steps(relation, side, self.scorer.num_relations)
        others, scores = self.scorer.top(anchors, steps, POOL - 1, exclude=known)
        candidates = torch.cat([targets[:, None], others], 1)
        scores = torch.cat([self.scorer.score(triples, side)[:, None], scores], 1)
        asked, shape = as_triples(side, anchors, relation, candidates), tuple(scores.shape)
        likely, z = self.calibration.estimate(self.evidence, asked.reshape(-1, 3), scores.flatten())
        own = scores.cpu().numpy()
        is_greater, is_equal = np.zeros(shape, bool), ~np.isneginf(own)  # known answers fill what is left of the pool
        for key in (likely.reshape(shape), z.reshape(shape), own):
            is_greater |= is_equal & (key > key[:, :1])
            is_equal &= key == key[:, :1]
        greater, equal = (torch.from_numpy(each[:, 1:].sum(1)).to(triples.device) for each in (is_greater, is_equal))
        return greater, equal


def compare_orders(
    scorer: Scorer, graph: Graph, calibration: Calibration, split: Literal["valid", "test"] = "valid",
    *, sample: int = SAMPLE, seed: int = 0,
) -> OrderReport:  # fmt: skip
    """Filtered MRR of a sample of a split in both orders, and the order to choose."""
    known, ranker = graph.filter_index(split).to(scorer.device).answers, Ranker(scorer, graph, calibration)
    triples = graph.split(split)
    drawn = np.random.default_rng(seed).permutation(len(triples))[:sample]
    asked = torch.from_numpy(triples[drawn].astype(np.int64)).to(scorer.device)
    inverse: dict[str, list[Tensor]] = {"score": [], "probability": []}
    for side in SIDES:
        by_score = scorer.rank_counts(asked, side, known)
        by_probability = ranker.rank_counts(asked, side, known, by_score)
        for order, (greater, equal) in zip(inverse, (by_score, by_probability), strict=True):
            inverse[order].append(1 / (1 + greater + equal / 2))
    mrr = {order: float(torch.cat(parts).double().mean()) for order, parts in inverse.items()}
    return OrderReport("probability" if mrr["probability"] > mrr["score"] else "score", len(asked), mrr)
