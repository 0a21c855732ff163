"""Probabilities for scores, and a threshold a relation to say true or false.

Scores of different relations are not comparable, so each relation has a logistic curve of its own, drawn towards one
that all share: a relation with few facts keeps close to it. Curves are fitted on valid triples and as many false ones,
half of them with a random entity and half with one that the relation is known to take there. A probability
is to be read against that mix, in which true and false are as many; of all triples there could be, few are true.
A curve never falls: of two answers to one question the one with the higher score is the likelier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.graph import Graph
from dihedral.graph.triples import Triples, members_of, triple_keys

if TYPE_CHECKING:
    from dihedral.inference.predictor import Predictor

BINS = 15
SHRINK_SLOPE, SHRINK_OFFSET = 2.0, 0.2  # how strongly a relation's own curve is drawn to the common one
SHRINK_COMMON = 0.1  # and that one to a gentle slope through nought
MIN_VALID = 10  # triples; fewer say nothing
ENOUGH = 50  # valid and false triples of a relation for a threshold of its own
TRIES = 20  # to draw a false triple that is not a known fact


@dataclass(frozen=True)
class Calibration:
    """p(h, r, t) = sigmoid(slope_r · score + offset_r), and from which p on a triple is called true."""

    slope: Tensor  # [R]
    offset: Tensor  # [R]
    threshold: Tensor  # [R]

    def probabilities(self, scores: Tensor, relations: Tensor) -> Tensor:
        """Of scores [...] of relations [...]."""
        relations = relations.to(self.slope.device)
        logits = self.slope[relations].double() * scores.to(self.slope.device) + self.offset[relations]
        return torch.sigmoid(logits).to(scores.device, scores.dtype)  # in double: the same alone as among many

    def to_dict(self) -> dict[str, list[float]]:
        return {name: [float(f"{value:.6g}") for value in getattr(self, name).tolist()] for name in _CURVES}

    @classmethod
    def from_dict(cls, content: dict[str, Any], relations: int) -> Calibration:
        curves = [torch.tensor(content[name], dtype=torch.float32) for name in _CURVES]
        if any(curve.shape != (relations,) for curve in curves):
            raise ValueError(f"not one curve for each of {relations} relations")
        return cls(*curves)


_CURVES = ("slope", "offset", "threshold")


def false_triples(graph: Graph, triples: Triples, seed: int = 0) -> tuple[Triples, Triples]:
    """The triples, and a false one for each; a triple whose false one was always a known fact is left out.

    One side is exchanged: for half of them by any entity, for the others by one that training has there.
    """
    rng = np.random.default_rng(seed)
    known = np.sort(triple_keys(graph.known, graph.num_entities, graph.num_relations))
    seen = {side: members_of(graph.train, side, graph.num_relations) for side in (0, 2)}
    false = triples.copy()
    side = rng.choice([0, 2], len(triples))
    uniform = rng.random(len(triples)) < 0.5
    open_ = np.arange(len(triples))
    for _ in range(TRIES):
        drawn = rng.integers(graph.num_entities, size=len(open_))
        for column, (members, starts) in seen.items():
            here = np.flatnonzero((side[open_] == column) & ~uniform[open_])
            relation = triples[open_[here], 1]
            size = starts[relation + 1] - starts[relation]
            here, relation, size = here[size > 0], relation[size > 0], size[size > 0]
            drawn[here] = members[starts[relation] + (rng.random(len(here)) * size).astype(np.int64)]
        false[open_, side[open_]] = drawn
        keys = triple_keys(false[open_], graph.num_entities, graph.num_relations)
        place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        open_ = open_[known[place] == keys]
        if not len(open_):
            break
    kept = np.delete(np.arange(len(triples)), open_)
    return triples[kept], false[kept]


def labelled(predictor: Predictor, split: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, relations and truth [2n] of a split's triples and as many false ones."""
    true, false = false_triples(predictor.graph, predictor.graph.split(split), seed)
    triples = torch.from_numpy(np.concatenate([true, false]).astype(np.int64)).to(predictor.device)
    with torch.no_grad():
        parts = [predictor.model.score(part, predictor.operators) for part in triples.split(1 << 14)]
    scores = torch.cat(parts).float().cpu() if parts else torch.zeros(0)
    truth = torch.cat([torch.ones(len(true)), torch.zeros(len(false))])
    return scores, triples[:, 1].cpu(), truth


