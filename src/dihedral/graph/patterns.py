"""Patterns counted in a graph: symmetric relations, inverse pairs, chains r₁ · r₂ ⇒ r₃ and single rules.

Counts are over distinct (head, tail) pairs. A pair is two different entities: facts about an entity and itself
(head = tail) are left out of every count, and so are paths along a body that visit an entity twice. The standard
confidence of a rule is support / body: the share of the pairs joined by the body that the head relation also holds. PCA
confidence divides only by the body pairs whose head entity has any fact of the head relation.

Counts are exact as long as the paths along a body are few enough to be listed: at most MAX_PATHS for one body and
MAX_TOTAL for all bodies of two steps. A body with more paths, such as one through a hub, is counted on a random sample
of them, and its counts come with the size of the sample and a confidence interval. A path drawn at random leads to the
pair (h, t) with a probability proportional to the number of paths between the two. Weighted by the inverse of that
number, sampled paths therefore stand for distinct pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dihedral.graph.index import GraphIndex
from dihedral.graph.joins import Body, Ids, Mask, StepPairs, Triple, contains, multiply, ones
from dihedral.runtime import interruption
from dihedral.runtime.threads import for_each

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]
MAX_PATHS = 1 << 25  # along one body that are all looked at: a second or two
MAX_TOTAL = 1 << 30  # the same for all bodies of two steps together: about a minute
SAMPLES = 100_000  # paths drawn for a body
PILOT = 1000  # paths drawn to see what a sample costs
MAX_LOOKUPS = 20_000_000  # facts looked up for the sample of a body


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

    @property
    def bounds(self) -> tuple[float, float]:
        """The 95 % confidence interval of the confidence."""
        low, high = wilson_interval(np.array(self.confidence or 0.0), max(self.pairs, 1))
        return (float(low), float(high)) if self.interval is None else self.interval[1:]


# --- reversed pairs ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Reversals:
    """How often the reversed pairs of one relation are pairs of another."""

    support: Any  # sparse [R, R]: pairs (h, t) of the row's relation for which the column's relation holds (t, h)
    parallel: Any  # the same for which the column's relation, another one, holds (h, t)
    size: Counts  # [R]: pairs of each relation

    @property
    def mutual(self) -> Counts:
        """[R]: pairs that a relation also holds reversed."""
        return self.support.diagonal()

    @property
    def confidence(self) -> Shares:
        """[R, R]: the share of the row relation's pairs that the column relation holds reversed."""
        return self.support.toarray() / np.maximum(self.size, 1)[:, None]

    def symmetric(self, confidence: float = 0.8, support: int = 10) -> list[int]:
        """Relations that hold most of their own pairs in both directions."""
        held = (self.mutual / np.maximum(self.size, 1) >= confidence) & (self.mutual >= support)
        return np.flatnonzero(held).tolist()

    def inverse_pairs(self, confidence: float = 0.8, support: int = 10) -> list[tuple[int, int]]:
        """Pairs of relations that are inverse to each other in both directions, by descending support."""
        first, second, counts = self.pairs(support)
        share = counts / np.maximum(self.size[first], self.size[second])
        best = [i for i in np.argsort(-counts, kind="stable") if share[i] >= confidence]
        return [(int(first[i]), int(second[i])) for i in best]

    def same_steps(self, confidence: float = 0.8, support: int = 10) -> Counts:
        """For each step [2R] one that joins the same pairs: that of an inverse, or of a symmetric relation forwards."""
        relations = len(self.size)
        same = np.arange(2 * relations)
        for first, second in self.inverse_pairs(confidence, support):
            same[[second, second + relations]] = first + relations, first
        backwards = np.flatnonzero(np.isin(same % relations, self.symmetric(confidence, support)))
        same[backwards] %= relations
        return same

    def pairs(self, support: int) -> tuple[Counts, Counts, Counts]:
        """Different relations r₁ < r₂ with at least this support, and the support, in order of the relations."""
        entries = self.support.tocoo()
        kept = (entries.coords[0] < entries.coords[1]) & (entries.data >= support)
        first, second, counts = (each[kept].astype(np.int64) for each in (*entries.coords, entries.data))
        return first, second, counts


