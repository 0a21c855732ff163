"""Graphs as integer arrays with vocabularies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError, Graph
from dihedral.graph import Vocabulary
from dihedral.graph.triples import drop_duplicates, triple_keys

names = st.text(st.characters(codec="utf-8"), max_size=6)
labelled = st.lists(st.tuples(names, names, names), min_size=1, max_size=40)


@given(train=labelled, valid=st.lists(st.tuples(names, names, names), max_size=10))
def test_labels_give_back_the_distinct_triples_in_their_order(train, valid):
    graph = Graph.from_labels(train, valid)
    assert list(graph.labels(graph.train)) == list(dict.fromkeys(train))
    assert list(graph.labels(graph.valid)) == list(dict.fromkeys(valid))
    assert graph.num_entities == len({name for h, _, t in train + valid for name in (h, t)})
    assert graph.num_relations == len({relation for _, relation, _ in train + valid})


def test_known_is_the_union_of_all_splits():
    graph = Graph.from_labels([("a", "r", "b")], [("b", "r", "c")], [("c", "r", "a")])
    assert list(graph.labels(graph.known)) == [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")]


def test_duplicates_within_a_split_are_left_out_and_counted():
    graph = Graph.from_labels([("a", "r", "b")] * 3 + [("b", "r", "a")], [], [("a", "r", "a")] * 2)
    assert len(graph.train) == 2 and len(graph.test) == 1
    assert graph.notes == ("train: 2 duplicate triples left out", "test: 1 duplicate triples left out")


def test_a_triple_that_leaks_into_a_later_split_is_kept_and_noted():
    graph = Graph.from_labels(
        [("a", "r", "b"), ("b", "r", "c")], [("a", "r", "b")], [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "c")]
    )
    assert len(graph.valid) == 1 and len(graph.test) == 3
    assert graph.notes == (
        "valid: 1 triples also stand in an earlier split",
        "test: 2 triples also stand in an earlier split",
    )


def test_a_graph_without_training_triples_is_refused():
    with pytest.raises(DihedralError, match="'empty' has no training triples"):
        Graph.from_labels([], [("a", "r", "b")], name="empty")


@pytest.mark.parametrize("split", ["Train", "dev", ""])
def test_an_unknown_split_is_refused(split):
    with pytest.raises(DihedralError, match=f"split '{split}' does not exist; choose train, valid or test"):
        Graph.from_labels([("a", "r", "b")]).split(split)


def test_repr_says_the_sizes():
    graph = Graph.from_labels([("a", "r", "b")], [("b", "r", "a")], name="tiny")
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
def test_the_fingerprint_tells_graphs_apart(train, valid):
    base = Graph.from_labels([("a", "r", "b"), ("b", "r", "c")])
    assert Graph.from_labels(train, valid).fingerprint != base.fingerprint


def test_the_fingerprint_does_not_depend_on_the_graphs_name():
    triples = [("a", "r", "b"), ("b", "r", "c")]
    assert Graph.from_labels(triples, name="x").fingerprint == Graph.from_labels(triples, name="y").fingerprint


# --- vocabularies ---------------------------------------------------------------------------------


def test_a_vocabulary_numbers_names_both_ways():
    vocabulary = Vocabulary(["b", "a", "c"])
    assert [vocabulary.id(name) for name in vocabulary] == [0, 1, 2]
    assert vocabulary[1] == "a" and vocabulary[-1] == "c" and vocabulary[1:] == ["a", "c"]
    assert vocabulary.ids(["c", "b"]).tolist() == [2, 0]
    assert "a" in vocabulary and "x" not in vocabulary and 1 not in vocabulary
    assert len(vocabulary) == 3


def test_vocabularies_with_the_same_names_are_equal():
    assert Vocabulary(["a", "b"]) == Vocabulary(pa.array(["a", "b"]))
    assert Vocabulary(["a", "b"]) != Vocabulary(["b", "a"])
    assert Vocabulary(["a", "b"]) != ["a", "b"]


@pytest.mark.parametrize(("asked", "meant"), [("prent", "parent"), ("PARENT", "parent"), ("in_law", "parent_in_law")])
def test_an_unknown_name_is_answered_with_close_ones(asked, meant):
    vocabulary = Vocabulary(["parent", "spouse", "parent_in_law"], "relation")
    with pytest.raises(DihedralError, match=rf"relation '{asked}' is not among the 3 known.*did you mean.*'{meant}'"):
        vocabulary.id(asked)


def test_an_unknown_name_with_nothing_close_gets_no_suggestion():
    with pytest.raises(DihedralError, match=r"entity 'zzz' is not among the 1 known to the graph$"):
        Vocabulary(["parent"]).id("zzz")


# --- keys -----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 6)), max_size=60))
def test_keys_are_one_to_one_and_ordered_like_triples(triples):
    array = np.array(triples, dtype=np.int32).reshape(-1, 3)
    keys = triple_keys(array, 7, 4).tolist()
    assert [triples[i] for i in np.argsort(keys, kind="stable")] == sorted(triples)
    assert len(set(keys)) == len(set(triples))
    assert drop_duplicates(array, 7, 4).tolist() == [list(triple) for triple in dict.fromkeys(triples)]


def test_keys_do_not_overflow_at_the_size_of_wikidata():
    last = np.array([[4_999_999, 999, 4_999_999]], dtype=np.int32)
    assert triple_keys(last, 5_000_000, 1_000)[0] == 5_000_000 * 1_000 * 5_000_000 - 1


def test_more_possible_triples_than_64_bits_hold_is_refused():
    with pytest.raises(DihedralError, match="more than 2\\^63 possible triples"):
        triple_keys(np.zeros((1, 3), np.int32), 2**31, 2**31)


# --- vocabularies of many names -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def many():
    """More names than a misspelt one is compared with."""
    return Vocabulary([f"Q{(i * 7919) % 120_011}" for i in range(120_000)], prefixes={"wd": "Q1"})


def test_each_of_many_names_is_found(many):
    names = list(many)
    assert len(set(names)) == len(names) == len(many)
    assert many.ids(names).tolist() == list(range(len(many)))
    assert [many.id(names[i]) for i in range(0, len(many), 997)] == list(range(0, len(many), 997))
    assert names[5] in many and "Q" not in many and "" not in many and 5 not in many and "\ud800" not in many
    assert many[-1] == names[-1] and many[3:5] == names[3:5]
    with pytest.raises(IndexError):
        many[len(many)]


def test_a_misspelt_name_among_many_is_compared_with_its_neighbours(many):
    name = many[60_000]
    for wrong in (name.lower(), name + "x"):
        with pytest.raises(DihedralError, match=f"'{wrong}' is not among the 120000 known .*did you mean .*'{name}'"):
            many.id(wrong)
    with pytest.raises(DihedralError, match="'Qx' is not among"):
        many.ids(["Qx"])
    with pytest.raises(DihedralError, match="'Qx' is not among"):
        many.ids([*many[:1000], "Qx"])


@given(st.lists(st.text(max_size=5), unique=True, max_size=30), st.text(max_size=5))
def test_a_name_is_found_by_bisection_if_it_is_there(names, other):
    vocabulary = Vocabulary(names)
    assert [vocabulary._find(name) for name in names] == list(range(len(names)))
    assert (other in vocabulary) == (other in names)
    assert list(vocabulary) == names and vocabulary.without(Vocabulary(names[:3])) == names[3:]


def test_a_slice_of_an_arrow_array_is_a_vocabulary():
    vocabulary = Vocabulary(pa.array(["x", "b", "a", "c"])[1:3])
    assert list(vocabulary) == ["b", "a"] and vocabulary.id("a") == 1 and "x" not in vocabulary
