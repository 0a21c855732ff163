"""Random walks over the training graph: paths of two or three steps to train on beside the edges.

A step follows an edge forwards or backwards. Backwards it is the relation's inverse, numbered R + r.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dihedral.graph.triples import Triples


@dataclass(frozen=True)
class Walks:
    """The edges of a graph in both directions, grouped by the entity they leave."""

    starts: Tensor  # int64 [N + 1]
    relations: Tensor  # int64 [2 * facts]: r, or R + r for an edge walked backwards
    ends: Tensor  # int64 [2 * facts]

    @classmethod
    def build(cls, train: Triples, num_entities: int, num_relations: int, device: torch.device | str = "cpu") -> Walks:
        head, relation, tail = train.astype(np.int64).T
        source = np.concatenate([head, tail])
        order = np.argsort(source, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=num_entities))])
        relations = np.concatenate([relation, relation + num_relations])[order]
        ends = np.concatenate([tail, head])[order]
        return cls(*(torch.from_numpy(part).to(device) for part in (starts, relations, ends)))

    def sample(self, first: Tensor, steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Go on from the entities `first` [n]: relations [n, steps] of a uniform walk, and where it ends [n].

        Every entity of a training triple has an edge, so there is always a step to take.
        """
        taken, here = [], first
        for _ in range(steps):
            start = self.starts[here]
            count = self.starts[here + 1] - start
            draw = torch.rand(len(here), generator=generator, device=here.device, dtype=torch.float32)
            edge = start + torch.minimum((draw * count).long(), count - 1)
            taken.append(self.relations[edge])
            here = self.ends[edge]
        return torch.stack(taken, dim=1), here
