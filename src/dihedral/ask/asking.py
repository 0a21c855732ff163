"""Asking: queries of several facts by name, with the probability and the witness of every answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from dihedral.ask.answer_calibration import is_fitted_for, probabilities
from dihedral.ask.messages import Messages, Semantics, Transitions, describe, evaluate, trace
from dihedral.ask.query_plan import Node, compile_query, is_only_way
from dihedral.ask.sparql import parse_sparql
from dihedral.ask.tree import Query
from dihedral.graph import Graph
from dihedral.graph.steps import Step
from dihedral.probability.additive import AdditiveModel
from dihedral.scoring.questions import Known

CertainFacts = Literal["all", "train"]
FactProbabilities = Callable[[Tensor], list[Any]]  # triples [n, 3] to their probabilities
Found = tuple[int, float, float | None, bool]  # an answer: entity, value, probability, and whether facts give it
DEFAULT_TOP = 10


class AnswerFact(NamedTuple):
    """A fact that an answer rests on; a known one has the probability 1."""

    head: str
    relation: str
    tail: str
    known: bool
    probability: float | None  # None if it is not known and the model is not calibrated


class Answer(NamedTuple):
    """An answer of a query with its witness: the best choice of the other variables, and the facts that it needs."""

    entity: str
    value: float  # orders the answers of one query
    probability: float | None  # that it holds, fitted; None if it could not be fitted
    known: bool  # known facts alone give it
    variables: dict[str, str]
    facts: tuple[AnswerFact, ...]


@dataclass(frozen=True)
class Answers:
    """The answers of one query, and how they were found."""

    answers: list[Answer]
    plan: list[str]  # a line per step, with its number of candidates
    exact: bool  # no variable had more entities than predictions were followed from


@dataclass(frozen=True)
class PlannedQuery:
    """A query with its plan, whose names are resolved."""

    query: Query
    plan: Node


AnyQuery = str | Query | Mapping[str, Any] | PlannedQuery  # text is SPARQL, a mapping is the JSON form


def read_query(query: str | Query | Mapping[str, Any], prefixes: Mapping[str, str]) -> Query:
    """A query from SPARQL, from the content of its JSON form, or as it is."""
    if isinstance(query, Query):
        return query
    return Query.from_dict(query) if isinstance(query, Mapping) else parse_sparql(query, prefixes)


def plan_query(query: AnyQuery, graph: Graph) -> PlannedQuery:
    """The plan of a query over the names of a graph."""
    if isinstance(query, PlannedQuery):
        return query
    read = read_query(query, graph.entities.prefixes)
    return PlannedQuery(read, compile_query(read, graph.entities, graph.relations))


def find_answers(
    graph: Graph,
    rows: Transitions,
    queries: Sequence[PlannedQuery],
    *,
    top: int | None,
    known: Known,
    semantics: Semantics,
    model: AdditiveModel | None,
    fact_probabilities: FactProbabilities,
) -> Iterator[Answers]:
    """The answers of queries, the best first.

    model: turns the values of answers into probabilities; without one, answers have values only.
    """

    def step_name(step: int) -> str:
        return Step.from_id(step, graph.num_relations).name(graph.relations)

    results = evaluate([each.plan for each in queries], rows, semantics)
    for planned, (plan, messages) in zip(queries, results, strict=True):
        count = top or planned.query.limit or DEFAULT_TOP
        found = _best(messages, plan, count, known, model if is_fitted_for(plan, semantics) else None)
        answers = _with_witnesses(graph, rows, plan, messages, found, fact_probabilities)
        yield Answers(answers, describe(plan, messages, step_name, graph.entities.__getitem__), messages[plan].exact)


def _best(messages: Messages, plan: Node, count: int, known: Known, model: AdditiveModel | None) -> list[Found]:
    """The best answers of a plan."""
    message = messages[plan]
    likely, certain = message.likely, message.best == 0
    if known == "exclude":
        likely = likely.masked_fill(certain, -math.inf)
    order = torch.argsort(likely, descending=True, stable=True)[:count]
    order = order[likely[order] > -math.inf]
    fitted = probabilities(model, plan, message, order) if model else [None] * len(order)
    return list(zip(order.tolist(), likely[order].exp().tolist(), fitted, certain[order].tolist(), strict=True))


def _with_witnesses(
    graph: Graph,
    rows: Transitions,
    plan: Node,
    messages: Messages,
    found: list[Found],
    fact_probabilities: FactProbabilities,
) -> list[Answer]:
    witnesses = [trace(plan, messages, entity) for entity, *_ in found]
    triples = {}  # distinct, in their order
    for witness in witnesses:
        for source, step, end in witness.facts:
            signed = Step.from_id(step, graph.num_relations)
            triples[source, step, end] = (end, signed.relation, source) if signed.backwards else (source, step, end)
    ids = torch.tensor(list(triples.values()), dtype=torch.int64, device=rows.device).view(-1, 3)
    is_known = (rows.facts.locate(*ids.unbind(1)) >= 0).tolist()
    likely = fact_probabilities(ids)
    names, kinds = graph.entities, graph.relations
    facts = {
        key: AnswerFact(names[head], kinds[relation], names[tail], fact, 1.0 if fact else p)
        for (key, (head, relation, tail)), fact, p in zip(triples.items(), is_known, likely, strict=True)
    }
    answers, only = [], is_only_way(plan)
    for (entity, value, probability, certain), witness in zip(found, witnesses, strict=True):
        variables = {name: names[i] for name, i in witness.variables.items() if not name.startswith("_")}
        rests_on = tuple(facts[key] for key in witness.facts)
        probability = of_facts(probability, rests_on) if only else probability
        answers.append(Answer(names[entity], value, probability, certain, variables, rests_on))
    return answers


def of_facts(probability: float | None, facts: Sequence[AnswerFact]) -> float | None:
    """The probability of an answer that holds only if all of these facts do; of one fact, it is the fact's own."""
    likely = [fact.probability for fact in facts if fact.probability is not None]
    if len(facts) == len(likely) == 1 and (probability is not None or not facts[0].known):
        return likely[0]
    return probability if probability is None else min([probability, *likely])
