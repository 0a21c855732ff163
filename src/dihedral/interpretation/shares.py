"""Shares of components against chance: the chance level, Cohen's kappa and the significance of a share.

kappa = (share - chance) / (1 - chance) is 0 at the chance level and 1 if all components agree. p is the probability
that chance gives a share at least as large; it is small for a share that says something.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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


class Expected(NamedTuple):
    """The distribution of a share by chance: its mean, its variance and the effective number of components."""

    mean: float
    variance: float
    components: float

    @classmethod
    def of_elements(cls, mean: float, used: NDArray[Any]) -> Expected:
        """Components hold independently, each with the probability `mean`; used [L]: their weights."""
        components = _effective(used)
        return cls(mean, mean * (1 - mean) / max(components, 1.0), components)

    @classmethod
    def of_shuffles(cls, left: NDArray[Any], right: NDArray[Any], holds: NDArray[Any], used: NDArray[Any]) -> Expected:
        """Components of two rows with these weighted frequencies [2K] of elements are shuffled against each other.

        With P and Q, the frequencies as shares, and H = holds, a pair holds with probability PᵀHQ. The variance for n
        components of equal weight is (PᵀHQ + (PᵀHQ)² - Σ_g P_g (HQ)_g² - Σ_h Q_h (HᵀP)_h²) / (n - 1).
        """
        p, q = (each / max(each.sum(), 1e-30) for each in (left, right))
        of_left, of_right = holds @ q, p @ holds
        mean = float(p @ of_left)
        variance = max(0.0, mean + mean**2 - float(p @ of_left**2) - float(of_right**2 @ q))
        components = _effective(used)
        return cls(mean, variance / max(components - 1, 1e-9), components)

    def tail(self, share: float) -> float:
        """The probability of at least this share: the larger of the tails of two distributions with this mean and
        variance, normal and beta. Half a component is taken off the share, because it changes in steps.
        """
        from scipy.special import betainc, ndtr  # on first use: its import takes longer than that of this package

        share -= 0.5 / max(self.components, 1.0)
        if share <= self.mean or self.variance <= 0:
            return 1.0
        normal = float(ndtr((self.mean - share) / self.variance**0.5))
        concentration = self.mean * (1 - self.mean) / self.variance - 1
        if concentration <= 0:
            return 1.0
        beta = float(betainc((1 - self.mean) * concentration, self.mean * concentration, 1 - share))
        return max(normal, beta)


def _effective(used: NDArray[Any]) -> float:
    """The effective number of components, (Σ w)² / Σ w²."""
    squares = float((used**2).sum())
    return float(used.sum()) ** 2 / squares if squares else 0.0
