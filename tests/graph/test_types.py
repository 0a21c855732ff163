"""Types of entities, from labels or from a relation such as isa."""

from __future__ import annotations

import pytest

from dihedral import DihedralError, Graph
from dihedral.graph.types import members_of, types_of

FACTS = [("rex", "isa", "dog"), ("tom", "is_a", "cat"), ("ada", "isa", "dog"), ("rex", "chases", "tom")]


@pytest.mark.parametrize("name", ["isa", "is_a", "IsA", "rdf:type", "http://a.org/x#type", "/m/instance_of", "P31"])
def test_the_tails_of_such_a_relation_are_types(name):
    graph = Graph.from_names([("rex", name, "dog"), ("rex", "chases", "tom")])
    assert [graph.entities[i] for i in members_of(graph, "dog")] == ["rex"]


def test_the_largest_types_come_first():
    graph = Graph.from_names(FACTS)
    assert {name: [graph.entities[i] for i in ids] for name, ids in types_of(graph).items()} == {
        "dog": ["rex", "ada"], "cat": ["tom"],
    }  # fmt: skip


def test_types_of_labels_take_precedence():
    graph = Graph.from_names(FACTS).with_labels({"rex": {"label": "Rex", "type": "pet"}}, language="en")
    assert {name: ids.tolist() for name, ids in types_of(graph).items()} == {"pet": [graph.entities.id("rex")]}


def test_unknown_types_are_errors():
    with pytest.raises(DihedralError, match=r"type 'dogg' is not among the 2 types; did you mean 'dog'\?"):
        members_of(Graph.from_names(FACTS), "dogg")
    with pytest.raises(DihedralError, match="the graph has no types"):
        members_of(Graph.from_names(FACTS[3:]), "dog")
