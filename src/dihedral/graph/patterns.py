"""Patterns counted in a graph: symmetric relations, inverse pairs, chains r₁ · r₂ ⇒ r₃.

Counts are exact, over distinct (head, tail) pairs, by sparse products. The standard confidence of a rule is support /
body: the share of the pairs joined by the body that the head relation also holds. PCA confidence divides only by the
body pairs whose head entity has any fact of the head relation.
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
    """Reversed pairs of all relations; facts about an entity and itself are left out."""
    head, relation, tail = index.facts()
    two = head != tail
    head, relation, tail = head[two], relation[two], tail[two]
    keys, column = np.unique(
        np.concatenate([head * index.num_entities + tail, tail * index.num_entities + head]), return_inverse=True
    )
    shape = index.num_relations, len(keys)
    forward, backward = (_ones(relation, part, shape) for part in np.split(column, 2))
    support = (forward @ backward.T).toarray().astype(np.int64)
    return Reversals(support, np.bincount(relation, minlength=index.num_relations))


def skew_relations(index: GraphIndex) -> NDArray[np.bool_]:
    """Definitely skew-symmetric relations [R]: they have facts, and not one reversed pair; head = tail is left out."""
    head, relation, tail = (torch.from_numpy(column) for column in index.facts())
    reversed_too = index.locate(tail, relation, head) >= 0
    skew = torch.zeros(index.num_relations, dtype=torch.bool)
    skew[relation[head != tail]] = True
    skew[relation[reversed_too & (head != tail)]] = False
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
    """Every rule r₁ · r₂ ⇒ r₃ with at least `min_support` pairs; head = tail counts like any other pair.

    inverses: r₁ and r₂ may be steps backwards.
    """
    num_entities, num_relations = index.num_entities, index.num_relations
    head, relation, tail = index.facts()
    pairs, pair_of = np.unique(head * num_entities + tail, return_inverse=True)
    held = _KeySet(pairs, num_entities**2)
    holds = _ones(pair_of, relation, (len(pairs), num_relations))
    heads_of = _ones(head, relation, (num_entities, num_relations))
    heads_of.sum_duplicates()
    heads_of.data[:] = 1  # whether an entity is a head of r₃
    num_steps = num_relations
    if inverses:
        num_steps = 2 * num_relations
        head, relation, tail = (each.long().numpy() for each in (index.sources, index.steps, index.ends))
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
        r2, end = column_relation[paths.indices], column_tail[paths.indices]
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


def count_rule(index: GraphIndex, body: Sequence[int], head: int) -> tuple[int, int, int]:
    """Counts of one rule of any length: support, pairs that the body joins, and those whose head has any r₃ fact."""
    paths = index.matrix(body[0])
    for step in body[1:]:
        paths = paths @ index.matrix(step)
        paths.data[:] = 1  # joined or not: the number of ways would grow without bound
    held = index.matrix(head)
    support = paths.multiply(held).count_nonzero()
    has_any = np.diff(held.indptr) > 0
    return int(support), int(paths.nnz), int(np.diff(paths.indptr)[has_any].sum())


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
