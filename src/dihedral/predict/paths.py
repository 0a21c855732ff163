"""Path queries as one product: relations compose, so a path is one vector and one inner product with all entities.

`ask.evaluation` goes step by step instead. It is slower and more exact, and names the entities between.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dihedral.scoring.embedding import EmbeddingScorer


@torch.no_grad()
def path_vectors(scorer: EmbeddingScorer, anchors: Tensor, steps: Tensor) -> Tensor:
    """The queries [n, 2L] of paths from entities [n] along steps [n, length]."""
    vectors = scorer.entities[anchors]
    for number in range(steps.shape[1]):
        vectors = scorer.walk(vectors, steps[:, number])
    return vectors
