"""The index of a graph: where each signed step leads from each entity, in compressed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.graph.triples import SPLITS, Graph, Split, Triples

Ids = NDArray[Any]
FEW_QUESTIONS, MANY_FACTS = 4, 1_000_000  # a scan of the facts is faster than building an index


@dataclass(frozen=True, eq=False)
class GraphIndex:
    """Edges in both directions, sorted by entity, step and end; a row holds the edges of one (entity, step)."""

    num_entities: int
    num_relations: int
    keys: Tensor  # int64 [rows], sorted: entity · 2R + step
    starts: Tensor  # int64 [rows + 1]: the edges of row i are starts[i] to starts[i + 1]
    ends: Tensor  # int32 [edges]: the entity that an edge leads to, sorted within a row
    splits: Tensor  # uint8 [edges]: the first part, such as train, that holds the fact

    @classmethod
    def build(cls, parts: Sequence[Triples], num_entities: int, num_relations: int) -> GraphIndex:
        """Index the triples of several parts, such as train, valid and test; a fact in two parts is counted once."""
        steps, total = 2 * num_relations, sum(map(len, parts))
        keys, ends = np.empty(2 * total, np.int64), np.empty(2 * total, np.int64)
        splits, done = np.empty(2 * total, np.uint8), 0
        for number, part in enumerate(parts):
            head, relation, tail = part.T
            backwards = relation.astype(np.int64) + num_relations
            for source, step, end in ((head, relation, tail), (tail, backwards, head)):
                here = slice(done, done + len(part))
                keys[here] = source
                keys[here] *= steps
                keys[here] += step
                ends[here], splits[here] = end, number
                done += len(part)
        keys, ends, splits = _sorted_edges(keys, ends, splits, num_entities, steps * num_entities, len(parts))
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        arrays = keys[first], np.append(first, len(keys)), ends.astype(np.int32), splits
        return cls(num_entities, num_relations, *map(torch.from_numpy, arrays))

    def to(self, device: torch.device | str) -> GraphIndex:
        if self.keys.device == torch.device(device):
            return self  # with all that it has computed
        tensors = [tensor.to(device) for tensor in (self.keys, self.starts, self.ends, self.splits)]
        return GraphIndex(self.num_entities, self.num_relations, *tensors)

    def select(self, edges: Tensor) -> GraphIndex:
        """The index with only the edges of a mask [edges]."""
        counts = torch.bincount(self.rows[edges], minlength=len(self.keys))
        keys, starts = self.keys[counts > 0], torch.cat([counts.new_zeros(1), counts[counts > 0].cumsum(0)])
        return GraphIndex(self.num_entities, self.num_relations, keys, starts, self.ends[edges], self.splits[edges])

    def without(self, triples: Tensor) -> GraphIndex:
        """The index without triples [n, 3], of which it need not hold all."""
        head, relation, tail = triples.unbind(1)
        backwards = self.locate(tail, relation + self.num_relations, head)
        gone = torch.cat([self.locate(head, relation, tail), backwards])
        kept = torch.ones(len(self.ends), dtype=torch.bool, device=self.ends.device)
        kept[gone[gone >= 0]] = False
        return self.select(kept)

    def about(self, entities: NDArray[np.bool_]) -> GraphIndex:
        """The rows of some entities, given as a mask [N]."""
        return self.select(torch.from_numpy(entities)[self.sources])

    # --- edges ---------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> Tensor:
        """The row of each edge: int64 [edges]."""
        return torch.repeat_interleave(torch.arange(len(self.keys), device=self.keys.device), self.starts.diff())

    @property
    def sources(self) -> Tensor:
        """The entity that each edge leaves: int64 [edges]."""
        return (self.keys // (2 * self.num_relations))[self.rows]

    @cached_property
    def steps(self) -> Tensor:
        """The step of each edge: int32 [edges]."""
        return (self.keys % (2 * self.num_relations)).int()[self.rows]

    @cached_property
    def loops(self) -> Tensor:
        """Which edges join an entity with itself: bool [edges]."""
        return self.sources == self.ends

    @cached_property
    def entity_starts(self) -> Tensor:
        """The edges of entity e are entity_starts[e] to entity_starts[e + 1]: int64 [N + 1]."""
        first_keys = torch.arange(self.num_entities + 1, device=self.keys.device) * (2 * self.num_relations)
        return self.starts[torch.searchsorted(self.keys, first_keys)]

    @property
    def degrees(self) -> Tensor:
        """How many edges leave each entity, in both directions: int64 [N]."""
        return self.entity_starts.diff()

    def edges_of(self, entity: int) -> tuple[Tensor, Tensor, Tensor]:
        """Steps, ends and splits of the edges that leave an entity."""
        count = 2 * self.num_relations
        first_keys = torch.tensor([entity * count, (entity + 1) * count], device=self.keys.device)
        first, last = torch.searchsorted(self.keys, first_keys).tolist()
        here = slice(int(self.starts[first]), int(self.starts[last]))
        sizes = self.starts[first : last + 1].diff()
        steps = torch.repeat_interleave(self.keys[first:last] % count, sizes)
        return steps, self.ends[here].long(), self.splits[here]

    def facts(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Heads, relations and tails of the distinct facts, sorted."""
        forwards = self.steps < self.num_relations
        columns = (self.sources[forwards], self.steps[forwards], self.ends[forwards])
        head, relation, tail = (column.long().numpy() for column in columns)
        return head, relation, tail

    # --- lookups -------------------------------------------------------------------------------

    def answers(self, entities: Tensor, steps: Tensor, limit: int | None = None) -> tuple[Tensor, Tensor]:
        """Where steps [n] lead from entities [n], flat: (row in the batch, answer); the first `limit` of each row."""
        start, count = self.places(entities, steps)
        row, edges = consecutive(start, count if limit is None else count.clamp(max=limit))
        return row, self.ends[edges].long()

    def counts(self, entities: Tensor, steps: Tensor) -> Tensor:
        """The number of answers of each (entity, step): int64 [n]."""
        return self.places(entities, steps)[1]

    def places(self, entities: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        """The first edge of each (entity, step), and how many there are."""
        wanted = entities.long() * (2 * self.num_relations) + steps.long()
        if len(self.keys) == 0:
            return torch.zeros_like(wanted), torch.zeros_like(wanted)
        place = torch.searchsorted(self.keys, wanted).clamp_(max=len(self.keys) - 1)
        start = self.starts[place]
        return start, torch.where(self.keys[place] == wanted, self.starts[place + 1] - start, 0)

    @cached_property
    def _codes(self) -> Tensor:
        """row · N + end of each edge, which ascends: int64 [edges]."""
        return self.rows * self.num_entities + self.ends

    def locate(self, entities: Tensor, steps: Tensor, ends: Tensor) -> Tensor:
        """The edge of each (entity, step, end), or -1 where there is none: int64 [n]."""
        wanted = entities.long() * (2 * self.num_relations) + steps.long()
        if len(self.keys) == 0:
            return torch.full_like(wanted, -1)
        row = torch.searchsorted(self.keys, wanted).clamp_(max=len(self.keys) - 1)
        code = row * self.num_entities + ends.long()
        edge = torch.searchsorted(self._codes, code).clamp_(max=len(self._codes) - 1)
        return torch.where((self.keys[row] == wanted) & (self._codes[edge] == code), edge, -1)

    def split_of(self, head: int, relation: int, tail: int) -> Split | None:
        """The first split that holds a triple."""
        edge = int(self.locate(*(torch.tensor([i]) for i in (head, relation, tail))))
        return None if edge < 0 else SPLITS[int(self.splits[edge])]

    @cached_property
    def member_table(self) -> tuple[Tensor, Tensor]:
        """The distinct entities that each step leaves, step by step, and where those of each step start: [2R + 1]."""
        step, order = torch.sort(self.keys % (2 * self.num_relations), stable=True)
        starts = torch.searchsorted(step, torch.arange(2 * self.num_relations + 1, device=step.device))
        return (self.keys // (2 * self.num_relations))[order], starts

    def members(self, step: int) -> Tensor:
        """The distinct entities that a step leaves, in order: the heads of r for step r, its tails for step R + r."""
        members, starts = self.member_table
        return members[starts[step] : starts[step + 1]]

    @property
    def member_counts(self) -> Tensor:
        """How many distinct entities each step leaves: int64 [2R]."""
        return torch.bincount(self.keys % (2 * self.num_relations), minlength=2 * self.num_relations)


def consecutive(first: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers first[i], first[i] + 1, … of which there are counts[i], one row after the other: (i, number)."""
    row = torch.repeat_interleave(counts)
    return row, torch.arange(len(row), device=row.device) + (first - counts.cumsum(0) + counts)[row]


def _sorted_edges(keys: Ids, ends: Ids, splits: Ids, num_ends: int, num_keys: int, parts: int) -> tuple[Ids, Ids, Ids]:
    """Distinct edges in order; of one fact in several parts the first remains."""
    end_bits, split_bits = (num_ends - 1).bit_length(), (parts - 1).bit_length()
    if (num_keys - 1).bit_length() + end_bits + split_bits < 64:  # one 64-bit code per edge sorts fastest
        keys <<= end_bits
        keys |= ends
        keys <<= split_bits
        keys |= splits
        keys.sort()
        new = np.diff(keys >> split_bits, prepend=-1) > 0
        codes = keys[new]
        splits = (codes & (1 << split_bits) - 1).astype(np.uint8)
        codes >>= split_bits
        return codes >> end_bits, codes & (1 << end_bits) - 1, splits
    order = np.lexsort((splits, ends, keys))
    keys, ends, splits = keys[order], ends[order], splits[order]
    new = (np.diff(keys, prepend=-1) > 0) | (np.diff(ends, prepend=-1) != 0)
    return keys[new], ends[new], splits[new]


class KnownAnswers:
    """The known answers, of train, valid and test; a few questions about a large graph are answered by a scan."""

    def __init__(self, graph: Graph, device: torch.device | str = "cpu") -> None:
        self.graph, self.device = graph, torch.device(device)

    @cached_property
    def index(self) -> GraphIndex:
        return self.graph.index.to(self.device)

    def __call__(self, entities: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        """All known answers of questions (entities [n], steps [n]), flat: (row in the batch, answer)."""
        graph = self.graph
        if graph.has_index or len(entities) > FEW_QUESTIONS or graph.num_triples < MANY_FACTS:
            return self.index.answers(entities, steps)
        anchors = entities.cpu().numpy()
        parts = [part[np.isin(part[:, 0], anchors) | np.isin(part[:, 2], anchors)] for part in map(graph.split, SPLITS)]
        few = GraphIndex.build(parts, graph.num_entities, graph.num_relations)
        return few.to(self.device).answers(entities, steps)

    def contains(self, entities: Tensor, steps: Tensor, ends: Tensor) -> Tensor:
        """Whether each (entity, step, end) is a known fact: bool [n]."""
        return self.index.locate(entities, steps, ends) >= 0
