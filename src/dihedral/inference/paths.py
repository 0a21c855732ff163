"""Path queries: where do these relations lead from here?

Relations compose, so a path is one product of operators and one inner product with all entities (`path_vectors`).
`beam_search` goes step by step instead and keeps the most probable entities after each. It is slower, takes known facts
as certain, and names the entities between. Its probabilities follow QTO (Bai et al. 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dihedral.graph import GraphIndex
from dihedral.inference.scorer import Scorer

WIDTH = 32  # entities that a beam keeps
MAX_UNKNOWN = 0.9  # the highest probability of a step that is not a known fact
MARGIN = 1e-6  # how close to 1 a probability may come
MAX_AT_ONCE = 1 << 24  # probabilities in memory


@torch.no_grad()
def path_vectors(scorer: Scorer, anchors: Tensor, steps: Tensor) -> Tensor:
    """The queries [n, 2L] of paths from entities [n] along steps [n, length]."""
    vectors = scorer.entities[anchors]
    for number in range(steps.shape[1]):
        vectors = scorer.walk(vectors, steps[:, number])
    return vectors


@dataclass(frozen=True)
class Beam:
    """Answers found step by step: scores of all entities, and the way to each."""

    scores: Tensor  # [n, N]: log-probabilities that some way leads to an entity
    kept: list[Tensor]  # after each step but the last, the entities that were kept: [n, width]
    came_from: list[Tensor]  # for each step but the first, the place in `kept` that leads best to an entity: [n, N]
    certain: list[dict[tuple[int, int], int]]  # per step: (question, entity) reached by facts alone, and from where

    def through(self, question: int, answer: int) -> list[int]:
        """The entities between, in order, on the best way to an answer; along facts alone where possible."""
        way: list[int] = []
        if (question, answer) in self.certain[-1]:
            for layer in reversed(self.certain[1:]):
                answer = layer[question, answer]
                way.append(answer)
            return way[::-1]
        for kept, came_from in zip(reversed(self.kept), reversed(self.came_from), strict=True):
            answer = int(kept[question, came_from[question, answer]])
            way.append(answer)
        return way[::-1]


@torch.no_grad()
def beam_search(scorer: Scorer, anchors: Tensor, steps: Tensor, *, facts: GraphIndex, width: int = WIDTH) -> Beam:
    """Paths from entities [n] along steps [n, length], keeping the `width` most probable entities after each step.

    facts: where a step is known to lead; those answers are certain. Elsewhere, a step leads to an entity with the
    probability of its softmax over all entities times the number of the step's known answers, at most MAX_UNKNOWN.
    After each step, the probability of an entity is that at least one of the kept entities leads to it, as if they did
    so independently. Ways of known facts alone are all followed, whatever the width.
    """
    width = min(width, scorer.num_entities)
    at_once = max(1, MAX_AT_ONCE // (width * scorer.num_entities))
    beams = [
        _beam_search(scorer, anchor, step, facts, width)
        for anchor, step in zip(anchors.split(at_once), steps.split(at_once), strict=True)
    ]
    scores = torch.cat([beam.scores for beam in beams])
    certain = _along_facts(anchors, steps, facts)
    if certain[-1]:
        question, entity = torch.tensor(list(certain[-1])).T
        scores[question, entity] = 0.0
    return Beam(
        scores,
        [torch.cat(parts) for parts in zip(*(beam.kept for beam in beams), strict=True)],
        [torch.cat(parts) for parts in zip(*(beam.came_from for beam in beams), strict=True)],
        certain,
    )


def _along_facts(anchors: Tensor, steps: Tensor, facts: GraphIndex) -> list[dict[tuple[int, int], int]]:
    """Per step, where known facts alone lead: (question, entity), and an entity that it was reached from."""
    question, here = torch.arange(len(anchors), device=anchors.device), anchors
    layers = []
    for number in range(steps.shape[1]):
        row, there = facts.answers(here, steps[question, number])
        came_from, question = here[row], question[row]
        layer = dict(zip(zip(question.tolist(), there.tolist(), strict=True), came_from.tolist(), strict=True))
        layers.append(layer)
        reached = torch.tensor(list(layer), dtype=torch.int64, device=anchors.device).view(-1, 2)
        question, here = reached[:, 0], reached[:, 1]
    return layers


def _beam_search(scorer: Scorer, anchors: Tensor, steps: Tensor, facts: GraphIndex, width: int) -> Beam:
    questions, length = steps.shape
    here, so_far = anchors[:, None], torch.zeros(questions, 1, device=anchors.device)
    kept, came_from = [], []
    for number in range(length):
        taken = steps[:, number].repeat_interleave(here.shape[1])
        likely = _log_probabilities(scorer, here.flatten(), taken, facts)
        ways = likely.view(questions, here.shape[1], -1).add_(so_far[:, :, None])
        if number:
            came_from.append(ways.argmax(dim=1))
            no_way = ways.exp_().neg_().clamp_(min=MARGIN - 1).log1p_().sum(dim=1)  # log of the product of 1 - p
            scores = torch.log(-torch.expm1(no_way))  # [n, N]
        else:
            scores = ways[:, 0]  # one way
        if number + 1 < length:
            so_far, here = scores.topk(width)
            kept.append(here)
    return Beam(scores, kept, came_from, [])


def _log_probabilities(scorer: Scorer, entities: Tensor, steps: Tensor, facts: GraphIndex) -> Tensor:
    """Log-probabilities that a step leads from each entity [n] to any entity: [n, N]."""
    likely = torch.log_softmax(scorer.walk(scorer.entities[entities], steps) @ scorer.candidates.T, dim=1)
    row, answer = facts.answers(entities, steps)
    num_answers = torch.bincount(row, minlength=len(entities)).clamp_(min=1)
    likely.add_(num_answers.log()[:, None]).clamp_(max=math.log(MAX_UNKNOWN))
    likely[row, answer] = 0.0
    return likely
