"""How many facts are missing, and what that makes of the share of proposals that valid holds.

Probabilities are fitted on proposals of which those in valid count as true. Other true ones count as false, because
nobody knows them. If V proposals like one are in valid, M are missing and F are false, the fit gives
s = V / (V + M + F), and the share of the unknown ones that hold is

    M / (M + F) = μ s / (1 - s),    μ = M / V.

This is learning from positive and unlabelled examples (Elkan & Noto, 2008). Valid is drawn from the true facts at
random, so μ is the same everywhere. Where no proposal is false, s = 1 / (1 + μ). So the highest share that enough
proposals have gives μ. If some of the best proposals are false, μ is too high.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dihedral.graph.patterns import wilson_interval

MIN_BEST = 100  # proposals that the highest share is measured on, at least; or half as many as valid holds, from 20
CHOICE, WIDTH = 4, 3  # standard deviations of the bounds: the highest of many shares is too high by chance

Values = NDArray[np.float64]


@dataclass(frozen=True)
class MissingShare:
    """The facts that are in neither train nor valid, as multiples of those in valid."""

    ratio: float  # μ, an estimate
    low: float  # its confidence interval
    high: float
    known: float  # of these, facts that the graph holds all the same, such as those of test

    def of_unknown(self, shares: Values, ratio: float | None = None) -> Values:
        """The share of unknown proposals that hold, from the share that is in valid.

        ratio: facts that the graph does not hold, as a multiple of those in valid. By default, the mean is taken over
        the estimate, which counts twice, and its bounds: where nearly all missing facts are known, the estimate of the
        others may be 0 by chance.
        """
        if ratio is not None:
            return self._of_unknown(shares, ratio)
        each = [self._of_unknown(shares, each) for each in self._unknown()]
        found: Values = np.average(each, axis=0, weights=[1, 2, 1])
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


def estimate_missing(shares: Values, held: NDArray[np.bool_], known: float) -> MissingShare:
    """The estimate from fitted shares of proposals [n] and which of them valid holds.

    The best proposals are those with the highest lower confidence bound of the share that valid holds.
    """
    order = np.argsort(-shares, kind="stable")
    counts = np.arange(1, len(order) + 1)
    shares = held[order].cumsum() / counts
    best = min(max(20, min(MIN_BEST, int(held.sum()) // 2)), len(order)) - 1
    best += int(np.argmax(wilson_interval(shares, counts, CHOICE)[0][best:]))
    low, high = wilson_interval(shares[best], counts[best], WIDTH)
    ratio, least, most = (float(1 / each - 1) for each in (shares[best], high, low))
    return MissingShare(ratio, max(least, 0.0), most, known)
