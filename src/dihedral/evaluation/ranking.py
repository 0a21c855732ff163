"""Filtered ranks: where the true answer stands among all entities that are not known answers.

Ranks are counted in whole row tiles of the score matrix, so memory stays under a limit and the true
score is compared with numbers from the very same product: exact ties are found as ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph.known import KnownAnswers, Side, anchors_and_targets
from dihedral.models import Model

MEMORY_MB = 256  # of scores at a time
CACHE_MB = 8  # on a CPU, tiles that stay in its cache are compared faster than they are read from memory


@dataclass(frozen=True)
class Ranks:
    """For each triple, how many other candidates score higher and how many the same."""

    greater: NDArray[np.int64]
    equal: NDArray[np.int64]

    @property
    def optimistic(self) -> NDArray[np.floating[Any]]:
        return 1.0 + self.greater

    @property
    def pessimistic(self) -> NDArray[np.floating[Any]]:
        return 1.0 + self.greater + self.equal

    @property
    def realistic(self) -> NDArray[np.floating[Any]]:
        return 1.0 + self.greater + self.equal / 2

    def __getitem__(self, which: NDArray[np.bool_]) -> Ranks:
        return Ranks(self.greater[which], self.equal[which])

    @staticmethod
    def join(parts: list[Ranks]) -> Ranks:
        return Ranks(np.concatenate([p.greater for p in parts]), np.concatenate([p.equal for p in parts]))


def ranks_from_scores(scores: Tensor, targets: Tensor, rows: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Counts of greater and equal other candidates, known answers left out.

    scores [batch, N]; targets [batch]; known answers as flat pairs (rows, known), targets among them.
    """
    true = scores.gather(1, targets[:, None])  # [batch, 1]
    if not torch.isfinite(true).all():  # nothing compares with NaN, so it would rank first
        raise DihedralError("the model gives scores that are not finite; it cannot be ranked")
    known_scores, known_true = scores[rows, known], true[rows, 0]
    greater = _count(torch.gt, scores, true)
    equal = _count(torch.eq, scores, true)
    greater.index_add_(0, rows, (known_scores > known_true).long(), alpha=-1)
    equal.index_add_(0, rows, (known_scores == known_true).long(), alpha=-1)
    return greater, equal


def tile_rows(candidates: Tensor, memory_mb: int) -> int:
    """How many rows of scores to hold at a time."""
    if not candidates.is_cuda:
        memory_mb = min(memory_mb, CACHE_MB)
    return max(1, memory_mb * 2**20 // (4 * len(candidates)))


def _count(compare: Any, scores: Tensor, true: Tensor) -> Tensor:
    """How many scores of each row compare true: int64 [batch]."""
    if scores.is_cuda or scores.shape[1] >= 2**24:
        return compare(scores, true).sum(1)
    flags = compare(scores, true, out=torch.empty_like(scores))  # as 0.0 and 1.0
    return (flags @ scores.new_ones(scores.shape[1])).long()  # a product adds faster, exactly up to 2^24


@torch.no_grad()
def rank_triples(
    model: Model, triples: Tensor, side: Side, known: KnownAnswers, *, memory_mb: int = MEMORY_MB
) -> Ranks:
    """Filtered ranks of the answers on one side of triples [n, 3]; `known` must hold those triples."""
    operators, candidates = model.relations.exact(), model.candidates()
    if not (torch.isfinite(candidates).all() and torch.isfinite(operators).all()):
        raise DihedralError("the model holds numbers that are not finite; it cannot be ranked")
    rows_at_once = tile_rows(candidates, memory_mb)
    anchors, relations, targets = anchors_and_targets(triples.long(), side)
    # equal questions stand together, so that each is multiplied once
    keys, order = torch.sort(anchors * model.num_relations + relations, stable=True)
    greater = torch.empty(len(triples), dtype=torch.long, device=triples.device)
    equal = torch.empty_like(greater)
    for part, key in zip(order.split(rows_at_once), keys.split(rows_at_once), strict=True):
        anchor, relation = anchors[part], relations[part]
        question, row = torch.unique_consecutive(key, return_inverse=True)
        query = model.queries(question // model.num_relations, question % model.num_relations, side, operators)
        scores = query @ candidates.T
        if len(scores) < len(part):
            scores = scores[row]
        greater[part], equal[part] = ranks_from_scores(scores, targets[part], *known.of(anchor, relation))
    return Ranks(greater.cpu().numpy(), equal.cpu().numpy())
