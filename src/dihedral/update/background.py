"""What the rows that an update trains learn from the facts that it does not train on.

In training, an entity is a wrong answer to the questions of all facts but its own; without these, the few entities of
an update would rise among all answers. A sample of the questions stands for them; their queries and the scores of other
entities hardly change, so both are computed once. Of known rows only the changes count: the sample has the gradient 0
where they start, and each of their facts pulls them back there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dihedral.graph.triples import Triples
from dihedral.models import Relations
from dihedral.objectives.recipe import Recipe
from dihedral.scoring.embedding import EmbeddingScorer


@dataclass(frozen=True, eq=False)
class QuestionSample:
    """Questions of facts, to which the entities of some rows are wrong answers."""

    queries: Tensor  # [Q, width]
    totals: Tensor  # [Q]: the log-sum-exp of the scores of other entities; 0 for a logistic loss
    weight: float  # how many questions each stands for, times how often an entity is among their wrong answers

    @classmethod
    @torch.no_grad()
    def draw(
        cls, scorer: EmbeddingScorer, facts: Triples, recipe: Recipe, *, size: int, seed: int,
        left_out: Tensor | None = None,
    ) -> QuestionSample:  # fmt: skip
        """A sample of the questions of facts, about tails and heads in turn; left_out: entities [N] not in the totals.

        A softmax has every entity as an answer; a logistic loss asks one question of a fact and draws few answers.
        """
        chosen = facts[np.random.default_rng(seed).permutation(len(facts))[:size]].astype(np.int64)
        drawn = torch.from_numpy(chosen).to(scorer.device)
        backwards = torch.arange(len(drawn), device=scorer.device) % 2 == 1
        anchors = torch.where(backwards, drawn[:, 2], drawn[:, 0])
        steps = drawn[:, 1] + scorer.num_relations * backwards
        queries, totals = scorer.queries(anchors, steps), torch.zeros(len(drawn), device=scorer.device)
        weight = 2 * len(facts) / max(1, len(drawn))
        if recipe.objective != "softmax":
            return cls(queries, totals, weight * recipe.negatives / (2 * scorer.num_entities))
        for part, scores in scorer.tiles(anchors, steps):
            if left_out is not None:
                scores[:, left_out] = float("-inf")
            totals[part] = scores.logsumexp(1)
        return cls(queries, totals, weight)

    def __getitem__(self, drawn: Tensor) -> QuestionSample:
        return QuestionSample(self.queries[drawn], self.totals[drawn], self.weight * len(self.queries) / len(drawn))

    def slopes(self, candidates: Tensor) -> Tensor:
        """The derivative of the loss by the scores [Q, n] of wrong answers [n, width], each of them alone."""
        return torch.sigmoid(self.queries @ candidates.T - self.totals[:, None]).mul_(self.weight)


@dataclass(frozen=True, eq=False)
class Background:
    """The gradient of trained rows from the facts that they are not trained on."""

    rows: Tensor  # int64 [n]: the entities that are trained
    start: Tensor  # [n, 2L]: their vectors before
    pull: Tensor  # [n, 1]: the weight that pulls known rows back to the start
    now_weight: Tensor  # [n]: of the sample's gradient; 0 for rows that do without
    start_weight: Tensor  # [n]: of its gradient at the start, which is taken from that; 0 for fresh rows
    sample: QuestionSample
    per_step: int  # questions

    def gradient(self, relations: Relations, table: Tensor, generator: torch.Generator) -> Tensor:
        """The gradient of the summed loss [n, 2L], from a random part of the questions."""
        vectors = table[self.rows].requires_grad_()
        pull = self.pull * (vectors.detach() - self.start)
        if not len(self.sample.queries):
            return pull
        drawn = torch.randint(len(self.sample.queries), (self.per_step,), generator=generator, device=table.device)
        sample = self.sample[drawn]
        with torch.enable_grad():
            candidates = relations.candidates(vectors)
        slopes = sample.slopes(candidates.detach()) * self.now_weight
        slopes -= sample.slopes(relations.candidates(self.start)) * self.start_weight
        slope = slopes.T @ sample.queries
        if candidates is not vectors:
            (slope,) = torch.autograd.grad(candidates, vectors, slope)
        return slope + pull