def find_reversals(index: GraphIndex, *, min_support: int = 1) -> Reversals:
    """Reversed pairs of all relations; those with a lower support count as 0."""
    head, relation, tail = _between_two(*index.facts())
    keys, column = np.unique(
        np.concatenate([head * index.num_entities + tail, tail * index.num_entities + head]), return_inverse=True
    )
    shape = index.num_relations, len(keys)
    forward, backward = (ones(relation, part, shape) for part in np.split(column, 2))
    itself = ones(relation, relation, (index.num_relations, index.num_relations))
    tables = [each.tocsr().astype(np.int64) for each in (forward @ backward.T, forward @ forward.T - itself)]
    for table in tables:
        table.data[table.data < min_support] = 0
        table.eliminate_zeros()
        table.sort_indices()
    return Reversals(tables[0], tables[1], np.bincount(relation, minlength=index.num_relations))


def skew_relations(index: GraphIndex) -> Mask:
    """Definitely skew-symmetric relations [R]: they have pairs, and not one of them reversed."""
    found = find_reversals(index)
    return (found.size > 0) & (found.mutual == 0)


# --- chains ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chains:
    """Rules r₁ · r₂ ⇒ r₃ and how often they hold, one entry per rule; those of sampled bodies are estimates."""

    rules: NDArray[np.int32]  # [n, 3]: r₁, r₂, r₃
    support: Counts  # [n]: pairs joined by r₁ then r₂ that r₃ also holds
    body: Counts  # [n]: pairs joined by r₁ then r₂
    joined: Any  # sparse [R, R]: pairs joined by r₁ then r₂, rule or not; 0 if fewer than the minimum support

    def __len__(self) -> int:
        return len(self.rules)

    @property
    def confidence(self) -> Shares:
        return self.support / self.body


def find_chains(index: GraphIndex, *, min_support: int = 10, inverses: bool = False) -> Chains:
    """Every rule r₁ · r₂ ⇒ r₃ with a support of at least `min_support` pairs.

    Where a body is sampled, these are the rules whose support is that high at the lower end of its interval.

    inverses: r₁ and r₂ may be steps backwards.
    """
    from scipy import sparse  # on first use: its import takes longer than that of this package

    counter = _ChainCounter(index, inverses, min_support)
    paths = list(map(counter.paths, range(counter.num_steps)))
    sizes = np.sort(np.concatenate([counts for _, counts in paths]))
    exact = sizes[(sizes.cumsum() <= MAX_TOTAL) & (sizes <= MAX_PATHS)].max(initial=0)
    found: list[tuple[Counts, Counts]] = []

    def count(r1: int) -> None:
        steps, counts = paths[r1]
        sampled = steps[counts > exact]
        found.append(counter.count(r1, sampled))
        found.extend(counter.estimate(r1, r2) for r2 in sampled.tolist())

    for_each(count, range(counter.num_steps))
    joined, rules = (np.concatenate(part) for part in zip(*found, strict=True))
    first, second, pairs = joined[joined[:, 2] >= min_support].T
    table = sparse.csr_array((pairs, (first, second)), shape=(counter.num_steps, counter.num_steps))
    rules = rules[np.lexsort(rules[:, 2::-1].T)]
    return Chains(rules[:, :3].astype(np.int32), rules[:, 3], rules[:, 4], table)


