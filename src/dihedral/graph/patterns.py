"""Patterns counted in a graph: symmetric relations, inverse pairs, chains r₁ · r₂ ⇒ r₃.

Counts are over distinct (head, tail) pairs. A pair is two different entities: facts about an entity and itself
(head = tail) are left out of every count, and so are paths along a body that visit an entity twice. The standard
confidence of a rule is support / body: the share of the pairs joined by the body that the head relation also holds. PCA
confidence divides only by the body pairs whose head entity has any fact of the head relation.

Counts are exact, by sparse products in tiles (`graph.joins`), as long as the paths along a body are few enough to be
listed: at most MAX_PATHS for one body and MAX_TOTAL for all bodies of two steps. A body with more paths, such as one
through a hub, is counted on a random sample of them (`graph.path_samples`), and its counts come with the size of the
sample and a confidence interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.graph.index import GraphIndex
from dihedral.graph.joins import TILE, Body, StepPairs, contains, multiply, ones, tiles
from dihedral.graph.path_samples import PathSample, sample_paths, wilson_interval
from dihedral.runtime import interruption
from dihedral.runtime.threads import for_each

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]
MAX_BITS = 2**32  # half a gigabyte
MAX_PATHS = 1 << 25  # along one body that are all looked at: a second or two
MAX_TOTAL = 1 << 30  # the same for all bodies of two steps together: about a minute


@dataclass(frozen=True)
class Reversals:
    """How often the reversed pairs of one relation are pairs of another."""

    support: Any  # sparse [R, R]: pairs (h, t) of the row's relation for which the column's relation holds (t, h)
    size: Counts  # [R]: pairs of each relation

    @property
    def confidence(self) -> Shares:
        """[R, R]: the share of the row relation's pairs that the column relation holds reversed."""
        shares: Shares = self.support.toarray() / np.maximum(self.size, 1)[:, None]
        return shares

    def symmetric(self, confidence: float = 0.8, support: int = 10) -> list[int]:
        """Relations that hold most of their own pairs in both directions."""
        mutual = self.support.diagonal()
        held = (mutual / np.maximum(self.size, 1) >= confidence) & (mutual >= support)
        return np.flatnonzero(held).tolist()

    def inverse_pairs(self, confidence: float = 0.8, support: int = 10) -> list[tuple[int, int]]:
        """Pairs of relations that are inverse to each other in both directions, by descending support."""
        first, second, counts = self.pairs(support)
        share = counts / np.maximum(self.size[first], self.size[second])
        first, second, counts = (each[share >= confidence] for each in (first, second, counts))
        order = np.argsort(-counts, kind="stable")
        return [(int(first[i]), int(second[i])) for i in order]

    def pairs(self, support: int) -> tuple[Counts, Counts, Counts]:
        """Different relations r₁ < r₂ with at least this support, and the support, in order of the relations."""
        entries = self.support.tocoo()
        first, second = (each.astype(np.int64) for each in entries.coords)
        kept = (first < second) & (entries.data >= support)
        first, second, counts = first[kept], second[kept], entries.data[kept].astype(np.int64)
        order = np.lexsort((second, first))
        return first[order], second[order], counts[order]


def find_reversals(index: GraphIndex, *, min_support: int = 1) -> Reversals:
    """Reversed pairs of all relations; those with a lower support count as 0."""
    from scipy import sparse  # on first use: its import takes longer than that of this package

    head, relation, tail = _between_two(*index.facts())
    keys, column = np.unique(
        np.concatenate([head * index.num_entities + tail, tail * index.num_entities + head]), return_inverse=True
    )
    shape = index.num_relations, len(keys)
    forward, backward = (ones(relation, part, shape) for part in np.split(column, 2))
    opposite = backward.T.tocsr()
    parts = []
    for rows in tiles(forward @ np.diff(opposite.indptr).astype(np.int64), TILE):
        interruption.check()
        part = forward[rows] @ opposite
        part.data[part.data < min_support] = 0
        part.eliminate_zeros()
        parts.append(part)
    support = sparse.vstack(parts, format="csr").astype(np.int64)
    support.sort_indices()
    return Reversals(support, np.bincount(relation, minlength=index.num_relations))


def count_mutual(index: GraphIndex) -> tuple[Counts, Counts]:
    """The pairs of each relation that it also holds reversed, and all its pairs: [R] each."""
    head, relation, tail = map(torch.from_numpy, _between_two(*index.facts()))
    both = (index.locate(tail, relation, head) >= 0).numpy()
    counts = (np.bincount(each.numpy(), minlength=index.num_relations) for each in (relation[both], relation))
    mutual, size = counts
    return mutual, size


def skew_relations(index: GraphIndex) -> NDArray[np.bool_]:
    """Definitely skew-symmetric relations [R]: they have pairs, and not one of them reversed."""
    mutual, size = count_mutual(index)
    return (size > 0) & (mutual == 0)


