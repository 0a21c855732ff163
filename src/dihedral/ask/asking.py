"""Asking: queries of several facts by name, with the probability and the witness of every answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from dihedral.ask.answer_calibration import is_fitted_for, probabilities
from dihedral.ask.messages import Message, Semantics, Transitions, Witness, describe, evaluate, trace
from dihedral.ask.query_plan import Node, compile_query, is_only_way
from dihedral.ask.sparql import parse_sparql
from dihedral.ask.tree import Query
from dihedral.graph import Graph
from dihedral.graph.steps import Step
from dihedral.probability.calibration import Calibration
from dihedral.scoring.questions import Known

CertainFacts = Literal["all", "train"]
FactProbabilities = Callable[[Tensor], list[Any]]  # triples [n, 3] to their probabilities
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
    """The answers of one query, and how they were found; it iterates over the answers."""

    answers: list[Answer]
    plan: list[str]  # a line per step, with its number of candidates
    exact: bool  # no variable had more entities than predictions were followed from

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)


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
    calibration: Calibration | None,
    fact_probabilities: FactProbabilities,
) -> Iterator[Answers]:
    """The answers of queries, the best first.

    calibration: turns the values of answers into probabilities; without one, answers have values only.
    """

    def step_name(step: int) -> str:
        return Step.from_id(step, graph.num_relations).name(graph.relations)

    names = graph.entities
    results = evaluate([each.plan for each in queries], rows, semantics)
    for planned, (plan, messages) in zip(queries, results, strict=True):
        message, only = messages[plan], is_only_way(plan)
        best = _best(message, top or planned.query.limit or DEFAULT_TOP, known)
        likely: list[float | None] = [None] * len(best)
        if calibration is not None and calibration.queries is not None and is_fitted_for(plan, semantics):
            likely = [*probabilities(calibration.queries, calibration.missing, plan, message, best)]
        columns = best.tolist(), message.likely[best].exp().tolist(), (message.best[best] == 0).tolist(), likely
        witnesses = [trace(plan, messages, entity) for entity in best.tolist()]
        facts = _facts(graph, rows, witnesses, fact_probabilities)
        answers = []
        for witness, entity, value, certain, probability in zip(witnesses, *columns, strict=True):
            variables = {name: names[i] for name, i in witness.variables.items() if not name.startswith("_")}
            rests_on = tuple(facts[key] for key in witness.facts)
            shown = of_facts(probability, rests_on) if only else probability
            answers.append(Answer(names[entity], value, shown, certain, variables, rests_on))
        yield Answers(answers, describe(plan, messages, step_name, names.__getitem__), message.exact)


def _best(message: Message, count: int, known: Known) -> Tensor:
    likely = message.likely if known == "include" else message.likely.masked_fill(message.best == 0, -math.inf)
    order = torch.argsort(likely, descending=True, stable=True)[:count]
    return order[likely[order] > -math.inf]


def _facts(
    graph: Graph, rows: Transitions, witnesses: Sequence[Witness], fact_probabilities: FactProbabilities
) -> dict[tuple[int, int, int], AnswerFact]:
    """The facts that witnesses need, by entity, step and entity."""
    triples = {}  # distinct, in their order
    for source, step, end in (fact for witness in witnesses for fact in witness.facts):
        relation, backwards = Step.from_id(step, graph.num_relations)
        triples[source, step, end] = (end, relation, source) if backwards else (source, relation, end)
    ids = torch.tensor(list(triples.values()), dtype=torch.int64, device=rows.device).view(-1, 3)
    is_known = (rows.facts.locate(*ids.unbind(1)) >= 0).tolist()
    columns = zip(triples, graph.names_of(ids.cpu().numpy()), is_known, fact_probabilities(ids), strict=True)
    return {key: AnswerFact(*named, fact, 1.0 if fact else p) for key, named, fact, p in columns}


def of_facts(probability: float | None, facts: Sequence[AnswerFact]) -> float | None:
    """The probability of an answer that holds only if all of these facts do; of one fact, it is the fact's own."""
    likely = [fact.probability for fact in facts if fact.probability is not None]
    if len(facts) == len(likely) == 1 and (probability is not None or not facts[0].known):
        return likely[0]
    return probability if probability is None else min([probability, *likely])
