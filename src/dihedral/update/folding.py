"""Fold-in: new entities from their facts, in milliseconds, while the relations and all other entities stay fixed.

The vectors of the new entities minimise what training minimises, as far as it depends on them:

- the loss of both questions of each of their facts, with the regulariser of the recipe. A softmax is over a sample of
  the entities (`CANDIDATES`), which stand for all.
- the loss of questions that other facts ask, in which a new entity is a wrong answer. They are a sample of the training
  facts (`QUESTIONS`); without them, new entities would push the right answers of other questions down.

Facts may join new entities with each other: all vectors are found at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dihedral.engine.adagrad import Adagrad
from dihedral.errors import DihedralError, check_triples
from dihedral.graph import Graph
from dihedral.graph.prefixes import expand
from dihedral.graph.triples import Triples
from dihedral.models import Model
from dihedral.objectives.recipe import Recipe
from dihedral.objectives.regularisers import make_regulariser
from dihedral.runtime import interruption
from dihedral.scoring.embedding import EmbeddingScorer, need_embeddings
from dihedral.store.history import History
from dihedral.store.trained import TrainedModel
from dihedral.update.background import QuestionSample, draw_share

CANDIDATES = 256  # entities of a softmax
QUESTIONS = 2048  # of other facts
NUM_STEPS = 12  # of Adagrad
LEARNING_RATE = 0.5  # of Adagrad, relative to the size of the entries of other vectors
INIT = 0.01  # spread of the entries that a vector starts with, relative to that size
MAX_ROWS = 4096  # questions whose logits are in memory

Names = tuple[str, str, str]


def place_entities(
    trained: TrainedModel, names: str | Sequence[str], facts: Sequence[Names], context: Context, seed: int = 0
) -> TrainedModel:
    """The model with new entities, placed by facts that name at least one of them each."""
    graph, scorer = trained.graph, need_embeddings(trained.scorer, "fold-in")
    if scorer.candidates.shape[1] != scorer.model.dimension:
        kind = scorer.model.relations.kind
        raise DihedralError(f"a {kind!r} model is not bilinear; fold-in needs a bilinear model")
    wider = with_entities(graph, [names] if isinstance(names, str) else names, facts)
    own = torch.from_numpy(wider.train[len(graph.train) :].astype(np.int64))
    table = place(scorer, trained.recipe or Recipe(), context, own, wider.num_entities, seed)
    grown = Model(table, scorer.model.relations).requires_grad_(False)
    # without metrics: it is not the model that was measured
    return replace(trained, source=grown, graph=wider, metrics={}, history=History(), latents=None, optimiser=None)


def with_entities(graph: Graph, names: Sequence[str], facts: Sequence[Names]) -> Graph:
    """The graph with new entities, and their facts among those of training."""
    check_triples(facts)
    full = lambda each: expand(each, graph.entities.prefixes)  # noqa: E731
    names = list(dict.fromkeys(map(full, names)))
    facts = list(dict.fromkeys((full(h), r, full(t)) for h, r, t in facts))
    if not names:
        raise DihedralError("no new entity is named; name at least one")
    graph.entities.check_new(names)
    ids = {name: graph.num_entities + i for i, name in enumerate(names)}
    placed = {name for h, _, t in facts if h != t for name in (h, t)}
    for name in names:
        if name not in placed:
            raise DihedralError(f"entity {name!r} has no facts with other entities; give at least one to place it by")
    for fact in facts:
        if fact[0] not in ids and fact[2] not in ids:
            listed = ", ".join(map(repr, names[:3])) + (", …" if len(names) > 3 else "")
            raise DihedralError(f"fact {fact!r} must name a new entity ({listed}), as head or as tail")
    heads, relations, tails = zip(*facts, strict=True)
    known = [name for name in dict.fromkeys(heads + tails) if name not in ids]
    ids |= dict(zip(known, graph.entities.ids(known).tolist(), strict=True))
    columns = [ids[name] for name in heads], graph.relations.ids(relations), [ids[name] for name in tails]
    own = np.stack(columns, axis=1).astype(graph.train.dtype)
    return graph.replace(entities=graph.entities.extended(names), train=np.concatenate([graph.train, own]))


@dataclass(frozen=True, eq=False)
class Context:
    """What new entities compete with; it depends on the model alone, so it is computed once."""

    size: float  # of the entries of vectors
    candidates: Tensor  # [C, 2L]: wrong answers to the questions of new entities
    is_candidate: Tensor  # bool [N]
    log_weight: float  # each candidate stands for exp(log_weight) entities
    questions: QuestionSample  # of other facts, to which new entities are wrong answers
    weight: float  # of each question: how many it stands for, and how often they draw an entity

    def total(self, logits: Tensor) -> Tensor:
        """The log-sum-exp over all entities, estimated from that of the candidates [n, C]."""
        return logits.logsumexp(1) + self.log_weight


@torch.no_grad()
def make_context(scorer: EmbeddingScorer, train: Triples, recipe: Recipe, seed: int = 0) -> Context:
    """Draw the candidates, and questions of training facts, alternately about tails and heads."""
    rng = np.random.default_rng(seed)
    count, device = scorer.num_entities, scorer.device
    ids = torch.from_numpy(rng.permutation(count)[:CANDIDATES]).to(device)
    is_candidate = torch.zeros(count, dtype=torch.bool, device=device)
    is_candidate[ids] = True
    facts = train[rng.permutation(len(train))[:QUESTIONS]]
    drawn = torch.from_numpy(facts.astype(np.int64)).to(device)
    backwards = torch.arange(len(drawn), device=device) % 2 == 1
    anchors = torch.where(backwards, drawn[:, 2], drawn[:, 0])
    steps = drawn[:, 1] + scorer.num_relations * backwards
    return Context(
        size=float(scorer.entities.square().mean().sqrt()) or 1.0,
        candidates=scorer.entities[ids],
        is_candidate=is_candidate,
        log_weight=math.log(count / max(1, len(ids))),
        questions=QuestionSample.of(scorer, anchors, steps, recipe),
        weight=draw_share(recipe, count) * (2 * len(train) / max(1, len(drawn))),
    )


@torch.no_grad()
def place(
    scorer: EmbeddingScorer, recipe: Recipe, context: Context, facts: Tensor, num_entities: int, seed: int = 0
) -> Tensor:
    """The entity table with rows for the entities up to `num_entities`, which are placed by their facts [n, 3]."""
    count, width = num_entities - scorer.num_entities, scorer.model.dimension
    start = torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) * (INIT * context.size)
    table = torch.cat([scorer.entities, start.to(scorer.device)])
    placement = _Placement(scorer, recipe, context, facts.to(scorer.device), table)
    optimiser = Adagrad(placement.vectors, LEARNING_RATE * context.size)
    for _ in range(NUM_STEPS):
        interruption.check()
        optimiser.step(placement.gradient())
    return table


class _Placement:
    """The gradient of the loss for the vectors of new entities, the last rows of a table.

    Questions that a new entity asks: those with the same step share one query. Questions that a known entity asks and a
    new one answers: their queries and their totals are fixed.
    """

    def __init__(self, scorer: EmbeddingScorer, recipe: Recipe, context: Context, facts: Tensor, table: Tensor) -> None:
        self.scorer, self.context, self.table = scorer, context, table
        self.first = scorer.num_entities
        self.vectors = table[self.first :]
        self.is_softmax = recipe.objective == "softmax"
        self.negatives = recipe.negatives
        self.regulariser = make_regulariser(recipe.regulariser, recipe.regulariser_weight)
        head, relation, tail = facts.unbind(1)
        anchors, targets = torch.cat([head, tail]), torch.cat([tail, head])
        steps, count = torch.cat([relation, relation + scorer.num_relations]), 2 * scorer.num_relations
        moving = anchors >= self.first
        self.uses = torch.bincount(anchors[moving] - self.first, minlength=len(self.vectors))[:, None]
        keys, order = torch.sort(anchors[moving] * count + steps[moving])
        pairs, self.num_asked = torch.unique_consecutive(keys, return_counts=True)
        self.rows, self.steps = pairs // count - self.first, pairs % count
        self.targets = targets[moving][order]
        self.queries, self.answers = scorer.queries(anchors[~moving], steps[~moving]), targets[~moving] - self.first
        self.totals = torch.cat([context.total(part @ context.candidates.T) for part in self.queries.split(MAX_ROWS)])

    def gradient(self) -> Tensor:
        """[new entities, 2L]."""
        gradient = self.uses * self.regulariser.penalty_and_gradient(self.vectors, 1)[1]
        self._add_answers(gradient)
        self._add_wrong_answers(gradient)
        questions = self.targets.split([int(part.sum()) for part in self.num_asked.split(MAX_ROWS)])
        parts = zip(
            self.rows.split(MAX_ROWS),
            self.steps.split(MAX_ROWS),
            self.num_asked.split(MAX_ROWS),
            strict=True,
        )
        for part, targets in zip(parts, questions, strict=True):
            self._add_questions(gradient, *part, targets)
        return gradient

    def _add_answers(self, gradient: Tensor) -> None:
        """New entities as the true answers of questions that known ones ask."""
        scores = (self.queries * self.vectors[self.answers]).sum(1)
        slopes = -torch.sigmoid(self.totals - scores) if self.is_softmax else -0.5 * torch.sigmoid(-scores)
        gradient.index_add_(0, self.answers, slopes[:, None] * self.queries)

    def _add_wrong_answers(self, gradient: Tensor) -> None:
        """New entities as wrong answers of the questions of other facts."""
        questions = self.context.questions
        slopes = questions.slopes((self.vectors @ questions.queries.T).T, together=False)
        gradient.addmm_(slopes.T, questions.queries, alpha=self.context.weight)

    def _add_questions(self, gradient: Tensor, rows: Tensor, steps: Tensor, counts: Tensor, targets: Tensor) -> None:
        """The questions that new entities ask, `counts` of them with each query."""
        candidates, first = self.context.candidates, self.first
        with torch.enable_grad():
            own = self.vectors[rows].requires_grad_()
            walked = self.scorer.queries_from(own, steps)
        queries, of = walked.detach(), torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts)
        scores = (queries[of] * self.table[targets]).sum(1)
        logits = queries @ candidates.T
        if self.is_softmax:
            totals = self.context.total(logits)
            share = self._own_share(totals[of], scores, targets)  # of the totals, that of the true answers
            others = totals[of] + torch.log1p(-share)
            slopes = torch.sigmoid(others - scores)
            wrong = torch.zeros_like(totals).index_add_(0, of, slopes / (1 - share))
            true = slopes * (1 + share / (1 - share))
            weights = torch.softmax(logits, 1).mul_(wrong[:, None])
        else:
            slopes = true = 0.5 * torch.sigmoid(-scores)
            weights = torch.sigmoid(logits).mul_(counts[:, None] * (0.5 * self.negatives / len(candidates)))
        starts = counts.cumsum(0) - counts
        slope = weights @ candidates
        slope -= F.embedding_bag(targets, self.table, starts, mode="sum", per_sample_weights=true)
        if self.regulariser.includes_queries:
            slope += counts[:, None] * self.regulariser.penalty_and_gradient(queries, 1)[1]
        gradient.index_add_(0, rows, torch.autograd.grad(walked, own, slope)[0])
        is_new = targets >= first
        if bool(is_new.any()):  # their vectors move too
            gradient.index_add_(0, targets[is_new] - first, -slopes[is_new][:, None] * queries[of[is_new]])

    def _own_share(self, totals: Tensor, scores: Tensor, targets: Tensor) -> Tensor:
        known = targets < self.first
        counted = known & self.context.is_candidate[targets.clamp(max=self.first - 1)]
        share = torch.exp(scores + self.context.log_weight - totals).clamp(max=1 - 1e-4)
        return torch.where(counted, share, 0.0)


def place_rows(
    scorer: EmbeddingScorer, recipe: Recipe, train: Triples, fresh: NDArray[np.bool_], seed: int = 0
) -> Tensor:
    """New rows for some entities of a model (mask [N]), from their training facts and the rows of the others."""
    order = np.argsort(fresh, kind="stable")  # the others first
    place_of = np.argsort(order)
    moved = np.stack([place_of[train[:, 0]], train[:, 1], place_of[train[:, 2]]], axis=1)
    num_others = int((~fresh).sum())
    is_own = (moved[:, [0, 2]] >= num_others).any(axis=1)
    others = torch.from_numpy(order[:num_others]).to(scorer.device)
    rest = EmbeddingScorer(Model(scorer.entities[others], scorer.model.relations).requires_grad_(False))
    context = make_context(rest, moved[~is_own].astype(np.int32), recipe, seed)
    facts = torch.from_numpy(moved[is_own].astype(np.int64))
    return place(rest, recipe, context, facts, len(fresh), seed)[num_others:]


def new_names(graph: Graph, facts: Iterable[Names]) -> list[str]:
    """The entities that facts name and the graph does not know, in their order."""
    return graph.entities.unknown(name for head, _, tail in facts for name in (head, tail))
