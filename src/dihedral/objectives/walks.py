"""Random walks over the training graph: paths of two or three signed steps to train on, and the composition loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.engine.blocks import block_product, with_transposes
from dihedral.graph import Graph, GraphIndex
from dihedral.graph.steps import inverse_ids

SHARPNESS, THRESHOLD = 30.0, 0.5  # the sharpness was chosen on FB15k-237 (results/graded-search.jsonl)


@dataclass(frozen=True)
class Walks:
    """Uniform random walks; edges are drawn by their place among the training triples, not by that in the index."""

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
        """Uniform walks from entities [n], each of which has an edge: their steps [n, num_steps] and ends [n]."""
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


@dataclass(frozen=True)
class Compositions:
    """The composition loss: products of relation operators become similar to the relations that they imply.

    A walk h —r₁→ m —r₂→ t is an example for its body r₁ · r₂. For every relation r₃, the cosine of the matrices R₁R₂
    and R₃ should be above THRESHOLD if (h, r₃, t) is a training fact and below it otherwise:

        L = mean over walks of Σ_{r₃} BCE( SHARPNESS · (cos(R₁R₂, R₃) - THRESHOLD), [(h, r₃, t) ∈ train] )

    In the mean over the walks of a body, the cosine follows the confidence of r₁ · r₂ ⇒ r₃: it is THRESHOLD where the
    rule holds for half of the walks. The swapped body r₂ · r₁ is an example that implies nothing, unless it also joins
    entities, in which case walks of its own decide. Only operators are trained, not entities.
    """

    index: GraphIndex
    meets: Tensor  # bool [2R, 2R]: whether a step can follow another one

    @classmethod
    def build(cls, graph: Graph, device: torch.device | str = "cpu") -> Compositions:
        from scipy import sparse  # on first use: its import takes longer than that of this package

        index, steps = graph.train_index, 2 * graph.num_relations
        entity, step = (index.keys // steps).numpy(), (index.keys % steps).numpy()
        leaves = sparse.csr_array((np.ones(len(entity), np.int32), (entity, step)), shape=(graph.num_entities, steps))
        arrives = leaves[:, inverse_ids(np.arange(steps), graph.num_relations)]
        meets = torch.from_numpy((arrives.T @ leaves).toarray() > 0)
        return cls(index.to(device), meets.to(device))

    def loss(self, operators: Tensor, first: Tensor, steps: Tensor, ends: Tensor) -> Tensor:
        """From operators [R, 4, L] and walks: first entities [n], steps [n, 2], ends [n]."""
        one, two = with_transposes(operators)[steps.T]
        relations = F.normalize(operators.flatten(1), dim=1)
        walked, swapped = (
            F.normalize(product.flatten(1), dim=1) @ relations.T - THRESHOLD  # [n, R]
            for product in (block_product(one, two), block_product(two, one))
        )
        implied, meets = self.implied(first, ends), self.meets[steps[:, 1], steps[:, 0]]
        losses = F.softplus(torch.where(implied, -SHARPNESS, SHARPNESS) * walked).sum(1)
        losses = losses + F.softplus(SHARPNESS * swapped).sum(1) * ~meets
        return losses.sum() / max(1, len(losses))  # a small batch may have no walk

    def implied(self, heads: Tensor, tails: Tensor) -> Tensor:
        """Which relations join heads [n] and tails [n] in training: bool [n, R]."""
        count = self.index.num_relations
        relation = torch.arange(count, device=heads.device).repeat(len(heads))
        head, tail = heads.repeat_interleave(count), tails.repeat_interleave(count)
        return (self.index.locate(head, relation, tail) >= 0).view(-1, count)
