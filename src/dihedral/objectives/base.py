"""The contract of an objective: a batch of triples gives a loss and the gradients of operators and entities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dihedral.engine.adagrad import RowGradients
from dihedral.models import Relations


@dataclass(frozen=True)
class Gradients:
    """The loss of one batch and its gradients."""

    loss: Tensor  # scalar
    operators: Tensor  # like the operators
    entities: RowGradients | Tensor  # of the rows in use, or of the complete table [N, 2L]


class Objective(Protocol):
    """A loss that the trainer minimises."""

    @property
    def compiled(self) -> bool:
        """Whether this objective runs on the compiled kernels (on a CPU)."""

    def __call__(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, generator: torch.Generator
    ) -> Gradients:
        """Batch [B, 3]; the operator of row i is operators[index[i]]."""


@dataclass(frozen=True)
class Questions:
    """A batch as questions: the first half asks for tails, the second half for heads.

    Batches come in random order, so each side of a triple is corrupted with equal probability.
    """

    anchors: Tensor  # [B]
    targets: Tensor  # [B]
    half: int

    @classmethod
    def of(cls, batch: Tensor) -> Questions:
        half = (len(batch) + 1) // 2
        head, tail = batch[:, 0], batch[:, 2]
        return cls(torch.cat([head[:half], tail[half:]]), torch.cat([tail[:half], head[half:]]), half)


def queries_of_sides(relations: Relations, operators: Tensor, index: Tensor, anchors: Tensor, half: int) -> Tensor:
    """Queries [B, width] from the anchors' rows [B, 2L]: for tails before `half`, for heads after it."""
    tails = relations.queries(operators, index[:half], anchors[:half], "tail")
    heads = relations.queries(operators, index[half:], anchors[half:], "head")
    return torch.cat([tails, heads])
