"""Patterns counted in a graph: symmetric relations, inverse pairs, chains r₁ · r₂ ⇒ r₃.

Counts are exact, over distinct (head, tail) pairs, by sparse products. A pair is two different entities: facts about an
entity and itself (head = tail) are left out of every count, and so are bodies that lead back to their start. The
standard confidence of a rule is support / body: the share of the pairs joined by the body that the head relation also
holds. PCA confidence divides only by the body pairs whose head entity has any fact of the head relation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.graph.index import GraphIndex

Counts = NDArray[np.int64]
MAX_BITS = 2**32  # half a gigabyte


@dataclass(frozen=True)
class Reversals:
    """How often the reversed pairs of one relation are pairs of another."""

    support: Counts  # [R, R]: pairs (h, t) of the row's relation for which the column's relation holds (t, h)
    size: Counts  # [R]: pairs of each relation

    @property
    def confidence(self) -> NDArray[np.float64]:
        """[R, R]: the share of the row relation's pairs that the column relation holds reversed."""
        return self.support / np.maximum(self.size, 1)[:, None]

    def symmetric(self, confidence: float = 0.8, support: int = 10) -> list[int]:
        """Relations that hold most of their own pairs in both directions."""
        held = (self.confidence.diagonal() >= confidence) & (self.support.diagonal() >= support)
        return np.flatnonzero(held).tolist()

    def inverse_pairs(self, confidence: float = 0.8, support: int = 10) -> list[tuple[int, int]]:
        """Pairs of relations that are inverse to each other in both directions, by descending support."""
        both = np.minimum(self.confidence, self.confidence.T)
        first, second = np.nonzero(np.triu((both >= confidence) & (self.support >= support), k=1))
        order = np.argsort(-self.support[first, second], kind="stable")
        return [(int(first[i]), int(second[i])) for i in order]


def find_reversals(index: GraphIndex) -> Reversals:
    """Reversed pairs of all relations."""
    head, relation, tail = _between_two(*index.facts())
    keys, column = np.unique(
        np.concatenate([head * index.num_entities + tail, tail * index.num_entities + head]), return_inverse=True
    )
    shape = index.num_relations, len(keys)
    forward, backward = (_ones(relation, part, shape) for part in np.split(column, 2))
    support = (forward @ backward.T).toarray().astype(np.int64)
    return Reversals(support, np.bincount(relation, minlength=index.num_relations))


def skew_relations(index: GraphIndex) -> NDArray[np.bool_]:
    """Definitely skew-symmetric relations [R]: they have pairs, and not one of them reversed."""
    head, relation, tail = map(torch.from_numpy, _between_two(*index.facts()))
    reversed_too = index.locate(tail, relation, head) >= 0
    skew = torch.zeros(index.num_relations, dtype=torch.bool)
    skew[relation] = True
    skew[relation[reversed_too]] = False
    return skew.numpy()


