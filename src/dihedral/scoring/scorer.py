"""The contract of every scorer: ids in, ids and scores out, on the model's device. It knows no names.

A question is an entity and a signed step: forwards along r it asks for tails of r, backwards for heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from dihedral.graph.steps import Side

MEMORY_MB = 256  # for scores, at a time

AnswerLookup = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Answers of questions (entities [n], steps [n]), flat: (row in the batch, answer), such as `GraphIndex.answers`."""

RowScores = Callable[[Tensor, Tensor], Tensor]
"""Scores of questions (entities [n], steps [n]): one row per question."""


class Scorer(Protocol):
    """Scores of triples and of the answers to questions."""

    device: torch.device
    num_entities: int
    num_relations: int
    max_questions: float  # that a fit of probabilities may ask; infinite where they take no time of their own

    def score(self, triples: Tensor) -> Tensor:
        """The scores [n] of triples [n, 3]."""

    def rows(self, among: Tensor | None = None) -> RowScores:
        """A function that scores questions with all candidates [n, N], or with some [n, len(among)].

        What the questions share is prepared once. The caller owns each result.
        """

    def top(
        self, entities: Tensor, steps: Tensor, count: int, *, exclude: AnswerLookup | None = None,
        allowed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The best answers of questions (entities [n], steps [n]): ids and scores, each [n, count].

        Answers that `exclude` gives and entities outside the mask `allowed` [N] have the score -inf and come last.
        """

    def rank_counts(
        self, triples: Tensor, side: Side, known: AnswerLookup, *, memory_mb: int = MEMORY_MB
    ) -> tuple[Tensor, Tensor]:
        """How many other candidates score higher than the answers of triples [n, 3], and how many the same.

        Known answers do not count; `known` must give those of the triples themselves too.
        """
