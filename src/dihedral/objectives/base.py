"""The contract of an objective: a batch of triples gives a loss and the gradients of operators and entities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from dihedral.engine.adagrad import RowGradients
from dihedral.engine.blocks import Questions
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


@dataclass(frozen=True)
class QuestionGroups:
    """The distinct questions of facts, each with all of its answers."""

    questions: Tensor  # int64 [Q, 4]: entity, signed step, place of the first answer, number of answers
    answers: Tensor  # int64 [2n], by question
    num_relations: int

    @classmethod
    def build(cls, facts: Tensor, num_relations: int) -> QuestionGroups:
        """From facts [n, 3]; one that is listed twice counts twice."""
        head, relation, tail = facts.unbind(1)
        keys = torch.cat([head, tail]) * (2 * num_relations) + torch.cat([relation, relation + num_relations])
        keys, order = torch.sort(keys, stable=True)
        distinct, counts = torch.unique_consecutive(keys, return_counts=True)
        columns = distinct // (2 * num_relations), distinct % (2 * num_relations), counts.cumsum(0) - counts, counts
        return cls(torch.stack(columns, dim=1), torch.cat([tail, head])[order], num_relations)

    def ask(self, questions: Tensor) -> tuple[Asked, Tensor]:
        """Some of the questions [Q, 4], and the relation of each."""
        for_heads = questions[:, 1] >= self.num_relations
        entities, steps, first, counts = questions[torch.argsort(for_heads, stable=True)].unbind(1)
        owners = torch.repeat_interleave(counts)
        places = torch.arange(len(owners), device=owners.device) + (first - counts.cumsum(0) + counts)[owners]
        half, size = int((~for_heads).sum()), len(self.answers) / 2 * len(questions) / len(self.questions)
        asked = Asked(questions[:0, :3], entities, half, self.answers[places], owners, counts, size)
        return asked, steps % self.num_relations


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


class Objective(Protocol):
    """A loss that the trainer minimises."""

    @property
    def compiled(self) -> bool:
        """Whether this objective runs on the compiled kernels (on a CPU)."""

    def __call__(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Any, generator: torch.Generator
    ) -> Gradients:
        """Batch [B, 3], or grouped questions; the operator of row i is operators[index[i]]."""


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
