"""Path models on a GPU: a table of states of all pairs of entity and question or, if they are few, of those reached."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from dihedral.engine.path_engine import PathQuestions, PathWeights
from dihedral.graph.index import consecutive

MAX_EDGES = 64  # of a segment
MANY = 0.3  # share of entities that paths reach, from which on all pairs have rows
SAMPLE = 32  # entities from which reach is measured


@cache
def _kernels() -> Any:
    from dihedral.engine import path_triton

    return path_triton


class PathTables:
    """The edges that a path model walks along, on a GPU: the edges of an entity by step, in segments of at most 64."""

    def __init__(self, rows: Tensor, steps: Tensor, starts: Tensor, ends: Tensor, num_relations: int) -> None:
        """rows [N + 1] of entities in steps [rows], starts [rows + 1] of rows in ends [edges], as in `PathEdges`."""
        self.num_entities, self.num_relations, self.device = len(rows) - 1, num_relations, ends.device
        sizes = starts.diff()
        row = torch.repeat_interleave(torch.arange(len(steps), device=self.device), sizes)
        self.steps, self.ends, self.first = steps[row].long(), ends, starts[rows]  # the first edge of each entity
        self.degrees = self.first.diff()
        source = torch.repeat_interleave(torch.arange(self.num_entities, device=self.device), self.degrees)
        self.fans = sizes[row].int()
        keys, count = source * 2 * num_relations + self.steps, 2 * num_relations
        backwards = ends.long() * count + (self.steps + num_relations) % count
        self.end_fans = self.fans[torch.searchsorted(keys, backwards)]
        begins = (torch.arange(len(ends), device=self.device) - self.first[source]) % MAX_EDGES == 0
        pieces = (begins | (row.diff(prepend=row.new_full((1,), -1)) != 0)).nonzero().squeeze(1)
        segments = begins[pieces].nonzero().squeeze(1)
        entities = source[pieces[segments]]
        self.segment_counts = torch.bincount(entities, minlength=self.num_entities)
        until = lambda each, size: torch.cat([each, each.new_tensor([size])]).int()  # noqa: E731
        self.segments = (
            entities.int(), until(segments, len(pieces)), self.degrees[entities] > MAX_EDGES,
            steps[row[pieces]].int(), until(pieces, len(ends)), ends.int(),
        )  # fmt: skip
        self._reaches_many: dict[int, bool] = {}

    def reaches_many(self, num_steps: int) -> bool:
        """Whether so many steps reach a large share of all entities, measured from some of them."""
        if num_steps not in self._reaches_many:
            sample = torch.linspace(0, self.num_entities - 1, SAMPLE, device=self.device).long().unique()
            nothing = torch.full_like(sample[:1], -1)
            counts = [len(self._reach(one, nothing, nothing[:, None], num_steps)[0]) for one in sample.split(1)]
            self._reaches_many[num_steps] = sum(counts) > MANY * len(counts) * self.num_entities
        return self._reaches_many[num_steps]

    # --- the rows of a batch -------------------------------------------------------------------

    def walk(self, entities: Tensor, steps: Tensor, answers: Tensor, pair: bool, num_steps: int) -> Any:
        """What a batch walks along: questions with an answer (not -1) without its fact, or without its whole pair."""
        removed = self._removed(entities, steps, answers, pair)
        each, size = torch.arange(len(entities), device=self.device), len(entities)
        empty = entities.new_empty(0).int()
        if self.reaches_many(num_steps):
            index, questions, programs, places = empty, empty, empty.view(2, 0), empty
            degrees, sources, ends = self.degrees.repeat_interleave(size), entities * size + each, answers * size + each
        else:
            reached, questions = self._reach(entities, answers, removed, num_steps)
            index = torch.full((self.num_entities, size), -1, dtype=torch.int32, device=self.device)
            index[reached, questions] = torch.arange(len(reached), dtype=torch.int32, device=self.device)
            degrees, sources, ends = self.degrees[reached], index[entities, each].long(), index[answers, each].long()
            places = questions * self.num_entities + reached
            first_segments = self.segment_counts.cumsum(0) - self.segment_counts
            programs = torch.stack(consecutive(first_segments[reached], self.segment_counts[reached])).int()
        is_loop, fewer = entities == answers, (removed >= 0).sum(1)
        degrees = degrees.clone()
        degrees[sources] -= fewer * (1 + is_loop.long())
        other = (answers >= 0) & ~is_loop & (ends >= 0)
        degrees[ends[other]] -= fewer[other]
        return _kernels().Walk(
            *self.segments, self.fans, self.end_fans, entities.int(), answers.int(), removed.int(), degrees.int(),
            sources, places, index, questions.int(), programs.contiguous(),
        )  # fmt: skip

    def _edges_of(self, entities: Tensor) -> tuple[Tensor, Tensor]:
        """The edges of entities [n], flat: (place in the list, edge)."""
        return consecutive(self.first[entities], self.degrees[entities])

    def _removed(self, entities: Tensor, steps: Tensor, answers: Tensor, pair: bool) -> Tensor:
        """The steps [B, M] from the entities to the answers that are removed, both ways; a loop is named once."""
        if not pair:
            return torch.where(answers < 0, -1, steps)[:, None]
        which, edge = self._edges_of(entities)
        step, is_loop = self.steps[edge], (entities == answers)[which]
        found = ((self.ends[edge] == answers[which]) & (~is_loop | (step < self.num_relations))).nonzero().squeeze(1)
        which, step = which[found], step[found]
        counts = torch.bincount(which, minlength=len(entities))
        place = torch.arange(len(which), device=self.device) - (counts.cumsum(0) - counts)[which]
        removed = step.new_full((len(entities), max(1, int(counts.max()))), -1)
        removed[which, place] = step
        return removed

    def _reach(self, entities: Tensor, answers: Tensor, removed: Tensor, num_steps: int) -> tuple[Tensor, Tensor]:
        """The entities that paths reach, and the questions that do, in order of steps."""
        size, R = len(entities), self.num_relations
        questions = torch.arange(size, device=self.device)
        seen = torch.zeros(self.num_entities * size, dtype=torch.bool, device=self.device)
        seen[entities * size + questions] = True
        found = [(entities, questions)]
        for _ in range(num_steps):
            entity, question = found[-1]
            which, edge = self._edges_of(entity)
            source, question, end, step = entity[which], question[which], self.ends[edge].long(), self.steps[edge]
            keys = end * size + question
            new = ~seen[keys]
            new = new.nonzero().squeeze(1)  # few edges are left
            source, question, end, step = source[new], question[new], end[new], step[new]
            head, answer, listed = entities[question], answers[question], removed[question]
            there = (source == head) & (end == answer) & (listed == step[:, None]).any(1)
            back = (source == answer) & (end == head) & (listed == ((step + R) % (2 * R))[:, None]).any(1)
            keys = (end * size + question)[~(there | back)].unique()
            seen[keys] = True
            found.append((keys // size, keys % size))
        return tuple(torch.cat(each) for each in zip(*found, strict=True))  # type: ignore[return-value]

    # --- scores and losses ---------------------------------------------------------------------

    def scores(self, questions: PathQuestions, weights: PathWeights, without: Tensor | None = None) -> Tensor:
        """As `path_engine.path_scores`."""
        without = torch.full_like(questions.entities, -1) if without is None else without
        return self._scores(questions, weights, without, False, torch.float32)

    def loss(
        self, questions: PathQuestions, answers: Tensor, known: tuple[Tensor, Tensor], weights: PathWeights,
        without_pair: bool, dtype: torch.dtype = torch.bfloat16,
    ) -> Tensor:  # fmt: skip
        """As `path_engine.path_loss`; dtype: of the states."""
        scores = self._scores(questions, weights, answers, without_pair, dtype)
        row, other = known
        is_other = other != answers[row]
        scores = scores.index_put((row[is_other], other[is_other].long()), scores.new_tensor(float("-inf")))
        return torch.nn.functional.cross_entropy(scores, answers)

    def _scores(
        self, questions: PathQuestions, weights: PathWeights, answers: Tensor, pair: bool, dtype: torch.dtype
    ) -> Tensor:
        """The scores [B, N] of all entities."""
        walk = self.walk(questions.entities, questions.steps, answers, pair, weights.shared.shape[1])
        state, reached = _states(walk, questions, weights, dtype)
        scores = _kernels().Read.apply(state, reached, weights.reading.contiguous(), weights.bias.contiguous(), walk)
        if not walk.is_sparse:
            return scores.view(self.num_entities, -1).T
        every = torch.zeros(len(answers) * self.num_entities, device=self.device)
        return every.index_put((walk.places,), scores).view(len(answers), -1)


def _states(walk: Any, questions: PathQuestions, weights: PathWeights, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The states [rows, 2, L] after the last step, and whether a path leads to them: uint8 [rows]."""
    vectors = weights.vectors.unflatten(1, (2, -1)).contiguous()
    gates = weights.gates.permute(1, 2, 0, 3).index_select(2, questions.which).to(dtype)  # [T, 2R, B, L]
    biases = weights.rescaling.index_select(0, questions.which)  # [B, T, L]
    state = torch.zeros(len(walk.degrees), *vectors.shape[1:], dtype=dtype, device=vectors.device)
    state = state.index_put((walk.sources,), vectors.to(dtype))
    reached = torch.zeros(len(state), dtype=torch.uint8, device=state.device)
    reached[walk.sources] = 1
    for t, gate in enumerate(gates):
        mixing = (weights.mixing[t], biases[:, t].contiguous()) if len(weights.mixing) else (weights.mixing, biases)
        shared = weights.shared[:, t].contiguous()
        state, more = _kernels().Step.apply(
            state, gate.contiguous(), weights.blocks.contiguous(), shared, vectors, *mixing, reached, walk
        )
        reached = reached | more
    return state, reached
