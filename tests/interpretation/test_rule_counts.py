"""Counts of Horn rules against a join by loops."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

import dihedral as dh
from dihedral import DihedralError
from dihedral.graph import joins
from dihedral.interpretation.horn import Atom, Constant, RuleCounter, make_rule

ENTITIES, RELATIONS = "abcde", "rst"
fact = st.tuples(st.sampled_from(ENTITIES), st.sampled_from(RELATIONS), st.sampled_from(ENTITIES))
graphs = st.lists(fact, min_size=4, max_size=30, unique=True).map(
    lambda facts: dh.Graph.from_names([*facts, *(("a", r, "b") for r in RELATIONS), ("c", "r", "d"), ("e", "r", "d")])
)
terms = st.one_of(st.sampled_from(["X", "Y", "A", "B"]), st.sampled_from(ENTITIES).map(Constant))
atoms = st.builds(Atom, terms, st.sampled_from(RELATIONS), terms)


@st.composite
def rules(draw):
    body, head = draw(st.lists(atoms, min_size=1, max_size=3)), draw(atoms)
    try:
        return make_rule(body, head)
    except DihedralError:
        return None


def bindings(rule, facts):
    """Every way to put different entities in place of the variables so that the body holds."""
    for chosen in product(ENTITIES, repeat=len(rule.variables)):
        of = dict(zip(rule.variables, chosen, strict=True))
        if len({*chosen, *rule.constants}) < len(chosen) + len(rule.constants):
            continue
        if all(ground(atom, of) in facts for atom in rule.body):
            yield of


def ground(atom, of):
    subject, object_ = (of[term] if isinstance(term, str) else term.name for term in (atom.subject, atom.object))
    return subject, atom.relation, object_


def expected_counts(rule, facts):
    heads = {ground(rule.head, of) for of in bindings(rule, facts)}
    two = {each for each in facts if each[0] != each[2]}
    has_any = {each[0] for each in two if each[1] == rule.head.relation}
    return len(heads & facts), len(heads), sum(each[0] in has_any for each in heads)


@given(graphs, rules())
def test_counts_of_any_rule_equal_a_join_by_loops(graph, rule):
    if rule is None:
        return
    facts = set(graph.names_of(graph.train))
    assert RuleCounter(graph).count(rule).counts[:3] == expected_counts(rule, facts)


@given(graphs, rules())
def test_a_ground_way_makes_the_body_hold(graph, rule):
    if rule is None:
        return
    facts, names, seen = set(graph.names_of(graph.train)), graph.entities, set()
    for heads, tails, ways in RuleCounter(graph).ground(rule):
        for head, tail, way in zip(heads, tails, ways, strict=True):
            of = {name: names[i] for name, i in zip(rule.variables, way, strict=True)}
            assert all(ground(atom, of) in facts for atom in rule.body)
            assert ground(rule.head, of) == (names[head], rule.head.relation, names[tail])
            seen.add((head, tail))
    assert len(seen) == expected_counts(rule, facts)[1]


def test_counts_do_not_depend_on_the_size_of_tiles(monkeypatch):
    graph = dh.make_family(40, seed=1)
    rule = make_rule(
        [Atom("X", "parent", "A"), Atom("B", "parent", "A"), Atom("B", "spouse", "C"), Atom("C", "sibling", "Y")],
        Atom("X", "sibling", "Y"),
    )
    whole = RuleCounter(graph).count(rule)
    monkeypatch.setattr(joins, "TILE", 5)
    assert RuleCounter(graph).count(rule) == whole and whole.counts.pairs > 0
