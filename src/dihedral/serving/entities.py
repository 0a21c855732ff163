"""The facts of one entity, for the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from dihedral.graph import Graph
from dihedral.graph.triples import SPLITS, Split


class EntityFact(NamedTuple):
    """A fact from the point of view of one of its entities."""

    direction: Literal["out", "in"]  # out: the entity is the head; in: it is the tail
    relation: int
    entity: int  # the other entity
    split: Split


def entity_facts(graph: Graph, entity: int, max_per_side: int) -> Iterator[EntityFact]:
    """Facts with the entity as head, then facts with it as tail, up to `max_per_side` of each."""
    steps, ends, splits = (part.numpy() for part in graph.index.edges_of(entity))
    for direction, here in (("out", steps < graph.num_relations), ("in", steps >= graph.num_relations)):
        columns = (part[here][:max_per_side].tolist() for part in (steps % graph.num_relations, ends, splits))
        for relation, other, split in zip(*columns, strict=True):
            yield EntityFact(direction, relation, other, SPLITS[split])  # type: ignore[arg-type]
