"""The facts of one entity."""

from __future__ import annotations

from collections import Counter

import numpy as np

import dihedral as dh
from dihedral.graph.triples import Graph
from dihedral.graph.vocabulary import Vocabulary
from dihedral.serve.routes.entities import entity_facts


def test_the_facts_of_an_entity_match_the_graph_in_both_directions():
    graph = dh.make_family(40)
    for entity in (0, 7, 39):
        facts, num_relations = entity_facts(graph, entity, 10**6)
        name = graph.entities[entity]
        rebuilt = {
            (name, fact.relation, fact.entity) if fact.direction == "out" else (fact.entity, fact.relation, name)
            for fact in facts
        }
        known = {fact for fact in graph.names_of(graph.known) if name in (fact[0], fact[2])}
        assert rebuilt == known and graph.index.degrees[entity] >= len(known)
        assert num_relations == len({relation for _, relation, _ in known})
        assert {fact.split for fact in facts} <= {"train", "valid", "test"}


def test_every_relation_of_a_hub_is_listed():
    """The first relation has as many facts as are wanted; the others have one or two."""
    rows = [(0, 0, i) for i in range(1, 21)] + [(0, r, i) for r in range(1, 9) for i in range(1, 2 + r % 2)]
    facts = np.array([*rows, (1, 2, 0), (0, 3, 0)], np.int32)
    names = Vocabulary([f"e{i}" for i in range(21)]), Vocabulary([f"r{i}" for i in range(9)], "relation")
    graph = Graph(*names, facts, facts[:0], facts[:0])
    found, num_relations = entity_facts(graph, 0, 20)
    counts = Counter(fact.relation for fact in found if fact.direction == "out")
    expected = [7, 2, 1, 3, 1, 2, 1, 2, 1]
    assert counts == {f"r{i}": count for i, count in enumerate(expected)} and num_relations == 9
    (back,) = (fact for fact in found if fact.direction == "in")  # the loop is listed above
    assert (back.relation, back.entity, back.split) == ("r2", "e1", "train")
    few, num_relations = entity_facts(graph, 0, 5)
    assert [fact.relation for fact in few] == ["r0", "r1", "r2", "r3", "r4", "r2"] and num_relations == 9
