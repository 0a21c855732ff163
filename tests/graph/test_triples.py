"""Graphs as integer arrays with vocabularies."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError, Graph
from dihedral.graph import Vocabulary

names = st.text(st.characters(codec="utf-8"), max_size=6)
labelled = st.lists(st.tuples(names, names, names), min_size=1, max_size=40)


@given(train=labelled, valid=st.lists(st.tuples(names, names, names), max_size=10))
def test_labels_restore_the_distinct_triples_in_order(train, valid):
    graph = Graph.from_names(train, valid)
    assert list(graph.names_of(graph.train)) == list(dict.fromkeys(train))
    assert list(graph.names_of(graph.valid)) == list(dict.fromkeys(valid))
    assert graph.num_entities == len({name for h, _, t in train + valid for name in (h, t)})
    assert graph.num_relations == len({relation for _, relation, _ in train + valid})


def test_known_is_the_union_of_all_splits():
    graph = Graph.from_names([("a", "r", "b")], [("b", "r", "c")], [("c", "r", "a")])
    assert list(graph.names_of(graph.known)) == [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")]


def test_duplicates_within_a_split_are_left_out_and_counted():
    graph = Graph.from_names([("a", "r", "b")] * 3 + [("b", "r", "a")], [], [("a", "r", "a")] * 2)
    assert len(graph.train) == 2 and len(graph.test) == 1
    assert graph.notes == ("train: 2 duplicate triples left out", "test: 1 duplicate triples left out")


def test_a_triple_that_leaks_into_a_later_split_is_kept_and_noted():
    graph = Graph.from_names(
        [("a", "r", "b"), ("b", "r", "c")], [("a", "r", "b")], [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "c")]
    )
    assert len(graph.valid) == 1 and len(graph.test) == 3
    assert graph.notes == (
        "valid: 1 triples also occur in an earlier split",
        "test: 2 triples also occur in an earlier split",
    )


def test_a_graph_without_training_triples_is_refused():
    with pytest.raises(DihedralError, match="'empty' has no training triples"):
        Graph.from_names([], [("a", "r", "b")], name="empty")


@pytest.mark.parametrize("split", ["Train", "dev", ""])
def test_an_unknown_split_is_refused(split):
    with pytest.raises(DihedralError, match=f"split '{split}' does not exist; choose train, valid or test"):
        Graph.from_names([("a", "r", "b")]).split(split)


def test_repr_shows_the_sizes():
    graph = Graph.from_names([("a", "r", "b")], [("b", "r", "a")], name="tiny")
    assert repr(graph) == "Graph('tiny': 2 entities, 1 relations, 1 train / 1 valid / 0 test)"


@pytest.mark.parametrize(
    ("train", "valid"),
    [
        pytest.param([("a", "r", "c"), ("b", "r", "c")], [], id="another triple"),
        pytest.param([("a", "s", "b"), ("b", "s", "c")], [], id="another relation name"),
        pytest.param([("ab", "r", ""), ("", "r", "c")], [], id="names cut elsewhere"),
        pytest.param([("a", "r", "b")], [("b", "r", "c")], id="another split"),
        pytest.param([("b", "r", "c"), ("a", "r", "b")], [], id="another order"),
    ],
)
def test_different_graphs_have_different_fingerprints(train, valid):
    base = Graph.from_names([("a", "r", "b"), ("b", "r", "c")])
    assert Graph.from_names(train, valid).fingerprint != base.fingerprint


def test_the_fingerprint_does_not_depend_on_the_graphs_name():
    triples = [("a", "r", "b"), ("b", "r", "c")]
    assert Graph.from_names(triples, name="x").fingerprint == Graph.from_names(triples, name="y").fingerprint


# --- ids ------------------------------------------------------------------------------------------


def graph_of(train, valid=(), test=(), **options):
    """A graph with entities a, b, c and relations r, s."""
    splits = [np.array(part, np.int32).reshape(-1, 3) for part in (train, valid, test)]
    return Graph(Vocabulary("abc"), Vocabulary("rs", "relation"), *splits, **options)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": [(0, 0, 1), (3, 0, 1)]}, "graph 'x' has entity id 3 in train; valid ids are 0 <= id < 3"),
        (
            {"train": [(0, 0, 1)], "valid": [(0, 2, 1)]},
            "graph 'x' has relation id 2 in valid; .* 0 <= id < 2",
        ),
        ({"train": [(0, 0, 1)], "test": [(0, 1, -1)]}, "graph 'x' has entity id -1 in test; valid ids are 0 <= id < 3"),
    ],
)
def test_an_id_outside_the_vocabulary_is_an_error(splits, message):
    with pytest.raises(DihedralError, match=f"^{message}$"):
        graph_of(**splits, name="x")


def test_the_ids_of_a_graph_in_a_file_are_checked_at_first_use():
    graph = graph_of([(0, 0, 1)], test=[(0, 0, 7)], file="known.arrow")
    assert graph.num_triples == 2 and graph.num_entities == 3
    for use in (lambda: graph.train, lambda: graph.known, lambda: graph.fingerprint, graph.check):
        with pytest.raises(DihedralError, match=r"file 'known\.arrow' has entity id 7 in test"):
            use()


def test_replace_changes_some_attributes_and_checks_the_result():
    graph = graph_of([(0, 0, 1)], [(1, 1, 2)], name="x", notes=("note",))
    copy = graph.replace(train=graph.valid, notes=())
    assert (copy.name, copy.notes) == ("x", ()) and copy.entities is graph.entities
    assert copy.train.tolist() == copy.valid.tolist() == [[1, 1, 2]] and graph.train.tolist() == [[0, 0, 1]]
    with pytest.raises(DihedralError, match="entity id 2 in valid"):
        graph.replace(entities=Vocabulary("ab"))
    with pytest.raises(TypeError):
        graph.replace(triples=graph.train)


def test_graphs_are_compared_by_identity():
    graph = graph_of([(0, 0, 1)])
    assert graph == graph and graph != graph.replace() and len({graph, graph.replace()}) == 2


def test_a_graph_is_sent_to_another_process_unchanged():
    graph = graph_of([(0, 0, 1)], [(1, 1, 2)], name="x", notes=("note",))
    copy = ForkingPickler.loads(ForkingPickler.dumps(graph))
    assert copy.fingerprint == graph.fingerprint and (copy.name, copy.notes) == ("x", ("note",))
