"""Joins: following signed steps through a graph, in tiles that bound memory.

The paths through a hub grow with the square of its degree, so the cost of each item is counted first, and items are
processed in tiles of at most TILE facts. Steps and entities are ids: int64 arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.index import GraphIndex
from dihedral.graph.steps import inverse_ids
from dihedral.runtime import interruption

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]
Triple = tuple[int, int, int]

MAX_GROUP = 1 << 23  # paths from one entity that are held together: about 1 GB for six variables
TILE = 1 << 20  # facts looked at together: bounds memory, and how long one operation holds up other threads


# --- arrays of numbers -------------------------------------------------------------------------


def tiles(costs: NDArray[Any], limit: float) -> Iterator[slice]:
    """Consecutive items whose costs [n] add up to at most `limit`; one item alone may cost more."""
    ends, start = np.cumsum(costs), 0
    while start < len(ends):
        spent = float(ends[start - 1]) if start else 0.0
        stop = max(start + 1, int(np.searchsorted(ends, spent + limit, side="right")))
        yield slice(start, stop)
        start = stop


def ranges(first: Ids, counts: Ids) -> tuple[Ids, Ids]:
    """The numbers first[i], first[i] + 1, … of which there are counts[i], one row after the other: (i, number)."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) + (first - np.cumsum(counts) + counts)[row]


def distinct(values: Ids) -> Ids:
    """The distinct numbers, sorted. `np.unique` may hash, which is slower and holds up all other threads."""
    values = np.sort(values)
    return values[np.concatenate([[True], values[1:] != values[:-1]])] if len(values) else values


def contains(ascending: Ids, wanted: Ids) -> Mask:
    """Whether each number [n] is in a sorted array."""
    if not len(ascending):
        return np.zeros(len(wanted), bool)
    return ascending[np.searchsorted(ascending, wanted).clip(max=len(ascending) - 1)] == wanted


# --- one step ----------------------------------------------------------------------------------


def leads(index: GraphIndex, step: int, heads: Ids, tails: Ids) -> Mask:
    """Whether a step leads from each head [n] to its tail [n]."""
    entities = torch.from_numpy(heads)
    return (index.locate(entities, torch.full_like(entities, step), torch.from_numpy(tails)) >= 0).numpy()


@dataclass(frozen=True, eq=False)
class StepPairs:
    """The pairs of different entities that one step joins, in arrays of their own."""

    num_entities: int
    heads: Ids  # [n], sorted
    tails: Ids  # [n], sorted for each head

    @classmethod
    def of(cls, index: GraphIndex, step: int, without: Triple | None = None) -> StepPairs:
        """The pairs of a step in a graph, but for the triple `without`."""
        members = index.members(step)
        row, ends = index.answers(members, torch.full_like(members, step))
        heads, tails = members[row].numpy(), ends.numpy()
        kept = heads != tails
        if without is not None and step % index.num_relations == without[1]:
            head, tail = (without[0], without[2]) if step < index.num_relations else (without[2], without[0])
            kept &= (heads != head) | (tails != tail)
        return cls(index.num_entities, heads[kept], tails[kept])

    def __len__(self) -> int:
        return len(self.heads)

    @cached_property
    def codes(self) -> Ids:
        """head · N + tail, which ascends: [n]."""
        return self.heads * self.num_entities + self.tails

    def places(self, heads: Ids) -> tuple[Ids, Ids]:
        """Where the pairs of each head start and end."""
        return np.searchsorted(self.heads, heads), np.searchsorted(self.heads, heads, side="right")

    def degrees(self, heads: Ids) -> Ids:
        first, last = self.places(heads)
        return last - first

    def follow(self, heads: Ids) -> tuple[Ids, Ids]:
        first, last = self.places(heads)
        row, place = ranges(first, last - first)
        return row, self.tails[place]

    def has(self, heads: Ids, tails: Ids) -> Mask:
        return contains(self.codes, heads * self.num_entities + tails)


