"""The baselines: the bilinear models of the paper's Table 1, and TransE; trained by the same trainer."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from dihedral.graph.steps import Side
from dihedral.models.model import BlockRelations, Relations, WeightedRelations


class _WeightedBlocks(WeightedRelations, BlockRelations):
    """Blocks from two free weights per component: [R, 2, L]; reciprocal: R more relations (Lacroix et al., 2018)."""

    can_be_reciprocal = True

    def __init__(self, num_relations: int, dimension: int, *, reciprocal: bool = False, **options: Any) -> None:
        self.is_reciprocal = reciprocal
        super().__init__(num_relations, dimension, **options)

    def draw(self, init: float, generator: torch.Generator | None) -> Tensor:
        rows = self.num_relations * (2 if self.is_reciprocal else 1)
        return torch.randn(rows, 2, self.dimension // 2, generator=generator) * init

    def operators(self, which: Tensor | None = None, generator: Any = None, temperature: Any = 1.0) -> Tensor:
        if which is not None and self.is_reciprocal:
            which = torch.cat([which, which + self.num_relations])
        return torch.stack(self.entries(*super().operators(which).unbind(1)), dim=1)

    def settings(self) -> dict[str, int | str]:
        return {"reciprocal": 1} if self.is_reciprocal else {}

    @abstractmethod
    def entries(self, p: Tensor, q: Tensor) -> list[Tensor]:
        """The block entries a, b, c, d from the two weights, each [R, L]."""


class DistMult(_WeightedBlocks):
    """diag(p, q)."""

    kind = "distmult"

    def entries(self, p: Tensor, q: Tensor) -> list[Tensor]:
        zero = torch.zeros_like(p)
        return [p, zero, zero, q]


class ComplEx(_WeightedBlocks):
    """[[p, -q], [q, p]]."""

    kind = "complex"

    def entries(self, p: Tensor, q: Tensor) -> list[Tensor]:
        return [p, -q, q, p]


class Analogy(_WeightedBlocks):
    """ComplEx for the first half of the components, DistMult for the second."""

    kind = "analogy"

    def entries(self, p: Tensor, q: Tensor) -> list[Tensor]:
        half = p.shape[-1] // 2
        (p1, p2), (q1, q2) = p.split([half, p.shape[-1] - half], -1), q.split([half, p.shape[-1] - half], -1)
        zero = torch.zeros_like(p2)
        return [torch.cat(pair, dim=-1) for pair in ((p1, p2), (-q1, zero), (q1, zero), (p1, q2))]


class SimplE(_WeightedBlocks):
    """[[0, p], [q, 0]]."""

    kind = "simple"

    def entries(self, p: Tensor, q: Tensor) -> list[Tensor]:
        zero = torch.zeros_like(p)
        return [zero, p, q, zero]


class HolE(WeightedRelations):
    """φ = rᵀ (h ⋆ t) with circular correlation (h ⋆ t)_k = Σ_i h_i t_{i+k}."""

    kind = "hole"

    def draw(self, init: float, generator: torch.Generator | None) -> Tensor:
        return torch.randn(self.num_relations, self.dimension, generator=generator) * init

    def queries(self, operators: Tensor, index: Tensor, entities: Tensor, side: Side) -> Tensor:
        relation = torch.fft.rfft(operators)[index]
        entity = torch.fft.rfft(entities)
        # ⟨q, t⟩ with q = r * h (convolution); ⟨q, h⟩ with q = r ⋆ t (correlation)
        spectrum = relation * entity if side == "tail" else relation.conj() * entity
        return torch.fft.irfft(spectrum, n=self.dimension)


class RESCAL(WeightedRelations):
    """A full matrix per relation: [R, 2L, 2L]."""

    kind = "rescal"

    def draw(self, init: float, generator: torch.Generator | None) -> Tensor:
        scale = init / self.dimension**0.5  # so that a query is about as long as its entity
        return torch.randn(self.num_relations, self.dimension, self.dimension, generator=generator) * scale

    def queries(self, operators: Tensor, index: Tensor, entities: Tensor, side: Side) -> Tensor:
        matrices = operators[index]  # [batch, 2L, 2L]
        if side == "head":
            matrices = matrices.transpose(1, 2)
        return torch.bmm(entities.unsqueeze(1), matrices).squeeze(1)


class TransE(WeightedRelations):
    """φ = margin - ½‖h + r - t‖² with a learned margin per relation, written as an inner product.

    -½‖q - t‖² = ⟨q, t⟩ - ½‖t‖² - ½‖q‖², so two extra coordinates turn the distance into an inner product:
    query [q, 1, margin - ½‖q‖²] and candidate [t, -½‖t‖², 1].
    """

    kind = "transe"
    is_bilinear = False
    default_init = 0.1

    def draw(self, init: float, generator: torch.Generator | None) -> Tensor:
        weights = torch.randn(self.num_relations, self.dimension + 1, generator=generator) * init
        weights[:, -1] = 0.0  # translation, then margin
        return weights

    def queries(self, operators: Tensor, index: Tensor, entities: Tensor, side: Side) -> Tensor:
        translation, margin = operators[index].split([self.dimension, 1], dim=-1)
        query = entities + translation if side == "tail" else entities - translation
        length = query.square().sum(-1, keepdim=True)
        return torch.cat([query, torch.ones_like(length), margin - length / 2], dim=-1)

    def candidates(self, entities: Tensor) -> Tensor:
        length = entities.square().sum(-1, keepdim=True)
        return torch.cat([entities, -length / 2, torch.ones_like(length)], dim=-1)


BASELINES: tuple[type[Relations], ...] = (DistMult, ComplEx, Analogy, SimplE, HolE, RESCAL, TransE)