@dataclass(frozen=True)
class Chains:
    """Rules r₁ · r₂ ⇒ r₃ and how often they hold, one entry per rule."""

    rules: NDArray[np.int32]  # [n, 3]: r₁, r₂, r₃
    support: Counts  # [n]: pairs joined by r₁ then r₂ that r₃ also holds
    body: Counts  # [n]: pairs joined by r₁ then r₂
    pca_body: Counts  # [n]: those whose head has any r₃ fact
    sample: Counts  # [n]: the paths that were sampled to estimate the counts; 0 if they are exact
    low: Shares  # [n]: the 95 % confidence interval of the confidence; its ends are equal if it is exact
    high: Shares  # [n]
    joined: Any  # sparse [R, R]: pairs joined by r₁ then r₂, rule or not; 0 if fewer than the minimum support

    def __len__(self) -> int:
        return len(self.rules)

    @property
    def confidence(self) -> Shares:
        return self.support / self.body

    def __getitem__(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> Chains:
        columns = {field.name: getattr(self, field.name)[which] for field in fields(self) if field.name != "joined"}
        return replace(self, **columns)

    def counts(self) -> list[RuleCount]:
        """The counts of each rule."""
        columns = (self.support, self.body, self.pca_body, self.sample, self.low, self.high)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [
            RuleCount(support, body, pca_body, Interval(sample, low, high) if sample else None)
            for support, body, pca_body, sample, low, high in rows
        ]


class Interval(NamedTuple):
    """What a sample of paths says about the confidence of a rule."""

    sample: int  # paths
    low: float  # the 95 % confidence interval
    high: float


class RuleCount(NamedTuple):
    """Counts of one rule; estimates if there is an interval."""

    support: int  # pairs joined by the body that the head relation holds
    pairs: int  # pairs joined by the body
    pca_pairs: int  # those whose head has any fact of the head relation
    interval: Interval | None = None

    @property
    def confidence(self) -> float | None:
        return self.support / self.pairs if self.pairs else None


def find_chains(index: GraphIndex, *, min_support: int = 10, inverses: bool = False) -> Chains:
    """Every rule r₁ · r₂ ⇒ r₃ with a support of at least `min_support` pairs.

    Where a body is sampled, these are the rules whose support is that high at the lower end of its interval.

    inverses: r₁ and r₂ may be steps backwards.
    """
    from scipy import sparse

    counter = _ChainCounter(index, inverses, min_support)
    max_exponent = counter.max_exponent()
    joined: list[tuple[Counts, ...]] = []
    found: list[tuple[NDArray[Any], ...]] = []

    def count(r1: int) -> None:
        steps, paths = counter.paths(r1)
        sampled = tuple(steps[np.frexp(paths)[1] > max_exponent].tolist())
        totals, rules = counter.count(r1, sampled)
        joined.append((np.full_like(totals[0], r1), *totals))
        found.append((np.full(len(rules[0]), r1), *rules))
        for r2 in sampled:
            pairs, rules = counter.estimate(r1, r2)
            joined.append((np.array([r1]), np.array([r2]), np.array([pairs])))
            found.append((np.full(len(rules[0]), r1), np.full(len(rules[0]), r2), *rules))

    for_each(count, range(counter.num_steps))
    columns = [np.concatenate(part) for part in zip(*found, strict=True)]
    first, second, pairs_joined = (np.concatenate(part) for part in zip(*joined, strict=True))
    enough = pairs_joined >= min_support
    table = sparse.csr_array(
        (pairs_joined[enough], (first[enough], second[enough])), shape=(counter.num_steps, counter.num_steps)
    )
    order = np.lexsort(columns[2::-1])
    first, second, third, support, body, pca_body, sample, low, high = (column[order] for column in columns)
    chained = np.stack([first, second, third], axis=1).astype(np.int32)
    return Chains(chained, support, body, pca_body, sample, low, high, table)


class _ChainCounter:
    """Counts the rules of two steps that begin with one step."""

    def __init__(self, index: GraphIndex, inverses: bool, min_support: int) -> None:
        self.index, self.min_support, self.num_entities = index, min_support, index.num_entities
        head, relation, tail = _between_two(*index.facts())
        self.pairs, pair_of = np.unique(head * self.num_entities + tail, return_inverse=True)
        self.held = _KeySet(self.pairs, self.num_entities**2)
        self.holds = ones(pair_of, relation, (len(self.pairs), index.num_relations))
        self.heads_of = ones(head, relation, (self.num_entities, index.num_relations))
        self.heads_of.sum_duplicates()
        self.heads_of.data[:] = 1  # whether an entity is a head of r₃
        self.num_steps = index.num_relations
        if inverses:
            self.num_steps = 2 * index.num_relations
            edges = (each.long().numpy() for each in (index.sources, index.steps, index.ends))
            head, relation, tail = _between_two(*edges)
        order = np.argsort(relation, kind="stable")  # by step, then by head
        self.head, self.step, self.tail = head[order], relation[order], tail[order]
        self.starts = np.searchsorted(self.step, np.arange(self.num_steps + 1))
        self.leaving = ones(head, relation, (self.num_entities, self.num_steps))  # edges by (entity, step)
        self.leaving.sum_duplicates()
        self._latest: tuple[tuple[int, ...], tuple[Any, Counts, Counts]] | None = None

    def paths(self, r1: int) -> tuple[Counts, Shares]:
        """The steps that can follow a step in a rule, and the number of paths along the two."""
        from scipy import sparse

        here = slice(*self.starts[r1 : r1 + 2])
        arriving = sparse.csr_array(
            (np.ones(here.stop - here.start), self.tail[here], [0, here.stop - here.start]),
            shape=(1, self.num_entities),
        )
        paths = (arriving @ self.leaving).tocsr()
        enough = paths.data >= self.min_support  # there are at least as many paths as pairs
        steps, counts = paths.indices[enough].astype(np.int64), paths.data[enough]
        order = np.argsort(steps)
        return steps[order], counts[order]

    def max_exponent(self) -> int:
        """Bodies with less than 2 to the power of this many paths are counted exactly."""
        sums = np.zeros(1100)
        for r1 in range(self.num_steps):
            interruption.check()
            _, paths = self.paths(r1)
            sums += np.bincount(np.frexp(paths)[1], paths, minlength=len(sums))
        within = np.flatnonzero(sums.cumsum() <= MAX_TOTAL)
        return int(min(within[-1] if len(within) else 0, MAX_PATHS.bit_length() - 1))

    def count(self, r1: int, skipped: tuple[int, ...]) -> tuple[tuple[Counts, Counts], tuple[NDArray[Any], ...]]:
        """The steps after r₁, with the pairs joined; and the rules with their exact counts.

        A rule is r₂, r₃, support, body, PCA body, and, as in `Chains`, sample, low and high.

        skipped: second steps that are not counted.
        """
        joined = np.zeros(self.num_steps, np.int64)
        support, parts, last = None, 0, (_NONE, _NONE, _NONE)
        for last in self._joined_pairs(r1, skipped):
            start, r2, end = last
            joined += np.bincount(r2, minlength=self.num_steps)
            key = start * self.num_entities + end
            known = np.flatnonzero(self.held.has(key))
            place = np.searchsorted(self.pairs, key[known])
            here = ones(r2[known], place, (self.num_steps, len(self.pairs))) @ self.holds
            support, parts = here if support is None else support + here, parts + 1
        totals = np.flatnonzero(joined), joined[joined > 0]
        if support is None or not (support.data >= self.min_support).any():
            return totals, (*[_NONE] * 6, _NOTHING, _NOTHING)
        entries = support.tocoo()
        enough = entries.data >= self.min_support
        r2s, r3s = (each[enough].astype(np.int64) for each in entries.coords)
        wanted, (heads, column) = np.unique(r2s), np.unique(r3s, return_inverse=True)
        heads_of, pca = self.heads_of[:, heads], np.zeros(len(r2s), np.int64)
        for start, r2, _ in [last] if parts == 1 else self._joined_pairs(r1, skipped):
            kept = np.isin(r2, wanted)
            by_head = ones(r2[kept], start[kept], (self.num_steps, self.num_entities))
            pca += (by_head @ heads_of)[r2s, column]
        counts, body = entries.data[enough].astype(np.int64), joined[r2s]
        return totals, (r2s, r3s, counts, body, pca, np.zeros_like(r2s), counts / body, counts / body)

    def _joined_pairs(self, r1: int, skipped: tuple[int, ...]) -> Iterator[tuple[Counts, Counts, Counts]]:
        """The distinct (h, r₂, t) that r₁ and r₂ join, in tiles of heads."""
        here = slice(*self.starts[r1 : r1 + 2])
        first = StepPairs(self.num_entities, self.head[here], self.tail[here])
        second, column_step, column_tail = self._second(skipped)
        for start, column, _ in multiply(first, [second], np.diff(second.indptr).astype(np.int64)[first.tails]):
            yield _between_two(start, column_step[column], column_tail[column])

    def _second(self, skipped: tuple[int, ...]) -> tuple[Any, Counts, Counts]:
        """All second steps side by side: a row for each m, a column for each (r₂, t) that exists, its r₂, its t."""
        latest = self._latest  # another thread may have computed it
        if latest is None or latest[0] != skipped:
            kept = ~np.isin(self.step, skipped) if skipped else slice(None)
            columns, column_of = np.unique(self.step[kept] * self.num_entities + self.tail[kept], return_inverse=True)
            matrix = ones(self.head[kept], column_of, (self.num_entities, len(columns)))
            self._latest = latest = skipped, (matrix, *np.divmod(columns, self.num_entities))
        return latest[1]

    def estimate(self, r1: int, r2: int) -> tuple[int, tuple[NDArray[Any], ...]]:
        """The pairs that a body joins, and its rules as in `count` but without r₂, estimated from a sample of paths."""
        sample = sample_paths(Body(self.index, [r1, r2]))
        key = sample.heads * self.num_entities + sample.tails
        known = np.flatnonzero(self.held.has(key))
        total, size = sample.weights.sum(), len(sample.weights)
        supported = sample.weights[known] @ self.holds[np.searchsorted(self.pairs, key[known])]  # [R]
        low, _ = wilson_interval(supported / size, np.full(1, size))
        r3s = np.flatnonzero((supported > 0) & (low * sample.num_paths >= self.min_support))
        pca = sample.weights @ self.heads_of[sample.heads][:, r3s]
        counts = (np.rint(each * sample.num_paths / size).astype(np.int64) for each in (supported[r3s], pca))
        support, pca_body = counts
        pairs = round(sample.pairs())
        interval = wilson_interval(supported[r3s] / max(total, 1e-300), np.full(1, sample.effective_size))
        full = (np.full(len(r3s), each) for each in (pairs, size))
        body, sizes = full
        return pairs, (r3s, support, body, pca_body, sizes, *interval)


def count_rule(
    index: GraphIndex, body: Sequence[int], head: int, *, without: tuple[int, int, int] | None = None
) -> RuleCount:
    """Counts of one rule of any length.

    without: a triple (h, r, t) that does not count, neither as a fact of the body nor as a pair that it joins.
    """
    return count_rules(index, body, [head], without=without)[0]


def count_rules(
    index: GraphIndex,
    body: Sequence[int],
    heads: Sequence[int],
    *,
    without: tuple[int, int, int] | None = None,
    max_paths: int = MAX_PATHS,
) -> list[RuleCount]:
    """Counts of the rules with one body and several heads, as `count_rule`; exact up to `max_paths` along the body."""
    steps = Body(index, body, without)
    rules = [StepPairs.of(index, head, without) for head in heads]
    own = None if without is None else (without[0], without[2])
    if steps.num_paths > max_paths:
        sample = sample_paths(steps)
        if own is not None:
            other = (sample.heads != own[0]) | (sample.tails != own[1])
            sample = sample._replace(weights=sample.weights * other)
        return [_estimate(sample, held) for held in rules]
    counts = np.zeros((len(rules), 3), np.int64)
    for starts, ends in steps.joined():
        if own is not None:
            kept = (starts != own[0]) | (ends != own[1])
            starts, ends = starts[kept], ends[kept]
        for row, held in zip(counts, rules, strict=True):
            row += int(held.has(starts, ends).sum()), len(starts), int(contains(held.heads, starts).sum())
    return [RuleCount(support, pairs, pca_pairs) for support, pairs, pca_pairs in counts.tolist()]


def _estimate(sample: PathSample, held: StepPairs) -> RuleCount:
    """The counts of a rule from a sample of the paths along its body."""
    holds, has_any = held.has(sample.heads, sample.tails), contains(held.heads, sample.heads)
    support, pairs, pca_pairs = (sample.pairs(each) for each in (holds, None, has_any))
    share = np.array([support / pairs if pairs else 0.0])
    (low,), (high,) = wilson_interval(share, np.full(1, sample.effective_size))
    interval = Interval(len(sample.heads), float(low), float(high))
    return RuleCount(round(support), round(pairs), round(pca_pairs), interval)


def _between_two(head: Counts, relation: Counts, tail: Counts) -> tuple[Counts, Counts, Counts]:
    """The facts whose head is not their tail."""
    two = head != tail
    return head[two], relation[two], tail[two]


class _KeySet:
    """Membership in a sorted array of numbers below `size`: by a bit set where that fits in memory."""

    def __init__(self, keys: Counts, size: int) -> None:
        self.keys = keys
        self.bits: NDArray[np.uint8] | None = None
        if size <= MAX_BITS:
            byte, first = np.unique(keys >> 3, return_index=True)
            self.bits = np.zeros(size // 8 + 1, np.uint8)
            self.bits[byte] = np.bitwise_or.reduceat((1 << (keys & 7)).astype(np.uint8), first)

    def has(self, wanted: Counts) -> NDArray[np.bool_]:
        if self.bits is not None:
            return (self.bits[wanted >> 3] >> (wanted & 7).astype(np.uint8)) & 1 != 0
        return contains(self.keys, wanted)


_NONE = np.zeros(0, np.int64)
_NOTHING = np.zeros(0)
