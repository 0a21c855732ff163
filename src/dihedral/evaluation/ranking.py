"""Filtered ranks: the rank of the true answer among all entities that are not known answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dihedral.graph.steps import Side
from dihedral.probability.ordering import Ranker
from dihedral.scoring.scorer import MEMORY_MB, AnswerLookup, Scorer


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


def rank_triples(
    scorer: Scorer, triples: Tensor, side: Side, known: AnswerLookup, *, memory_mb: int = MEMORY_MB,
    ranker: Ranker | None = None,
) -> Ranks:  # fmt: skip
    """Filtered ranks of the answers on one side of triples [n, 3]; `known` must give those of the triples too.

    ranker: ranks the best answers by probability instead of by score.
    """
    counts = scorer.rank_counts(triples, side, known, memory_mb=memory_mb)
    greater, equal = counts if ranker is None else ranker.rank_counts(triples, side, known, counts)
    return Ranks(greater.cpu().numpy(), equal.cpu().numpy())
