"""What the rows that an update trains learn from the facts that it does not train on.

Known rows that are trained on new facts alone have learned from the others already: an `Anchor` keeps them near to
where they are.

Rows that are trained on all of their facts have a `Background`. In training, an entity is a wrong answer to the
questions of all facts but its own. An update trains on the facts of few entities; without the other facts, these
entities would rise among the answers to all questions. A sample of the questions of other facts stands for them. Their
queries hardly change, nor do the scores of entities that are not trained, so that both are computed once, and a step
takes only the scores of the trained rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dihedral.engine.adagrad import RowGradients
from dihedral.graph.triples import Triples
from dihedral.models import Relations
from dihedral.objectives.base import Gradients
from dihedral.scoring.embedding import EmbeddingScorer

QUESTIONS = 16_384  # in the sample, at most
MIN_QUESTIONS = 2048
AT_ONCE = 1024  # of them in a step, at most
MIN_AT_ONCE = 16


@dataclass(frozen=True, eq=False)
class Background:
    """Questions to which the trained rows are wrong answers."""

    rows: Tensor  # int64 [n]: the entities that are trained
    count: int  # of the questions that there are
    at_once: int  # questions of a step
    queries: Tensor  # [Q, width]
    answers: Tensor  # int64 [Q]: which of the rows is the right answer; n if none is
    totals: Tensor | None  # [Q]: the log-sum-exp of the scores of the other entities; None for a logistic loss
    share: float = 1.0  # the probability that a logistic loss draws an entity, times the weight of a wrong answer
    start: Tensor | None = None  # [n, width]: rows (as answers) that have learned from it; they have the gradient 0

    def added_to(
        self, found: Gradients, relations: Relations, table: Tensor, num_facts: int, generator: torch.Generator
    ) -> RowGradients | Tensor:
        """The gradients of entities with those of a step's part of the questions; num_facts: of the epoch."""
        return _joined(found, self.rows, self.gradient(relations, table, generator) / num_facts)

    def gradient(self, relations: Relations, table: Tensor, generator: torch.Generator) -> Tensor:
        """The gradient of the summed loss [n, 2L], from a random part of the questions."""
        queries, answers, others = self.queries, self.answers, self.totals
        if self.at_once < len(queries):
            drawn = torch.randint(len(queries), (self.at_once,), generator=generator, device=table.device)
            queries, answers = queries[drawn], answers[drawn]
            others = None if others is None else others[drawn]
        vectors = table[self.rows].requires_grad_()
        with torch.enable_grad():
            candidates = relations.candidates(vectors)
        slopes = self._slopes(queries @ candidates.detach().T, others)
        if self.start is not None:
            slopes -= self._slopes(queries @ self.start.T, others)
        slopes = F.pad(slopes, (0, 1)).scatter_(1, answers[:, None], 0.0)[:, :-1]  # the right answers do not count
        slope = slopes.T @ queries
        if candidates is not vectors:
            (slope,) = torch.autograd.grad(candidates, vectors, slope)
        return slope * (self.count / len(queries))

    def _slopes(self, scores: Tensor, others: Tensor | None) -> Tensor:
        """The derivative of the loss by the scores of the rows [q, n], as wrong answers."""
        if others is None:
            return torch.sigmoid(scores) * self.share
        return torch.exp(scores - torch.logaddexp(others, scores.logsumexp(1))[:, None])


@dataclass(frozen=True, eq=False)
class Anchor:
    """What the facts of known rows do to them, without these facts: a second-order expansion of their loss.

    The rows are at its minimum, so the expansion has no linear term: they are pulled back to where they were. Its
    curvature is estimated by squared gradients (elastic weight consolidation: Kirkpatrick et al., 2017). This does not
    tell that many questions are alike: a row that moves to answer one of them rises for all. So the change of the
    gradient of a `Background` is added.
    """

    rows: Tensor  # int64 [n]: the entities that are trained
    vectors: Tensor  # [n, 2L]: where they were
    curvature: Tensor  # [n, 2L]
    background: Background | None  # of the same rows, which start there

    def added_to(
        self, found: Gradients, relations: Relations, table: Tensor, num_facts: int, generator: torch.Generator
    ) -> RowGradients | Tensor:
        """The gradients of entities with those of a step's part of the other facts; num_facts: of the epoch."""
        pull = (table[self.rows] - self.vectors) * self.curvature
        if self.background is not None:
            pull += self.background.gradient(relations, table, generator)
        return _joined(found, self.rows, pull / num_facts)


def _joined(found: Gradients, rows: Tensor, more: Tensor) -> RowGradients | Tensor:
    """The gradients of entities, and more of them for some rows."""
    if isinstance(found.entities, Tensor):
        return found.entities.index_add_(0, rows, more)
    return found.entities.joined(RowGradients(rows, more))


@torch.no_grad()
def make_background(
    scorer: EmbeddingScorer, others: Triples, rows: NDArray[np.bool_], *,
    batch_size: int, negatives: int | None, num_asked: int, seed: int, started: bool = False,
) -> Background | None:  # fmt: skip
    """The background of an update that trains some rows (mask [N]); None if there are no such rows or facts.

    others: the facts that are not trained on. negatives: of a logistic loss; None for a softmax. num_asked: the
    questions of all epochs; the sample is no larger than needed for these, because preparing it takes time. A step
    computes at most about half as many scores as the batch that it goes with. started: the rows have learned from these
    facts already, so that only changes of the rows count.
    """
    if not len(others) or not rows.any():
        return None
    count = min(QUESTIONS, max(MIN_QUESTIONS, num_asked))
    drawn = others[np.random.default_rng(seed).permutation(len(others))[: count // 2]]
    head, relation, tail = torch.from_numpy(drawn.astype(np.int64)).to(scorer.device).unbind(1)
    anchors, steps = torch.cat([head, tail]), torch.cat([relation, relation + scorer.num_relations])
    trained, totals = torch.from_numpy(rows).to(scorer.device), None
    place = torch.where(trained, trained.cumsum(0) - 1, trained.sum())
    scores_of_batch = batch_size * (scorer.num_entities if negatives is None else 8 * negatives)
    if negatives is None:
        parts = []
        for _, scores in scorer.tiles(anchors, steps):
            scores[:, trained] = float("-inf")
            parts.append(scores.logsumexp(1))
        totals = torch.cat(parts)
    return Background(
        rows=trained.nonzero()[:, 0],
        at_once=max(MIN_AT_ONCE, min(AT_ONCE, scores_of_batch // int(rows.sum()))),
        count=2 * len(others),
        queries=torch.cat(
            [scorer.queries(*part) for part in zip(anchors.split(AT_ONCE), steps.split(AT_ONCE), strict=True)]
        ),
        answers=place[torch.cat([tail, head])],
        totals=totals,
        share=1.0 if negatives is None else negatives / (2 * scorer.num_entities),
        start=scorer.candidates[trained] if started else None,
    )