class _ChainCounter:
    """Counts the rules of two steps that begin with one step.

    The results are two tables: r₁, r₂ and the pairs that they join; r₁, r₂, r₃, the support and the pairs of the body.
    """

    def __init__(self, index: GraphIndex, inverses: bool, min_support: int) -> None:
        self.index, self.min_support, self.num_entities = index, min_support, index.num_entities
        head, relation, tail = _between_two(*index.facts())
        self.pairs, pair_of = np.unique(head * self.num_entities + tail, return_inverse=True)
        self.holds = ones(pair_of, relation, (len(self.pairs), index.num_relations))
        self.num_steps = index.num_relations
        if inverses:
            self.num_steps = 2 * index.num_relations
            edges = (each.long().numpy() for each in (index.sources, index.steps, index.ends))
            head, relation, tail = _between_two(*edges)
        order = np.argsort(relation, kind="stable")  # by step, then by head
        head, step, tail = head[order], relation[order], tail[order]
        bounds = np.searchsorted(step, np.arange(1, self.num_steps))
        parts = zip(np.split(head, bounds), np.split(tail, bounds), strict=True)
        self.steps = [StepPairs(self.num_entities, heads, tails) for heads, tails in parts]
        self.leaving = ones(head, step, (self.num_entities, self.num_steps)).astype(np.float64)  # edges
        columns, column_of = np.unique(step * self.num_entities + tail, return_inverse=True)
        self.second = ones(head, column_of, (self.num_entities, len(columns)))  # all second steps side by side
        self.columns = np.divmod(columns, self.num_entities)  # r₂ and t of each column

    def paths(self, r1: int) -> tuple[Counts, Shares]:
        """The steps that can follow a step in a rule, and the number of paths along the two."""
        interruption.check()
        tails = self.steps[r1].tails
        paths = (ones(np.zeros_like(tails), tails, (1, self.num_entities)) @ self.leaving).toarray()[0]
        steps = np.flatnonzero(paths >= self.min_support)  # there are at least as many paths as pairs
        return steps, paths[steps]

    def count(self, r1: int, skipped: Counts) -> tuple[Counts, Counts]:
        """The pairs and rules of the bodies that begin with r₁, but for those with the second steps `skipped`."""
        first, second, (step, tail) = self.steps[r1], self.second, self.columns
        if len(skipped):
            kept = np.flatnonzero(~np.isin(step, skipped))
            second, step, tail = second[:, kept], step[kept], tail[kept]
        joined = np.zeros(self.num_steps, np.int64)
        support = ones(joined[:0], joined[:0], (self.num_steps, self.index.num_relations))
        for heads, column, _ in multiply(first, [second], np.diff(second.indptr).astype(np.int64)[first.tails]):
            start, r2, end = _between_two(heads, step[column], tail[column])
            joined += np.bincount(r2, minlength=self.num_steps)
            known, place = self._held(start, end)
            support += ones(r2[known], place, (self.num_steps, len(self.pairs))) @ self.holds
        entries, seconds = support.tocoo(), np.flatnonzero(joined)
        enough = entries.data >= self.min_support
        r2s, r3s, counts = (each[enough].astype(np.int64) for each in (*entries.coords, entries.data))
        return _table(r1, seconds, joined[seconds]), _table(r1, r2s, r3s, counts, joined[r2s])

    def _held(self, heads: Counts, tails: Counts) -> tuple[Counts, Counts]:
        """Which pairs [n] any relation holds, and their places in `pairs`."""
        keys = heads * self.num_entities + tails
        place = np.searchsorted(self.pairs, keys).clip(max=len(self.pairs) - 1)
        known = np.flatnonzero(self.pairs[place] == keys)
        return known, place[known]

    def estimate(self, r1: int, r2: int) -> tuple[Counts, Counts]:
        """The pairs and rules of one body, estimated from a sample of paths."""
        sample = sample_paths(Body(self.index, [r1, r2]))
        size, (known, place) = len(sample.weights), self._held(sample.heads, sample.tails)
        shares = sample.weights[known] @ self.holds[place] / size  # [R]
        low, _ = wilson_interval(shares, size)
        r3s = np.flatnonzero((shares > 0) & (low * sample.num_paths >= self.min_support))
        support, pairs = np.rint(shares[r3s] * sample.num_paths).astype(np.int64), round(sample.pairs())
        return _table(r1, r2, np.array([pairs])), _table(r1, r2, r3s, support, pairs)


