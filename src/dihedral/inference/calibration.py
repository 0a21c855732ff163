"""Calibration: from scores to probabilities, with one threshold per relation to call a triple true or false.

Scores of different relations are not comparable. Each relation therefore has its own logistic curve, shrunk towards a
common one: a relation with few facts stays close to it. Curves are fitted on the valid triples and as many false ones,
half of them with a random entity and half with an entity that the relation has on that side in training. A probability
refers to that mix of as many true as false triples; of all possible triples, far fewer are true. A curve never falls:
of two answers to one question, the one with the higher score is the more probable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.graph import Graph
from dihedral.graph.triples import Triples
from dihedral.inference.scorer import Scorer

BINS = 15
SHRINK_SLOPE, SHRINK_OFFSET = 2.0, 0.2  # how strongly a relation's curve is shrunk to the common one
SHRINK_COMMON = 0.1  # and the common one to a gentle slope through zero
MIN_VALID = 10  # triples; fewer cannot be fitted
MIN_LABELLED = 50  # valid and false triples of a relation with its own threshold
MAX_TRIES = 20  # to draw a triple that is not a known fact


@dataclass(frozen=True)
class Calibration:
    """p(h, r, t) = sigmoid(slope_r · score + offset_r), and the p from which a triple is called true."""

    slope: Tensor  # [R]
    offset: Tensor  # [R]
    threshold: Tensor  # [R]

    def probabilities(self, scores: Tensor, relations: Tensor) -> Tensor:
        """Probabilities of scores [...] of relations [...]."""
        relations = relations.to(self.slope.device)
        logits = self.slope[relations].double() * scores.to(self.slope.device) + self.offset[relations]
        return torch.sigmoid(logits).to(scores.device, scores.dtype)  # in double: independent of the batch

    def to_dict(self) -> dict[str, list[float]]:
        return {name: [float(f"{value:.6g}") for value in getattr(self, name).tolist()] for name in _CURVES}

    @classmethod
    def from_dict(cls, content: dict[str, Any], relations: int) -> Calibration:
        curves = [torch.tensor(content[name], dtype=torch.float32) for name in _CURVES]
        if any(curve.shape != (relations,) for curve in curves):
            raise ValueError(f"expected one curve for each of {relations} relations")
        return cls(*curves)


_CURVES = ("slope", "offset", "threshold")


def false_triples(graph: Graph, triples: Triples, seed: int = 0) -> tuple[Triples, Triples]:
    """The triples, and one false triple for each; a triple for which none was found is left out.

    One side is replaced: for half of the triples by any entity, for the others by one that training has on that side
    of the relation.
    """
    rng = np.random.default_rng(seed)
    members, starts = (part.numpy() for part in graph.train_index.member_table)
    false = triples.copy()
    side = rng.choice([0, 2], len(triples))
    uniform = rng.random(len(triples)) < 0.5
    open_ = np.arange(len(triples))
    for _ in range(MAX_TRIES):
        drawn = rng.integers(graph.num_entities, size=len(open_))
        for column in (0, 2):
            here = np.flatnonzero((side[open_] == column) & ~uniform[open_])
            step = triples[open_[here], 1] + (0 if column == 0 else graph.num_relations)  # that leaves such an entity
            size = starts[step + 1] - starts[step]
            here, step, size = here[size > 0], step[size > 0], size[size > 0]
            drawn[here] = members[starts[step] + (rng.random(len(here)) * size).astype(np.int64)]
        false[open_, side[open_]] = drawn
        edges = graph.index.locate(*torch.from_numpy(false[open_]).unbind(1))
        open_ = open_[edges.numpy() >= 0]
        if not len(open_):
            break
    kept = np.delete(np.arange(len(triples)), open_)
    return triples[kept], false[kept]


def labelled(scorer: Scorer, graph: Graph, split: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, relations and truth [2n] of a split's triples and as many false ones."""
    true, false = false_triples(graph, graph.split(split), seed)
    triples = torch.from_numpy(np.concatenate([true, false]).astype(np.int64))
    truth = torch.cat([torch.ones(len(true)), torch.zeros(len(false))])
    return scorer.score(triples).float().cpu(), triples[:, 1], truth


