"""Conversion from and to networkx and PyKEEN, and one table per split."""

from __future__ import annotations

import sys

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dihedral import DihedralError, Graph, load_graph

FACTS = [("ann", "parent", "bob"), ("bob", "spouse", "eve"), ("eve", "parent", "dan"), ("ann", "likes", "bob")]


def triples_of(graph):
    return sorted(graph.names_of(graph.known))


def same_splits(one, other):
    for split in ("train", "valid", "test"):
        assert sorted(one.names_of(one.split(split))) == sorted(other.names_of(other.split(split)))


# --- Arrow ----------------------------------------------------------------------------------------


WAYS = {
    "Arrow": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
    "pandas text": lambda table: table.to_pandas().astype(str),
    "polars text": lambda table: pl.from_arrow(table).cast(pl.String),
}


@pytest.mark.parametrize("convert", WAYS.values(), ids=WAYS.keys())
def test_a_graph_as_a_table_reads_back_with_its_splits(family, convert):
    table = convert(family.to_arrow())
    again = load_graph(table)
    same_splits(again, family)
    assert again.notes == ()


def test_a_table_holds_each_name_once(family):
    table = family.to_arrow()
    assert table.schema.names == ["head", "relation", "tail", "split"] and len(table) == len(family.known)
    assert len(table.column("head").chunk(0).dictionary) == family.num_entities
    assert table.slice(0, 1).to_pylist() == [
        dict(zip(("head", "relation", "tail"), next(family.names_of(family.train)), strict=True)) | {"split": "train"}
    ]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "Arrow"])
def test_tables_for_train_valid_and_test(make):
    parts = [FACTS[:2], FACTS[2:3], FACTS[3:]]
    tables = [make(dict(zip(("h", "r", "t"), map(list, zip(*part, strict=True)), strict=True))) for part in parts]
    expected = Graph.from_names(*parts)
    same_splits(load_graph(tuple(tables)), expected)
    same_splits(load_graph(dict(zip(("train", "valid", "test"), tables, strict=True))), expected)
    assert len(load_graph({"train": tables[0], "test": tables[2]}).valid) == 0


def test_an_unknown_split_name_is_refused():
    table = pa.table({"h": ["a"], "r": ["r"], "t": ["b"]})
    with pytest.raises(DihedralError, match="split 'holdout' does not exist; name the tables train, valid and test"):
        load_graph({"train": table, "holdout": table})


# --- networkx -------------------------------------------------------------------------------------


def test_the_key_of_an_edge_is_its_relation():
    edges = nx.MultiDiGraph()
    edges.add_edges_from((head, tail, relation) for head, relation, tail in FACTS)
    assert triples_of(load_graph(edges, valid=0, test=0)) == sorted(FACTS)


@pytest.mark.parametrize("kind", [nx.MultiDiGraph, nx.DiGraph])
def test_an_attribute_may_name_the_relation(kind):
    edges = kind()
    for head, relation, tail in FACTS[:3]:
        edges.add_edge(head, tail, relation=relation)
    assert triples_of(load_graph(edges, valid=0, test=0)) == sorted(FACTS[:3])


def test_a_networkx_graph_is_split_like_a_table():
    edges = nx.MultiDiGraph((i, j, "r") for i in range(10) for j in range(10))
    graph = load_graph(edges, valid=0.2, test=0.1, seed=3)
    assert (len(graph.valid), len(graph.test)) == (20, 10) and graph.notes == ("split with seed 3",)
    assert "7" in graph.entities


def test_to_networkx_and_back(family):
    edges = family.to_networkx()
    assert isinstance(edges, nx.MultiDiGraph) and list(edges) == list(family.entities)
    head, relation, tail = next(family.names_of(family.test))
    assert edges.edges[head, tail, relation] == {"split": "test"}
    same_splits(load_graph(edges), family)


def test_a_fact_in_two_splits_stays_in_the_first():
    graph = Graph.from_names([("a", "r", "b"), ("b", "r", "a")], [], [("a", "r", "b")])
    assert graph.to_networkx().edges["a", "b", "r"] == {"split": "train"}


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        pytest.param(nx.Graph([("a", "b", {"relation": "r"})]), "networkx Graph is undirected", id="undirected"),
        pytest.param(nx.DiGraph([("a", "b")]), "the edge from 'a' to 'b' has no relation", id="no relation"),
        pytest.param(nx.MultiDiGraph([("a", "b")]), "the edge from 'a' to 'b' has no relation", id="a number as key"),
        pytest.param(nx.MultiDiGraph([(1, "1", "r")]), "two nodes .* convert to the same string", id="1 and '1'"),
        pytest.param(nx.MultiDiGraph(), "has no training triples", id="empty"),
    ],
)
def test_networkx_graphs_that_are_not_knowledge_graphs_are_refused(edges, message):
    with pytest.raises(DihedralError, match=message):
        load_graph(edges)


# --- PyKEEN ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def factory_of():
    """factory_of(triples): PyKEEN's TriplesFactory of named triples."""
    triples = pytest.importorskip("pykeen.triples")
    return lambda facts, **options: triples.TriplesFactory.from_labeled_triples(np.array(facts), **options)


@pytest.mark.parametrize("inverse", [False, True])
def test_one_factory_is_split(factory_of, inverse):
    graph = load_graph(factory_of(FACTS, create_inverse_triples=inverse), valid=0.25, test=0)
    assert triples_of(graph) == sorted(FACTS) and graph.notes == ("split with seed 0",)


@pytest.mark.parametrize("pack", [tuple, list, lambda parts: dict(zip(("train", "valid", "test"), parts, strict=True))])
def test_factories_are_splits_whether_or_not_they_share_ids(factory_of, pack):
    parts = [FACTS[:2], FACTS[2:3], FACTS[3:]]
    same_splits(load_graph(pack([factory_of(part) for part in parts])), Graph.from_names(*parts))
    same_splits(load_graph(pack(list(Graph.from_names(*parts).to_pykeen().values()))), Graph.from_names(*parts))


def test_to_pykeen_shares_the_graphs_ids(family, factory_of):
    factories = family.to_pykeen()
    for split, factory in factories.items():
        assert factory.entity_to_id == {name: i for i, name in enumerate(family.entities)}
        assert factory.relation_to_id == {name: i for i, name in enumerate(family.relations)}
        rows = sorted(map(tuple, factory.mapped_triples.tolist()))
        assert rows == sorted(map(tuple, family.split(split).tolist()))
    same_splits(load_graph(factories), family)


def test_to_pykeen_of_a_graph_without_valid_and_test(factory_of):
    factories = Graph.from_names(FACTS).to_pykeen()
    assert [factory.num_triples for factory in factories.values()] == [4, 0, 0]


def test_a_factory_without_names_is_refused(factory_of):
    from pykeen.triples import CoreTriplesFactory

    with pytest.raises(DihedralError, match="a CoreTriplesFactory has no names; give a TriplesFactory"):
        load_graph(CoreTriplesFactory(factory_of(FACTS).mapped_triples, 4, 3))


@pytest.mark.parametrize(
    ("method", "module", "hint"),
    [("to_networkx", "networkx", "pip install networkx"), ("to_pykeen", "pykeen.triples", r"'dihedral\[pykeen\]'")],
)
def test_a_missing_library_is_named(family, monkeypatch, method, module, hint):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DihedralError, match=hint):
        getattr(family, method)()