def _table(*columns: Any) -> Counts:
    return np.stack(np.broadcast_arrays(*columns), axis=1)


# --- single rules ------------------------------------------------------------------------------


def count_rule(index: GraphIndex, body: Sequence[int], head: int, **options: Any) -> RuleCount:
    """Counts of one rule of any length, with the options of `count_rules`."""
    return count_rules(index, body, [head], **options)[0]


def count_rules(
    index: GraphIndex,
    body: Sequence[int],
    heads: Sequence[int],
    *,
    without: Triple | None = None,
    max_paths: int = MAX_PATHS,
) -> list[RuleCount]:
    """Counts of the rules with one body and several heads; exact up to `max_paths` along the body.

    without: a triple (h, r, t) that does not count, neither as a fact of the body nor as a pair that it joins.
    """
    steps = Body(index, body, without)
    rules = [StepPairs.of(index, head, without) for head in heads]

    def counted(starts: Ids, ends: Ids) -> Mask:
        if without is None:
            return np.ones(len(starts), bool)
        return (starts != without[0]) | (ends != without[2])

    if steps.num_paths > max_paths:
        sample = sample_paths(steps)
        sample = sample._replace(weights=sample.weights * counted(sample.heads, sample.tails))
        return [_estimate(sample, held) for held in rules]
    counts = np.zeros((len(rules), 3), np.int64)
    for starts, ends in steps.joined():
        kept = counted(starts, ends)
        starts, ends = starts[kept], ends[kept]
        for row, held in zip(counts, rules, strict=True):
            row += int(held.has(starts, ends).sum()), len(starts), int(contains(held.heads, starts).sum())
    return [RuleCount(support, pairs, pca_pairs) for support, pairs, pca_pairs in counts.tolist()]


def _estimate(sample: PathSample, held: StepPairs) -> RuleCount:
    holds, has_any = held.has(sample.heads, sample.tails), contains(held.heads, sample.heads)
    support, pairs, pca_pairs = (sample.pairs(each) for each in (holds, True, has_any))
    total, squares = float(sample.weights.sum()), float((sample.weights**2).sum())
    size = max(1.0, total**2 / max(squares, 1e-300))  # equally weighted pairs that say as much (Kish)
    low, high = wilson_interval(np.array(support / pairs if pairs else 0.0), size)
    interval = Interval(len(sample.heads), float(low), float(high))
    return RuleCount(round(support), round(pairs), round(pca_pairs), interval)


# --- samples of paths --------------------------------------------------------------------------


class PathSample(NamedTuple):
    """Random paths along a body. `num_paths` times the mean weight is an estimate of the number of pairs joined."""

    num_paths: float  # in the graph
    heads: Ids  # [n]
    tails: Ids  # [n]
    weights: Shares  # [n]: 1 / number of paths between head and tail, and 0 if an entity is visited twice

    def pairs(self, holds: Mask | bool = True) -> float:
        """How many pairs the body joins in the graph, of those for which something holds."""
        return self.num_paths * float((self.weights * holds).mean())


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


def wilson_interval(shares: Shares, counts: NDArray[Any] | float) -> tuple[Shares, Shares]:
    """The 95 % confidence intervals of shares that were measured on some examples (Wilson, 1927)."""
    squared = 1.96**2
    middle = (shares + squared / (2 * counts)) / (1 + squared / counts)
    half = np.sqrt(squared * (shares * (1 - shares) / counts + squared / (4 * counts**2))) / (1 + squared / counts)
    return (middle - half).clip(0), (middle + half).clip(max=1)


def _between_two(head: Counts, relation: Counts, tail: Counts) -> tuple[Counts, Counts, Counts]:
    """The facts whose head is not their tail."""
    two = head != tail
    return head[two], relation[two], tail[two]
