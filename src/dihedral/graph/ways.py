"""Ways along a body of signed steps: how many there are, and a random sample where they are too many to list.

A way h → m → … → t follows one fact per step, none of them about an entity and itself. The number of ways through a
hub grows with the square of its degree, but it is a product of degrees and needs no list. A way drawn at random leads
to the pair (h, t) with a probability proportional to the number of ways between the two. Weighted by the inverse of
that number, sampled ways therefore stand for distinct pairs.

The pairs that a body joins are those of ways through different entities only. Of a body of three steps this leaves out
ways that turn back, such as h → m → t → m': they would let a fact imply itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.graph.index import GraphIndex
from dihedral.graph.steps import inverse_ids
from dihedral.runtime import interruption

Ids = NDArray[np.int64]
Values = NDArray[np.float64]

SAMPLES = 100_000  # ways drawn for a body
PILOT = 1000  # ways drawn to see what a sample costs
MAX_LOOKUPS = 20_000_000  # facts looked up for the sample of a body
TILE = 1 << 20  # facts looked at together: bounds memory, and how long one operation holds up other threads


class StepPairs:
    """The pairs of different entities that one step joins, sorted; not those of the triple `without`."""

    def __init__(self, index: GraphIndex, step: int, without: tuple[int, int, int] | None = None) -> None:
        members = index.members(step)
        row, ends = index.answers(members, torch.full_like(members, step))
        heads, tails = members[row].numpy(), ends.numpy()
        kept = heads != tails
        if without is not None and step % index.num_relations == without[1]:
            head, tail = (without[0], without[2]) if step < index.num_relations else (without[2], without[0])
            kept &= (heads != head) | (tails != tail)
        self.num_entities = index.num_entities
        self.heads, self.tails = heads[kept], tails[kept]

    def __len__(self) -> int:
        return len(self.heads)

    @cached_property
    def codes(self) -> Ids:
        """head · N + tail, which ascends."""
        codes: Ids = self.heads * self.num_entities + self.tails
        return codes

    @cached_property
    def matrix(self) -> Any:
        """The pairs as a sparse 0/1 matrix [N, N]."""
        from scipy import sparse  # on first use: its import takes longer than that of this package

        shape = self.num_entities, self.num_entities
        return sparse.csr_array((np.ones(len(self), np.int32), (self.heads, self.tails)), shape=shape)

    def has(self, heads: Ids, tails: Ids) -> NDArray[np.bool_]:
        """Whether each pair is joined."""
        return contains(self.codes, heads * self.num_entities + tails)

    def places(self, heads: Ids) -> tuple[Ids, Ids]:
        """Where the pairs of each head start and end."""
        return np.searchsorted(self.heads, heads), np.searchsorted(self.heads, heads, side="right")

    def answers(self, heads: Ids) -> tuple[Ids, Ids]:
        """Where the step leads from each head, flat: (row in the batch, tail)."""
        first, last = self.places(heads)
        row = np.repeat(np.arange(len(heads)), last - first)
        before = np.cumsum(last - first) - (last - first)
        return row, self.tails[np.arange(len(row)) + (first - before)[row]]


class Body:
    """The steps of a rule's body in one graph."""

    def __init__(self, index: GraphIndex, steps: Sequence[int], without: tuple[int, int, int] | None = None) -> None:
        back = [int(inverse_ids(step, index.num_relations)) for step in steps]
        pairs = {step: StepPairs(index, step, without) for step in {*steps, *back}}
        self.num_entities = index.num_entities
        self.forwards, self.backwards = [pairs[step] for step in steps], [pairs[step] for step in back]

    @cached_property
    def _onwards(self) -> list[Values]:
        """The number of ways that follow each pair of each step."""
        onwards = [np.ones(len(self.forwards[-1]))]
        for step, following in zip(self.forwards[-2::-1], self.forwards[:0:-1], strict=True):
            ways = np.bincount(following.heads, onwards[0], minlength=self.num_entities)
            onwards.insert(0, ways[step.tails])
        return onwards

    @property
    def num_ways(self) -> float:
        return float(self._onwards[0].sum())

    def joined(self) -> Iterator[tuple[Ids, Ids]]:
        """The distinct (head, tail) of different entities that the body joins, in tiles of heads."""
        first = self.forwards[0]
        heads, begin = np.unique(first.heads, return_index=True)
        if not len(heads):
            return
        for tile in tiles(np.add.reduceat(self._onwards[0], begin), TILE):
            interruption.check()
            paths = first.matrix[heads[tile]]
            for step in self.forwards[1:]:
                paths = paths @ step.matrix  # at most as many ways between two entities as facts of the middle step
                if len(self.forwards) > 3:
                    paths.data[:] = 1  # joined or not: the number of ways would grow without bound
            starts, ends = np.repeat(heads[tile], np.diff(paths.indptr)), paths.indices.astype(np.int64)
            kept = (starts != ends) & (paths.data > self.repeats(starts, ends))
            yield starts[kept], ends[kept]

    def repeats(self, heads: Ids, tails: Ids) -> Ids:
        """The number of ways of three steps between different entities that visit one of the two again."""
        if len(self.forwards) != 3:
            return np.zeros(len(heads), np.int64)
        first, second, third = self.forwards
        from_head, to_tail = self._loops
        starts, ends = first.has(heads, tails), third.has(heads, tails)
        both = starts & ends & second.has(tails, heads)
        found: Ids = starts * to_tail[tails] + ends * from_head[heads] - both
        return found

    @cached_property
    def _loops(self) -> tuple[Ids, Ids]:
        """The ways from each entity back to itself along the first two steps, and along the last two: [N] each."""
        both = ((self.forwards[i], self.backwards[i + 1]) for i in (0, 1))
        returning = (np.intersect1d(there.codes, back.codes, assume_unique=True) for there, back in both)
        counts = (np.bincount(codes // self.num_entities, minlength=self.num_entities) for codes in returning)
        from_head, to_tail = counts
        return from_head, to_tail

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Ids, Ids, NDArray[np.bool_]]:
        """The first and last entities of random ways, and whether each way visits one of the two again.

        Each way has the same probability.
        """
        heads = ends = np.zeros(count, np.int64)
        between: list[Ids] = []
        for number, (step, onwards) in enumerate(zip(self.forwards, self._onwards, strict=True)):
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

    def ways_between(self, heads: Ids, tails: Ids) -> Ids:
        """The number of ways from each head to each tail, looked up from whichever of the two has fewer facts."""
        found = np.zeros(len(heads), np.int64)
        for part in tiles(self._lookups(heads, tails), TILE):
            interruption.check()
            found[part] = _between(self.forwards, self.backwards, heads[part], tails[part])
        return found

    def _lookups(self, heads: Ids, tails: Ids) -> Ids:
        return np.minimum(_degrees(self.forwards[0], heads), _degrees(self.backwards[-1], tails))

    def sample(self, seed: int = 0) -> Sample:
        """Random ways: SAMPLES, or fewer if entities with many facts make each one expensive."""
        rng = np.random.default_rng(seed)
        heads, tails, _ = self.draw(PILOT, rng)
        cost = self._lookups(heads, tails).mean()
        size = int(min(SAMPLES, max(PILOT, MAX_LOOKUPS / max(cost, 1.0))))
        heads, tails, again = self.draw(size, rng)
        pairs, place = np.unique(heads * self.num_entities + tails, return_inverse=True)
        ends = np.divmod(pairs, self.num_entities)
        between = (self.ways_between(*ends) - self.repeats(*ends))[place]
        kept = (heads != tails) & ~again
        return Sample(self.num_ways, heads, tails, np.where(kept, 1 / np.maximum(between, 1), 0.0))


class Sample(NamedTuple):
    """Random ways along a body. `num_ways` times the mean weight is an estimate of the number of pairs joined."""

    num_ways: float  # in the graph
    heads: Ids  # [n]
    tails: Ids  # [n]
    weights: Values  # [n]: 1 / number of ways between head and tail, and 0 if an entity is visited twice

    def pairs(self, holds: NDArray[np.bool_] | None = None) -> float:
        """How many pairs the body joins in the graph, of those for which something holds."""
        weights = self.weights if holds is None else self.weights * holds
        return self.num_ways * float(weights.mean())

    @property
    def effective_size(self) -> float:
        """The number of equally weighted pairs that say as much (Kish), at least 1."""
        return max(1.0, float(self.weights.sum() ** 2 / max((self.weights**2).sum(), 1e-300)))


def wilson_interval(shares: Values, counts: NDArray[np.int64] | Values) -> tuple[Values, Values]:
    """The 95 % confidence intervals of shares that were measured on some examples (Wilson, 1927)."""
    squared = 1.96**2
    middle = (shares + squared / (2 * counts)) / (1 + squared / counts)
    half = np.sqrt(squared * (shares * (1 - shares) / counts + squared / (4 * counts**2))) / (1 + squared / counts)
    return (middle - half).clip(0), (middle + half).clip(max=1)


def tiles(costs: NDArray[np.int64] | Values, limit: float) -> Iterator[slice]:
    """Consecutive items whose costs add up to at most `limit`; one item alone may cost more."""
    ends, start = np.cumsum(costs), 0
    while start < len(ends):
        spent = float(ends[start - 1]) if start else 0.0
        stop = max(start + 1, int(np.searchsorted(ends, spent + limit, side="right")))
        yield slice(start, stop)
        start = stop


def distinct(values: Ids) -> Ids:
    """The distinct numbers, sorted. `np.unique` may hash, which is slower and holds up all other threads."""
    values = np.sort(values)
    found: Ids = values[np.concatenate([[True], values[1:] != values[:-1]])] if len(values) else values
    return found


def contains(ascending: Ids, wanted: Ids) -> NDArray[np.bool_]:
    """Whether each number is in a sorted array."""
    if not len(ascending):
        return np.zeros(len(wanted), bool)
    found: NDArray[np.bool_] = ascending[np.searchsorted(ascending, wanted).clip(max=len(ascending) - 1)] == wanted
    return found


def _degrees(pairs: StepPairs, heads: Ids) -> Ids:
    first, last = pairs.places(heads)
    degrees: Ids = last - first
    return degrees


def _between(forwards: list[StepPairs], backwards: list[StepPairs], heads: Ids, tails: Ids) -> Ids:
    if len(forwards) == 1:
        return forwards[0].has(heads, tails).astype(np.int64)
    found = np.zeros(len(heads), np.int64)
    ahead = _degrees(forwards[0], heads) <= _degrees(backwards[-1], tails)
    here = np.flatnonzero(ahead)
    row, middle = forwards[0].answers(heads[here])
    ways = _between(forwards[1:], backwards[1:], middle, tails[here][row])
    found[here] = np.bincount(row, ways, minlength=len(here))
    here = np.flatnonzero(~ahead)
    row, middle = backwards[-1].answers(tails[here])
    ways = _between(forwards[:-1], backwards[:-1], heads[here][row], middle)
    found[here] = np.bincount(row, ways, minlength=len(here))
    return found
