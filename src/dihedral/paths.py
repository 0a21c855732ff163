"""Path questions: where do these relations lead from here?

Relations compose, so a whole path is one product of operators and one inner product with all entities
(`path_queries`). The other way goes step by step and keeps the most likely entities at each
(`Beam`): slower, and it can say through which entities an answer was reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph.triples import Vocabulary
from dihedral.models import Model

INVERSE = "~"


def read_steps(via: Sequence[str], relations: Vocabulary) -> list[int]:
    """Names of relations as step numbers: r, or R + r for `~name`, which walks backwards."""
    if not via:
        raise DihedralError("the path has no steps; name at least one relation")
    return [
        relations.id(name.removeprefix(INVERSE)) + (len(relations) if name.startswith(INVERSE) else 0) for name in via
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

    scores: Tensor  # [n, N]: log-probabilities of the best way to each entity
    kept: list[Tensor]  # after each step but the last, the entities gone on from: [n, width]
    came_from: list[Tensor]  # for each step but the first, the place in `kept` that leads best to an entity: [n, N]

    def through(self, question: int, answer: int) -> list[int]:
        """The entities between, in order, on the best way to an answer."""
        way: list[int] = []
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
    width: int = 16,
) -> Beam:
    """Paths from entities [n] along steps [n, length], keeping the `width` likeliest entities after each.

    The probability of a step is a softmax over all entities; that of a way is the product of its steps,
    and an entity's is that of the best way to it.
    """
    questions, length = steps.shape
    entities = len(candidates)
    width = min(width, entities)
    here, so_far = anchors[:, None], torch.zeros(questions, 1, device=anchors.device)
    kept, came_from = [], []
    scores = torch.empty(0)
    for number in range(length):
        at_once = here.shape[1]
        vectors = step(model, operators, steps[:, number].repeat_interleave(at_once), model.entities[here.flatten()])
        likely = torch.log_softmax(vectors @ candidates.T, dim=1)
        ways = likely.view(questions, at_once, entities) + so_far[:, :, None]
        scores, place = ways.max(dim=1)  # [n, N]
        if number:
            came_from.append(place)
        if number + 1 < length:
            so_far, here = scores.topk(width)
            kept.append(here)
    return Beam(scores, kept, came_from)
