"""The contract of an objective: a batch of triples gives a loss and the gradients of operators and entities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dihedral.engine.adagrad import RowGradients
from dihedral.engine.blocks import Questions
from dihedral.models import Relations


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
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, generator: torch.Generator
    ) -> Gradients:
        """Batch [B, 3]; the operator of row i is operators[index[i]]."""


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
