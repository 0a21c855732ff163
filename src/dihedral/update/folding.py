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
from torch import Tensor

from dihedral.engine.adagrad import Adagrad
from dihedral.errors import DihedralError, check_triples
from dihedral.graph import Graph
from dihedral.graph.changes import change_graph
from dihedral.graph.triples import Triples
from dihedral.io.iris import expand
from dihedral.models import Model
from dihedral.objectives.recipe import Recipe
from dihedral.objectives.regularisers import make_regulariser
from dihedral.runtime import interruption
from dihedral.scoring.embedding import EmbeddingScorer, need_embeddings
from dihedral.scoring.path_scorer import PathScorer
from dihedral.store.trained import History, TrainedModel
from dihedral.update.background import QuestionSample

CANDIDATES = 256  # entities of a softmax
QUESTIONS = 2048  # of other facts
NUM_STEPS = 12  # of Adagrad
LEARNING_RATE = 0.5  # of Adagrad, relative to the size of the entries of other vectors
INIT = 0.01  # spread of the entries that a vector starts with, relative to that size
MAX_ROWS = 4096  # questions whose logits are in memory

Names = tuple[str, str, str]


def place_entities(
    trained: TrainedModel, names: str | Sequence[str], facts: Sequence[Names], context: Context | None, seed: int = 0
) -> TrainedModel:
    """The model with new entities, placed by facts that name at least one of them each; a path model only gets these.

    context: what new entities compete with; None for a path model.
    """
    graph = trained.graph
    wider = with_entities(graph, [names] if isinstance(names, str) else names, facts)
    # without metrics: it is not the model that was measured
    other = replace(trained, graph=wider, metrics={}, history=History(), latents=None, optimiser=None)
    if isinstance(trained.scorer, PathScorer):
        return replace(other, source=PathScorer(trained.scorer.model, wider.train_index))
    scorer = need_embeddings(trained.scorer, "fold-in")
    assert context is not None
    if scorer.candidates.shape[1] != scorer.model.dimension:
        kind = scorer.model.relations.kind
        raise DihedralError(f"a {kind!r} model is not bilinear; fold-in needs a bilinear model")
    own = torch.from_numpy(wider.train[len(graph.train) :].astype(np.int64))
    table = place(scorer, trained.recipe or Recipe(), context, own, wider.num_entities, seed)
    return replace(other, source=Model(table, scorer.model.relations).requires_grad_(False))


def with_entities(graph: Graph, names: Sequence[str], facts: Sequence[Names]) -> Graph:
    """The graph with new entities, and their facts among those of training."""
    check_triples(facts)
    new = dict.fromkeys(expand(name, graph.entities.prefixes) for name in names)
    if not new:
        raise DihedralError("no new entity is named; name at least one")
    graph.entities.check_new(list(new))
    graph.entities.ids([name for name in new_names(graph, facts) if name not in new])  # an error for others
    graph.relations.ids([relation for _, relation, _ in facts])
    for fact in facts:
        if not new.keys() & {expand(name, graph.entities.prefixes) for name in (fact[0], fact[2])}:
            listed = ", ".join(map(repr, list(new)[:3])) + (", …" if len(new) > 3 else "")
            raise DihedralError(f"fact {tuple(fact)!r} must name a new entity ({listed}), as head or as tail")
    after = change_graph(graph, facts, []).after if facts else graph
    for name in new:
        if name not in after.entities:
            raise DihedralError(f"entity {name!r} has no facts with other entities; give at least one to place it by")
    return after


@dataclass(frozen=True, eq=False)
class Context:
    """What new entities compete with; it depends on the model alone, so it is computed once."""

    size: float  # of the entries of vectors
    ids: Tensor  # int64 [C]: the entities that are wrong answers to the questions of facts of new ones
    candidates: Tensor  # [C, 2L]: their vectors
    questions: QuestionSample  # of other facts, to which new entities are wrong answers


def make_context(scorer: EmbeddingScorer, train: Triples, recipe: Recipe, seed: int = 0) -> Context:
    """Draw the candidates, and questions of training facts."""
    drawn = np.random.default_rng(seed).permutation(scorer.num_entities)[:CANDIDATES]
    ids = torch.from_numpy(drawn).to(scorer.device)
    size = float(scorer.entities.square().mean().sqrt()) or 1.0
    questions = QuestionSample.draw(scorer, train, recipe, size=QUESTIONS, seed=seed)
    return Context(size, ids, scorer.entities[ids], questions)


def place(
    scorer: EmbeddingScorer, recipe: Recipe, context: Context, facts: Tensor, num_entities: int, seed: int = 0
) -> Tensor:
    """The entity table with rows for the entities up to `num_entities`, which are placed by their facts [n, 3]."""
    first, width, device = scorer.num_entities, scorer.model.dimension, scorer.device
    start = torch.randn(num_entities - first, width, generator=torch.Generator().manual_seed(seed))
    vectors = start.mul_(INIT * context.size).to(device).requires_grad_()
    head, relation, tail = facts.to(device).unbind(1)
    anchors, targets = torch.cat([head, tail]), torch.cat([tail, head])
    steps = torch.cat([relation, relation + scorer.num_relations])
    used = torch.cat([torch.unique(anchors[anchors < first]), torch.arange(first, num_entities, device=device)])
    known = scorer.entities[used[used < first]]
    questions = torch.stack([torch.searchsorted(used, anchors), steps, torch.searchsorted(used, targets), targets])
    optimiser = Adagrad(vectors, LEARNING_RATE * context.size)
    for _ in range(NUM_STEPS):
        interruption.check()
        slopes = context.questions.slopes(vectors.detach())
        gradient = slopes.T @ context.questions.queries
        for part in questions.split(MAX_ROWS, dim=1):
            loss = _loss(scorer, recipe, context, torch.cat([known, vectors]), *part)
            gradient += torch.autograd.grad(loss, vectors)[0]
        optimiser.step(gradient)
    return torch.cat([scorer.entities, vectors.detach()])


def _loss(
    scorer: EmbeddingScorer, recipe: Recipe, context: Context, rows: Tensor, anchors: Tensor, steps: Tensor,
    answers: Tensor, targets: Tensor,
) -> Tensor:  # fmt: skip
    """The loss of questions whose anchors and answers are among some rows; targets: the entities that answer."""
    queries = scorer.queries_from(rows[anchors], steps)
    scores, logits = (queries * rows[answers]).sum(1), queries @ context.candidates.T  # [n], [n, C]
    if recipe.objective == "softmax":
        others = logits.masked_fill(context.ids == targets[:, None], -1e30).logsumexp(1)
        loss = F.softplus(others + math.log(scorer.num_entities / len(context.ids)) - scores).sum()
    else:  # a fact asks one of its two questions
        loss = 0.5 * (F.softplus(-scores) + recipe.negatives * F.softplus(logits).mean(1)).sum()
    regulariser = make_regulariser(recipe.regulariser, recipe.regulariser_weight)
    for vectors in (rows[anchors], queries) if regulariser.includes_queries else (rows[anchors],):
        loss = loss + regulariser.penalty_and_gradient(vectors, 1)[0]
    return loss


def new_names(graph: Graph, facts: Iterable[Names]) -> list[str]:
    """The entities that facts name and the graph does not know, in their order."""
    return graph.entities.unknown(name for head, _, tail in facts for name in (head, tail))
