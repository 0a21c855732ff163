"""Horn rules: counts against a join by loops, and names."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dihedral as dh
from dihedral import DihedralError
from dihedral.interpretation import horn
from dihedral.interpretation.horn import Atom, Constant, RuleCounter, in_graph, make_rule, path_rule

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
@settings(max_examples=300)
def test_counts_of_any_rule_equal_a_join_by_loops(graph, rule):
    if rule is None:
        return
    facts = set(graph.names_of(graph.train))
    assert RuleCounter(graph).count(rule).counts[:3] == expected_counts(rule, facts)


@given(graphs, rules())
@settings(max_examples=100)
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
    monkeypatch.setattr(horn, "TILE", 5)
    assert RuleCounter(graph).count(rule) == whole and whole.counts.pairs > 0


def test_variables_and_atoms_have_one_order():
    one = make_rule([Atom("q", "s", "v"), Atom("q", "r", "u")], Atom("u", "t", "v"))
    assert one == path_rule(["~r", "s"], "t", dh.Graph.from_names([("a", r, "b") for r in "rst"]).relations)
    assert str(one) == "t(X,Y) <= r(A,X), s(A,Y)" and one.steps == ["~r", "s"]
    assert make_rule([Atom("X", "r", Constant("c"))], Atom("X", "t", Constant("d"))).steps is None


@pytest.mark.parametrize(
    ("body", "head", "message"),
    [
        ([], Atom("X", "r", "Y"), "the body is empty"),
        ([Atom("X", "r", "A")], Atom("X", "r", "X"), "needs one variable, or two different ones"),
        ([Atom("X", "r", "A")], Atom("X", "r", "Y"), "is not in the body"),
        ([Atom("X", "r", "Y"), Atom("A", "s", "B")], Atom("X", "r", "Y"), "shares no variable"),
    ],
)
def test_rules_that_derive_nothing_definite_are_refused(body, head, message):
    with pytest.raises(DihedralError, match=message):
        make_rule(body, head)


def test_names_in_brackets_are_found_and_unknown_names_reported():
    graph = dh.Graph.from_names([("ann", "knows", "bob")])
    known = make_rule([Atom("Y", "<knows>", "X")], Atom("X", "<knows>", "Y"))
    unknown = make_rule([Atom("X", "knows", Constant("eve"))], Atom("X", "knows", Constant("bob")))
    found, missing = in_graph([known, unknown], graph)
    assert [str(rule) for rule in found] == ["knows(X,Y) <= knows(Y,X)"] and missing == ["eve"]
