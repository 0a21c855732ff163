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
    greater = (scores > true).sum(1)
    equal = (scores == true).sum(1)
    known_scores, known_true = scores[rows, known], true[rows, 0]
    greater.index_add_(0, rows, (known_scores > known_true).long(), alpha=-1)
    equal.index_add_(0, rows, (known_scores == known_true).long(), alpha=-1)
    return greater, equal


@torch.no_grad()
def rank_triples(
    model: Model, triples: Tensor, side: Side, known: KnownAnswers, *, memory_mb: int = MEMORY_MB
) -> Ranks:
    """Filtered ranks of the answers on one side of triples [n, 3]; `known` must hold those triples."""
    operators, candidates = model.relations.exact(), model.candidates()
    if not (torch.isfinite(candidates).all() and torch.isfinite(operators).all()):
        raise DihedralError("the model holds numbers that are not finite; it cannot be ranked")
    rows_at_once = max(1, memory_mb * 2**20 // (6 * len(candidates)))  # 4 bytes a score, 2 for comparing
    parts = []
    for part in triples.long().split(rows_at_once):
        anchors, relations, targets = anchors_and_targets(part, side)
        scores = model.queries(anchors, relations, side, operators) @ candidates.T
        greater, equal = ranks_from_scores(scores, targets, *known.of(anchors, relations))
        parts.append(Ranks(greater.cpu().numpy(), equal.cpu().numpy()))
    return Ranks.join(parts) if parts else Ranks(np.empty(0, np.int64), np.empty(0, np.int64))
