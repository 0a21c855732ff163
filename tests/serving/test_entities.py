"""The facts of one entity."""

from __future__ import annotations

import dihedral as dh
from dihedral.serving.entities import entity_facts


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