@dataclass(frozen=True)
class Chains:
    """Rules r₁ · r₂ ⇒ r₃ and how often they hold, one entry per rule."""

    rules: NDArray[np.int32]  # [n, 3]: r₁, r₂, r₃
    support: Counts  # [n]: pairs joined by r₁ then r₂ that r₃ also holds
    body: Counts  # [n]: pairs joined by r₁ then r₂
    pca_body: Counts  # [n]: those whose head has any r₃ fact
    joined: Counts  # [R, R]: pairs joined by r₁ then r₂, rule or not

    def __len__(self) -> int:
        return len(self.rules)

    @property
    def confidence(self) -> NDArray[np.float64]:
        return self.support / self.body

    @property
    def pca_confidence(self) -> NDArray[np.float64]:
        return self.support / self.pca_body

    def __getitem__(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> Chains:
        return Chains(self.rules[which], self.support[which], self.body[which], self.pca_body[which], self.joined)


def find_chains(index: GraphIndex, *, min_support: int = 10, inverses: bool = False) -> Chains:
    """Every rule r₁ · r₂ ⇒ r₃ with a support of at least `min_support` pairs.

    inverses: r₁ and r₂ may be steps backwards.
    """
    num_entities, num_relations = index.num_entities, index.num_relations
    head, relation, tail = _between_two(*index.facts())
    pairs, pair_of = np.unique(head * num_entities + tail, return_inverse=True)
    held = _KeySet(pairs, num_entities**2)
    holds = _ones(pair_of, relation, (len(pairs), num_relations))
    heads_of = _ones(head, relation, (num_entities, num_relations))
    heads_of.sum_duplicates()
    heads_of.data[:] = 1  # whether an entity is a head of r₃
    num_steps = num_relations
    if inverses:
        num_steps = 2 * num_relations
        edges = (each.long().numpy() for each in (index.sources, index.steps, index.ends))
        head, relation, tail = _between_two(*edges)
    # second steps of all relations side by side: row m, one column for each (r₂, t) that exists
    columns, column_of = np.unique(relation * num_entities + tail, return_inverse=True)
    column_relation, column_tail = np.divmod(columns, num_entities)
    second = _ones(head, column_of, (num_entities, len(columns)))
    joined = np.zeros((num_steps, num_steps), np.int64)
    found: list[tuple[NDArray[np.int64], ...]] = []
    for r1 in range(num_steps):
        mine = relation == r1
        heads, row = np.unique(head[mine], return_inverse=True)
        paths = _ones(row, tail[mine], (len(heads), num_entities)) @ second  # one entry for each distinct (h, r₂, t)
        start = heads[np.repeat(np.arange(len(heads)), np.diff(paths.indptr))]
        start, r2, end = _between_two(start, column_relation[paths.indices], column_tail[paths.indices])
        joined[r1] = np.bincount(r2, minlength=num_steps)
        key = start * num_entities + end
        known = np.flatnonzero(held.has(key))
        place = np.searchsorted(pairs, key[known])
        support = (_ones(r2[known], place, (num_steps, len(pairs))) @ holds).tocoo()
        enough = support.data >= min_support
        if not enough.any():
            continue
        r2s, r3s = support.coords[0][enough].astype(np.int64), support.coords[1][enough].astype(np.int64)
        wanted = np.isin(r2, r2s)
        by_head = _ones(r2[wanted], start[wanted], (num_steps, num_entities))
        pca = (by_head @ heads_of)[r2s, r3s]
        found.append((np.full(len(r2s), r1), r2s, r3s, support.data[enough], joined[r1, r2s], pca))
    parts = [np.concatenate(part).astype(np.int64) for part in zip(*found, strict=True)] if found else [_NONE] * 6
    r1s, r2s, r3s, support_counts, body, pca_body = parts
    rules = np.stack([r1s, r2s, r3s], axis=1).astype(np.int32)
    return Chains(rules, support_counts, body, pca_body, joined)


def count_rule(
    index: GraphIndex, body: Sequence[int], head: int, *, without: tuple[int, int, int] | None = None
) -> tuple[int, int, int]:
    """Counts of one rule of any length: support, pairs that the body joins, and those whose head has any r₃ fact.

    without: a triple (h, r, t) that does not count, neither as a fact of the body nor as a pair that it joins.
    """
    paths = _pairs(index, body[0], without)
    for step in body[1:]:
        paths = paths @ _pairs(index, step, without)
        paths.data[:] = 1  # joined or not: the number of ways would grow without bound
    own = None if without is None else (without[0], without[2])
    paths, held = _only_pairs(paths, own), _pairs(index, head, without)
    support = paths.multiply(held).count_nonzero()
    has_any = np.diff(held.indptr) > 0
    return int(support), int(paths.nnz), int(np.diff(paths.indptr)[has_any].sum())


def _pairs(index: GraphIndex, step: int, without: tuple[int, int, int] | None) -> Any:
    """The pairs that a step joins as a sparse 0/1 matrix [N, N]; not those of the triple `without`."""
    own = None
    if without is not None and step % index.num_relations == without[1]:
        own = (without[0], without[2]) if step < index.num_relations else (without[2], without[0])
    return _only_pairs(index.matrix(step), own)


def _only_pairs(matrix: Any, without: tuple[int, int] | None) -> Any:
    """A sparse matrix [N, N] without its diagonal and without one other entry."""
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    dropped = row == matrix.indices
    if without is not None:
        dropped |= (row == without[0]) & (matrix.indices == without[1])
    if dropped.any():
        matrix.data[dropped] = 0
        matrix.eliminate_zeros()
    return matrix


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
        place = np.searchsorted(self.keys, wanted)
        place[place == len(self.keys)] = 0
        return self.keys[place] == wanted


def _ones(rows: Counts, columns: Counts, shape: tuple[int, int]) -> Any:
    """A sparse matrix with a one at each given place."""
    from scipy import sparse  # on first use: its import takes longer than that of this package

    return sparse.csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=shape)


_NONE = np.zeros(0, np.int64)
