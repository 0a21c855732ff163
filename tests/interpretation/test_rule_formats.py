"""Rule files: what AMIE and AnyBURL write is read, formats lead back, and SPARQL derives what `materialise` does."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dihedral as dh
from dihedral import DihedralError
from dihedral.interpretation.derivation import materialise
from dihedral.interpretation.horn import Atom, Constant, RuleCounter, in_graph, make_rule, path_rule
from dihedral.interpretation.rule_formats import FORMATS, read_rules, write_rules
from dihedral.io.iris import BASE, from_iri, to_iri

ox = pytest.importorskip("pyoxigraph")
FIXTURES = Path(__file__).parents[1] / "fixtures" / "rules"
FACTS = [
    ("anna", "spouse", "bob"), ("bob", "spouse", "anna"), ("carl", "spouse", "dora"), ("dora", "spouse", "carl"),
    ("eve", "spouse", "fred"), ("anna", "child", "gil"), ("bob", "child", "gil"), ("anna", "child", "hal"),
    ("carl", "child", "ida"), ("carl", "child", "jim"), ("gil", "sibling", "hal"), ("ida", "sibling", "jim"),
    ("jim", "sibling", "ida"), ("anna", "lives_in", "paris"), ("carl", "lives_in", "rome"),
    ("gil", "lives_in", "paris"),
    ("ida", "lives_in", "rome"), ("fred", "lives_in", "paris"), ("anna", "speaks", "french"),
    ("gil", "speaks", "french"), ("carl", "speaks", "italian"), ("hal", "child", "hal"),
]  # fmt: skip


@pytest.fixture(scope="module")
def graph():
    return dh.Graph.from_names(FACTS)


@pytest.fixture(scope="module")
def counted(graph):
    rules, _ = in_graph([*read_rules(FIXTURES / "amie.tsv").rules, *read_rules(FIXTURES / "anyburl.txt").rules], graph)
    rules.append(path_rule(["spouse", "child", "~sibling"], "child", graph.relations))
    return [RuleCounter(graph).count(rule) for rule in dict.fromkeys(rules)]


def test_the_output_of_amie_is_read():
    rules, left_out = read_rules(FIXTURES / "amie.tsv")
    assert list(map(str, rules)) == [
        "<spouse>(X,Y) <= <spouse>(Y,X)",
        "<child>(X,Y) <= <spouse>(X,A), <child>(A,Y)",
        "<sibling>(X,Y) <= <child>(A,X), <child>(A,Y)",
        "<lives_in>(X,<paris>) <= <child>(A,X), <lives_in>(A,<paris>)",
    ]
    assert [rule.functional for rule in rules] == ["head", "head", "tail", "head"] and left_out == []


def test_the_output_of_anyburl_is_read():
    rules, left_out = read_rules(FIXTURES / "anyburl.txt")
    assert list(map(str, rules))[3:] == [
        "lives_in(X,paris) <= child(A,X), lives_in(A,paris)",
        "speaks(X,french) <= lives_in(X,paris)",
        "speaks(X,french) <= child(X,A)",
        "lives_in(anna,Y) <= lives_in(A,Y), spouse(anna,A)",
    ]
    assert [reason.split(":")[0] for reason in left_out] == ["8", "9"]  # without a body; about an entity and itself


def test_rules_of_amie_are_counted_again(graph):
    rules, unknown = in_graph(read_rules(FIXTURES / "amie.tsv").rules, graph)
    assert unknown == []
    spouse, child, sibling, lives = (RuleCounter(graph).count(rule) for rule in rules)
    assert spouse.counts[:3] == (4, 5, 4) and spouse.head_coverage == 4 / 5
    assert child.counts[:3] == (2, 5, 3)
    assert sibling.counts[:3] == (3, 4, 3)  # PCA over the tail, as the file says
    assert lives.counts[:3] == (1, 2, 1) and lives.head_size == 3


@pytest.mark.parametrize("name", ["amie", "anyburl", "json"])
def test_a_format_leads_back_to_the_same_rules(counted, tmp_path, name):
    path = tmp_path / "rules"
    path.write_text(write_rules(counted, name), "utf-8")
    again, left_out = read_rules(path)
    assert left_out == [] and [rule.key for rule in again] == [rule.key for rule in counted]
    if name == "json":
        assert again == counted
    if name == "amie":
        assert [rule.functional for rule in again] == [rule.functional for rule in counted]


@pytest.mark.parametrize("name", ["json", "sparql"])
def test_formats_with_room_for_text_show_labels(graph, counted, name):
    labelled = graph.with_labels({"rome": "Roma\n# }", "child": "is a parent of"})
    text = write_rules(counted, name, graph=labelled)
    assert "is a parent of (child)(X, Y)" in text
    assert write_rules(counted, name, graph=graph) == write_rules(counted, name)
    if name == "sparql":  # a line break in a label does not end the comment
        assert len(text.splitlines()) == len(write_rules(counted, name).splitlines())


@pytest.mark.parametrize("name", ["amie", "anyburl", "json"])
def test_labels_do_not_change_what_is_read_back(graph, counted, tmp_path, name):
    path = tmp_path / "rules"
    path.write_text(write_rules(counted, name, graph=graph.with_labels({"child": "is a parent of"})), "utf-8")
    assert [rule.key for rule in read_rules(path).rules] == [rule.key for rule in counted]


def test_amie_and_anyburl_tables_have_their_columns(counted):
    header, first, *_ = write_rules(counted, "amie").splitlines()
    assert header == (
        "Rule\tHead Coverage\tStd Confidence\tPCA Confidence\tPositive Examples\tBody size\tPCA Body size\t"
        "Functional variable"
    )
    assert first == "?b  spouse  ?a   => ?a  spouse  ?b\t0.8\t0.8\t1\t4\t5\t4\t?a"
    assert write_rules(counted, "anyburl").splitlines()[1] == "5\t2\t0.4\tchild(X,Y) <= spouse(X,A), child(A,Y)"


NAMES = ["r(a)", "a, b", "x <= y", "ü ö", "comma,", "(", 'quo"te', "back\\slash", "#5"]


@pytest.mark.parametrize("constant", NAMES)
def test_constants_with_commas_and_brackets_lead_back(tmp_path, constant):
    rule = make_rule([Atom("X", "likes", Constant(constant))], Atom("X", "is", Constant("it")))
    rule = replace(rule, counts=(RuleCounter(dh.Graph.from_names([("a", "likes", "b")]))).count(
        make_rule([Atom("Y", "likes", "X")], Atom("X", "likes", "Y"))).counts)  # fmt: skip
    for name in ("anyburl", "json"):
        path = tmp_path / name
        path.write_text(write_rules([rule], name), "utf-8")
        assert read_rules(path).rules[0].key == rule.key


def store_of(graph):
    store = ox.Store()
    for fact in graph.names_of(graph.train):
        store.add(ox.Quad(*(ox.NamedNode(to_iri(name)) for name in fact)))
    return store


def derived_by(graph, rule):
    found = materialise([rule], graph, min_support=0)
    return set(found.graph.names_of(found.facts))


def triples(store, query):
    return {tuple(from_iri(term.value) for term in (t.subject, t.predicate, t.object)) for t in store.query(query)}


def test_construct_queries_derive_what_materialise_does(graph, counted):
    queries, store = write_rules(counted, "sparql").split("\n\n"), store_of(graph)
    assert len(queries) == len(counted)
    assert [triples(store, query) for query in queries] == [derived_by(graph, rule) for rule in counted]
    assert sum(bool(derived_by(graph, rule)) for rule in counted) >= 6


def test_mined_rules_run_as_construct_queries():
    graph = dh.make_family(60, seed=3)
    store, counter, names = store_of(graph), RuleCounter(graph), list(graph.relations)
    steps = [*names, *(f"~{name}" for name in names)]
    bodies = [[one, other] for one, other in product(steps[::2], steps[1::2])] + [["~child", "spouse", "sibling"]]
    rules = [counter.count(path_rule(body, names[i % len(names)], graph.relations)) for i, body in enumerate(bodies)]
    for rule, query in zip(rules, write_rules(rules, "sparql").split("\n\n"), strict=True):
        assert triples(store, query) == derived_by(graph, rule)


@given(st.one_of(st.text(min_size=1), st.from_regex(r"\A[a-z]{1,3}:[\w:/?#%@. \[\]]*\Z"), st.just(f"{BASE}x")))
def test_every_name_has_an_iri_that_leads_back(name):
    iri = to_iri(name)
    assert from_iri(iri) == name
    line = f"<{iri}> <{iri}> <{iri}> ."
    (quad,) = ox.parse(input=line.encode("utf-8"), format=ox.RdfFormat.N_TRIPLES)
    assert quad.subject.value == iri
    assert ox.Store().query(f"ASK {{ <{iri}> ?p ?o }}") is not None


def test_iris_are_written_as_they_are():
    assert to_iri("http://example.org/a%20b?x#y") == "http://example.org/a%20b?x#y"
    assert to_iri("Ann") == "urn:dihedral:Ann" and to_iri("..", "http://example.org/") == "http://example.org/%2E%2E"
    with pytest.raises(DihedralError, match="base is 'no base'"):
        write_rules([], "sparql", base="no base")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nothing\n", "line 1: 'nothing' is not an AnyBURL rule"),
        ("?a r ?b => ?a s ?b\n", "line 1: '.a r .b => .a s .b' is not an AMIE rule; two blanks"),
        ("r(X,Y) <= s(c,d)\n", r"line 1: 's\(c,d\)' is not an atom such as relation"),
        ('[{"head": 1}]', "is not a JSON list of rules"),
        ("", "holds no rules"),
    ],
)
def test_files_that_are_no_rules_are_refused(tmp_path, content, message):
    path = tmp_path / "rules.txt"
    path.write_text(content)
    with pytest.raises(DihedralError, match=message):
        read_rules(path)


@pytest.mark.parametrize("names", [("a\tb", "two  blanks"), ("C", "?c  "), ("a(X,b)", "x  => y")])
def test_names_that_a_format_cannot_hold_are_refused(counted, names):
    odd = make_rule([Atom("X", "likes", Constant(names[0]))], Atom("X", names[1], Constant("d")))
    odd = replace(odd, counts=counted[0].counts)
    for name in ("amie", "anyburl"):
        with pytest.raises(DihedralError, match="format cannot hold the names of"):
            write_rules([odd], name)
    for name in FORMATS.keys() - {"amie", "anyburl"}:
        assert write_rules([odd], name)


def test_unknown_formats_are_refused():
    with pytest.raises(DihedralError, match="format is 'prolog'; choose amie"):
        write_rules([], "prolog")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"support": "3"}, "support is '3'"),
        ({"support": -1}, "are not all from 0"),
        ({"head_facts": 1 << 60}, "are not all from 0"),
        ({"score": "best"}, "score is 'best'"),
        ({"examples": [[["a", "r"]]]}, "not enough values"),
        ({"examples": [[["a", "r", 3]]]}, "examples is"),
        ({"body": ["r"]}, "is not a JSON list of rules"),
        ({"interval": {"low": 0.5}}, "is not a JSON list of rules"),
        ({"head": {"subject": {"variable": "X"}, "relation": "\ud800", "object": {"variable": "Y"}}}, "UnicodeEnc"),
        ({"text": json.loads("[" * 99 + "]" * 99)}, "nested more than 100 deep"),
    ],
)  # fmt: skip
def test_a_rule_in_json_has_values_of_its_types(counted, tmp_path, change, message):
    (first, *_) = json.loads(write_rules(counted[:1], "json"))
    path = tmp_path / "rules.json"
    path.write_text(json.dumps([first]))
    assert len(read_rules(path).rules) == 1
    path.write_text(json.dumps([first | change]))
    with pytest.raises(DihedralError, match=message) as refused:
        read_rules(path)
    assert len(str(refused.value)) < 400


def test_a_file_of_rules_is_bounded_and_no_device(tmp_path, monkeypatch):
    with pytest.raises(DihedralError, match="'/dev/zero' cannot be read: it is not a regular file"):
        read_rules("/dev/zero")
    monkeypatch.setattr("dihedral.io.files.MAX_TEXT_BYTES", 1 << 20)
    (tmp_path / "rules.txt").write_bytes(b"\n" * ((1 << 20) + 1))
    with pytest.raises(DihedralError, match="it has more than 1 MiB"):
        read_rules(tmp_path / "rules.txt")
