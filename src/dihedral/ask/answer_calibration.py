"""Probabilities of answers to queries of several facts: the share of such answers that hold.

How often answers of a value (`ask.messages`) hold is measured on queries that are drawn from the facts of train and
valid, in nine shapes: an answer is true if these facts give it, and those of train are known. That share becomes a
probability as for single facts (`probability.missing_share`). Queries are drawn
backwards from an entity, along one of its steps, each with the same chance. Drawn by facts instead, most paths start at
a few entities with many answers.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dihedral.ask.messages import KnownSteps, Message, Semantics, Transitions, complement, evaluate
from dihedral.ask.query_plan import Either, Every, Given, Node, Walk, below, inputs
from dihedral.graph import Graph, GraphIndex
from dihedral.graph.steps import inverse_ids
from dihedral.probability import calibration
from dihedral.probability.additive import AdditiveModel, fit_additive
from dihedral.probability.missing_share import MissingShare
from dihedral.scoring.scorer import Scorer

SHAPES = ("1p", "2p", "3p", "2i", "3i", "ip", "pi", "2u", "up")
MAX_QUERIES, MIN_QUERIES = 120, 4  # per shape
SHOWN = 10  # answers of each query
MAX_STEPS = calibration.QUERY_GROUPS  # queries with as many steps or more are treated alike
LIMIT = 15.0  # log-odds are cut off here


def is_fitted_for(plan: Node, semantics: Semantics) -> bool:
    """Whether the fit says something about a query: it is made of queries without negation, evaluated by default."""
    default = Semantics()
    combined = (semantics.conjunction, semantics.ways) == (default.conjunction, default.ways)
    return combined and not any(isinstance(node, Every) and node.without for node in below(plan))


def num_steps(plan: Node) -> int:
    return isinstance(plan, Walk) + sum(map(num_steps, inputs(plan)))


def answer_features(message: Message, answers: Tensor) -> NDArray[np.float32]:
    """The log-odds of the values of answers [n], and how few candidates the query has: [n, QUERY_FEATURES]."""
    likely = message.likely[answers]
    odds = (likely - complement(likely)).clamp(-LIMIT, LIMIT).cpu().numpy()
    few = np.full(len(odds), -math.log(1 + message.candidates))
    return np.stack([odds, few], axis=1).astype(np.float32)


def group_of(plan: Node) -> int:
    """Queries of one group share an offset."""
    return min(num_steps(plan), MAX_STEPS) - 1


def probabilities(
    model: AdditiveModel, missing: MissingShare, plan: Node, message: Message, answers: Tensor
) -> list[float]:
    """The probabilities of answers [n]; one that known facts alone give is certain."""
    group = np.full(len(answers), group_of(plan))
    found = missing.of_unknown(model.probabilities(answer_features(message, answers), group))
    certain = (message.best[answers] == 0).cpu().numpy()
    return np.where(certain, 1.0, found).tolist()


def fit_answers(scorer: Scorer, graph: Graph, seed: int = 0) -> AdditiveModel | None:
    """The model of probabilities; None if too few of the answers are true."""
    count = max(MIN_QUERIES, min(MAX_QUERIES, len(graph.valid) // 10))
    plans = draw_queries(graph.evidence_index, count, seed)
    rows = Transitions(scorer, graph.train_index.to(scorer.device))
    facts = KnownSteps(graph.evidence_index.to(scorer.device))
    parts, groups, truths = [], [], []
    values, answers = evaluate(plans, rows, Semantics()), evaluate(plans, facts, Semantics(width=1))
    for (plan, messages), (_, known) in zip(values, answers, strict=True):
        message = messages[plan]
        unknown = message.likely.masked_fill(message.best == 0, -math.inf)
        best = unknown.topk(min(SHOWN, len(unknown))).indices
        best = best[unknown[best] > -math.inf]
        parts.append(answer_features(message, best))
        groups.append(np.full(len(best), group_of(plan)))
        truths.append((known[plan].best[best] == 0).cpu().numpy())
    features, group, truth = np.concatenate(parts), np.concatenate(groups), np.concatenate(truths)
    if truth.sum() < calibration.MIN_TRUE:
        return None
    return fit_additive(features, group, truth, MAX_STEPS, seed=seed, growth=calibration.GROWTH)[0]


# --- drawing queries -----------------------------------------------------------------------------


def draw_queries(facts: GraphIndex, count: int, seed: int = 0) -> list[Node]:
    """Queries of every shape that facts answer: each is drawn backwards from an answer."""
    rng = np.random.default_rng(seed)
    keys, starts, ends = (each.cpu().numpy() for each in (facts.keys, facts.starts, facts.ends))
    entity, steps = np.divmod(keys, 2 * facts.num_relations)
    rows = np.searchsorted(entity, np.arange(facts.num_entities + 1))  # where the rows of each entity start

    def path(answer: int, length: int) -> Node:
        """A path that leads to an answer: each of its steps has the same chance, then each entity of that step."""
        row = int(rng.integers(rows[answer], rows[answer + 1]))
        step = int(inverse_ids(int(steps[row]), facts.num_relations))
        source = int(ends[rng.integers(starts[row], starts[row + 1])])
        return Walk(step, Given((source,)) if length == 1 else path(source, length - 1), None)

    def after(answer: int, kind: type[Every] | type[Either]) -> Node:
        """Two branches, then one step to an answer."""
        step = path(answer, 1)
        assert isinstance(step, Walk) and isinstance(step.source, Given)
        middle = step.source.entities[0]
        return replace(step, source=kind((path(middle, 1), path(middle, 1))))

    makers = {
        "1p": lambda answer: path(answer, 1),
        "2p": lambda answer: path(answer, 2),
        "3p": lambda answer: path(answer, 3),
        "2i": lambda answer: Every((path(answer, 1), path(answer, 1))),
        "3i": lambda answer: Every((path(answer, 1), path(answer, 1), path(answer, 1))),
        "pi": lambda answer: Every((path(answer, 2), path(answer, 1))),
        "ip": lambda answer: after(answer, Every),
        "2u": lambda answer: Either((path(answer, 1), path(answer, 1))),
        "up": lambda answer: after(answer, Either),
    }
    answers = rng.choice(np.unique(entity), size=(len(SHAPES), count))
    return [makers[shape](answer) for shape, row in zip(SHAPES, answers, strict=True) for answer in row.tolist()]
