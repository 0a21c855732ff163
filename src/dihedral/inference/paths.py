"""Path questions: where do these relations lead from here?

Relations compose, so a whole path is one product of operators and one inner product with all entities
(`path_queries`). The other way goes step by step and keeps the most likely entities at each
(`Beam`): slower, it goes along known facts where there are any, and can say through which
entities an answer was reached. Its probabilities follow QTO (Bai et al. 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph.known import KnownAnswers
from dihedral.graph.triples import Triples
from dihedral.graph.vocabulary import Vocabulary
from dihedral.models import Model

INVERSE = "~"
WIDTH = 32  # entities that a beam keeps
UNSURE = 0.9  # the most that a step may have that is no known fact
SURELY = 1e-6  # how near to 1 a probability may come
AT_ONCE = 1 << 24  # probabilities in memory


def read_steps(via: Sequence[str], relations: Vocabulary) -> list[int]:
    """Names of relations as step numbers: r, or R + r for `~name`, which walks backwards."""
    if isinstance(via, str):
        raise DihedralError(f"via is the text {via!r}; give a list of relations, such as [{via!r}]")
    if not via:
        raise DihedralError("the path has no steps; name at least one relation")
    return [
        relations.id(name.removeprefix(INVERSE)) + len(relations)
        if name.startswith(INVERSE) and name not in relations  # a relation may be called so itself
        else relations.id(name)
        for name in via
    ]


def step(model: Model, operators: Tensor, steps: Tensor, vectors: Tensor) -> Tensor:
    """One step from each row: Rᵀx along a relation, Rx against it; steps [n], vectors [n, 2L]."""
    count = model.num_relations
    relation = steps % count
    along = model.relations.queries(operators, relation, vectors, "tail")
    if along.shape != vectors.shape:
        raise DihedralError(f"relations of a {model.relations.kind!r} model do not compose by products")
    against = model.relations.queries(operators, relation, vectors, "head")
    return torch.where((steps >= count)[:, None], against, along)


@torch.no_grad()
def path_queries(model: Model, operators: Tensor, anchors: Tensor, steps: Tensor) -> Tensor:
    """The queries [n, 2L] of whole paths from entities [n] along steps [n, length]."""
    vectors = model.entities[anchors]
    for number in range(steps.shape[1]):
        vectors = step(model, operators, steps[:, number], vectors)
    return vectors


@dataclass(frozen=True)
class Beam:
    """Answers found step by step: scores of all entities, and the way to each."""

    scores: Tensor  # [n, N]: log-probabilities that some way leads to an entity
    kept: list[Tensor]  # after each step but the last, the entities gone on from: [n, width]
    came_from: list[Tensor]  # for each step but the first, the place in `kept` that leads best to an entity: [n, N]
    sure: list[dict[tuple[int, int], int]]  # for each step: (question, entity) that facts lead to, and from where

    def through(self, question: int, answer: int) -> list[int]:
        """The entities between, in order, on the best way to an answer: along facts alone where there is one."""
        way: list[int] = []
        if (question, answer) in self.sure[-1]:
            for layer in reversed(self.sure[1:]):
                answer = layer[question, answer]
                way.append(answer)
            return way[::-1]
        for kept, came_from in zip(reversed(self.kept), reversed(self.came_from), strict=True):
            answer = int(kept[question, came_from[question, answer]])
            way.append(answer)
        return way[::-1]


@torch.no_grad()
def beam_search(
    model: Model,
    operators: Tensor,
    candidates: Tensor,
    anchors: Tensor,
    steps: Tensor,
    *,
    facts: KnownAnswers,
    width: int = WIDTH,
) -> Beam:
    """Paths from entities [n] along steps [n, length], keeping the `width` likeliest entities after each.

    facts: where a step is known to lead, of 2R steps (`both_ways`); those are sure. Elsewhere a step leads to an
    entity with its softmax over all entities times the number of the step's known answers, or UNSURE if that is less.
    The probability of a way is the product of its steps', that of an entity that one way at least leads to it.
    Ways of known facts alone are all followed, whatever the width.
    """
    width = min(width, len(candidates))
    at_once = max(1, AT_ONCE // (width * len(candidates)))
    beams = [
        _beam_search(model, operators, candidates, anchor, step, facts, width)
        for anchor, step in zip(anchors.split(at_once), steps.split(at_once), strict=True)
    ]
    scores = torch.cat([beam.scores for beam in beams])
    sure = _along_facts(anchors, steps, facts)
    if sure[-1]:
        question, entity = torch.tensor(list(sure[-1])).T
        scores[question, entity] = 0.0
    return Beam(
        scores,
        [torch.cat(parts) for parts in zip(*(beam.kept for beam in beams), strict=True)],
        [torch.cat(parts) for parts in zip(*(beam.came_from for beam in beams), strict=True)],
        sure,
    )


def _along_facts(anchors: Tensor, steps: Tensor, facts: KnownAnswers) -> list[dict[tuple[int, int], int]]:
    """For each step, where known facts alone lead: (question, entity) and an entity that it was reached from."""
    question, here = torch.arange(len(anchors), device=anchors.device), anchors
    layers = []
    for number in range(steps.shape[1]):
        row, there = facts.of(here, steps[question, number])
        came_from, question = here[row], question[row]
        layer = dict(zip(zip(question.tolist(), there.tolist(), strict=True), came_from.tolist(), strict=True))
        layers.append(layer)
        reached = torch.tensor(list(layer), dtype=torch.int64, device=anchors.device).view(-1, 2)
        question, here = reached[:, 0], reached[:, 1]
    return layers


def _beam_search(
    model: Model, operators: Tensor, candidates: Tensor, anchors: Tensor, steps: Tensor, facts: KnownAnswers, width: int
) -> Beam:
    questions, length = steps.shape
    here, so_far = anchors[:, None], torch.zeros(questions, 1, device=anchors.device)
    kept, came_from = [], []
    for number in range(length):
        likely = _likely(
            model, operators, candidates, here.flatten(), steps[:, number].repeat_interleave(here.shape[1]), facts
        )
        ways = likely.view(questions, here.shape[1], -1).add_(so_far[:, :, None])
        scores, place = ways.max(dim=1)  # [n, N]
        if number:
            came_from.append(place)
        if number + 1 < length:
            so_far, here = scores.topk(width)
            kept.append(here)
    if length > 1:
        no_way = ways.exp_().neg_().clamp_(min=SURELY - 1).log1p_().sum(dim=1)  # log of the product of 1 - p
        scores = torch.log(-torch.expm1(no_way))
    return Beam(scores, kept, came_from, [])


def _likely(
    model: Model, operators: Tensor, candidates: Tensor, entities: Tensor, steps: Tensor, facts: KnownAnswers
) -> Tensor:
    """Log-probabilities that a step leads from each entity [n] to any: [n, N]."""
    likely = torch.log_softmax(step(model, operators, steps, model.entities[entities]) @ candidates.T, dim=1)
    row, answer = facts.of(entities, steps)
    many = torch.bincount(row, minlength=len(entities)).clamp_(min=1)
    likely.add_(many.log()[:, None]).clamp_(max=math.log(UNSURE))
    likely[row, answer] = 0.0
    return likely


def both_ways(triples: Triples, num_entities: int, num_relations: int) -> KnownAnswers:
    """Where each of 2R steps leads from an entity, by the facts of a graph."""
    head, relation, tail = triples.T
    along, back = np.stack([head, relation, tail], 1), np.stack([tail, relation + num_relations, head], 1)
    return KnownAnswers.build(np.concatenate([along, back]), "tail", 2 * num_relations, num_entities)
