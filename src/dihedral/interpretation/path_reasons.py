"""Which paths carry the score of an answer of a path model, with their shares of it.

The state x of an answer is a sum over paths (`models.path_model`). In a gated model it is one too, with the factors by
which components were rescaled taken as they are; that a path also changes these factors is not in its share. The score
is b + s(x), where s is not linear. A path adds to it what it adds to x times the mean slope of s between 0 and x
(Aumann and Shapley), so the shares of all paths add up to s(x).

Paths with the same steps are one kind, and a kind adds what its paths add together. The kinds that add most are found
by a best-first search. It extends the kind that may add most: the length of each component of its states, times the
largest factor by which the facts ahead can stretch the component on their way to the answer. No kind is missed unless
the search ends at its limit, and then it says so.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import torch
from torch import Tensor

from dihedral.engine.path_engine import PathWeights
from dihedral.graph.index import GraphIndex, consecutive
from dihedral.graph.joins import Triple
from dihedral.models.path_model import PathModel
from dihedral.runtime import interruption
from dihedral.scoring.path_scorer import PathScorer
from dihedral.scoring.scorer import AnswerLookup, count_ranks

MAX_NUMBERS = 400_000_000  # that a search may look at: seconds, and at most 1.6 GB
OVERHEAD = 50_000  # what a kind costs besides, in numbers
PART = 1 << 16  # facts whose bounds are computed at a time


class PathKind(NamedTuple):
    """All paths along the same steps from the entity of a question to an answer."""

    steps: tuple[int, ...]
    entities: tuple[int, ...]  # of one path: from the answer back, each time along the fact that carries most
    share: float  # what the paths add to the score
    num_paths: int
    facts: Tensor  # int64 [n, 3]: of all of them


class PathShares(NamedTuple):
    """The kinds of paths that add most to a score."""

    kinds: list[PathKind]  # those that add something, the best first
    total: float  # what all paths add
    complete: bool  # whether the search ended before its limit


def path_shares(scorer: PathScorer, triple: Triple, top: int) -> PathShares:
    """The kinds of paths that add most to the score of a triple as the answer to the question for its tail.

    A known fact is no path for itself, as in training.
    """
    index = scorer.index.to("cpu").without(torch.tensor([triple]))
    question = _Question(scorer.model, index, *triple)
    found, complete = question.search(top)
    kinds = []
    for share, kind in found:
        steps, entities, facts = question.trace(kind)
        kinds.append(PathKind(steps, entities, share, int(kind.counts[kind.ends == question.answer]), facts))
    return PathShares(kinds, question.total, complete)


def rank_without(scorer: PathScorer, triple: Triple, facts: Tensor, known: AnswerLookup) -> tuple[float, float]:
    """The score of a triple and its rank among tails in the graph without facts [n, 3] and without itself."""
    asked = torch.tensor([triple], device=scorer.device)
    entity, step, answer = asked.T
    gone = torch.cat([asked, facts.to(scorer.device)])
    scores = PathScorer(scorer.model, scorer.index.without(gone)).rows()(entity, step)
    others, score = torch.cat([known(entity, step)[1], answer]), float(scores[0, answer])
    greater, equal = count_ranks(scores, answer, torch.zeros_like(others), others)
    return score, 1 + int(greater) + int(equal) / 2


class _Kind(NamedTuple):
    """Paths along the same steps from the entity of a question."""

    before: _Kind | None  # without the last step
    step: int  # the last one
    ends: Tensor  # [n]: the entities that they lead to
    states: Tensor  # [n, T + 1, 2, L]: what they add to the states there after each number of steps
    counts: Tensor  # float64 [n]


class _Question:
    """One question and an answer of it: what every fact does at each step of the whole computation."""

    def __init__(self, model: PathModel, index: GraphIndex, entity: int, step: int, answer: int) -> None:
        asked = torch.tensor([[entity], [step]], device=model.vectors.device)
        weights = PathWeights(*(each.cpu() for each in model.weights(*asked)[1]))
        self.entity, self.answer, self.num_steps = entity, answer, 2 * index.num_relations
        self.blocks = weights.blocks.unflatten(1, (2, 2))  # [2R, 2, 2, L]
        self.source, self.step, self.target = index.sources, index.steps.long(), index.ends.long()
        self.rows, self.counts = index.rows, index.starts.diff()
        self.begin, degrees = index.entity_starts, 1 + index.degrees
        first = torch.zeros(index.num_entities, 2, self.blocks.shape[-1])
        first[entity] = weights.vectors.view(2, -1)
        state, starts = first, [first[entity]]
        self.gains, self.keeps = [], []  # [edges, L] and [N, L] for each step
        for t, (keep, restart, degree, fan) in enumerate(zip(*weights.shared, strict=True)):
            gain = weights.gates[0, t][self.step] * self.counts[self.rows, None] ** -fan
            gain *= degrees[self.target, None] ** -degree
            sent = gain[:, None] * self.turn(self.step, state[self.source])
            state = (keep * state + restart * first).index_add(0, self.target, sent)
            factor = _factor(state, weights, t)
            state = state * factor[:, None]
            self.gains.append(gain * factor[self.target])
            self.keeps.append(keep * factor)
            starts.append(factor[entity] * (keep * starts[-1] + restart * first[entity]))
        self.start = torch.stack(starts)  # [T + 1, 2, L]: of the path without steps
        self.slope = mean_slope(state[answer], weights.reading[0])
        self.total = float((self.slope * state[answer]).sum())

    def turn(self, steps: Tensor, states: Tensor) -> Tensor:
        """Dᵀ x of steps [n] and states [n, 2, L]."""
        return (self.blocks[steps] * states[:, :, None]).sum(1)

    def edges(self, ends: Tensor) -> tuple[Tensor, Tensor]:
        """The edges that leave entities [n]: (row, edge)."""
        return consecutive(self.begin[ends], self.begin[ends + 1] - self.begin[ends])

    def carry(self, states: Tensor, edges: Tensor) -> Tensor:
        """What states [n, T + 1, 2, L] of the sources of edges [n] add to those of their targets."""
        target, steps = self.target[edges], self.step[edges]
        found = [torch.zeros_like(states[:, 0])]
        for t, (gain, keep) in enumerate(zip(self.gains, self.keeps, strict=True)):
            sent = gain[edges][:, None] * self.turn(steps, states[:, t])
            found.append(keep[target][:, None] * found[-1] + sent)
        return torch.stack(found, 1)

    def bounds(self) -> Tensor:
        """How far a unit vector that an edge carries at step t may raise the score, per component: [edges, T, L]."""
        stretch = torch.linalg.matrix_norm(self.blocks.permute(0, 3, 1, 2), ord=2)[self.step]
        ahead = torch.zeros(len(self.begin) - 1, self.blocks.shape[-1])
        ahead[self.answer] = self.slope.norm(dim=0)
        source = self.source[self.counts.cumsum(0) - self.counts][:, None].expand(-1, ahead.shape[1])  # of rows
        found = []
        for gain, keep in zip(self.gains[::-1], self.keeps[::-1], strict=True):
            found.append(gain.abs() * stretch * ahead[self.target])
            sums = torch.zeros(source.shape).index_add(0, self.rows, found[-1])
            most = torch.zeros_like(ahead).scatter_reduce(0, source, sums, "amax")
            ahead = keep.abs() * ahead + most
        return torch.stack(found[::-1], 1)

    def search(self, top: int) -> tuple[list[tuple[float, _Kind]], bool]:
        """The kinds that add most, and whether no other can add more."""
        bounds = self.bounds().flatten(1)
        kind = _Kind(None, -1, torch.tensor([self.entity]), self.start[None], torch.ones(1, dtype=torch.float64))
        found: list[tuple[float, _Kind]] = []
        heap: list[tuple[float, int, int, _Kind]] = []
        spent = number = 0
        while spent < MAX_NUMBERS:
            interruption.check()
            row, edges = self.edges(kind.ends)
            lengths = kind.states[:, :-1].norm(dim=2).flatten(1)
            parts = zip(row.split(PART), edges.split(PART), strict=True)
            each = torch.cat([(lengths[here] * bounds[there]).sum(1) for here, there in parts])
            may_add = torch.zeros(self.num_steps).index_add(0, self.step[edges], each)
            least = found[-1][0] if len(found) == top else 0.0
            for step in (may_add > least).nonzero()[:, 0].tolist():
                heapq.heappush(heap, (-float(may_add[step]), number, step, kind))
            if not heap or -heap[0][0] <= least:
                return found, True
            _, _, step, before = heapq.heappop(heap)
            kind, number = self.extend(before, step), number + 1
            spent += OVERHEAD + len(row) * bounds.shape[1] + kind.states.numel()
            share = float((kind.states[kind.ends == self.answer, -1] * self.slope).sum())
            if share > 0:
                found = sorted([*found, (share, kind)], key=lambda each: -each[0])[:top]
        return found, False

    def extend(self, kind: _Kind, step: int) -> _Kind:
        row, edges = self.edges(kind.ends)
        along = self.step[edges] == step
        row, edges = row[along], edges[along]
        ends, place = torch.unique(self.target[edges], return_inverse=True)
        added = self.carry(kind.states[row], edges)
        states = torch.zeros(len(ends), *added.shape[1:]).index_add(0, place, added)
        counts = torch.zeros(len(ends), dtype=torch.float64).index_add(0, place, kind.counts[row])
        return _Kind(kind, step, ends, states, counts)

    def trace(self, kind: _Kind) -> tuple[tuple[int, ...], tuple[int, ...], Tensor]:
        """The steps of a kind, the entities of one of its paths to the answer, and the facts [n, 3] of all of them."""
        steps, entities, used = [], [self.answer], []
        slopes = torch.zeros_like(self.start)  # of the score, by what the paths add to the states of the entity
        slopes[-1] = self.slope
        between = torch.tensor([self.answer])  # the entities of all paths
        while kind.before is not None:
            steps.append(kind.step)
            row, edges = self.edges(kind.before.ends)
            used.append(edges[(self.step[edges] == kind.step) & torch.isin(self.target[edges], between)])
            between = self.source[used[-1]]
            last = (self.step[edges] == kind.step) & (self.target[edges] == entities[-1])
            with torch.enable_grad():
                states = kind.before.states[row[last]].requires_grad_()
                shares = (self.carry(states, edges[last]) * slopes).flatten(1).sum(1)
                (gradients,) = torch.autograd.grad(shares.sum(), states)
            best = int(shares.argmax())
            slopes = gradients[best]
            entities.append(int(self.source[edges[last][best]]))
            kind = kind.before
        return tuple(steps[::-1]), tuple(entities[::-1]), self.facts(torch.cat(used))

    def facts(self, edges: Tensor) -> Tensor:
        """The distinct facts [n, 3] that edges walk along."""
        step, one, other = self.step[edges], self.source[edges], self.target[edges]
        relation, backwards = step % (self.num_steps // 2), step >= self.num_steps // 2
        head, tail = torch.where(backwards, other, one), torch.where(backwards, one, other)
        return torch.stack([head, relation, tail], 1).unique(dim=0)


def _factor(states: Tensor, weights: PathWeights, t: int) -> Tensor:
    """By how much the components of states [N, 2, L] rescale each other: [N, L]; 1 in a linear model."""
    if not len(weights.mixing):
        return torch.ones_like(states[:, 0])
    lengths = states.square().sum(1, keepdim=True).add(1e-12).sqrt()
    seen = torch.cat([states / lengths**0.75, lengths**0.25], 1).flatten(1)
    z = weights.rescaling[0, t] + seen @ weights.mixing[t]
    return 1 + z / (1 + z.abs())


def mean_slope(state: Tensor, reading: Tensor) -> Tensor:
    """The mean slope [2, L] of what the score reads from states between 0 and a state [2, L], by weights [3, L].

    Its product with the state is what the score reads: Σ (⟨w, x⟩ + ω‖x‖) / √(1 + ‖x‖).
    """
    length = state.square().sum(0).add(1e-12).sqrt()
    read = (state * reading[:2]).sum(0) + length * reading[2]
    shrink = 2 / ((1 + length).sqrt() + 1)  # the mean of 1 / √(1 + τ‖x‖) over τ from 0 to 1
    falls = (shrink - 1 / (1 + length).sqrt()) / length
    return shrink * reading[:2] + (shrink * reading[2] - read * falls) * state / length
