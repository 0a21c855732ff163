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
    """The extra negative (t, r, h), drawn with a probability for positives of definitely skew-symmetric relations.

    A positive with h = t has none: its reversed triple is the positive itself.
    """

    relations: Tensor  # bool [R]: definitely skew-symmetric (`graph.patterns.skew_relations`)
    probability: float

    @classmethod
    def build(cls, index: GraphIndex, probability: float, device: torch.device | str = "cpu") -> SkewNegatives:
        return cls(torch.from_numpy(skew_relations(index)).to(device), probability)

    def draw(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Which positives [B, 3] get the extra negative: bool [B]."""
        head, relation, tail = batch.unbind(1)
        coin = torch.rand(len(batch), generator=generator, device=batch.device) < self.probability
        return coin & self.relations[relation] & (head != tail)
