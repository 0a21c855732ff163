"""Shares of components against chance: the chance level, Cohen's kappa and the significance of a share.

kappa = (share - chance) / (1 - chance) is 0 at the chance level and 1 if all components agree. p is the probability
that chance gives a share at least as large; it is small for a share that says something.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SIGNIFICANCE = 0.01  # the probability that chance alone makes any of the shares shown together significant


class Share(float):
    """A weighted share of components, between 0 and 1, and how it compares with chance.

    count: the unweighted share. chance: the share expected by chance. p: the probability of a share this large by
    chance. comparisons: how many shares are shown or searched together; `significant` takes them into account.

    >>> Share(0.75, 0.7, chance=0.5, p=1e-4)
    0.75 (chance 0.50, kappa 0.50)
    >>> Share(0.75, 0.7, chance=0.5, p=1e-4).among(1000)
    0.75 (chance 0.50, not significant)
    """

    count: float
    chance: float
    p: float
    comparisons: int

    def __new__(cls, weighted: float, count: float, *, chance: float, p: float, comparisons: int = 1) -> Share:
        share = super().__new__(cls, weighted)
        share.count, share.chance, share.p, share.comparisons = count, chance, p, comparisons
        return share

    @classmethod
    def of(cls, weighted: Measured, count: Measured) -> Share:
        """p is for the weighted share or the count, whichever is less likely by chance, and doubled for the choice.

        Weights point to the components that matter; equal weights have more components to count.
        """
        p = min(1.0, 2 * min(weighted.p, count.p)) if weighted.share > weighted.chance else 1.0
        return cls(weighted.share, count.share, chance=weighted.chance, p=p)

    @property
    def kappa(self) -> float:
        """Cohen's kappa: 0 at the chance level, 1 if all components agree; 0 if chance alone makes all agree."""
        return (self - self.chance) / (1 - self.chance) if self.chance < 1 else 0.0

    @property
    def significant(self) -> bool:
        """Whether p is at most SIGNIFICANCE after Bonferroni's correction for the number of comparisons."""
        return self.p * self.comparisons <= SIGNIFICANCE

    def among(self, comparisons: int) -> Share:
        """The same share as one of several comparisons."""
        return Share(self, self.count, chance=self.chance, p=self.p, comparisons=comparisons)

    def to_dict(self) -> dict[str, Any]:
        return {"share": float(self), "chance": self.chance, "kappa": self.kappa, "p": self.p,
                "significant": self.significant, "count": self.count}  # fmt: skip

    def __repr__(self) -> str:
        compared = f"kappa {self.kappa:.2f}" if self.significant else "not significant"
        return f"{float(self):.2f} (chance {self.chance:.2f}, {compared})"

    def __reduce__(self) -> Any:
        return _share, (float(self), self.count, self.chance, self.p, self.comparisons)


def _share(weighted: float, count: float, chance: float, p: float, comparisons: int) -> Share:
    return Share(weighted, count, chance=chance, p=p, comparisons=comparisons)


class Measured(NamedTuple):
    """A share with given weights, its chance level, and the probability of at least this share by chance."""

    share: float
    chance: float
    p: float


def measure_elements(used: NDArray[Any], norm: float, true: NDArray[np.bool_], chance: float) -> Measured:
    """The share of components [L] that are true, if each is true with the probability `chance`, independently.

    used [L]: the weight of each component; their sum over those that are true, divided by `norm`, is the share. The
    tail is that of a binomial distribution with (Σ used)² / Σ used² trials, the effective number of components.
    """
    from scipy.special import betainc  # on first use: its import takes longer than that of this package

    norm = norm or 1.0
    held, total, trials = float(used[true].sum()), float(used.sum()), _effective(used)
    hits = held / total * trials if total else 0.0
    p = float(betainc(hits, trials - hits + 1, chance)) if hits > 0 else 1.0
    return Measured(held / norm, chance * total / norm, p)


def measure_shuffles(
    used: NDArray[Any], norm: float, true: NDArray[np.bool_], left: NDArray[Any], right: NDArray[Any],
    holds: NDArray[Any],
) -> Measured:  # fmt: skip
    """The share of components [L] that are true, if the components of two rows are shuffled against each other.

    used, norm: as above; left, right [2K]: the sums of `used` per element of both rows. With these as frequencies P and
    Q, and H = holds, a pair of components holds with probability PᵀHQ. The variance for n components of equal weight is
    (PᵀHQ + (PᵀHQ)² - Σ_g P_g (HQ)_g² - Σ_h Q_h (HᵀP)_h²) / (n - 1). The tail is the larger of those of two
    distributions with this mean and variance, normal and beta, half a component further in.
    """
    from scipy.special import betainc, ndtr

    norm = norm or 1.0
    held, total, components = float(used[true].sum()), float(used.sum()) or 1.0, _effective(used)
    p, q = left / total, right / total
    of_left, of_right = holds @ q, p @ holds
    mean = float(p @ of_left)
    variance = (mean + mean**2 - float(p @ of_left**2) - float(of_right**2 @ q)) / max(components - 1, 1e-9)
    above = held / total - 0.5 / max(components, 1.0)
    spread = mean * (1 - mean) / variance - 1 if variance > 1e-12 else 0.0
    tail = 1.0
    if above > mean and spread > 0:
        normal, beta = ndtr((mean - above) / variance**0.5), betainc((1 - mean) * spread, mean * spread, 1 - above)
        tail = float(max(normal, beta))
    return Measured(held / norm, mean * total / norm, tail)


def _effective(used: NDArray[Any]) -> float:
    """The effective number of components, (Σ w)² / Σ w²."""
    squares = float((used**2).sum())
    return float(used.sum()) ** 2 / squares if squares else 0.0
