"""Random walks over the training graph: paths of two or three steps, trained on in addition to the edges.

A step follows an edge forwards or backwards. The inverse of relation r has the number R + r.
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
        """Uniform walks from the entities `first` [n]: their relations [n, steps] and ends [n].

        Every entity of a training triple has an edge, so a walk never gets stuck.
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


@dataclass(frozen=True)
class SampledPaths:
    """Walks of one length whose first steps are the first edges of a batch."""

    relations: Tensor  # [n, length]; R + r is the inverse of r
    ends: Tensor  # [n]


def sample_paths(
    walks: Walks, batch: Tensor, fraction: float, max_length: int, generator: torch.Generator
) -> list[SampledPaths]:
    """Edges of the batch [B, 3] continued by random steps: fraction · B paths, equally many of each length from 2."""
    lengths = range(2, max_length + 1)
    count = int(fraction * len(batch)) // len(lengths)
    paths = []
    for length in lengths:
        more, ends = walks.sample(batch[:count, 2], length - 1, generator)
        paths.append(SampledPaths(torch.cat([batch[:count, 1:2], more], dim=1), ends))
    return paths
