"""Negatives: uniform samples of entities, and reversed triples of skew-symmetric relations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph.triples import Triples, keys_fit


def uniform_negatives(batch: Tensor, num_entities: int, count: int, share: int, generator: torch.Generator) -> Tensor:
    """Entities [B, count]; with `share`, [chunks, count]: one row for every `share` positives."""
    rows = -(-len(batch) // share) if share else len(batch)
    return torch.randint(num_entities, (rows, count), generator=generator, device=batch.device)


@dataclass(frozen=True)
class SkewNegatives:
    """The extra negative (t, r, h), drawn with a probability for positives of definitely skew-symmetric relations."""

    relations: Tensor  # bool [R]: definitely skew-symmetric
    probability: float

    def draw(self, relation: Tensor, generator: torch.Generator) -> Tensor:
        """Which positives, given by their relations [B], get the extra negative: bool [B]."""
        coin = torch.rand(len(relation), generator=generator, device=relation.device) < self.probability
        return coin & self.relations[relation]


def definitely_skew(train: Triples, num_entities: int, num_relations: int) -> Tensor:
    """Relations with a pair of distinct entities but no reversed pair in the training graph: bool [R]."""
    if not keys_fit(num_entities, num_relations):
        raise DihedralError(
            f"skew_probability needs a graph of fewer than 2^63 possible triples; {num_entities} entities and "
            f"{num_relations} relations give more: set skew_probability = 0"
        )
    head, relation, tail = train[train[:, 0] != train[:, 2]].astype(np.int64).T
    forward = (relation * num_entities + head) * num_entities + tail
    backward = (relation * num_entities + tail) * num_entities + head
    has_reversed = relation[np.isin(forward, backward)]
    skew = np.zeros(num_relations, dtype=bool)
    skew[relation] = True
    skew[has_reversed] = False
    return torch.from_numpy(skew)
