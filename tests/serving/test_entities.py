"""Names found as one types, and the facts of one entity."""

from __future__ import annotations

import time

import dihedral as dh
from dihedral.graph.vocabulary import Vocabulary
from dihedral.serving.entities import FactIndex, NameIndex, StoredNameIndex, index_names


def found(names: list[str], text: str, limit: int = 10) -> list[str]:
    return [names[i] for i in NameIndex(Vocabulary(names)).search(text, limit)]


def test_names_that_begin_with_the_text_come_before_those_that_hold_it():
    assert found(["Susan", "ann", "Anna", "bob"], "an") == ["ann", "Anna", "Susan"]


def test_a_name_is_found_once_however_often_it_holds_the_text():
    assert found(["banana", "xanan"], "an") == ["banana", "xanan"]
    assert found(["anan", "b"], "an") == ["anan"]


def test_no_match_runs_over_the_border_of_two_names():
    assert found(["ab", "cd"], "bc") == []
    assert found(["a\nb", "c"], "a b") == ["a\nb"]


def test_names_that_differ_in_case_only_are_both_found():
    assert sorted(found(["Ann", "ANN"], "ann")) == ["ANN", "Ann"]
    assert found(["STRASSE", "straße"], "straß", 1) == ["STRASSE"]


def test_the_limit_holds_for_beginnings_and_parts_together():
    names = [f"a{i}" for i in range(5)] + [f"ba{i}" for i in range(5)]
    assert found(names, "a", 7) == ["a0", "a1", "a2", "a3", "a4", "ba0", "ba1"]


def test_a_hundred_thousand_names_are_searched_in_milliseconds():
    index = NameIndex(Vocabulary([f"entity number {i} of the graph" for i in range(100_000)]))
    for text in ("entity", "99999", "graph", "not there"):
        started = time.perf_counter()
        index.search(text, 12)
        assert time.perf_counter() - started < 0.05, text


def test_neighbours_begin_most_alike():
    names = [f"{letter}{i}" for letter in "cab" for i in range(5)]
    index = NameIndex(Vocabulary(names))
    assert [names[i] for i in index.around("b2x", 4)] == ["b1", "b2", "b3", "b4"]
    assert len(index.around("zzz", 4)) <= 4 and len(index.around("", 100)) == 15


def test_the_facts_of_an_entity_are_those_of_the_graph_in_both_directions():
    graph = dh.make_family(40)
    facts = FactIndex(graph)
    for entity in (0, 7, 39):
        rebuilt = {
            (entity, fact.relation, fact.entity) if fact.direction == "out" else (fact.entity, fact.relation, entity)
            for fact in facts.of(entity, 10**6)
        }
        known = {tuple(row) for row in graph.known.tolist() if entity in (row[0], row[2])}
        assert rebuilt == known and facts.counts[entity] >= len(known)
        splits = {fact.split for fact in facts.of(entity, 10**6)}
        assert splits <= {"train", "valid", "test"}


# --- millions of names -------------------------------------------------------------------------------


def test_names_that_are_not_held_are_found_by_how_they_begin():
    names = ["Susan", "ann", "Anna", "bob", "ANTON", "Änne"]
    index = StoredNameIndex(Vocabulary(names))
    assert [names[i] for i in index.search("an", 10)] == ["ann", "Anna", "ANTON"]
    assert [names[i] for i in index.search("an", 2)] == ["ann", "Anna"]
    assert [names[i] for i in index.search("än", 10)] == ["Änne"]
    assert index.search("x", 10) == []
    assert "bob" in [names[i] for i in index.around("boa", 3)]


def test_a_large_vocabulary_is_not_held(monkeypatch):
    monkeypatch.setattr("dihedral.serving.entities.MAX_HELD", 2)
    assert isinstance(index_names(Vocabulary(["a", "b", "c"])), StoredNameIndex)
    assert isinstance(index_names(Vocabulary(["a", "b"])), NameIndex)
