"""Shares of components against chance: the chance level, Cohen's kappa, and a bound on the probability of a share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIGNIFICANCE = 0.01  # the probability that chance alone makes any of the shares shown together significant


class ComponentShare(float):
    """A weighted share of components, between 0 and 1, and how it compares with chance.

    count: the unweighted share. chance: the share expected by chance. p: a bound on the probability of a share this
    large by chance. comparisons: how many shares are shown or searched together; `significant` counts them.

    >>> ComponentShare(0.75, 0.7, chance=0.5, p=1e-4)
    0.75 (chance 0.50, kappa 0.50)
    >>> ComponentShare(0.75, 0.7, chance=0.5, p=1e-4).among(1000)
    0.75 (chance 0.50, not significant)
    """

    count: float
    chance: float
    p: float
    comparisons: int

    def __new__(cls, weighted: float, count: float, *, chance: float, p: float, comparisons: int = 1) -> ComponentShare:
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

    def among(self, comparisons: int) -> ComponentShare:
        """The same share as one of several comparisons."""
        return ComponentShare(self, self.count, chance=self.chance, p=self.p, comparisons=comparisons)

    def to_dict(self) -> dict[str, Any]:
        return {"share": float(self), "chance": self.chance, "kappa": self.kappa, "p": self.p,
                "significant": self.significant, "count": self.count}  # fmt: skip

    def __repr__(self) -> str:
        compared = f"kappa {self.kappa:.2f}" if self.significant else "not significant"
        return f"{float(self):.2f} (chance {self.chance:.2f}, {compared})"

    def __getnewargs_ex__(self) -> tuple[tuple[float, float], dict[str, Any]]:
        return (float(self), self.count), {"chance": self.chance, "p": self.p}


def chernoff(used: NDArray[Any], probability: NDArray[Any], total: float) -> float:
    """Chernoff's bound on the probability that Σ_l used_l X_l is at least `total`, for independent X_l in {0, 1}.

    probability [L]: that X_l is 1. The bound is the minimum of exp(Σ_l log(1 - p_l + p_l exp(t used_l)) - t total) over
    t > 0; the minimum is where the mean, tilted by t, is `total`.
    """
    scale = float(used.max(initial=0.0))
    if scale <= 0 or total <= float(used @ probability):
        return 1.0
    used, total = used / scale, total / scale
    sure, here = float(used[probability >= 1].sum()), (probability > 0) & (probability < 1) & (used > 0)
    used, p, total = used[here], probability[here], total - sure
    if total >= float(used.sum()) * (1 - 1e-9):
        return float(np.exp(np.log(p).sum()))  # all of them
    low, high, t, log_odds = 0.0, np.inf, 1.0, np.log(p / (1 - p))
    for _ in range(60):  # Newton's method, with bisection where it leaves the bracket
        tilted = 1 / (1 + np.exp(-np.clip(t * used + log_odds, -700, 700)))
        gap = float(used @ tilted) - total
        if abs(gap) < 1e-6 * total:
            break
        low, high = (t, high) if gap < 0 else (low, t)
        t -= gap / max(float(used**2 @ (tilted * (1 - tilted))), 1e-30)
        if not low < t < high:
            t = (low + high) / 2 if np.isfinite(high) else 2 * low
    tilt = np.logaddexp(np.log1p(-p), np.log(p) + t * used).sum() - t * total
    return float(np.exp(min(0.0, float(tilt))))
