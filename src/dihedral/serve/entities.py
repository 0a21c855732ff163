"""The facts of one entity, for the server."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dihedral.graph import Graph
from dihedral.graph.triples import SPLITS, Split


class EntityFact(NamedTuple):
    """A fact from the point of view of one of its entities."""

    direction: Literal["out", "in"]  # out: the entity is the head; in: it is the tail
    relation: int
    entity: int  # the other entity
    split: Split


def entity_facts(graph: Graph, entity: int, max_per_side: int) -> tuple[list[EntityFact], int]:
    """Facts with the entity as head, then facts with it as tail, and the number of all its relations.

    There are up to `max_per_side` of each, with as many relations as possible. A fact about the entity and itself is
    listed once, as one with the entity as head.
    """
    steps, ends, splits = (part.numpy() for part in graph.index.edges_of(entity))
    relations, is_out = steps % graph.num_relations, steps < graph.num_relations
    facts: list[EntityFact] = []
    sides: tuple[tuple[Literal["out", "in"], Any], ...] = ("out", is_out), ("in", ~is_out & (ends != entity))
    for direction, side in sides:
        rows = np.flatnonzero(side)
        rows = rows[_fair(relations[rows], max_per_side)]
        columns = (part[rows].tolist() for part in (relations, ends, splits))
        facts += [EntityFact(direction, r, other, SPLITS[split]) for r, other, split in zip(*columns, strict=True)]
    return facts, len(np.unique(relations))


def _fair(groups: NDArray[Any], limit: int) -> NDArray[np.intp]:
    """The places of up to `limit` values of a sorted array: the first of every group, then the second, and so on."""
    place = np.arange(len(groups)) - np.searchsorted(groups, groups)  # within its group
    return np.sort(np.argsort(place, kind="stable")[:limit])
