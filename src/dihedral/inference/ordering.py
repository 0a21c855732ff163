"""The order of answers: by score, or by probability, which also weighs rules, counts and types (`inference.evidence`).

Only the best answers by score are ordered again. Which order ranks the valid triples better is measured when
probabilities are fitted, with the evidence of the training facts alone.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.graph import Graph
from dihedral.graph.index import KnownAnswers
from dihedral.graph.steps import SIDES, Side, anchors_and_targets, question_steps
from dihedral.inference.calibration import Calibration
from dihedral.inference.evidence import Evidence
from dihedral.inference.scorer import Scorer

POOL = 50  # answers of a question that are ordered again
SAMPLE = 1000  # valid triples to compare the orders on
MIN_GAIN = 0.01  # of valid MRR, to order by probability: the probabilities are fitted on valid


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


def compare_orders(
    scorer: Scorer, graph: Graph, calibration: Calibration, split: Literal["valid", "test"] = "valid",
    *, sample: int = SAMPLE, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Filtered MRR of a sample of a split in both orders, and the order to choose."""
    evidence = Evidence(scorer, graph.train_index, calibration.rules)
    known = KnownAnswers(graph, scorer.device)
    triples = graph.split(split)
    drawn = np.random.default_rng(seed).permutation(len(triples))[:sample]
    asked = torch.from_numpy(triples[drawn].astype(np.int64)).to(scorer.device)
    ranks = [_ranks(calibration, evidence, known, asked, side) for side in SIDES]
    by_score, again = (np.concatenate(each) for each in zip(*ranks, strict=True))
    mrr = {"score": float((1 / by_score).mean()), "probability": float((1 / again).mean())}
    chosen = "probability" if mrr["probability"] - mrr["score"] > MIN_GAIN else "score"
    return {"order": chosen, "triples": len(asked), "mrr": mrr}


def _ranks(
    calibration: Calibration, evidence: Evidence, known: KnownAnswers, triples: Tensor, side: Side
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ranks of the answers of triples [n, 3], by score and by probability; beyond the pool both are equal."""
    scorer = evidence.scorer
    anchors, relation, targets = anchors_and_targets(triples, side)
    steps = question_steps(relation, side, evidence.facts.num_relations)
    own = scorer.score(triples)
    others, scores = scorer.top(anchors, steps, POOL, exclude=known)
    better = (scores > own[:, None]).sum(1) + 0.5 * (scores == own[:, None]).sum(1)
    candidates, values = torch.cat([targets[:, None], others], 1), torch.cat([own[:, None], scores], 1)
    order, _ = by_probability(calibration, evidence, as_triples(side, anchors, relation, candidates), values)
    place = (order == 0).int().argmax(1).double()
    by_score = 1 + better.cpu().double()
    again = torch.where(by_score > POOL, by_score, 1 + place)
    return by_score.numpy(), again.numpy()
