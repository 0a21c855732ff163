"""Predictor.ask: names, witnesses, and which facts are known."""

from __future__ import annotations

import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.ask import Fact, Query, Variable
from dihedral.ask.asking import AnswerFact, of_facts
from dihedral.ask.query_plan import compile_query, is_only_way
from dihedral.ask.sparql import parse_sparql
from dihedral.ask.tree import path_query
from dihedral.models import build_model

X, Y = Variable("x"), Variable("y")


def follow(predictor, start, via, **options):
    """Where a path of relations leads from an entity."""
    return predictor.ask(path_query(start, via, predictor.graph.relations), **options)


def test_the_three_forms_of_a_query_have_the_same_answers(predictor):
    query = Query(X, Fact("man_0000", "spouse", Y) & Fact(Y, "parent", X), limit=4)
    text = "SELECT ?x WHERE { <man_0000> <spouse> ?y . ?y <parent> ?x } LIMIT 4"
    found = predictor.ask(query)
    assert len(found) == 4
    assert found == predictor.ask(query.to_dict()) == predictor.ask(text)


def test_a_path_is_the_same_query(predictor):
    path = follow(predictor, "man_0000", ["spouse", "~parent"], top=5)
    asked = predictor.ask(Query(X, Fact("man_0000", "spouse", Y) & Fact(X, "parent", Y)), top=5)
    assert [(each.entity, each.value, each.probability, each.facts) for each in path] == [
        (each.entity, each.value, each.probability, each.facts) for each in asked
    ]
    assert [each.variables["step1"] for each in path] == [each.variables["y"] for each in asked]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"via": []}, "the path has no steps"),
        ({"via": "spouse"}, r"via is the string 'spouse'; give a list of relations, such as \['spouse'\]"),
        ({"via": ["spouze"]}, "relation 'spouze' is not among"),
        ({"via": ["spouse"], "top": 0}, "top is 0; ask for at least 1 answer"),
        ({"via": ["spouse"], "width": 0}, "width is 0; it must be a whole number from 1"),
    ],
)
def test_invalid_paths_are_named_in_the_error(predictor, arguments, message):
    with pytest.raises(DihedralError, match=message):
        follow(predictor, "man_0000", **arguments)


def test_answers_along_facts_are_certain_however_few_entities_are_followed():
    facts = [("hub", "has", f"m{i}") for i in range(40)] + [(f"m{i}", "in", f"e{i % 7}") for i in range(40)]
    graph = dh.Graph.from_names(facts)
    model = build_model("dihedral-ste", graph.num_entities, 2, dimension=8)
    predictor = dh.Predictor(dh.TrainedModel(model, graph))
    found = follow(predictor, "hub", ["has", "in"], top=7, width=2)
    assert {answer.entity for answer in found} == {f"e{i}" for i in range(7)}
    for answer in found:
        assert answer.value == 1 and (answer.variables["step1"], "in", answer.entity) in facts


def test_the_certain_answers_of_a_path_are_those_that_known_facts_lead_to(predictor):
    graph = predictor.graph
    facts = graph.known.tolist()
    path = ["spouse", "~child", "sibling"]
    for start in range(0, graph.num_entities, 7):
        here = {start}
        for name in path:
            relation = graph.relations.id(name.removeprefix("~"))
            source, end = (2, 0) if name.startswith("~") else (0, 2)
            here = {fact[end] for fact in facts if fact[1] == relation and fact[source] in here}
        found = follow(predictor, graph.entities[start], path, top=graph.num_entities, width=3)
        assert {graph.entities.id(answer.entity) for answer in found if answer.known} == here


