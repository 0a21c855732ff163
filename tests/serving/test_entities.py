"""Search of entity names, and the facts of one entity."""

from __future__ import annotations

import dihedral as dh
from dihedral.graph.vocabulary import Vocabulary
from dihedral.serving.entities import NameIndex, StoredNameIndex, entity_facts, index_names


def found(names: list[str], text: str, limit: int = 10) -> list[str]:
    return [names[i] for i in NameIndex(Vocabulary(names)).search(text, limit)]


def test_names_that_start_with_the_text_come_first():
    assert found(["Susan", "ann", "Anna", "bob"], "an") == ["ann", "Anna", "Susan"]


def test_a_name_is_found_once_even_if_it_contains_the_text_twice():
    assert found(["banana", "xanan"], "an") == ["banana", "xanan"]
    assert found(["anan", "b"], "an") == ["anan"]


def test_no_match_spans_two_names():
    assert found(["ab", "cd"], "bc") == []
    assert found(["a\nb", "c"], "a b") == ["a\nb"]


def test_names_that_differ_only_in_case_are_both_found():
    assert sorted(found(["Ann", "ANN"], "ann")) == ["ANN", "Ann"]
    assert found(["STRASSE", "straße"], "straß", 1) == ["STRASSE"]


def test_the_limit_applies_to_prefixes_and_infixes_together():
    names = [f"a{i}" for i in range(5)] + [f"ba{i}" for i in range(5)]
    assert found(names, "a", 7) == ["a0", "a1", "a2", "a3", "a4", "ba0", "ba1"]


class CountingText(str):
    """A string that counts calls of `find`."""

    finds = 0

    def find(self, *arguments) -> int:
        self.finds += 1
        return super().find(*arguments)


def test_a_search_scans_the_names_at_most_once_per_answer():
    index = NameIndex(Vocabulary([f"entity number {i} of the graph" for i in range(1000)]))
    finds = {}
    for text in ("entity", "999", "graph", "not there"):
        index.text = CountingText(index.text)
        assert len(index.search(text, 12)) <= 12
        finds[text] = index.text.finds
    assert finds == {"entity": 0, "999": 2, "graph": 12, "not there": 1}


def test_names_around_a_text_share_its_prefix():
    names = [f"{letter}{i}" for letter in "cab" for i in range(5)]
    index = NameIndex(Vocabulary(names))
    assert [names[i] for i in index.around("b2x", 4)] == ["b1", "b2", "b3", "b4"]
    assert len(index.around("zzz", 4)) <= 4 and len(index.around("", 100)) == 15


def test_the_facts_of_an_entity_match_the_graph_in_both_directions():
    graph = dh.make_family(40)
    for entity in (0, 7, 39):
        rebuilt = {
            (entity, fact.relation, fact.entity) if fact.direction == "out" else (fact.entity, fact.relation, entity)
            for fact in entity_facts(graph, entity, 10**6)
        }
        known = {tuple(row) for row in graph.known.tolist() if entity in (row[0], row[2])}
        assert rebuilt == known and graph.index.degrees[entity] >= len(known)
        splits = {fact.split for fact in entity_facts(graph, entity, 10**6)}
        assert splits <= {"train", "valid", "test"}


# --- millions of names -------------------------------------------------------------------------------


def test_stored_names_are_found_by_their_prefix():
    names = ["Susan", "ann", "Anna", "bob", "ANTON", "Änne"]
    index = StoredNameIndex(Vocabulary(names))
    assert [names[i] for i in index.search("an", 10)] == ["ann", "Anna", "ANTON"]
    assert [names[i] for i in index.search("an", 2)] == ["ann", "Anna"]
    assert [names[i] for i in index.search("än", 10)] == ["Änne"]
    assert index.search("x", 10) == []
    assert "bob" in [names[i] for i in index.around("boa", 3)]


def test_a_large_vocabulary_is_not_loaded_into_memory(monkeypatch):
    monkeypatch.setattr("dihedral.serving.entities.MAX_NAMES_IN_MEMORY", 2)
    assert isinstance(index_names(Vocabulary(["a", "b", "c"])), StoredNameIndex)
    assert isinstance(index_names(Vocabulary(["a", "b"])), NameIndex)
