"""Transitions: the probability that a step leads from an entity to each other one, for queries of several facts.

Known facts are certain. There are two kinds of probabilities for the others:

- normalised: the softmax of the scores of all entities, times the number of known answers of the question, at most
  MAX_UNKNOWN, as in QTO (Bai et al. 2023);
- calibrated: the probabilities of proposals (`probability.calibration`) for the best POOL answers, 0 for others.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dihedral.graph import GraphIndex
from dihedral.probability.calibration import Calibration
from dihedral.probability.evidence import Evidence
from dihedral.scoring.scorer import Scorer

MAX_UNKNOWN = 0.9  # the highest normalised probability of a fact that is not known
CACHED = 32  # rows at a time that pass through the cache of a CPU
POOL = 100  # answers of a question with a calibrated probability


class Transitions:
    """Rows of log-probabilities for `ask.evaluation`."""

    def __init__(
        self, scorer: Scorer, facts: GraphIndex, calibrated: tuple[Calibration, Evidence] | None = None
    ) -> None:
        self.facts, self.calibrated, self.score_rows = facts, calibrated, scorer.rows()
        self.num_entities, self.device = scorer.num_entities, scorer.device

    def known(self, entities: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        return self.facts.answers(entities, steps)

    def members(self, step: int) -> Tensor:
        return self.facts.members(step)

    @torch.no_grad()
    def log_probabilities(self, entities: Tensor, steps: Tensor) -> Tensor:
        scores = self.score_rows(entities, steps)
        row, answer = self.known(entities, steps)
        if self.calibrated is not None:
            scores[row, answer] = -math.inf
            likely = self._calibrated(entities, steps, scores)
        else:
            counts = torch.bincount(row, minlength=len(entities)).clamp_(min=1)
            likely = scores
            for part, count in zip(scores.split(CACHED), counts.log()[:, None].split(CACHED), strict=True):
                torch.add(torch.log_softmax(part, dim=1), count, out=part).clamp_(max=math.log(MAX_UNKNOWN))
        likely[row, answer] = 0.0
        return likely

    def _calibrated(self, entities: Tensor, steps: Tensor, scores: Tensor) -> Tensor:
        assert self.calibrated is not None
        calibration, evidence = self.calibrated
        relations = self.facts.num_relations
        values, ids = scores.topk(min(POOL, scores.shape[1]))
        here, step = entities[:, None].expand_as(ids), steps[:, None].expand_as(ids)
        back = step >= relations
        triples = torch.stack([torch.where(back, ids, here), step % relations, torch.where(back, here, ids)], -1)
        found = calibration.probabilities(evidence, triples.view(-1, 3).cpu(), values.flatten())
        likely = torch.from_numpy(found).to(scores).view(ids.shape).log()
        likely[values == -math.inf] = -math.inf
        return torch.full_like(scores, -math.inf).scatter_(1, ids, likely)
