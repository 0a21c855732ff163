"""A sample of the entities for the softmax of a step, with weights that correct for the entities left out.

The sample holds all targets of the batch, which are frequent and so the hardest negatives, and `count` of the other
entities. Each of those stands for several: with T targets among N entities, its weight is (N - T) / count. The sum over
the sample, Σ w exp(s), is then an unbiased estimate of the softmax's denominator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """Entities for one softmax."""

    ids: Tensor  # int64 [C]: the distinct targets, then entities drawn from the others
    targets: Tensor  # int64 [Q]: for each query, the place of its target in `ids`
    log_weights: Tensor  # [C]

    def extended(self, queries: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and candidates with one more column, so that their products are logits plus log weights."""
        return F.pad(queries, (0, 1), value=1.0), torch.cat([candidates, self.log_weights[:, None]], dim=1)


def draw(targets: Tensor, num_entities: int, count: int, generator: torch.Generator) -> Sample:
    """The distinct targets and up to `count` of the other entities.

    >>> sample = draw(torch.tensor([5, 2, 5]), 100, 10, torch.Generator().manual_seed(0))
    >>> sample.ids[sample.targets].tolist(), len(sample.ids)
    ([5, 2, 5], 12)
    """
    distinct, places = torch.unique(targets, return_inverse=True)
    is_other = torch.ones(num_entities, dtype=torch.bool, device=targets.device)
    is_other[distinct] = False
    others = is_other.nonzero().flatten()
    kept = others[torch.randperm(len(others), generator=generator, device=targets.device)[:count]]
    log_weights = torch.zeros(len(distinct) + len(kept), device=targets.device)
    if len(kept):
        log_weights[len(distinct) :] = math.log(len(others) / len(kept))
    return Sample(torch.cat([distinct, kept]), places, log_weights)
