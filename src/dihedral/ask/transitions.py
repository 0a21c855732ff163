"""Transitions: the probability that a step leads from an entity to each other one, for queries of several facts.

Known facts are certain. The others have the softmax of the scores of all entities, times the number of known answers of
the question, at most MAX_UNKNOWN, as in QTO (Bai et al. 2023).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dihedral.graph import GraphIndex
from dihedral.scoring.scorer import Scorer

MAX_UNKNOWN = 0.9  # the highest probability of a fact that is not known
CACHED = 32  # rows at a time that pass through the cache of a CPU


class Transitions:
    """Rows of log-probabilities for `ask.messages`."""

    def __init__(self, scorer: Scorer, facts: GraphIndex) -> None:
        self.facts, self.score_rows = facts, scorer.rows()
        self.num_entities, self.device = scorer.num_entities, scorer.device

    def known(self, entities: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        return self.facts.answers(entities, steps)

    def members(self, step: int) -> Tensor:
        return self.facts.members(step)

    @torch.no_grad()
    def log_probabilities(self, entities: Tensor, steps: Tensor) -> Tensor:
        likely = self.score_rows(entities, steps)
        row, answer = self.known(entities, steps)
        counts = torch.bincount(row, minlength=len(entities)).clamp_(min=1)
        for part, count in zip(likely.split(CACHED), counts.log()[:, None].split(CACHED), strict=True):
            torch.add(torch.log_softmax(part, dim=1), count, out=part).clamp_(max=math.log(MAX_UNKNOWN))
        likely[row, answer] = 0.0
        return likely
