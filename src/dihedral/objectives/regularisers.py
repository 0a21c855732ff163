"""Regularisers: penalties on the entities of a batch's positives, also with their gradients written out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Regulariser:
    """No penalty; the base class of the others."""

    weight: float = 0.0
    includes_queries: ClassVar[bool] = False
    degree: ClassVar[int] = 2  # the penalty of c · x is c^degree times that of x, for c of 0 or more
    includes_relations: bool = False

    def relation_penalty(self, operators: Tensor, index: Tensor, batch_size: float) -> Tensor:
        """The part of the relations, from operators [R, 4, L] and the operator of each use."""
        return operators.new_zeros(())

    def penalty_and_gradient(self, rows: Tensor, batch_size: float) -> tuple[Tensor, Tensor]:
        """λ times the mean penalty of the positives, and its gradient, from the rows [2B, 2L] of heads and tails."""
        return rows.new_zeros(()), torch.zeros_like(rows)

    def repeated(self, rows: Tensor, counts: Tensor | None, batch_size: float) -> tuple[Tensor, Tensor]:
        """The same if row i counts counts[i] times."""
        if counts is None:
            return self.penalty_and_gradient(rows, batch_size)
        factors = counts.to(rows.dtype).pow(1 / self.degree)[:, None]
        penalty, gradient = self.penalty_and_gradient(rows * factors, batch_size)
        return penalty, gradient * factors


@dataclass(frozen=True)
class L2(Regulariser):
    """½(‖h‖² + ‖t‖²)."""

    def penalty_and_gradient(self, rows: Tensor, batch_size: float) -> tuple[Tensor, Tensor]:
        weight = self.weight / batch_size
        return 0.5 * weight * rows.square().sum(), weight * rows


@dataclass(frozen=True)
class N3(Regulariser):
    """Σ_l ‖h⁽ˡ⁾‖³ + ‖t⁽ˡ⁾‖³ (Lacroix et al., 2018).

    includes_relations: add ½ ‖R⁽ˡ⁾‖³, and for reciprocal relations that of both operators. ‖R⁽ˡ⁾‖² is half the sum of
    the squared entries of a block, so that ‖R⁽ˡ⁾‖ is the modulus of a ComplEx relation.
    """

    degree = 3

    def relation_penalty(self, operators: Tensor, index: Tensor, batch_size: float) -> Tensor:
        norms = operators.square().sum(1).div(2).pow(1.5).sum(1)  # [R]
        return self.weight / (2 * batch_size) * norms[index].sum()

    def penalty_and_gradient(self, rows: Tensor, batch_size: float) -> tuple[Tensor, Tensor]:
        weight = self.weight / batch_size
        x, y = rows.chunk(2, dim=-1)
        norms = torch.hypot(x, y)
        return weight * norms.pow(3).sum(), (3 * weight) * rows * norms.repeat(1, 2)


@dataclass(frozen=True)
class DURA(Regulariser):
    """¼(‖h‖² + ‖t‖² + ‖Rᵀh‖² + ‖Rt‖²) (Zhang et al., 2020); its rows are the entities, then the queries."""

    includes_queries = True

    def penalty_and_gradient(self, rows: Tensor, batch_size: float) -> tuple[Tensor, Tensor]:
        weight = self.weight / batch_size / 2
        return 0.5 * weight * rows.square().sum(), weight * rows


REGULARISERS: dict[str, type[Regulariser]] = {"none": Regulariser, "l2": L2, "n3": N3, "dura": DURA}
NONE = Regulariser()


def make_regulariser(name: str, weight: float, includes_relations: bool = False) -> Regulariser:
    """The regulariser of this name and weight; weight 0 is no regulariser, whatever the name."""
    return REGULARISERS[name](weight, includes_relations) if weight and name != "none" else NONE