def fit_calibration(scorer: Scorer, graph: Graph, seed: int = 0) -> Calibration | None:
    """Curves fitted on valid; None if valid holds too few triples."""
    scores, relations, truth = labelled(scorer, graph, "valid", seed)
    if len(graph.valid) < MIN_VALID or not len(scores):
        return None
    count = graph.num_relations
    scale = scores.abs().mean().clamp(min=1e-6)  # so that slopes are of the order of one
    common = torch.zeros(2, requires_grad=True)
    own = torch.zeros(2, count, requires_grad=True)
    strength = torch.tensor([SHRINK_SLOPE, SHRINK_OFFSET])
    optimiser = torch.optim.LBFGS([common, own], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        slope, offset = _curves(common, own)
        logits = slope[relations] * scores / scale + offset[relations]
        fit = F.binary_cross_entropy_with_logits(logits, truth, reduction="sum")
        total = fit + (strength * own.square().sum(dim=1)).sum() + SHRINK_COMMON * common.square().sum()
        total.backward()
        return total

    optimiser.step(loss)
    slope, offset = (part.detach() for part in _curves(common, own))
    curves = Calibration(slope / scale, offset, torch.full((count,), 0.5))
    threshold = _thresholds(curves.probabilities(scores, relations), relations, truth, count)
    return Calibration(curves.slope, curves.offset, threshold)


def _curves(common: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Slopes (never negative) and offsets: each [R]."""
    slope, offset = common[:, None] + own
    return F.softplus(slope), offset


def _thresholds(probabilities: Tensor, relations: Tensor, truth: Tensor, count: int) -> Tensor:
    """The threshold per relation with the fewest mistakes; one half for relations with few triples."""
    best = torch.full((count,), 0.5)
    for relation in range(count):
        mine = relations == relation
        if int(mine.sum()) < MIN_LABELLED:
            continue
        order = probabilities[mine].argsort(descending=True)
        sorted_p, sorted_truth = probabilities[mine][order], truth[mine][order]
        right = (2 * sorted_truth - 1).cumsum(0)  # right minus wrong if all down to here are called true
        place = int(right.argmax())
        below = sorted_p[place + 1] if place + 1 < len(sorted_p) else sorted_p[place]
        best[relation] = 0.5 * (sorted_p[place] + below)
    return best


def reliability(probabilities: Tensor, truth: Tensor, bins: int = BINS) -> list[dict[str, float]]:
    """For each bin with triples: how many, their mean probability, and the share that is true."""
    place = (probabilities * bins).long().clamp(max=bins - 1)
    rows = []
    for number in range(bins):
        here = place == number
        if here.any():
            rows.append({"triples": int(here.sum()), "probability": float(probabilities[here].mean()),
                         "true": float(truth[here].mean())})  # fmt: skip
    return rows


def expected_error(rows: list[dict[str, float]]) -> float:
    """Expected calibration error: the mean distance of probability and true share, weighted by triples."""
    total = sum(row["triples"] for row in rows)
    return sum(row["triples"] * abs(row["probability"] - row["true"]) for row in rows) / max(total, 1)


def measure_calibration(
    scorer: Scorer, graph: Graph, calibration: Calibration, split: str, seed: int = 1
) -> dict[str, Any]:
    """The reliability on a split, its expected calibration error, and the accuracy of the thresholds."""
    scores, relations, truth = labelled(scorer, graph, split, seed)
    probabilities = calibration.probabilities(scores, relations)
    rows = reliability(probabilities, truth)
    called = probabilities >= calibration.threshold[relations]
    return {
        "triples": len(truth),
        "expected_calibration_error": expected_error(rows),
        "accuracy": float((called == truth.bool()).float().mean()) if len(truth) else 0.0,
        "reliability": rows,
    }
