"""TransE with the squared L2 distance, written as an inner product.

-½‖q - t‖² = ⟨q, t⟩ - ½‖t‖² - ½‖q‖², so two extra coordinates turn the distance into an inner product:
query [q, 1, margin - ½‖q‖²] and candidate [t, -½‖t‖², 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from dihedral.graph.steps import Side
from dihedral.models.model import WeightedRelations


class TransE(WeightedRelations):
    """φ = margin - ½‖h + r - t‖² with a learned margin per relation."""

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
