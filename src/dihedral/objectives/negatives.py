"""Negatives: uniform samples of entities, and reversed triples of skew-symmetric relations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dihedral.graph import GraphIndex
from dihedral.graph.patterns import skew_relations


def uniform_negatives(batch: Tensor, num_entities: int, count: int, share: int, generator: torch.Generator) -> Tensor:
    """Entities [B, count]; with `share`, [chunks, count]: one row for every `share` positives."""
    rows = -(-len(batch) // share) if share else len(batch)
    return torch.randint(num_entities, (rows, count), generator=generator, device=batch.device)


@dataclass(frozen=True)
class SkewNegatives:
    """The extra negative (t, r, h), drawn with a probability for positives of definitely skew-symmetric relations."""

    relations: Tensor  # bool [R]: definitely skew-symmetric (`graph.patterns.skew_relations`)
    probability: float

    @classmethod
    def build(cls, index: GraphIndex, probability: float, device: torch.device | str = "cpu") -> SkewNegatives:
        return cls(torch.from_numpy(skew_relations(index)).to(device), probability)

    def draw(self, relation: Tensor, generator: torch.Generator) -> Tensor:
        """Which positives, given by their relations [B], get the extra negative: bool [B]."""
        coin = torch.rand(len(relation), generator=generator, device=relation.device) < self.probability
        return coin & self.relations[relation]
