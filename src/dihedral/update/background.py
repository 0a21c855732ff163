"""What the rows that an update trains learn from the facts that it does not train on.

Known rows that are trained on new facts alone have learned from the others already: an `Anchor` keeps them near to
where they are.

Rows that are trained on all of their facts have a `Background`. In training, an entity is a wrong answer to the
questions of all facts but its own. An update trains on the facts of few entities; without the other facts, these
entities would rise among the answers to all questions. A sample of the questions of other facts stands for them. Their
queries hardly change, nor do the scores of entities that are not trained, so that both are computed once, and a step
takes only the scores of the trained rows. Fold-in (`update.folding`) draws on such a sample, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.graph.triples import Triples
from dihedral.learn.trainer import Phase
from dihedral.models import Relations
from dihedral.objectives.recipe import Recipe
from dihedral.scoring.embedding import EmbeddingScorer

MAX_QUESTIONS, MIN_QUESTIONS = 16_384, 2048  # in the sample
MAX_PER_STEP, MIN_PER_STEP = 1024, 16  # of them


@dataclass(frozen=True, eq=False)
class QuestionSample:
    """Questions to which the entities of some rows are wrong answers."""

    queries: Tensor  # [Q, width]
    totals: Tensor | None  # [Q]: the log-sum-exp of the scores of other entities; None for a logistic loss

    @classmethod
    @torch.no_grad()
    def of(
        cls, scorer: EmbeddingScorer, anchors: Tensor, steps: Tensor, recipe: Recipe, left_out: Tensor | None = None
    ) -> QuestionSample:
        """The sample of questions (anchors [Q], steps [Q]); left_out: bool [N]: entities that totals do without."""
        parts = [torch.zeros(0, device=scorer.device)]
        for _, scores in scorer.tiles(anchors, steps) if recipe.objective == "softmax" else ():
            if left_out is not None:
                scores[:, left_out] = float("-inf")
            parts.append(scores.logsumexp(1))
        pairs = zip(anchors.split(MAX_PER_STEP), steps.split(MAX_PER_STEP), strict=True)
        queries = torch.cat([scorer.queries(*pair) for pair in pairs])
        return cls(queries, torch.cat(parts) if recipe.objective == "softmax" else None)

    def __getitem__(self, drawn: Tensor) -> QuestionSample:
        return QuestionSample(self.queries[drawn], None if self.totals is None else self.totals[drawn])

    def slopes(self, scores: Tensor, *, together: bool) -> Tensor:
        """The derivative of the loss by the scores [Q, n] of wrong answers.

        together: a softmax has all n of them beside the other entities; otherwise each alone.
        """
        if self.totals is None:
            return torch.sigmoid(scores)
        if not together:
            return torch.sigmoid(scores - self.totals[:, None])
        return torch.exp(scores - torch.logaddexp(self.totals, scores.logsumexp(1))[:, None])


def draw_share(recipe: Recipe, num_entities: int) -> float:
    """How often a question has an entity as a wrong answer: always in a softmax, and as one of the negatives drawn.

    A fact asks one of its two questions in a logistic loss.
    """
    return 1.0 if recipe.objective == "softmax" else recipe.negatives / (2 * num_entities)


@dataclass(frozen=True, eq=False)
class Background:
    """Questions of other facts to which the trained rows are wrong answers."""

    rows: Tensor  # int64 [n]: the entities that are trained
    count: int  # of the questions that there are
    per_step: int  # questions of a step
    sample: QuestionSample
    answers: Tensor  # int64 [Q]: which of the rows is the right answer; n if none is
    share: float  # `draw_share`
    start: Tensor | None = None  # [n, width]: rows (as answers) that have learned from it; they have the gradient 0

    def gradient(self, relations: Relations, table: Tensor, generator: torch.Generator) -> Tensor:
        """The gradient of the summed loss [n, 2L], from a random part of the questions."""
        sample, answers = self.sample, self.answers
        if self.per_step < len(answers):
            drawn = torch.randint(len(answers), (self.per_step,), generator=generator, device=table.device)
            sample, answers = sample[drawn], answers[drawn]
        vectors = table[self.rows].requires_grad_()
        with torch.enable_grad():
            candidates = relations.candidates(vectors)
        slopes = sample.slopes(sample.queries @ candidates.detach().T, together=True) * self.share
        if self.start is not None:
            slopes -= sample.slopes(sample.queries @ self.start.T, together=True) * self.share
        slopes = F.pad(slopes, (0, 1)).scatter_(1, answers[:, None], 0.0)[:, :-1]  # the right answers do not count
        slope = slopes.T @ sample.queries
        if candidates is not vectors:
            (slope,) = torch.autograd.grad(candidates, vectors, slope)
        return slope * (self.count / len(answers))


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

    def gradient(self, relations: Relations, table: Tensor, generator: torch.Generator) -> Tensor:
        """The gradient of the summed loss [n, 2L]."""
        pull = (table[self.rows] - self.vectors) * self.curvature
        if self.background is not None:
            pull += self.background.gradient(relations, table, generator)
        return pull


@torch.no_grad()
def make_background(
    scorer: EmbeddingScorer, others: Triples, phase: Phase, recipe: Recipe, seed: int, *, started: bool = False
) -> Background | None:
    """The background of a phase; None if it trains no rows, or there are no other facts.

    others: the facts that are not trained on. The sample is no larger than the questions of all epochs, because
    preparing it takes time. A step computes at most about half as many scores as the batch that it goes with.
    started: the rows have learned from these facts already, so that only changes of the rows count.
    """
    assert phase.rows is not None
    if not len(others) or not phase.rows.any():
        return None
    count = min(MAX_QUESTIONS, max(MIN_QUESTIONS, 2 * phase.epochs * len(phase.facts)))
    drawn = others[np.random.default_rng(seed).permutation(len(others))[: count // 2]]
    head, relation, tail = torch.from_numpy(drawn.astype(np.int64)).to(scorer.device).unbind(1)
    anchors, steps = torch.cat([head, tail]), torch.cat([relation, relation + scorer.num_relations])
    trained = torch.from_numpy(phase.rows).to(scorer.device)
    place = torch.where(trained, trained.cumsum(0) - 1, trained.sum())
    per_question = scorer.num_entities if recipe.objective == "softmax" else 8 * recipe.negatives
    return Background(
        rows=trained.nonzero()[:, 0],
        per_step=max(MIN_PER_STEP, min(MAX_PER_STEP, recipe.batch_size * per_question // int(phase.rows.sum()))),
        count=2 * len(others),
        sample=QuestionSample.of(scorer, anchors, steps, recipe, left_out=trained),
        answers=place[torch.cat([tail, head])],
        share=draw_share(recipe, scorer.num_entities),
        start=scorer.candidates[trained] if started else None,
    )
