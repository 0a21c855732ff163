"""Transitions: the probability that a step leads from an entity to each other one, for queries of several facts."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dihedral.graph import GraphIndex
from dihedral.scoring.scorer import Scorer

MAX_UNKNOWN = 0.9  # the highest probability of a fact that is not known
CACHED = 32  # rows at a time that pass through the cache of a CPU


class KnownSteps:
    """Facts are certain, and nothing else holds."""

    def __init__(self, facts: GraphIndex) -> None:
        self.facts, self.num_entities, self.device = facts, facts.num_entities, facts.keys.device

    def log_probabilities(self, entities: Tensor, steps: Tensor) -> Tensor:
        """Log-probabilities that steps [n] lead from entities [n] to each entity: [n, N]; 0 for known facts."""
        likely = torch.full((len(entities), self.num_entities), -math.inf, device=self.device)
        likely[self.facts.answers(entities, steps)] = 0.0
        return likely


class Transitions(KnownSteps):
    """Facts are certain, and others have a probability.

    It is the softmax of the scores of all entities, times the number of known answers of the question, at most
    MAX_UNKNOWN, as in QTO (Bai et al. 2023).
    """

    def __init__(self, scorer: Scorer, facts: GraphIndex) -> None:
        super().__init__(facts)
        self.score_rows = scorer.rows()

    @torch.no_grad()
    def log_probabilities(self, entities: Tensor, steps: Tensor) -> Tensor:
        likely = self.score_rows(entities, steps)
        row, answer = self.facts.answers(entities, steps)
        counts = torch.bincount(row, minlength=len(entities)).clamp_(min=1)
        for part, count in zip(likely.split(CACHED), counts.log()[:, None].split(CACHED), strict=True):
            torch.add(torch.log_softmax(part, dim=1), count, out=part).clamp_(max=math.log(MAX_UNKNOWN))
        likely[row, answer] = 0.0
        return likely
