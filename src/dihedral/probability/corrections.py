"""Corrections: how decisions of reviewers change the probabilities of proposals.

A correction multiplies the odds of all proposals of a relation by one factor,

    logit p' = logit p + b + b_r,

fitted to the accepted and rejected proposals at the probability that they had without a correction. b and b_r are
penalised: a few decisions change little, and what is learned about one relation hardly changes the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEVIATION, RELATION_DEVIATION = 0.5, 1.0  # expected sizes of b and b_r before anything is decided
FLOOR = 1e-4  # bounds probabilities and their complements, so that one decision cannot say everything


@dataclass(frozen=True)
class Corrections:
    """What is added to the logit of a proposal, and how many decisions that was fitted to."""

    offset: float  # for relations without decisions
    relations: dict[str, float]
    accepted: int
    rejected: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "accepted": self.accepted, "rejected": self.rejected, "offset": round(self.offset, 6),
            "relations": {name: round(value, 6) for name, value in self.relations.items()},
        }  # fmt: skip

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Corrections:
        relations = {str(name): float(value) for name, value in content["relations"].items()}
        found = cls(float(content["offset"]), relations, int(content["accepted"]), int(content["rejected"]))
        if not np.isfinite([found.offset, *relations.values()]).all():
            raise ValueError("corrections must be finite")
        return found

    def offsets(self, relations: Sequence[str]) -> NDArray[np.float64]:
        """[R]."""
        return np.array([self.relations.get(name, self.offset) for name in relations], np.float64)


def usable(decisions: Iterable[Any]) -> list[tuple[str, float, bool]]:
    """Of `store.reviews.Decision`s with a probability and a verdict: the relation, the probability, and if it holds."""
    found = []
    for each in decisions:
        before = each.probability if each.uncorrected is None else each.uncorrected
        if before is not None and each.decision in ("accept", "reject"):
            found.append((each.fact[1], before, each.decision == "accept"))
    return found


def fit_corrections(decisions: Iterable[Any]) -> Corrections:
    """Fit to accepted and rejected facts; those without a probability are left out."""
    from scipy.optimize import minimize  # on first use: its import takes longer than that of this package

    used = usable(decisions)
    names = sorted({name for name, _, _ in used})
    place = {name: number for number, name in enumerate(names)}
    which = np.array([place[name] for name, _, _ in used], int)
    likely = np.array([p for _, p, _ in used], float).clip(FLOOR, 1 - FLOOR)
    true = np.array([held for _, _, held in used], float)
    logits = np.log(likely / (1 - likely))
    penalty = np.array([DEVIATION, *[RELATION_DEVIATION] * len(names)]) ** -2.0

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        z = logits + weights[0] + weights[1:][which]
        error = 1 / (1 + np.exp(-z)) - true
        value = float((np.logaddexp(0, z) - z * true).sum() + 0.5 * (penalty * weights**2).sum())
        gradient = np.concatenate([[error.sum()], np.bincount(which, error, len(names))])
        return value, gradient + penalty * weights

    found = minimize(loss, np.zeros(1 + len(names)), jac=True, method="L-BFGS-B").x
    shared = float(found[0])
    relations = {name: shared + float(own) for name, own in zip(names, found[1:], strict=True)}
    return Corrections(shared, relations, int(true.sum()), int(len(true) - true.sum()))


def scale_odds(probabilities: NDArray[np.float64], factor: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities with odds that are so many times as high.

    >>> scale_odds(np.array([0.5, 0.9]), 3.0).round(3).tolist()
    [0.75, 0.964]
    """
    odds = factor * probabilities
    result: NDArray[np.float64] = odds / (odds + 1 - probabilities)
    return result
