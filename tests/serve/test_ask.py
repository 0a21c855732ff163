"""POST /v1/ask: answers match the library, limits are stated, and no query makes the server fail or run too long."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dihedral.ask import Fact, OneOf, Query, Variable
from dihedral.ask.tree import And, Not, Or
from dihedral.serve.schemas import MAX_ATOMS, MAX_TOP, MAX_WIDTH
from dihedral.serve.server import listen
from soak.server import Running

X, Y = Variable("x"), Variable("y")
SPARQL = "SELECT ?x WHERE { <man_0000> <spouse> ?y . ?y <parent> ?x }"
FUZZ = settings(derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def predictor(models):
    return models["family"].predictor


def spouse(tail: Variable = X, head: str = "man_0000") -> Fact:
    return Fact(head, "spouse", tail)


# --- answers --------------------------------------------------------------------------------------


def test_sparql_and_json_have_the_answers_of_the_library(client, predictor):
    query = Query(X, spouse(Y) & Fact(Y, "parent", X))
    by_text = client.post("/v1/ask", json={"query": SPARQL, "top": 4})
    by_json = client.post("/v1/ask?model=family", json={"query": query.to_dict(), "top": 4})
    assert by_text.status_code == 200 and by_text.json() == by_json.json()
    found = by_text.json()
    (expected,) = predictor.ask_many([query], top=4)
    assert found["query"] == query.to_dict() and found["plan"] == expected.plan and found["exact"] == expected.exact
    assert len(found["answers"]) == 4
    for each, answer in zip(found["answers"], expected.answers, strict=True):
        assert each == json.loads(json.dumps(answer._asdict() | {"facts": [fact._asdict() for fact in answer.facts]}))


def test_options_change_the_answers_as_in_the_library(client, predictor):
    query = Query(X, spouse(Y) & Fact(Y, "parent", X), limit=3)
    for options in ({"known": "exclude"}, {"facts": "train"}, {"ways": "max"}, {"conjunction": "minimum", "width": 2}):
        found = client.post("/v1/ask", json={"query": query.to_dict(), **options}).json()["answers"]
        expected = predictor.ask(query, **options)
        assert len(found) == 3
        assert [(each["entity"], each["value"]) for each in found] == [(each.entity, each.value) for each in expected]


def test_a_value_that_is_not_fitted_has_no_probability(client):
    query = Query(X, spouse(Y) & Fact(Y, "parent", X)).to_dict()
    found = client.post("/v1/ask", json={"query": query, "ways": "max"}).json()["answers"]
    assert found and all(each["probability"] is None and each["value"] > 0 for each in found)


# --- refusals -------------------------------------------------------------------------------------


def many(count: int) -> dict:
    return Query(X, And(tuple(spouse() for _ in range(count)))).to_dict()


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"query": many(MAX_ATOMS + 1)}, 422, f"the query has {MAX_ATOMS + 1} facts; the server takes at most 16"),
        (
            {"query": many(1), "width": MAX_WIDTH + 1},
            422,
            f"width is {MAX_WIDTH + 1}; it must be less than or equal to {MAX_WIDTH}",
        ),
        (
            {"query": many(1), "top": MAX_TOP + 1},
            422,
            f"top is {MAX_TOP + 1}; it must be less than or equal to {MAX_TOP}",
        ),
        ({"query": many(1) | {"limit": 2000}}, 422, "the limit of the query is 2000; the server gives at most 1000"),
        ({"query": "SELECT ?x { " + "#" * 10_000}, 422, "the query has 10012 characters; at most 10000 are allowed"),
        ({"query": 5}, 422, "query is 5; it must be SPARQL as text, or an object with select and where"),
        ({"query": None}, 422, "query is null; it must be SPARQL as text, or an object with select and where"),
        ({}, 422, "query is missing"),
        ({"query": {}}, 422, 'a query is an object with "select", "where" and, if wanted, "limit"'),
        ({"query": "ASK { ?x <spouse> <man_0000> }"}, 422, "ASK at line 1, column 1 is not supported in a query"),
        ({"query": "SELECT ?x { <man_0000> <spouze> ?x }"}, 404, "relation 'spouze' is not known"),
        ({"query": Query(X, OneOf(X, ("nobody",))).to_dict()}, 404, "entity 'nobody' is not known"),
        ({"query": Query(X, Fact(Y, "spouse", X) & Fact(X, "parent", Y)).to_dict()}, 422, "the query has a cycle"),
        ({"query": many(1), "depth": 3}, 422, "field 'depth' is not known"),
        ({"query": many(1), "model": "umls"}, 404, "model 'umls' is not known"),
    ],
)
def test_a_refusal_is_one_sentence(client, body, status, message):
    found = client.post("/v1/ask", json=body)
    assert found.status_code == status and found.json()["detail"].startswith(message)
    assert "\n" not in found.json()["detail"] and len(found.json()["detail"]) < 300


def test_an_unknown_name_gets_suggestions(client):
    found = client.post("/v1/ask", json={"query": Query(X, Fact("man_0000", "spose", X)).to_dict()})
    assert found.status_code == 404 and "spouse" in found.json()["suggestions"]


def test_a_query_that_needs_too_much_memory_is_refused(client, monkeypatch):
    monkeypatch.setattr("dihedral.serve.served_model.MAX_VALUES", 200)
    found = client.post("/v1/ask", json={"query": Query(X, spouse(Y) & Fact(Y, "parent", X)).to_dict()})
    assert (
        found.status_code == 422 and "3 steps over 80 entities, and the limit is 200 values" in found.json()["detail"]
    )


# --- fuzzing --------------------------------------------------------------------------------------


def check(client, content: bytes | str) -> None:
    """The answer is a status that the API has, with one sentence if it is an error."""
    found = client.post("/v1/ask", content=content, headers={"Content-Type": "application/json"})
    assert found.status_code in (200, 400, 404, 422), found.text[:300]
    assert found.status_code == 200 or found.json()["detail"]


NAMES = st.sampled_from(["man_0000", "woman_0020", "nobody", "", "~spouse", "\ud800", "a" * 3000])
VARIABLES = st.sampled_from([X, Y, Variable("z")])
FACTS = st.builds(
    Fact, st.one_of(NAMES, VARIABLES), st.sampled_from(["spouse", "parent", "child", "no"]), st.one_of(NAMES, VARIABLES)
)
LEAVES = st.one_of(FACTS, st.builds(OneOf, VARIABLES, st.tuples(NAMES)))
TREES = st.recursive(
    LEAVES,
    lambda inside: st.one_of(
        st.builds(Not, inside),
        *(st.builds(kind, st.lists(inside, min_size=1, max_size=4).map(tuple)) for kind in (And, Or)),
    ),
    max_leaves=30,
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inside: st.one_of(
        st.lists(inside, max_size=4),
        st.dictionaries(
            st.sampled_from(["select", "where", "fact", "one_of", "and", "or", "not", "limit", "variable", "entities"]),
            inside,
            max_size=3,
        ),
    ),
    max_leaves=20,
)
WORDS = [
    "SELECT", "?x", "?y", "{", "}", "(", ")", "[", "]", ".", ";", ",", "/", "|", "^", "<man_0000>", "<spouse>",
    "<parent>", "UNION", "MINUS", "FILTER", "NOT", "EXISTS", "VALUES", "OPTIONAL", "LIMIT", "3", '"spouse"', "+",
    "!", "*", "ex:a", "BIND", "AS", "GRAPH", "UNDEF", "#", "\\", "@en", "^^", "COUNT(", "GROUP", "BY", "_:b", "true",
]  # fmt: skip


def known(tree):
    """The tree with names that exist."""
    if isinstance(tree, Fact):
        terms = [term if isinstance(term, Variable) else "man_0000" for term in (tree.subject, tree.object)]
        return Fact(terms[0], tree.relation if tree.relation != "no" else "spouse", terms[1])
    if isinstance(tree, OneOf):
        return OneOf(tree.variable, ("man_0000", "woman_0020"))
    return Not(known(tree.part)) if isinstance(tree, Not) else type(tree)(tuple(map(known, tree.parts)))


@FUZZ
@given(TREES, st.sampled_from([1, 3, MAX_WIDTH]))
def test_random_trees_are_answered_or_refused(client, tree, width):
    for each in (tree, known(tree)):
        check(
            client, json.dumps({"query": {"select": "x", "where": Query(X, each).to_dict()["where"]}, "width": width})
        )


@FUZZ
@given(JSON)
def test_random_json_is_refused(client, content):
    check(client, json.dumps({"query": content}))
    check(client, json.dumps({"query": {"select": "x", "where": content}}))
    check(client, json.dumps(content))


@FUZZ
@given(st.lists(st.sampled_from(WORDS), max_size=60), st.text(max_size=20), st.booleans())
def test_random_sparql_is_answered_or_refused(client, words, noise, whole):
    text = " ".join(words)
    check(client, json.dumps({"query": f"SELECT ?x {{ ?x <spouse> <man_0000> . {text} }}" if whole else text + noise}))


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b'{"query": ', b"[" * 100_000, b'{"query": "\xff"}', b'{"query": NaN}', b"null", b'"SELECT"',
        b'{"query": {"select": "x", "where": {"fact": ' + b"[" * 900 + b"]" * 900 + b"}}}",
        b'{"query": {"select": "x", "where": ' + b'{"not": ' * 900 + b"1" + b"}" * 900 + b"}}",
        b'{"query": {"select": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b', "where": 1}}',
        b'{"query": {"select": "x", "where": {"one_of": {"variable": "x", "entities": ["a"'
        + b',"a"' * 99_999 + b"]}}}}",
        json.dumps({"query": "SELECT ?x { ?x <b> <a> " + ",<a>" * 2400 + " }"}).encode(),
        json.dumps({"query": "SELECT ?x { ?x <b> <a> " + "MINUS { ?x <b> <a> } " * 450 + " }"}).encode(),
        json.dumps({"query": "SELECT ?x { ?x <b> <a> FILTER(" + "1+" * 4000 + "1) }"}).encode(),
        json.dumps({"query": "SELECT ?x { " + "<a> <b> ?x . " * 700 + "}"}).encode(),
    ],
)  # fmt: skip
def test_hostile_bodies_are_refused_soon(client, content):
    check(client, content)


# every row of probabilities takes a second
SLOW = """
import time
from dihedral.ask.messages import Transitions
quick = Transitions.log_probabilities
def slow(self, *arguments):
    print("row", flush=True)
    time.sleep(1)
    return quick(self, *arguments)
Transitions.log_probabilities = slow
from dihedral.ask import messages
messages.TILE = 1
"""


@pytest.mark.thorough
def test_a_query_stops_at_the_time_limit_of_the_server(family_folder: Path):
    query = Query(X, spouse() & Fact(X, "parent", Y))  # from the free variable, predictions of 8 rows are followed
    with listen("127.0.0.1", 0) as listener, Running(family_folder, listener, SLOW, "--max-seconds", "2") as running:
        running.wait_until_ready()
        connection = http.client.HTTPConnection(*listener.getsockname(), timeout=300)
        content = json.dumps({"query": query.to_dict()})
        connection.request("POST", "/v1/ask", content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        found = json.loads(answer.read())
        assert answer.status == 503 and found["detail"].startswith("the request took longer than 2 seconds")
        connection.close()
        assert running.stop()[0] == 0
        assert running.output.count("row") <= 3
