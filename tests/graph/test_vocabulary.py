"""Vocabularies: names, ids, and the search for names."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError
from dihedral.graph import Vocabulary


def test_a_vocabulary_maps_names_to_ids_and_back():
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
def test_an_unknown_name_is_refused_with_close_matches(asked, meant):
    vocabulary = Vocabulary(["parent", "spouse", "parent_in_law"], "relation")
    with pytest.raises(DihedralError, match=rf"relation '{asked}' is not among the 3 known.*did you mean.*'{meant}'"):
        vocabulary.id(asked)


def test_an_unknown_name_with_nothing_close_gets_no_suggestion():
    with pytest.raises(DihedralError, match=r"entity 'zzz' is not among the 1 known to the graph$"):
        Vocabulary(["parent"]).id("zzz")


def test_a_vocabulary_is_sent_to_another_process_unchanged():
    vocabulary = Vocabulary(["b", "a"], "relation", {"ex": "http://ex.org/"})
    assert "a" in vocabulary
    copy = ForkingPickler.loads(ForkingPickler.dumps(vocabulary))
    assert copy == vocabulary and copy.id("a") == 1
    assert (copy.kind, copy.prefixes, copy.order.tolist()) == ("relation", {"ex": "http://ex.org/"}, [1, 0])


# --- large vocabularies -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many():
    """More names than a misspelled one is compared with."""
    return Vocabulary([f"Q{(i * 7919) % 120_011}" for i in range(120_000)], prefixes={"wd": "Q1"})


def test_every_name_of_a_large_vocabulary_is_found(many):
    names = list(many)
    assert len(set(names)) == len(names) == len(many)
    assert many.ids(names).tolist() == list(range(len(many)))
    assert [many.id(names[i]) for i in range(0, len(many), 997)] == list(range(0, len(many), 997))
    assert names[5] in many and "Q" not in many and "" not in many and 5 not in many and "\ud800" not in many
    assert many[-1] == names[-1] and many[3:5] == names[3:5]
    with pytest.raises(IndexError):
        many[len(many)]


def test_a_misspelled_name_in_a_large_vocabulary_is_compared_with_its_neighbours(many):
    name = many[60_000]
    for wrong in (name.lower(), name + "x"):
        with pytest.raises(DihedralError, match=f"'{wrong}' is not among the 120000 known .*did you mean .*'{name}'"):
            many.id(wrong)
    with pytest.raises(DihedralError, match="'Qx' is not among"):
        many.ids(["Qx"])
    with pytest.raises(DihedralError, match="'Qx' is not among"):
        many.ids([*many[:1000], "Qx"])


@given(st.lists(st.text(max_size=5), unique=True, max_size=30), st.text(max_size=5))
def test_bisection_finds_exactly_the_names_of_the_vocabulary(names, other):
    vocabulary = Vocabulary(names)
    assert [vocabulary._find(name) for name in names] == list(range(len(names)))
    assert (other in vocabulary) == (other in names)
    assert list(vocabulary) == names


def test_a_slice_of_an_arrow_array_is_a_vocabulary():
    vocabulary = Vocabulary(pa.array(["x", "b", "a", "c"])[1:3])
    assert list(vocabulary) == ["b", "a"] and vocabulary.id("a") == 1 and "x" not in vocabulary


@pytest.mark.parametrize("count", [3, 3000])
def test_unknown_names_are_those_without_an_id(count):
    vocabulary = Vocabulary([f"http://x.y/{i}" for i in range(count)], prefixes={"x": "http://x.y/"})
    assert vocabulary.unknown(["x:2", "b", "http://x.y/1", "a", "b"]) == ["b", "a"]
    assert vocabulary.unknown([]) == []
