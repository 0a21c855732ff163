"""Codes by projection: each block is the graded element nearest to a free 2x2 matrix, with a straight-through gradient.

Gumbel-softmax trains a mixture of elements and evaluates the likeliest one. Here training and evaluation apply the same
elements, and a component has four parameters, whatever K and the levels are.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from dihedral.models.dihedral import DiscreteRelations


class ProjectionRelations(DiscreteRelations):
    """R⁽ˡ⁾ = argmin ‖M⁽ˡ⁾ - D‖ over the elements D in the forward pass; the gradient of R⁽ˡ⁾ is that of M⁽ˡ⁾."""

    kind = "dihedral-projection"
    is_gradable = True
    estimator = "projection"
    default_init = 0.5  # half of the size of an element: codes still change easily

    def draw(self, init: float, generator: torch.Generator | None) -> None:
        shape = self.num_relations, 4, self.dimension // 2
        self.matrices = nn.Parameter(torch.randn(shape, generator=generator) * init)  # M as a, b, c, d: [R, 4, L]
        sizes = torch.tensor([2.0**-grade for grade in self.grades])
        self.register_buffer("sizes", sizes, persistent=False)
        self.sizes: Tensor  # the levels, descending [levels]
        starts = torch.tensor([-1 if math.isinf(grade) else 2 * self.K * int(grade) for grade in self.grades])
        self.register_buffer("starts", starts, persistent=False)
        self.starts: Tensor  # the first id of each level, -1 for zero [levels]

    def keep(self, codes: Tensor, scales: Tensor | None) -> None:
        super().keep(codes, scales)
        self.matrices.data[: len(codes)] = self.blocks[codes.to(self.blocks.device).long()].transpose(1, 2)

    @property
    def codes(self) -> Tensor:
        return self.nearest(self.matrices)

    @torch.no_grad()
    def nearest(self, matrices: Tensor) -> Tensor:
        """The ids [R, L] of the elements nearest to matrices [R, 4, L] in the Frobenius norm.

        ‖M - s D_g‖² = ‖M‖² - 2s ⟨M, D_g⟩ + 2s², so the best g has the largest ⟨M, D_g⟩ for every size s, and the best
        size is the one nearest to half of it. A rotation by θ has ⟨M, D⟩ = (a + d) cos θ + (c - b) sin θ, a reflection
        (a - d) cos θ + (b + c) sin θ.
        """
        a, b, c, d = matrices.unbind(1)
        rotation, size = self._turn(a + d, c - b)
        reflection, other = self._turn(a - d, b + c)
        part = torch.where(other > size, self.K + reflection, rotation)
        distance = (torch.maximum(size, other)[..., None] - self.sizes).abs()
        start = self.starts[distance.argmin(dim=-1)]
        return torch.where(start < 0, start, start + part).to(self.code_dtype)

    def _turn(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The m that maximises p = x cos θ + y sin θ for θ = 2πm/K, and p / 2."""
        step = 2 * math.pi / self.K
        turn = torch.round(torch.atan2(y, x) / step)
        return turn.long() % self.K, (x * torch.cos(turn * step) + y * torch.sin(turn * step)) / 2

    def operators(self, which: Tensor | None = None, generator: Any = None, temperature: Any = 1.0) -> Tensor:
        matrices = self.matrices if which is None else self.matrices[which]
        elements = self.blocks[self.nearest(matrices).long()].transpose(1, 2)
        # the difference is exactly 0
        return self.scaled(elements + (matrices - matrices.detach()), which)
