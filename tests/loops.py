"""Joins in a small graph by loops in plain Python: the oracle of `graph.joins`."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dihedral.graph import GraphIndex

ENTITIES, RELATIONS = 5, 2
facts = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))
some_facts = st.lists(facts, min_size=1, max_size=25, unique=True)
bodies = st.lists(st.integers(0, 2 * RELATIONS - 1), min_size=1, max_size=4)


def build(rows, num_entities=ENTITIES, num_relations=RELATIONS):
    return GraphIndex.build([np.array(rows, np.int32).reshape(-1, 3)], num_entities, num_relations)


def paths_by_loops(rows, body, *, loops=False):
    """The entities along every path, in order; without facts about an entity and itself unless `loops`."""
    edges = [[] for _ in range(2 * RELATIONS)]
    for head, relation, tail in rows:
        if head != tail or loops:
            edges[relation].append((head, tail))
            edges[relation + RELATIONS].append((tail, head))
    found = [(entity,) for entity in range(ENTITIES)]
    for step in body:
        found = [(*path, tail) for path in found for source, tail in edges[step] if source == path[-1]]
    return found
