"""How many facts are missing, and what that makes of the share of proposals that valid holds.

Probabilities are fitted on proposals of which those in valid count as true. Other true ones count as false, because
nobody knows them. If V proposals like one are in valid, M are missing and F are false, the fit gives
s = V / (V + M + F), and the share of the unknown ones that hold is

    M / (M + F) = μ s / (1 - s),    μ = M / V.

This is learning from positive and unlabelled examples (Elkan & Noto, 2008). Valid is drawn from the true facts at
random, so μ is the same everywhere. Where no proposal is false, s = 1 / (1 + μ): the share rises with the evidence up
to that limit. So the limit of a curve with a limit gives μ. Few proposals may not reach it; then a weak assumption
decides, that most of the best proposals hold. The same curve gives the shares of the best proposals: where s is near
its limit, a small error of s is a large one of the probability, and a curve of three numbers has less of it than bins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dihedral.probability.additive import AdditiveModel

MIN_BEST = 100  # the curve is fitted to at least so many proposals, and most of so many are assumed to hold
BEST_TRUE, BEST_FALSE = 5.0, 0.2  # examples that this assumption is worth
RATIOS = np.geomspace(0.02, 50, 200)  # of missing facts to those of valid
LIKELY = 1.92  # 95 % confidence: how much less than the best the log likelihood may be
STEPS = np.linspace(-2, 2, 9)  # standard deviations

Values = NDArray[np.float64]


@dataclass(frozen=True)
class MissingShare:
    """The facts that are in neither train nor valid, as multiples of those in valid."""

    ratio: float  # μ, an estimate
    low: float  # its 95 % confidence interval
    high: float
    known: float  # of these, facts that the graph holds all the same, such as those of test

    def of_unknown(self, shares: Values, ratio: float | None = None) -> Values:
        """The share of unknown proposals that hold, from the share that is in valid.

        ratio: facts that the graph does not hold, as a multiple of those in valid; by default the estimate. Where the
        graph holds some of the missing facts, the estimate of the others is uncertain and may be 0 by chance. Then the
        mean is taken over what is likely.
        """
        if ratio is None and self.known:
            wide = np.where(STEPS < 0, self.ratio - self.low, self.high - self.ratio)
            each = [self._of_unknown(shares, max(one - self.known, 0.0)) for one in self.ratio + STEPS * wide / 1.96]
            found: Values = np.average(each, axis=0, weights=np.exp(-(STEPS**2) / 2))
            return found
        return self._of_unknown(shares, self._unknown()[1] if ratio is None else ratio)

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


def estimate_missing(
    model: AdditiveModel, z: Values, held: NDArray[np.bool_], known: float
) -> tuple[MissingShare, AdditiveModel]:
    """The estimate, and the model with the fitted curve for the best proposals.

    z: the values of proposals by a model that has not seen them. held: which of them valid holds. Valid holds a share
    σ(k z + b) / (1 + μ) of the proposals with a value z. For each μ of a grid, k and b are fitted to the best
    proposals. The interval holds each μ that is not much less likely than the best.
    """
    from scipy.optimize import minimize

    order = np.argsort(-z, kind="stable")[: max(MIN_BEST, 2 * int(held.sum()))]
    top = float(z[order[min(MIN_BEST, len(order)) - 1]])
    fits, start = [], np.zeros(2)
    for ratio in RATIOS:
        fits.append(minimize(_loss, start, (ratio, z[order], held[order], top), "L-BFGS-B", jac=True))
        start = fits[-1].x
    loss = np.array([fit.fun for fit in fits])
    best, inside = int(loss.argmin()), RATIOS[loss - loss.min() < LIKELY]
    curve = _true(fits[best].x, model.z) / (1 + RATIOS[best])
    shares = np.maximum.accumulate(np.where(model.z >= z[order[-1]], curve, model.probability))
    found = MissingShare(float(RATIOS[best]), float(inside[0]), float(inside[-1]), known)
    return found, replace(model, probability=shares)


def _true(weights: Values, z: Values) -> Values:
    """The share of proposals with the values z that hold."""
    true: Values = (1 / (1 + np.exp(-np.exp(weights[0]) * z - weights[1]))).clip(1e-12, 1 - 1e-12)
    return true


def _loss(weights: Values, ratio: float, z: Values, held: NDArray[np.bool_], top: float) -> tuple[float, Values]:
    """The penalised logistic loss of log k and b, and its gradient."""
    k, true, best = np.exp(weights[0]), _true(weights, z), float(_true(weights, np.array(top)))
    share = true / (1 + ratio)
    value = -np.log(np.where(held, share, 1 - share)).sum() + weights[0] ** 2 / 2
    value -= BEST_TRUE * np.log(best) + BEST_FALSE * np.log(1 - best)
    slope = np.where(held, true - 1, share * (1 - true) / (1 - share))
    slope_of_best = BEST_FALSE * best - BEST_TRUE * (1 - best)
    gradient = [k * (slope @ z + slope_of_best * top) + weights[0], slope.sum() + slope_of_best]
    return float(value), np.array(gradient)
