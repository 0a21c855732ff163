"""What objectives share: a batch of triples gives a loss and the gradients of operators and entities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dihedral.engine.adagrad import RowGradients
from dihedral.engine.blocks import Questions
from dihedral.graph import GraphIndex
from dihedral.models import Relations


class Asked(NamedTuple):
    """Questions with their answers; those before `half` ask for tails, the others for heads."""

    facts: Tensor  # [B, 3]: those of which these are the two questions each; [0, 3] if questions are grouped
    anchors: Tensor  # [Q]: the known entity of each question
    half: int
    answers: Tensor  # [P]: those of a question after those of the one before
    owners: Tensor | None  # [P]: the question of each answer; None: one answer each
    counts: Tensor | None  # [Q]: answers of each question
    size: float  # facts, each of which has an answer in both directions


def both_sides(batch: Tensor) -> Asked:
    """Both questions of each fact of a batch [B, 3], with one answer each."""
    head, _, tail = batch.unbind(1)
    return Asked(batch, torch.cat([head, tail]), len(batch), torch.cat([tail, head]), None, None, len(batch))


def grouped(index: GraphIndex, keys: Tensor) -> tuple[Asked, Tensor]:
    """Questions with all of their answers, by their keys in an index [Q], and the relation of each."""
    steps = keys % (2 * index.num_relations)
    order = torch.argsort(steps >= index.num_relations, stable=True)
    anchors, steps = keys[order] // (2 * index.num_relations), steps[order]
    owners, answers = index.answers(anchors, steps)
    half, size = int((steps < index.num_relations).sum()), len(index.ends) / 2 * len(keys) / len(index.keys)
    counts = torch.bincount(owners, minlength=len(keys))
    return Asked(keys.new_empty(0, 3), anchors, half, answers, owners, counts, size), steps % index.num_relations


@dataclass(frozen=True)
class Gradients:
    """The loss of one batch and its gradients."""

    loss: Tensor  # scalar
    operators: Tensor  # like the operators
    entities: RowGradients | Tensor  # for the rows in use, or the complete table [N, 2L]

    def joined(self, other: Gradients) -> Gradients:
        """Of the sum of two losses, for gradients of rows."""
        assert isinstance(self.entities, RowGradients) and isinstance(other.entities, RowGradients)
        rows = self.entities.joined(other.entities)
        return Gradients(self.loss + other.loss, self.operators + other.operators, rows)


def ask_half(entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor) -> tuple[Questions, Tensor]:
    """A batch as questions with their answers [B]: the first half asks for tails, the second half for heads."""
    half = (len(batch) + 1) // 2
    head, tail = batch[:, 0], batch[:, 2]
    anchors, targets = torch.cat([head[:half], tail[half:]]), torch.cat([tail[:half], head[half:]])
    return Questions(entities, operators.detach(), index, anchors, half), targets


def queries_of_sides(relations: Relations, operators: Tensor, index: Tensor, anchors: Tensor, half: int) -> Tensor:
    """Queries [B, width] from the anchors' rows [B, 2L]: for tails before `half`, for heads after it."""
    tails = relations.queries(operators, index[:half], anchors[:half], "tail")
    heads = relations.queries(operators, index[half:], anchors[half:], "head")
    return torch.cat([tails, heads])
