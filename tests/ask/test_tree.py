"""The query object, its JSON form, and the check that it is a tree."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError, Graph
from dihedral.ask import Fact, OneOf, Query, Variable
from dihedral.ask.query_plan import Given, Walk, compile_query
from dihedral.ask.tree import And, Not, Or

W, X, Y, Z = map(Variable, "wxyz")
GRAPH = Graph.from_names([("a", "r", "b"), ("b", "s", "c"), ("c", "t", "a")])


def plan_of(where, answer=X):
    return compile_query(Query(answer, where), GRAPH.entities, GRAPH.relations)


def test_a_path_becomes_steps_from_its_entity():
    entity, relation = GRAPH.entities.id, GRAPH.relations.id
    plan = plan_of(Fact("a", "r", Y) & Fact(X, "s", Y))
    assert plan == Walk(relation("s") + 3, Walk(relation("r"), Given((entity("a"),)), None), "y")


def test_the_order_of_facts_does_not_matter_for_a_path():
    facts = [Fact("a", "r", Z), Fact(Z, "s", Y), Fact(Y, "t", X)]
    assert plan_of(And(tuple(facts))) == plan_of(And(tuple(reversed(facts))))


def test_patterns_combine_with_operators():
    one, two, three = Fact("a", "r", X), Fact("b", "s", X), Fact("c", "t", X)
    assert one & two & three == And((one, two, three))
    assert one | two | three == Or((one, two, three))
    assert ~one == Not(one)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (Fact("a", "r", Y), r"the answer variable \?x is in no fact"),
        (Fact("a", "r", X) & Fact("b", "s", Y), r"\?y is not connected to \?x by facts"),
        (Fact("a", "r", X) & Fact("a", "r", "b"), r"a fact without variables is not connected to \?x"),
        (Fact(X, "r", Y) & Fact(Y, "s", X), r"a cycle through \?x and \?y"),
        (Fact(X, "r", Y) & Fact(Y, "s", Z) & Fact(Z, "t", X), r"a cycle through \?x and"),
        (Fact(X, "r", Y) & Fact("a", "s", Y) & ~Fact(X, "t", Y), r"a cycle through \?x and \?y"),
        (Fact("a", "r", Y) & Fact(Y, "s", X) & Fact(Y, "r", Z) & Fact(Z, "t", Y), r"a cycle through \?y and \?z"),
        (Fact(X, "r", X), r"joins \?x to itself, which is a cycle"),
        (~Fact("a", "r", X), r"\?x is described only by what does not hold"),
        (Fact("a", "r", X) | ~Fact("b", "r", X), r"\?x is described only by what does not hold"),
        (Fact(Y, "s", X) & ~Fact("a", "r", Y), r"\?y is described only by what does not hold"),
        (Fact("a", "r", X) | Fact("a", "r", Y), r"a part of a union does not mention \?x"),
        (Fact("a", "q", X), "relation 'q' is not among the 3 known"),
        (Fact("q", "r", X), "entity 'q' is not among the 3 known"),
    ],
)
def test_a_query_that_is_no_tree_is_refused_in_one_sentence(where, message):
    with pytest.raises(DihedralError, match=message):
        plan_of(where)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Variable("a b"), "variable name 'a b' is invalid"),
        (lambda: Variable(""), "variable name '' is invalid"),
        (lambda: Fact(1, "r", X), "1 is neither a Variable nor the name of an entity"),
        (lambda: Fact("a", Y, X), "relation Variable.* is not text"),
        (lambda: Fact("a", 3, X), "relation 3 is not text"),
        (lambda: OneOf("x", ("a",)), "'x' is not a Variable"),
        (lambda: OneOf(X, ()), r"\?x is one of 0 entities"),
        (lambda: OneOf(X, (1,)), "not all text"),
        (lambda: Query("x", Fact("a", "r", X)), "the answer is 'x'; it must be a Variable"),
        (lambda: Query(X, "a r x"), "the pattern is a str"),
        (lambda: Query(X, Fact("a", "r", X), limit=0), "limit is 0"),
        (lambda: Query(X, Fact("a", "r", X), limit=True), "limit is True"),
        (lambda: Query(X, And(())), "and has no parts"),
        (lambda: Query(X, And((Fact("a", "r", X),) * 33)), "more than 32 facts"),
        (lambda: Fact("a", "r", X) & "b", "'b' is not a pattern"),
        (lambda: Query(X, deep(20)), "nested more than 12 deep"),
    ],
)
def test_invalid_parts_are_named(build, message):
    with pytest.raises(DihedralError, match=message):
        build()


def deep(levels):
    pattern = Fact("a", "r", X)
    for _ in range(levels):
        pattern = Not(pattern)
    return pattern


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], 'a query is an object with "select", "where"'),
        ({"select": "x"}, 'a query is an object with "select", "where"'),
        ({"select": "x", "where": {"fact": ["a", "r", "b"]}, "order": 1}, "a query is an object with"),
        ({"select": 1, "where": {"fact": ["a", "r", "b"]}}, "variable name 1 is invalid"),
        ({"select": "x", "where": {}}, "is not a pattern"),
        ({"select": "x", "where": {"fact": ["a", "r"]}}, "is not a pattern"),
        ({"select": "x", "where": {"fact": ["a", "r", None]}}, "None is not a part of a fact"),
        ({"select": "x", "where": {"fact": ["a", {"variable": "r"}, "b"]}}, "is not text"),
        ({"select": "x", "where": {"all": []}}, "is not a pattern"),
        ({"select": "x", "where": {"and": []}}, "and has no parts"),
        ({"select": "x", "where": {"and": {}}}, "is not a pattern"),
        ({"select": "x", "where": {"one_of": ["a"]}}, "is not a pattern"),
        ({"select": "x", "where": {"one_of": {"variable": "x", "entities": "a"}}}, "is not a pattern"),
        ({"select": "x", "where": {"fact": ["a", "r", {"variable": "x"}]}, "limit": "9"}, "limit is '9'"),
    ],
)
def test_invalid_json_is_named(content, message):
    with pytest.raises(DihedralError, match=message):
        Query.from_dict(content)


def test_deep_json_is_refused():
    content = {"fact": ["a", "r", {"variable": "x"}]}
    for _ in range(500):
        content = {"not": content}
    with pytest.raises(DihedralError, match="nested more than 12 deep"):
        Query.from_dict({"select": "x", "where": content})


names = st.sampled_from(["a", "b", "c", "", "?x", "é\n"])
some_variables = st.sampled_from([W, X, Y, Z])
facts = st.builds(Fact, names | some_variables, st.sampled_from(["r", "s", "t"]), names | some_variables)
choices = st.builds(OneOf, some_variables, st.lists(names, min_size=1, max_size=3).map(tuple))
patterns = st.recursive(
    facts | choices,
    lambda inside: (
        st.builds(And, st.lists(inside, min_size=1, max_size=3).map(tuple))
        | st.builds(Or, st.lists(inside, min_size=1, max_size=3).map(tuple))
        | st.builds(Not, inside)
    ),
    max_leaves=8,
)


@given(patterns, some_variables, st.none() | st.integers(1, 100))
def test_a_query_survives_its_json_form(where, answer, limit):
    try:
        query = Query(answer, where, limit)
    except DihedralError:
        return
    assert Query.from_dict(json.loads(json.dumps(query.to_dict()))) == query


@given(patterns, some_variables)
def test_any_query_is_compiled_or_refused(where, answer):
    with suppress(DihedralError):
        compile_query(Query(answer, where), GRAPH.entities, GRAPH.relations)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(
            st.sampled_from(["select", "where", "and", "or", "not", "fact", "one_of", "variable"]), inside
        )
    ),
    max_leaves=12,
)


@given(anything)
def test_any_json_is_read_or_refused(content):
    for each in (content, {"select": "x", "where": content}):
        with suppress(DihedralError):
            assert isinstance(Query.from_dict(each), Query)


@pytest.mark.parametrize(
    ("repeated", "plain"),
    [
        (Fact("a", "r", X) & Fact("a", "r", X), Fact("a", "r", X)),
        (Or((Fact("a", "r", X), Fact("a", "r", X))), Fact("a", "r", X)),
        (Fact("a", "r", Y) & Fact(X, "s", Y) & Fact("a", "r", Y), Fact("a", "r", Y) & Fact(X, "s", Y)),
        (
            Or((Fact("a", "r", X), Or((Fact("b", "s", X), Fact("a", "r", X))))),
            Or((Fact("a", "r", X), Fact("b", "s", X))),
        ),
        (
            Or((Fact("a", "r", Y), Fact("a", "r", Y))) & Fact(X, "s", Y),
            Fact("a", "r", Y) & Fact(X, "s", Y),
        ),
    ],
)
def test_what_is_repeated_counts_once(repeated, plain):
    assert plan_of(repeated) == plan_of(plain)
