"""Random walks over the training graph: paths of two or three signed steps, trained on in addition to the edges."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dihedral.graph import Graph, GraphIndex
from dihedral.graph.steps import inverse_ids


@dataclass(frozen=True)
class Walks:
    """Uniform random walks along the edges of an index.

    A draw picks an edge by its place in the order of the training triples, forward edges first. Which walk a seed gives
    therefore does not depend on the order of the index.
    """

    index: GraphIndex
    order: Tensor  # int64 [edges]: for each entity, its edges in the order of the training triples

    @classmethod
    def build(cls, graph: Graph, device: torch.device | str = "cpu") -> Walks:
        head, relation, tail = torch.from_numpy(graph.train).long().T
        sources, ends = torch.cat([head, tail]), torch.cat([tail, head])
        steps = torch.cat([relation, inverse_ids(relation, graph.num_relations)])
        order = graph.train_index.locate(sources, steps, ends)[torch.argsort(sources, stable=True)]
        if len(order) > len(graph.train_index.ends):  # a triple that is listed twice is one edge
            order = torch.tensor(list(dict.fromkeys(order.tolist())))
        return cls(graph.train_index.to(device), order.to(device))

    def sample(self, first: Tensor, num_steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Uniform walks from the entities `first` [n]: their steps [n, num_steps] and ends [n].

        Every entity of a training triple has an edge, so a walk never gets stuck.
        """
        taken, here = [], first
        for _ in range(num_steps):
            start = self.index.entity_starts[here]
            count = self.index.entity_starts[here + 1] - start
            draw = torch.rand(len(here), generator=generator, device=here.device, dtype=torch.float32)
            edge = self.order[start + torch.minimum((draw * count).long(), count - 1)]
            taken.append(self.index.steps[edge].long())
            here = self.index.ends[edge].long()
        return torch.stack(taken, dim=1), here


@dataclass(frozen=True)
class SampledPaths:
    """Walks of one length whose first steps are the first edges of a batch."""

    steps: Tensor  # [n, length]
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
