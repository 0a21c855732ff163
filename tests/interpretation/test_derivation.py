"""Facts that rules derive, with confidence and reason."""

from __future__ import annotations

import pyarrow.parquet as papq
import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.interpretation.derivation import materialise
from dihedral.interpretation.horn import path_rule
from dihedral.io.iris import from_iri

ox = pytest.importorskip("pyoxigraph")
COUPLES = [("ann", "bob"), ("carl", "dora"), ("eve", "fred smith")]
FACTS = [(one, "spouse", other) for one, other in COUPLES] + [("bob", "spouse", "ann"), ("dora", "spouse", "carl")]
FACTS += [("ann", "child", "gil"), ("bob", "child", "gil"), ("carl", "child", "hal"), ("eve", "child", "ida")]


@pytest.fixture(scope="module")
def derived():
    graph = dh.Graph.from_names(FACTS)
    rules = [
        path_rule(["spouse", "child"], "child", graph.relations),
        path_rule(["~spouse", "child"], "child", graph.relations),
        path_rule(["~spouse"], "spouse", graph.relations),
    ]
    return materialise([*rules, rules[0]], graph)


def test_facts_come_with_their_best_rule_and_a_reason(derived):
    rows = derived.to_arrow().to_pylist()
    assert [(row["head"], row["relation"], row["tail"], row["rules"]) for row in rows] == [
        ("fred smith", "spouse", "eve", 1),
        ("dora", "child", "hal", 2),
        ("fred smith", "child", "ida", 1),
    ]
    assert [row["confidence"] for row in rows] == [pytest.approx(share) for share in (4 / 5, 2 / 3, 1 / 2)]
    assert rows[1]["reason"] == "spouse(dora,carl), child(carl,hal)"
    assert rows[2]["rule"] == "child(X,Y) <= spouse(A,X), child(A,Y)"


def test_every_file_holds_the_same_facts(derived, tmp_path):
    expected = {(row["head"], row["relation"], row["tail"]) for row in derived.to_arrow().to_pylist()}
    for suffix in ("tsv", "csv", "parquet", "nt", "nq"):
        derived.write(tmp_path / f"new.{suffix}")
    for suffix in ("tsv", "csv", "parquet"):
        graph = dh.load_graph(tmp_path / f"new.{suffix}", valid=0.0, test=0.0)
        assert set(graph.names_of(graph.train)) == expected
    for suffix, format in (("nt", ox.RdfFormat.N_TRIPLES), ("nq", ox.RdfFormat.N_QUADS)):
        quads = list(ox.parse(path=tmp_path / f"new.{suffix}", format=format))
        found = [quad for quad in quads if suffix == "nt" or quad.graph_name != ox.DefaultGraph()]
        assert {tuple(from_iri(term.value) for term in quad.triple) for quad in found} == expected
        assert len(found) == (3 if suffix == "nt" else 4)  # one fact has two rules
    assert papq.read_table(tmp_path / "new.parquet").column("rules").to_pylist() == [1, 2, 1]


def test_quads_say_which_rule_with_which_confidence(derived):
    store = ox.Store()
    store.load(input=derived.to_quads().encode(), format=ox.RdfFormat.N_QUADS)
    (row,) = store.query(
        """SELECT ?label (MAX(?c) AS ?best) {
            GRAPH ?rule { <urn:dihedral:fred%20smith> <urn:dihedral:child> ?y }
            ?rule <urn:dihedral:vocabulary#confidence> ?c ;
                  <http://www.w3.org/2000/01/rdf-schema#label> ?label } GROUP BY ?label"""
    )
    assert row["label"].value == "child(X,Y) <= spouse(A,X), child(A,Y)" and float(row["best"].value) == 0.5


def test_rules_below_a_confidence_derive_nothing(derived):
    rules, graph = derived.rules, derived.graph
    assert len(materialise(rules, graph, min_confidence=0.6)) == 2
    nothing = materialise(rules, graph, min_confidence=0.9)
    assert len(nothing) == 0 and nothing.to_arrow().num_rows == 0 and nothing.to_quads() == ""
    with pytest.raises(DihedralError, match="min_confidence is 2; it must be between 0 and 1"):
        materialise(rules, graph, min_confidence=2)


def test_rules_that_derive_too_many_facts_are_refused_before_they_are_applied(derived, monkeypatch):
    monkeypatch.setattr("dihedral.interpretation.derivation.MAX_DERIVED", 3)
    monkeypatch.setattr("dihedral.interpretation.derivation._new_facts", None)
    with pytest.raises(
        DihedralError, match="the rules derive 4 facts, some of them perhaps several times, and the lim"
    ):
        materialise(derived.rules, derived.graph)


def test_a_rule_with_too_many_paths_from_one_entity_is_refused(monkeypatch):
    graph = dh.Graph.from_names([(f"a{i}", "r", f"b{j}") for i in range(6) for j in range(6)])
    rule = path_rule(["r", "~r", "r", "~r", "r"], "r", graph.relations)  # 6 * 5 * 5 * 4 * 4 paths from each entity
    assert len(materialise([rule], graph).facts) == 0  # all hold already
    monkeypatch.setattr("dihedral.graph.joins.MAX_GROUP", 6 * 6 * 5 * 5)
    with pytest.raises(DihedralError, match="paths of a rule start at one entity, and the limit is 900; use a shorter"):
        materialise([rule], graph)
