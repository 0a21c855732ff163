"""Counts estimated from a random sample of the paths along a body, where there are too many to list.

The number of paths is a product of degrees and needs no list. A path drawn at random leads to the pair (h, t) with a
probability proportional to the number of paths between the two. Weighted by the inverse of that number, sampled paths
therefore stand for distinct pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dihedral.graph.joins import Body, Ids, Mask

Values = NDArray[np.float64]

SAMPLES = 100_000  # paths drawn for a body
PILOT = 1000  # paths drawn to see what a sample costs
MAX_LOOKUPS = 20_000_000  # facts looked up for the sample of a body


class PathSample(NamedTuple):
    """Random paths along a body. `num_paths` times the mean weight is an estimate of the number of pairs joined."""

    num_paths: float  # in the graph
    heads: Ids  # [n]
    tails: Ids  # [n]
    weights: Values  # [n]: 1 / number of paths between head and tail, and 0 if an entity is visited twice

    def pairs(self, holds: Mask | None = None) -> float:
        """How many pairs the body joins in the graph, of those for which something holds."""
        weights = self.weights if holds is None else self.weights * holds
        return self.num_paths * float(weights.mean())

    @property
    def effective_size(self) -> float:
        """The number of equally weighted pairs that say as much (Kish), at least 1."""
        return max(1.0, float(self.weights.sum() ** 2 / max((self.weights**2).sum(), 1e-300)))


def sample_paths(body: Body, seed: int = 0) -> PathSample:
    """Random paths: SAMPLES, or fewer if entities with many facts make each one expensive."""
    rng = np.random.default_rng(seed)
    heads, tails, _ = draw_paths(body, PILOT, rng)
    cost = np.minimum(body.forwards[0].degrees(heads), body.backwards[-1].degrees(tails)).mean()
    size = int(min(SAMPLES, max(PILOT, MAX_LOOKUPS / max(cost, 1.0))))
    heads, tails, again = draw_paths(body, size, rng)
    pairs, place = np.unique(heads * body.num_entities + tails, return_inverse=True)
    ends = np.divmod(pairs, body.num_entities)
    between = (body.count_paths(*ends) - body.repeats(*ends))[place]
    kept = (heads != tails) & ~again
    return PathSample(body.num_paths, heads, tails, np.where(kept, 1 / np.maximum(between, 1), 0.0))


def draw_paths(body: Body, count: int, rng: np.random.Generator) -> tuple[Ids, Ids, Mask]:
    """The first and last entities of random paths, and whether each path visits one of the two again.

    Each path has the same probability.
    """
    heads = ends = np.zeros(count, np.int64)
    between: list[Ids] = []
    for number, (step, onwards) in enumerate(zip(body.forwards, body.onwards, strict=True)):
        total = np.concatenate([[0.0], onwards.cumsum()])
        first, last = step.places(ends) if number else (np.zeros_like(ends), np.full_like(ends, len(step)))
        drawn = total[first] + rng.random(count) * (total[last] - total[first])
        place = (np.searchsorted(total, drawn, side="right") - 1).clip(first, last - 1)
        heads, ends = heads if number else step.heads[place], step.tails[place]
        between.append(ends)
    again = np.zeros(count, bool)
    for there in between[:-1]:
        again |= (there == heads) | (there == ends)
    return heads, ends, again


def wilson_interval(shares: Values, counts: NDArray[np.int64] | Values) -> tuple[Values, Values]:
    """The 95 % confidence intervals of shares that were measured on some examples (Wilson, 1927)."""
    squared = 1.96**2
    middle = (shares + squared / (2 * counts)) / (1 + squared / counts)
    half = np.sqrt(squared * (shares * (1 - shares) / counts + squared / (4 * counts**2))) / (1 + squared / counts)
    return (middle - half).clip(0), (middle + half).clip(max=1)