def follow(index: GraphIndex, entities: Ids, step: int, groups: Ids | None = None) -> Iterator[tuple[Ids, Ids]]:
    """Where a step leads from entities [n], in tiles that keep equal, ascending `groups` [n] together: (row, end)."""
    start = torch.from_numpy(entities)
    first, counts = (each.numpy() for each in index.places(start, torch.full_like(start, step)))
    costs, bounds = counts, np.arange(len(entities) + 1)
    if groups is not None:
        bounds = np.append(np.flatnonzero(np.diff(groups, prepend=-1)), len(groups))
        costs = np.add.reduceat(costs, bounds[:-1])
        if (most := int(costs.max(initial=0))) > MAX_GROUP:
            raise DihedralError(
                f"{most:,} paths of a rule start at one entity, and the limit is {MAX_GROUP:,}; use a shorter rule"
            )
    for tile in tiles(costs, TILE):
        interruption.check()
        here = slice(bounds[tile.start], bounds[tile.stop])
        row, edges = ranges(first[here], counts[here])
        yield row + here.start, index.ends.numpy()[edges].astype(np.int64)


# --- bodies ------------------------------------------------------------------------------------


def reach(index: GraphIndex, body: Sequence[int], starts: Ids) -> Ids:
    """Where a body leads from starts [n]: the distinct row · N + end, sorted."""
    rows, ends = np.arange(len(starts)), starts
    codes = rows * index.num_entities + ends
    for number, step in enumerate(body):
        if number:
            rows, ends = np.divmod(codes, index.num_entities)
        parts = [rows[row] * index.num_entities + there for row, there in follow(index, ends, step)]
        if number:  # a single step leads to distinct ends, in order
            parts = [distinct(np.concatenate([distinct(part) for part in parts]))] if parts else []
        codes = np.concatenate(parts) if parts else codes[:0]
    return codes


def are_joined(index: GraphIndex, bodies: Ids, heads: Ids, tails: Ids) -> Mask:
    """Whether each body leads from its head to its tail [n], along any facts.

    bodies: [n, 2]: one step or two; a second step of -1 means that there is none.
    """
    first, second, start, end = (torch.from_numpy(each) for each in (*bodies.T, heads, tails))
    found = (second < 0) & (index.locate(start, first, end) >= 0)
    two = (second >= 0).nonzero()[:, 0]
    back = inverse_ids(second, index.num_relations)
    ahead, behind = index.counts(start[two], first[two]), index.counts(end[two], back[two])
    for tile in tiles(torch.minimum(ahead, behind).numpy(), TILE):
        interruption.check()
        here = two[tile][ahead[tile] <= behind[tile]]
        row, middle = index.answers(start[here], first[here])
        there = here[row]
        found[there[index.locate(middle, second[there], end[there]) >= 0]] = True
        here = two[tile][ahead[tile] > behind[tile]]
        row, middle = index.answers(end[here], back[here])
        there = here[row]
        found[there[index.locate(start[there], first[there], middle) >= 0]] = True
    return found.numpy()


def count_paths(forwards: Sequence[StepPairs], backwards: Sequence[StepPairs], heads: Ids, tails: Ids) -> Ids:
    """How many paths along a body lead from each head [n] to its tail [n]; backwards: the inverses of its steps."""
    if len(forwards) == 1:
        return forwards[0].has(heads, tails).astype(np.int64)
    found = np.zeros(len(heads), np.int64)
    ahead, behind = forwards[0].degrees(heads), backwards[-1].degrees(tails)
    for tile in tiles(np.minimum(ahead, behind), TILE):
        interruption.check()
        here = np.arange(tile.start, tile.stop)[ahead[tile] <= behind[tile]]
        row, middle = forwards[0].follow(heads[here])
        counts = count_paths(forwards[1:], backwards[1:], middle, tails[here][row])
        found[here] = np.bincount(row, counts, minlength=len(here))
        here = np.arange(tile.start, tile.stop)[ahead[tile] > behind[tile]]
        row, middle = backwards[-1].follow(tails[here])
        counts = count_paths(forwards[:-1], backwards[:-1], heads[here][row], middle)
        found[here] = np.bincount(row, counts, minlength=len(here))
    return found


