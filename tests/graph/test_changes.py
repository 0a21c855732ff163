"""Changes of a graph: everything is checked before anything changes."""

from __future__ import annotations

import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.graph.changes import change_graph, read_facts

TRAIN = [("ann", "parent", "bob"), ("bob", "child", "ann"), ("ann", "spouse", "Dan Lee")]


@pytest.fixture
def graph():
    return dh.Graph.from_names(TRAIN, test=[("Dan Lee", "parent", "bob")])


def test_known_names_keep_their_ids_and_new_ones_follow(graph):
    change = change_graph(graph, [("eve", "parent", "ann"), ("eve", "knows", "bob")], [TRAIN[1]])
    assert list(change.after.entities) == [*graph.entities, "eve"]
    assert list(change.after.relations) == [*graph.relations, "knows"]
    facts = list(change.after.names_of(change.after.train))
    assert facts == [TRAIN[0], TRAIN[2], ("eve", "parent", "ann"), ("eve", "knows", "bob")]
    assert (len(change.added), len(change.removed), change.num_new_relations) == (2, 1, 1)
    assert list(change.before.names_of(change.removed)) == [TRAIN[1]]


def test_facts_that_the_graph_holds_are_left_out_and_counted(graph):
    change = change_graph(graph, [TRAIN[0], ("Dan Lee", "parent", "bob"), ("bob", "parent", "ann")], [])
    assert (len(change.added), change.num_known) == (1, 2)


def test_a_fact_is_removed_from_every_split(graph):
    change = change_graph(graph, [], [("Dan Lee", "parent", "bob")])
    assert (len(change.after.test), len(change.removed), change.num_removed) == (0, 0, 1)


@pytest.mark.parametrize(
    ("add", "remove", "message"),
    [
        ([], [("ann", "parent", "eve")], "a fact to remove is not in the graph: \\('ann', 'parent', 'eve'\\)"),
        ([], [("ann", "parent", "ann"), ("x", "y", "z")], "2 of the 2 facts to remove are not in the graph"),
        ([("eve", "parent", "eve")], [], "entity 'eve' has no facts with other entities"),
        ([("Ann", "parent", "bob")], [], "entity 'Ann' differs from 'ann' only in case, space or encoding"),
        ([("dan  lee", "parent", "bob")], [], "'dan  lee' differs from 'Dan Lee' only in case, space or encoding"),
        ([("zoe\u0308", "parent", "bob"), ("zo\u00eb", "parent", "bob")], [], "only in case, space or encoding"),
        ([("ann", "Parent", "bob")], [], "relation 'Parent' differs from 'parent' only in case, space or encoding"),
        ([(" ", "parent", "bob")], [], "has no name"),
        ([TRAIN[0]], [], "nothing would change: the graph already has the facts to add"),
        ([], [], "nothing would change: no facts are given"),
        ([TRAIN[0]], [TRAIN[0]], "is given both to add and to remove"),
        ([], TRAIN, "no training facts would be left"),
    ],
)
def test_invalid_changes_are_one_sentence(graph, add, remove, message):
    with pytest.raises(DihedralError, match=message) as found:
        change_graph(graph, add, remove)
    assert "\n" not in str(found.value)


def test_facts_are_read_from_files_and_lists(tmp_path):
    (tmp_path / "new.tsv").write_text("ann\tparent\tbob\nbob\tchild\tann\n")
    assert sorted(read_facts(str(tmp_path / "new.tsv"))) == sorted(read_facts(TRAIN[:2])) == sorted(TRAIN[:2])
    assert read_facts(None) == [] == read_facts([])


def test_a_fact_is_the_same_by_id_and_by_label(graph):
    labelled = graph.with_labels({"bob": "Robert"})
    with pytest.raises(DihedralError, match=r"'Robert'.* is given both to add and to remove"):
        change_graph(labelled, [("ann", "parent", "Robert")], [TRAIN[0]])


def test_a_fact_by_id_and_by_label_is_changed_once(graph):
    labelled = graph.with_labels({"bob": "Robert", "ann": "Anna"})
    change = change_graph(labelled, [("bob", "parent", "ann"), ("Robert", "parent", "Anna")], [])
    assert len(change.added) == 1
    change = change_graph(labelled, [], [TRAIN[0], ("Anna", "parent", "Robert")])
    assert change.num_removed == 1
