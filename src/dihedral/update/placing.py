"""Entity vectors of new entities, found in milliseconds, while the relations and all other vectors stay as they are.

They minimise what training minimises, as far as it depends on them:

- the loss of both questions of each of their facts, with the regulariser of the recipe. A softmax is over a sample of
  the entities (`CANDIDATES`), which stand for all.
- the loss of questions that other facts ask, in which a new entity is a wrong answer. They are a sample of the training
  facts (`QUESTIONS`); without them, new entities would push the right answers of other questions down.

Facts may join new entities with each other: all vectors are found at the same time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.engine.adagrad import Adagrad
from dihedral.errors import DihedralError
from dihedral.graph.triples import Triples
from dihedral.objectives.recipe import Recipe
from dihedral.objectives.regularisers import make_regulariser
from dihedral.runtime import interruption
from dihedral.scoring.embedding import EmbeddingScorer

CANDIDATES = 4096  # entities of a softmax
QUESTIONS = 2048  # of other facts
NUM_STEPS = 12  # of Adagrad
LEARNING_RATE = 0.5  # of Adagrad, relative to the size of the entries of other vectors
INIT = 0.01  # spread of the entries that a vector starts with, relative to that size
PENALTY = 3.0  # times the recipe's weight of the regulariser: few facts are easily overfitted
MAX_ROWS = 4096  # questions whose logits are in memory


@dataclass(frozen=True, eq=False)
class Others:
    """The entities and questions of training that new entities compete with."""

    ids: Tensor  # int64 [C]: entities that are wrong answers to the questions of facts of new ones
    candidates: Tensor  # [C, 2L]: their vectors
    queries: Tensor  # [Q, 2L]: of questions to which new entities are wrong answers
    totals: Tensor  # [Q]: the log-sum-exp of the scores of the other answers; 0 for a logistic loss
    weight: float  # how many questions each stands for, times how often an entity is among their wrong answers

    @classmethod
    @torch.no_grad()
    def draw(cls, scorer: EmbeddingScorer, facts: Triples, recipe: Recipe, seed: int) -> Others:
        """A sample of the entities, and one of the questions of facts, about tails and heads in turn.

        A softmax has every entity as an answer; a logistic loss asks one question of a fact and draws few answers.
        """
        ids = torch.from_numpy(np.random.default_rng(seed).permutation(scorer.num_entities)[:CANDIDATES])
        drawn = facts[np.random.default_rng(seed).permutation(len(facts))[:QUESTIONS]].astype(np.int64)
        head, relation, tail = torch.from_numpy(drawn).to(scorer.device).unbind(1)
        backwards = torch.arange(len(drawn), device=scorer.device) % 2 == 1
        asked = torch.where(backwards, tail, head), relation + scorer.num_relations * backwards
        queries, totals = scorer.queries(*asked), torch.zeros(len(drawn), device=scorer.device)
        weight, ids = 2 * len(facts) / len(drawn), ids.to(scorer.device)
        if recipe.objective == "softmax":
            for part, scores in scorer.tiles(*asked):
                totals[part] = scores.logsumexp(1)
        else:
            weight *= recipe.negatives / (2 * scorer.num_entities)
        return cls(ids, scorer.entities[ids], queries, totals, weight)

    def gradient(self, vectors: Tensor) -> Tensor:
        """The derivative of the loss of the questions by wrong answers [n, 2L], each of them alone."""
        return torch.sigmoid(self.queries @ vectors.T - self.totals[:, None]).mul_(self.weight).T @ self.queries


def place(
    scorer: EmbeddingScorer, recipe: Recipe, train: Triples, facts: Triples, num_entities: int, seed: int = 0
) -> Tensor:
    """The entity table with rows for the entities up to `num_entities`, which are placed by their facts [n, 3].

    train: facts without these entities.
    """
    kind, width, device = scorer.model.relations.kind, scorer.model.dimension, scorer.device
    if scorer.candidates.shape[1] != width:
        raise DihedralError(
            f"a {kind!r} model is not bilinear, so new entities cannot be placed; train it again (retrain)"
        )
    first, size = scorer.num_entities, float(scorer.entities.square().mean().sqrt()) or 1.0
    others = Others.draw(scorer, train, recipe, seed)
    start = torch.randn(num_entities - first, width, generator=torch.Generator().manual_seed(seed))
    vectors = start.mul_(INIT * size).to(device).requires_grad_()
    head, relation, tail = torch.from_numpy(facts.astype(np.int64)).to(device).unbind(1)
    anchors, targets = torch.cat([head, tail]), torch.cat([tail, head])
    steps = torch.cat([relation, relation + scorer.num_relations])
    used = torch.cat([torch.unique(anchors[anchors < first]), torch.arange(first, num_entities, device=device)])
    known = scorer.entities[used[used < first]]
    questions = torch.stack([torch.searchsorted(used, anchors), steps, torch.searchsorted(used, targets), targets])
    optimiser = Adagrad(vectors, LEARNING_RATE * size)
    for _ in range(NUM_STEPS):
        interruption.check()
        gradient = others.gradient(vectors.detach())
        for part in questions.split(MAX_ROWS, dim=1):
            loss = _loss(scorer, recipe, others, torch.cat([known, vectors]), *part)
            gradient += torch.autograd.grad(loss, vectors)[0]
        optimiser.step(gradient)
    return torch.cat([scorer.entities, vectors.detach()])


def _loss(
    scorer: EmbeddingScorer, recipe: Recipe, others: Others, rows: Tensor, anchors: Tensor, steps: Tensor,
    answers: Tensor, targets: Tensor,
) -> Tensor:  # fmt: skip
    """The loss of questions whose anchors and answers are among some rows; targets: the entities that answer."""
    queries = scorer.queries_from(rows[anchors], steps)
    scores, logits = (queries * rows[answers]).sum(1), queries @ others.candidates.T  # [n], [n, C]
    if recipe.objective == "softmax":
        total = logits.masked_fill(others.ids == targets[:, None], -1e30).logsumexp(1)
        loss = F.softplus(total + math.log(scorer.num_entities / len(others.ids)) - scores).sum()
    else:  # a fact asks one of its two questions
        loss = 0.5 * (F.softplus(-scores) + recipe.negatives * F.softplus(logits).mean(1)).sum()
    regulariser = make_regulariser(recipe.regulariser, PENALTY * recipe.regulariser_weight)
    for vectors in (rows[anchors], queries) if regulariser.includes_queries else (rows[anchors],):
        loss = loss + regulariser.penalty_and_gradient(vectors, 1)[0]
    return loss
