"""How many facts are missing, and what that makes of the share of proposals that valid holds.

Probabilities are fitted on proposals of which those in valid count as true. Other true ones count as false, because
nobody knows them. If V proposals like one are in valid, M are missing and F are false, the fit gives
s = V / (V + M + F), and the share of the unknown ones that hold is

    M / (M + F) = μ s / (1 - s),    μ = M / V.

This is learning from positive and unlabelled examples (Elkan & Noto, 2008). Valid is drawn from the true facts at
random, so μ is the same everywhere. Where no proposal is false, s = 1 / (1 + μ): the share rises with the evidence up
to that limit. So the limit of a curve with a limit gives μ. Few proposals may not reach it; then a weak assumption
decides, that most of the best proposals hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_BEST = 100  # the curve is fitted to at least so many proposals, and most of so many are assumed to hold
BEST_TRUE, BEST_FALSE = 5.0, 0.2  # examples that this assumption is worth
RATIOS = np.geomspace(0.02, 50, 200)  # of missing facts to those of valid
LIKELY = 3.32  # 99 % confidence, because the curve is rough: how much less than the best the log likelihood may be

Values = NDArray[np.float64]


@dataclass(frozen=True)
class MissingShare:
    """The facts that are in neither train nor valid, as multiples of those in valid."""

    ratio: float  # μ, an estimate
    low: float  # its 99 % confidence interval
    high: float
    known: float  # of these, facts that the graph holds all the same, such as those of test

    def of_unknown(self, shares: Values, ratio: float | None = None) -> Values:
        """The share of unknown proposals that hold, from the share that is in valid.

        ratio: facts that the graph does not hold, as a multiple of those in valid. By default, the mean is taken over
        the estimate and its bounds, weighted as three points with the deviation of the estimate: where nearly all
        missing facts are known, the estimate of the others may be 0 by chance.
        """
        if ratio is not None:
            return self._of_unknown(shares, ratio)
        each = [self._of_unknown(shares, each) for each in self._unknown()]
        found: Values = np.average(each, axis=0, weights=[1, 11, 1])
        return found

    def bounds(self, shares: Values) -> tuple[Values, Values]:
        """The same with the lowest and with the highest number of missing facts."""
        low, _, high = self._unknown()
        return self._of_unknown(shares, low), self._of_unknown(shares, high)

    def _unknown(self) -> list[float]:
        return [max(each - self.known, 0.0) for each in (self.low, self.ratio, self.high)]

    def _of_unknown(self, shares: Values, ratio: float) -> Values:
        true = ratio * shares
        unknown = np.maximum(1 - shares * (1 + self.known), true)
        return np.divide(true, unknown, out=np.zeros_like(true), where=true > 0)


def estimate_missing(z: Values, held: NDArray[np.bool_], known: float) -> MissingShare:
    """The estimate from values z of proposals, by a model that has not seen them, and which of them valid holds.

    Valid holds a share σ(k z + b) / (1 + μ) of the proposals with a value z. For each μ of a grid, k and b are fitted
    to the best proposals. The interval holds each μ that is not much less likely than the best.
    """
    from scipy.optimize import minimize

    order = np.argsort(-z, kind="stable")[: max(MIN_BEST, 2 * int(held.sum()))]
    top = float(z[order[min(MIN_BEST, len(order)) - 1]])
    found, start = [], np.zeros(2)
    for ratio in RATIOS:
        fitted = minimize(_loss, start, (ratio, z[order], held[order], top), "L-BFGS-B", jac=True)
        start = fitted.x
        found.append(fitted.fun)
    loss = np.array(found)
    inside = RATIOS[loss - loss.min() < LIKELY]
    return MissingShare(float(RATIOS[loss.argmin()]), float(inside[0]), float(inside[-1]), known)


def _loss(weights: Values, ratio: float, z: Values, held: NDArray[np.bool_], top: float) -> tuple[float, Values]:
    """The penalised logistic loss of log k and b, and its gradient."""
    k, b = np.exp(weights[0]), weights[1]
    true, best = ((1 / (1 + np.exp(-k * each - b))).clip(1e-12, 1 - 1e-12) for each in (z, np.float64(top)))
    share = true / (1 + ratio)
    value = -np.log(np.where(held, share, 1 - share)).sum() + weights[0] ** 2 / 2
    value -= BEST_TRUE * np.log(best) + BEST_FALSE * np.log(1 - best)
    slope = np.where(held, true - 1, share * (1 - true) / (1 - share))
    slope_of_best = BEST_FALSE * best - BEST_TRUE * (1 - best)
    gradient = [k * (slope @ z + slope_of_best * top) + weights[0], slope.sum() + slope_of_best]
    return float(value), np.array(gradient)