def paths_between(
    index: GraphIndex, body: Sequence[int], heads: Ids, tails: Ids, *, max_answers: int, max_paths: int
) -> Ids:
    """Paths along a body from each head [n] to its tail [n] that visit no entity twice: [paths, steps + 1].

    max_answers: facts that are followed from one entity. max_paths: partial paths that are followed further.
    """
    paths, last = heads[:, None], tails
    for step in body[:-1]:
        interruption.check()
        steps = torch.full((len(paths),), step)
        found = index.answers(torch.from_numpy(paths[:, -1]), steps, max_answers)
        row, there = (each.numpy() for each in found)
        new = np.flatnonzero((there[:, None] != paths[row]).all(axis=1))[:max_paths]
        row, there = row[new], there[new]
        paths, last = np.concatenate([paths[row], there[:, None]], axis=1), last[row]
    closed = leads(index, body[-1], paths[:, -1].copy(), last) & (paths != last[:, None]).all(axis=1)
    return np.concatenate([paths, last[:, None]], axis=1)[closed]


class Body:
    """The steps of a body in one graph; facts about an entity and itself are left out.

    The pairs that a body joins are those of paths through different entities only. Of a body of three steps this leaves
    out paths that turn back, such as h → m → t → m': they would let a fact imply itself.
    """

    def __init__(self, index: GraphIndex, steps: Sequence[int], without: Triple | None = None) -> None:
        back = [int(inverse_ids(step, index.num_relations)) for step in steps]
        pairs = {step: StepPairs.of(index, step, without) for step in {*steps, *back}}
        self.num_entities = index.num_entities
        self.forwards, self.backwards = [pairs[step] for step in steps], [pairs[step] for step in back]

    @cached_property
    def onwards(self) -> list[NDArray[np.float64]]:
        """The number of paths that follow each pair of each step."""
        onwards: list[NDArray[np.float64]] = [np.ones(len(self.forwards[-1]))]
        for step, following in zip(self.forwards[-2::-1], self.forwards[:0:-1], strict=True):
            paths: Any = np.bincount(following.heads, onwards[0], minlength=self.num_entities)
            onwards.insert(0, paths[step.tails])
        return onwards

    @property
    def num_paths(self) -> float:
        return float(self.onwards[0].sum())

    def count_paths(self, heads: Ids, tails: Ids) -> Ids:
        """How many paths lead from each head [n] to its tail [n]."""
        return count_paths(self.forwards, self.backwards, heads, tails)

    def joined(self) -> Iterator[tuple[Ids, Ids]]:
        """The distinct (head, tail) of different entities that the body joins, in tiles of heads."""
        shape = self.num_entities, self.num_entities
        matrices = [ones(step.heads, step.tails, shape) for step in self.forwards[1:]]
        for heads, tails, counts in multiply(self.forwards[0], matrices, self.onwards[0]):
            kept = (heads != tails) & (counts > self.repeats(heads, tails))
            yield heads[kept], tails[kept]

    def repeats(self, heads: Ids, tails: Ids) -> Ids:
        """The number of paths of three steps between different entities that visit one of the two again."""
        if len(self.forwards) != 3:
            return np.zeros(len(heads), np.int64)
        first, second, third = self.forwards
        from_head, to_tail = self._loops
        starts, ends = first.has(heads, tails), third.has(heads, tails)
        both = starts & ends & second.has(tails, heads)
        return starts * to_tail[tails] + ends * from_head[heads] - both

    @cached_property
    def _loops(self) -> tuple[Ids, Ids]:
        """The paths from each entity back to itself along the first two steps, and along the last two: [N] each."""
        both = ((self.forwards[i], self.backwards[i + 1]) for i in (0, 1))
        returning = (np.intersect1d(there.codes, back.codes, assume_unique=True) for there, back in both)
        size = self.num_entities
        from_head, to_tail = (np.bincount(codes // size, minlength=size) for codes in returning)
        return from_head, to_tail


def multiply(first: StepPairs, matrices: Sequence[Any], costs: NDArray[Any]) -> Iterator[tuple[Ids, Ids, Ids]]:
    """Distinct (head, column) of a step times matrices, with numbers of paths, in tiles of heads; costs: of pairs."""
    heads, begin = np.unique(first.heads, return_index=True)
    if not len(heads):
        return
    bounds = np.append(begin, len(first))
    for tile in tiles(np.add.reduceat(costs, begin), TILE):
        interruption.check()
        here = slice(bounds[tile.start], bounds[tile.stop])
        row = np.repeat(np.arange(tile.stop - tile.start), np.diff(bounds[tile.start : tile.stop + 1]))
        paths = ones(row, first.tails[here], (tile.stop - tile.start, first.num_entities))
        for matrix in matrices:
            paths = paths @ matrix  # at most as many paths between two entities as facts of the middle step
            if len(matrices) > 2:
                paths.data[:] = 1  # joined or not: the number of paths would grow without bound
        yield np.repeat(heads[tile], np.diff(paths.indptr)), paths.indices.astype(np.int64), paths.data


def ones(rows: Ids, columns: Ids, shape: tuple[int, int]) -> Any:
    """A sparse matrix with a one at each given place."""
    from scipy import sparse  # on first use: its import takes longer than that of this package

    return sparse.csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=shape)


# --- any step ----------------------------------------------------------------------------------


def bodies_between(
    index: GraphIndex, head: int, tail: int, *, without: Triple, max_paths: int
) -> tuple[dict[tuple[int, ...], tuple[int, ...]], bool]:
    """Bodies of one or two steps from head to tail, and whether these are all.

    Each comes with the entities between of one path: none, or the one with the lowest id. The triple `without` is no
    part of a path. Of more than `max_paths` paths of two steps the rest are left out.
    """
    steps = 2 * index.num_relations
    (from_head, ends), (from_tail, begins) = (_edges_of(index, entity, without) for entity in (head, tail))
    bodies: dict[tuple[int, ...], tuple[int, ...]] = {(step,): () for step in from_head[ends == tail].tolist()}
    order = np.argsort(begins, kind="stable")
    from_tail, begins = from_tail[order], begins[order]
    first, last = (np.searchsorted(begins, ends, side=side) for side in ("left", "right"))
    counts = np.where((ends != head) & (ends != tail), last - first, 0)
    within = np.cumsum(counts) <= max_paths
    row, place = ranges(first, np.where(within, counts, 0))
    middle, codes = ends[row], from_head[row] * steps + inverse_ids(from_tail[place], index.num_relations)
    order = np.argsort(middle, kind="stable")
    codes, where = np.unique(codes[order], return_index=True)
    for code, entity in zip(codes.tolist(), middle[order][where].tolist(), strict=True):
        bodies[divmod(code, steps)] = (entity,)
    return bodies, bool(within.all())


def _edges_of(index: GraphIndex, entity: int, without: Triple) -> tuple[Ids, Ids]:
    """Steps and ends of the edges that leave an entity, but for those of a triple."""
    steps, ends = (each.numpy() for each in index.edges_of(entity)[:2])
    head, relation, tail = without
    kept = np.ones(len(steps), bool)
    for source, step, end in ((head, relation, tail), (tail, relation + index.num_relations, head)):
        kept &= (source != entity) | (steps != step) | (ends != end)
    return steps[kept], ends[kept]


def facts_among(index: GraphIndex, entities: Ids, *, max_edges: int) -> tuple[Ids, NDArray[np.uint8], bool]:
    """The distinct facts between entities [n] as sorted rows [m, 3], their splits [m], and whether these are all.

    At most `max_edges` edges are looked at, those of hubs last. A fact is an edge of both entities: without the edges
    of one, only its facts with itself are missing.
    """
    starts = index.entity_starts.numpy()
    counts = starts[entities + 1] - starts[entities]
    order = np.argsort(counts, kind="stable")
    order, left = np.split(order, [int((np.cumsum(counts[order]) <= max_edges).sum())])
    row, edges = ranges(starts[entities[order]], counts[order])
    ends = index.ends.numpy()[edges]
    inside = np.isin(ends, entities)
    sources, edges, ends = entities[order][row[inside]], edges[inside], ends[inside].astype(np.int64)
    place = torch.searchsorted(index.starts, torch.from_numpy(edges), right=True).numpy() - 1
    steps = index.keys.numpy()[place] % (2 * index.num_relations)
    forwards = steps < index.num_relations
    heads, tails = np.where(forwards, sources, ends), np.where(forwards, ends, sources)
    complete = not len(left)
    if len(left) == 1:  # all but its facts with itself were looked at
        relations = torch.arange(index.num_relations)
        hub = torch.full_like(relations, int(entities[left[0]]))
        complete = bool((index.locate(hub, relations, hub) < 0).all())
    facts, kept = np.unique(np.stack([heads, steps % index.num_relations, tails], axis=1), axis=0, return_index=True)
    return facts, index.splits.numpy()[edges[kept]], complete