def fit_calibration(predictor: Predictor, seed: int = 0) -> Calibration | None:
    """Fitted on valid; nothing where valid holds too few triples."""
    scores, relations, truth = labelled(predictor, "valid", seed)
    if len(predictor.graph.valid) < MIN_VALID or not len(scores):
        return None
    count = predictor.graph.num_relations
    scale = scores.abs().mean().clamp(min=1e-6)  # so that slopes are of the order of one
    common = torch.zeros(2, requires_grad=True)
    own = torch.zeros(2, count, requires_grad=True)
    strength = torch.tensor([SHRINK_SLOPE, SHRINK_OFFSET])
    optimiser = torch.optim.LBFGS([common, own], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        slope, offset = _curves(common, own)
        fit = F.binary_cross_entropy_with_logits(slope[relations] * scores / scale + offset[relations], truth,
                                                 reduction="sum")  # fmt: skip
        total = fit + (strength * own.square().sum(dim=1)).sum() + SHRINK_COMMON * common.square().sum()
        total.backward()
        return total

    optimiser.step(loss)
    slope, offset = (part.detach() for part in _curves(common, own))
    curves = Calibration(slope / scale, offset, torch.full((count,), 0.5))
    threshold = _thresholds(curves.probabilities(scores, relations), relations, truth, count)
    return Calibration(curves.slope, curves.offset, threshold)


def _curves(common: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Slopes, which are never negative, and offsets: each [R]."""
    slope, offset = common[:, None] + own
    return F.softplus(slope), offset


def _thresholds(probabilities: Tensor, relations: Tensor, truth: Tensor, count: int) -> Tensor:
    """The probability a relation that divides true from false with the fewest mistakes; one half for a rare one."""
    best = torch.full((count,), 0.5)
    for relation in range(count):
        mine = relations == relation
        if int(mine.sum()) < ENOUGH:
            continue
        order = probabilities[mine].argsort(descending=True)
        sorted_p, sorted_truth = probabilities[mine][order], truth[mine][order]
        right = (2 * sorted_truth - 1).cumsum(0)  # gained by calling all down to here true
        place = int(right.argmax())
        below = sorted_p[place + 1] if place + 1 < len(sorted_p) else sorted_p[place]
        best[relation] = 0.5 * (sorted_p[place] + below)
    return best


def reliability(probabilities: Tensor, truth: Tensor, bins: int = BINS) -> list[dict[str, float]]:
    """For each bin of probabilities that holds any: how many, their mean, and the share that is true."""
    place = (probabilities * bins).long().clamp(max=bins - 1)
    rows = []
    for number in range(bins):
        here = place == number
        if here.any():
            rows.append({"triples": int(here.sum()), "probability": float(probabilities[here].mean()),
                         "true": float(truth[here].mean())})  # fmt: skip
    return rows


def expected_error(rows: list[dict[str, float]]) -> float:
    """Expected calibration error: the mean distance of probability and share, weighted by triples."""
    total = sum(row["triples"] for row in rows)
    return sum(row["triples"] * abs(row["probability"] - row["true"]) for row in rows) / max(total, 1)


def measure_calibration(predictor: Predictor, calibration: Calibration, split: str, seed: int = 1) -> dict[str, Any]:
    """Reliability, its error, and the share of triples that the thresholds call right."""
    scores, relations, truth = labelled(predictor, split, seed)
    probabilities = calibration.probabilities(scores, relations)
    rows = reliability(probabilities, truth)
    called = probabilities >= calibration.threshold[relations]
    return {
        "triples": len(truth),
        "expected_calibration_error": expected_error(rows),
        "accuracy": float((called == truth.bool()).float().mean()) if len(truth) else 0.0,
        "reliability": rows,
    }
