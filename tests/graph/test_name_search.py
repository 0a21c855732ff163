"""Search by words: any order, no accents, no case, parts of words, the most frequent first."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError
from dihedral.graph.labels import Labels
from dihedral.graph.name_search import NameSearch, WordIndex
from dihedral.graph.vocabulary import Vocabulary


def search_of(names: list[str], labels: list[str] | None = None, by_frequency: list[int] | None = None) -> NameSearch:
    found = None if labels is None else Labels({"label": pa.array(labels)})
    order = np.array(range(len(names)) if by_frequency is None else by_frequency, np.int32)
    return NameSearch(Vocabulary(names, labels=found), order)


def found(names: list[str], text: str, limit: int = 10, **options) -> list[str]:
    return [names[i] for i in search_of(names, **options).search(text, limit)]


def test_words_are_found_in_any_order():
    names = ["New York City", "york_new", "New Jersey"]
    assert found(names, "york new") == ["New York City", "york_new"]


def test_case_and_accents_are_folded():
    assert found(["Poincaré", "ŁÓDŹ", "STRASSE", "straße", "Ærø"], "poincare") == ["Poincaré"]
    assert found(["Poincare"], "POINCARÉ") == ["Poincare"]
    assert found(["Łódź"], "lodz") == ["Łódź"] and found(["Lodz"], "Łódź") == ["Lodz"]
    assert found(["STRASSE", "straße"], "straß") == ["STRASSE", "straße"]
    assert found(["Ærø"], "aero") == ["Ærø"]


def test_the_most_frequent_come_first_after_an_exact_match():
    names = ["a1", "a2", "a", "b"]
    assert found(names, "a", by_frequency=[1, 3, 0, 2]) == ["a", "a2", "a1"]


def test_labels_are_searched_too_and_an_exact_label_comes_first():
    names, labels = ["Q1", "Q2", "Q3"], ["Paris Hilton", "Paris", ""]
    assert found(names, "Paris", labels=labels) == ["Q2", "Q1"]
    assert found(names, "hilton q1", labels=labels) == ["Q1"]


def test_parts_of_words_are_found_after_their_beginnings():
    assert found(["Susan", "ann", "Anna", "bob"], "an") == ["ann", "Anna", "Susan"]
    assert found(["ab", "cd"], "bc") == []


def test_iris_are_found_by_their_last_part_and_by_their_beginning():
    names = ["http://example.org/ann", "http://example.org/bob", "http://other.org/ann"]
    assert found(names, "ann") == [names[0], names[2]]
    assert found(names, "http://example.org/b") == [names[1]]


def test_nothing_is_found_for_text_without_words():
    assert found(["a", "b"], "_ -") == [] and found([], "a") == []
    assert found(["a"], "\ud800") == []


@given(
    st.lists(st.text("aäbß _-1", min_size=1, max_size=6), min_size=1, max_size=8, unique=True),
    st.text("aäbß _1", min_size=1, max_size=5),
)
def test_a_search_finds_what_a_plain_scan_finds(names, text):
    def words(value: str) -> list[str]:
        value = unicodedata.normalize("NFKD", value.lower()).replace("ß", "ss")
        return [word for word in re.split(r"[\W_]+", re.sub("[\u0300-\u036f]", "", value)) if word]

    wanted = words(text)
    expected = [name for name in names if wanted and all(any(w in own for own in words(name)) for w in wanted)]
    exact = {text.strip()} & set(names)  # also without a word
    assert {*found(names, text)} == {*expected, *exact}


def test_a_bound_on_ranks_finds_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    names = [f"{'xyz'[i % 3]}{i} {'pq'[j]}" for i, j in enumerate(rng.integers(0, 2, 300).tolist())]
    queries = ["x", "p", "x p", "q y", "x1 p", "nothing p"]
    order = rng.permutation(300).tolist()
    plain = [found(names, text, 5, by_frequency=order) for text in queries]
    monkeypatch.setattr("dihedral.graph.name_search.FEW", 2)
    assert [found(names, text, 5, by_frequency=order) for text in queries] == plain


def test_an_index_is_restored_and_a_damaged_one_is_refused():
    names = Vocabulary(["a b", "b c"])
    index = WordIndex.build(names, np.array([1, 0]))
    table = pa.table(index.to_arrow())
    again = WordIndex.from_arrow(table, 2, "words.arrow")
    assert again.search("b", 5).tolist() == index.search("b", 5).tolist() == [0, 1]
    with pytest.raises(DihedralError, match="about other names"):
        WordIndex.from_arrow(table, 1, "words.arrow")