def test_known_answers_rest_on_known_facts(predictor):
    known = {tuple(fact) for fact in predictor.graph.names_of(predictor.graph.known)}
    found = predictor.ask(Query(X, Fact("man_0000", "spouse", Y) & Fact(Y, "child", X)), top=40)
    for answer in found:
        assert [fact.known for fact in answer.facts] == [fact[:3] in known for fact in answer.facts]
        assert answer.known == all(fact.known for fact in answer.facts)
        assert all(fact.probability == 1 for fact in answer.facts if fact.known)
        assert len(answer.facts) == 2 and answer.facts[0].tail == answer.facts[1].head == answer.variables["y"]
        assert 0 < answer.value <= 1
    values = [answer.value for answer in found]
    assert values == sorted(values, reverse=True)
    assert any(answer.known for answer in found)
    new = predictor.ask(Query(X, Fact("man_0000", "spouse", Y) & Fact(Y, "child", X)), top=40, known="exclude")
    assert not any(answer.known for answer in new)


def test_only_training_facts_are_known_on_request(predictor):
    head, relation, tail = next(iter(predictor.graph.names_of(predictor.graph.test)))
    query = Query(X, Fact(head, relation, X))
    for facts, expected in (("all", True), ("train", False)):
        found = {answer.entity: answer.known for answer in predictor.ask(query, top=1000, facts=facts)}
        assert found[tail] == expected


def test_a_negation_lowers_what_it_names(predictor):
    head, relation, tail = next(iter(predictor.graph.names_of(predictor.graph.train)))
    with_it = Query(X, Fact(head, relation, X))
    without = Query(X, Fact(head, relation, X) & ~Fact(head, relation, X))
    assert tail in {answer.entity for answer in predictor.ask(with_it, top=1000) if answer.known}
    assert tail not in {answer.entity for answer in predictor.ask(without, top=1000)}


def test_many_queries_at_once_have_the_answers_of_single_ones(predictor):
    queries = [Query(X, Fact(name, "spouse", Y) & Fact(Y, "parent", X)) for name in list(predictor.graph.entities)[:9]]
    together = predictor.ask_many(queries)
    assert [len(each) for each in together] == [10] * 9
    assert [[a.entity for a in each] for each in together] == [
        [a.entity for a in predictor.ask(query)] for query in queries
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 0}, "top is 0"),
        ({"known": "some"}, "known is 'some'"),
        ({"facts": "valid"}, "facts is 'valid'; choose all or train"),
        ({"width": -1}, "width is -1"),
    ],
)
def test_invalid_options_are_named(predictor, options, message):
    with pytest.raises(DihedralError, match=message):
        predictor.ask(Query(X, Fact("man_0000", "spouse", X)), **options)


def test_a_model_that_is_not_calibrated_gives_values_only(family):
    model = build_model("dihedral-ste", family.num_entities, family.num_relations, dimension=8)
    found = dh.Predictor(dh.TrainedModel(model, family)).ask(Query(X, Fact("man_0000", "spouse", X)))
    assert found and all(answer.probability is None and answer.value > 0 for answer in found)
    for answer in found:
        assert [fact.probability for fact in answer.facts] == [1.0 if fact.known else None for fact in answer.facts]


def test_the_answer_to_one_fact_is_as_probable_as_the_fact(predictor):
    for answer in predictor.ask(Query(X, Fact("man_0000", "sibling", X)), top=20):
        assert answer.known or answer.probability == answer.facts[0].probability


@pytest.mark.parametrize(
    ("text", "expected"), [("<a> <r> ?x . <b> <r> ?x", 0.2), ("<a> <r>/<r> ?x", 0.5), ("VALUES ?x { <a> <b> }", 0.5)]
)
def test_an_answer_is_not_more_probable_than_what_it_needs(text, expected):
    graph = dh.Graph.from_names([("a", "r", "b"), ("b", "r", "c")])
    plan = compile_query(parse_sparql(f"SELECT ?x WHERE {{ {text} }}"), graph.entities, graph.relations)
    facts = [AnswerFact("a", "r", "x", False, likely) for likely in (0.2, 0.4)]
    assert (of_facts(0.5, facts) if is_only_way(plan) else 0.5) == expected
