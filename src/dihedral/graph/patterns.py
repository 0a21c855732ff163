"""Patterns that the triples themselves hold: symmetric relations, inverse pairs, chains r₁ · r₂ ⇒ r₃.

Counting is exact, over distinct (head, tail) pairs, by sparse products. The standard confidence of a
rule is support / body: of the pairs its body joins, the share that its head holds too. PCA confidence
divides by those body pairs only whose head entity has any fact of the rule's relation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dihedral.graph.triples import Triples, triple_keys

Counts = NDArray[np.int64]
MAX_BITS = 2**32  # half a gigabyte


@dataclass(frozen=True)
class Reversals:
    """How often a reversed pair of one relation is a pair of another."""

    support: Counts  # [R, R]: pairs (h, t) of the row's relation with (t, h) in the column's
    size: Counts  # [R]: pairs of each relation

    @property
    def confidence(self) -> NDArray[np.float64]:
        """[R, R]: of the pairs of the row's relation, the share that the column's holds reversed."""
        return self.support / np.maximum(self.size, 1)[:, None]

    def symmetric(self, confidence: float = 0.8, support: int = 10) -> list[int]:
        """Relations that hold most of their own pairs reversed."""
        held = (self.confidence.diagonal() >= confidence) & (self.support.diagonal() >= support)
        return np.flatnonzero(held).tolist()

    def inverse_pairs(self, confidence: float = 0.8, support: int = 10) -> list[tuple[int, int]]:
        """Pairs of two relations that hold each other reversed, in both directions; best supported first."""
        both = np.minimum(self.confidence, self.confidence.T)
        first, second = np.nonzero(np.triu((both >= confidence) & (self.support >= support), k=1))
        order = np.argsort(-self.support[first, second], kind="stable")
        return [(int(first[i]), int(second[i])) for i in order]


def find_reversals(triples: Triples, num_entities: int, num_relations: int) -> Reversals:
    """Reversed pairs of all relations; facts about an entity and itself are left out."""
    head, relation, tail = _distinct(triples[triples[:, 0] != triples[:, 2]], num_entities, num_relations)
    keys, column = np.unique(
        np.concatenate([head * num_entities + tail, tail * num_entities + head]), return_inverse=True
    )
    forward, backward = (_ones(relation, part, (num_relations, len(keys))) for part in np.split(column, 2))
    support = (forward @ backward.T).toarray().astype(np.int64)
    return Reversals(support, np.bincount(relation, minlength=num_relations))


@dataclass(frozen=True)
class Chains:
    """Rules r₁ · r₂ ⇒ r₃ and how often they hold, one entry a rule."""

    rules: NDArray[np.int32]  # [n, 3]: r₁, r₂, r₃
    support: Counts  # [n]: pairs joined by r₁ then r₂ that r₃ holds too
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


def find_chains(
    triples: Triples, num_entities: int, num_relations: int, *, min_support: int = 10, inverses: bool = False
) -> Chains:
    """Every rule r₁ · r₂ ⇒ r₃ with at least `min_support` pairs; head = tail is counted like any other pair.

    inverses: r₁ and r₂ may be walked backwards, which is R + r.
    """
    head, relation, tail = _distinct(triples, num_entities, num_relations)
    pairs, pair_of = np.unique(head * num_entities + tail, return_inverse=True)
    held = _KeySet(pairs, num_entities**2)
    holds = _ones(pair_of, relation, (len(pairs), num_relations))
    heads_of = _ones(head, relation, (num_entities, num_relations))
    heads_of.sum_duplicates()
    heads_of.data[:] = 1  # whether an entity is a head of r₃
    steps = num_relations
    if inverses:
        head, tail = np.concatenate([head, tail]), np.concatenate([tail, head])
        relation, steps = np.concatenate([relation, relation + num_relations]), 2 * num_relations
    # second steps of all relations side by side: row m, a column for each (r₂, t) that there is
    columns, column_of = np.unique(relation * num_entities + tail, return_inverse=True)
    column_relation, column_tail = np.divmod(columns, num_entities)
    second = _ones(head, column_of, (num_entities, len(columns)))
    joined = np.zeros((steps, steps), np.int64)
    found: list[tuple[NDArray[np.int64], ...]] = []
    for r1 in range(steps):
        mine = relation == r1
        heads, row = np.unique(head[mine], return_inverse=True)
        paths = _ones(row, tail[mine], (len(heads), num_entities)) @ second  # an entry for each distinct (h, r₂, t)
        start = heads[np.repeat(np.arange(len(heads)), np.diff(paths.indptr))]
        r2, end = column_relation[paths.indices], column_tail[paths.indices]
        joined[r1] = np.bincount(r2, minlength=steps)
        key = start * num_entities + end
        known = np.flatnonzero(held.has(key))
        place = np.searchsorted(pairs, key[known])
        support = (_ones(r2[known], place, (steps, len(pairs))) @ holds).tocoo()
        enough = support.data >= min_support
        if not enough.any():
            continue
        r2s, r3s = support.coords[0][enough].astype(np.int64), support.coords[1][enough].astype(np.int64)
        wanted = np.isin(r2, r2s)
        by_head = _ones(r2[wanted], start[wanted], (steps, num_entities))
        pca = (by_head @ heads_of)[r2s, r3s]
        found.append((np.full(len(r2s), r1), r2s, r3s, support.data[enough], joined[r1, r2s], pca))
    parts = [np.concatenate(part).astype(np.int64) for part in zip(*found, strict=True)] if found else [_NONE] * 6
    r1s, r2s, r3s, support_counts, body, pca_body = parts
    rules = np.stack([r1s, r2s, r3s], axis=1).astype(np.int32)
    return Chains(rules, support_counts, body, pca_body, joined)


class RuleCounter:
    """Counts single rules of any length: the body's relations multiplied as sparse matrices."""

    def __init__(self, triples: Triples, num_entities: int, num_relations: int) -> None:
        self.head, self.relation, self.tail = _distinct(triples, num_entities, num_relations)
        self.num_entities, self.num_relations = num_entities, num_relations

    def matrix(self, step: int) -> Any:
        """The pairs of a relation, or of its inverse for R + r: [N, N]."""
        here = self.relation == step % self.num_relations
        head, tail = self.head[here], self.tail[here]
        rows, columns = (head, tail) if step < self.num_relations else (tail, head)
        return _ones(rows, columns, (self.num_entities, self.num_entities))

    def count(self, body: Sequence[int], head: int) -> tuple[int, int, int]:
        """Support, pairs that the body joins, and those of them whose head has any fact of the relation."""
        paths = self.matrix(body[0])
        for step in body[1:]:
            paths = paths @ self.matrix(step)
            paths.data[:] = 1  # joined or not: numbers of ways would grow without end
        held = self.matrix(head)
        support = paths.multiply(held).count_nonzero()
        has_any = np.diff(held.indptr) > 0
        return int(support), int(paths.nnz), int(np.diff(paths.indptr)[has_any].sum())


class _KeySet:
    """Which of the numbers below `size` are in a sorted array: one bit each where that fits into memory."""

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
    """A sparse matrix with a one for each place given."""
    from scipy import sparse  # on first use: importing it takes longer than all of this package

    return sparse.csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=shape)


_NONE = np.zeros(0, np.int64)


def _distinct(triples: Triples, num_entities: int, num_relations: int) -> tuple[Counts, Counts, Counts]:
    """Heads, relations and tails of the distinct triples, as 64-bit numbers."""
    question, tail = np.divmod(np.unique(triple_keys(triples, num_entities, num_relations)), num_entities)
    head, relation = np.divmod(question, num_relations)
    return head, relation, tail
