"""The neighbourhood of an entity, for the server: the entities that its facts lead to, and the facts between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dihedral.graph import Graph
from dihedral.graph.joins import facts_among
from dihedral.graph.triples import SPLITS, Split

MAX_FACTS = 2000  # in one answer
MAX_EDGES = 5_000_000  # edges of the shown entities that are looked at, for facts between them

Ids = NDArray[Any]


class Neighbourhood(NamedTuple):
    """The entities to add to a drawing, and the facts that join them with each other and with those already there."""

    added: list[int]
    neighbours: int  # distinct ones, through the wanted relation
    drawn: int  # how many of these are drawn, with those from before
    facts: list[tuple[int, int, int, Split]]
    num_facts: int  # between the shown entities; `facts` are the first MAX_FACTS
    complete: bool  # whether all facts between them were looked for
    relations: list[tuple[int, int]]  # relations of the entity, with their numbers of facts


def find_neighbourhood(
    graph: Graph, degrees: Ids, entity: int, max_added: int, relation: int | None = None, shown: Sequence[int] = ()
) -> Neighbourhood:
    """Neighbours of an entity that are not shown yet, those with the most facts first.

    degrees [N]: the number of facts of each entity. relation: only neighbours through it. shown: what is drawn already.
    """
    steps, ends, _ = (part.numpy() for part in graph.index.edges_of(entity))
    once = (ends != entity) | (steps < graph.num_relations)  # a fact about the entity and itself has two edges
    relations, ends = steps[once] % graph.num_relations, ends[once]
    counts = np.bincount(relations, minlength=graph.num_relations)
    used = np.flatnonzero(counts)
    neighbours = np.unique(ends if relation is None else ends[relations == relation])
    neighbours = neighbours[neighbours != entity]
    new = neighbours[~np.isin(neighbours, np.array(shown, np.int64))]
    added = new[np.argsort(-degrees[new], kind="stable")[:max_added]]
    together = np.unique(np.concatenate([[entity], added, np.array(shown, np.int64)]).astype(np.int64))
    facts, splits, complete = facts_among(graph.index, together, max_edges=MAX_EDGES)
    facts, splits = _ordered(facts, splits, entity, added)
    rows = zip(*facts[:MAX_FACTS].T.tolist(), splits[:MAX_FACTS].tolist(), strict=True)
    return Neighbourhood(
        added=([] if entity in shown else [entity]) + added.tolist(),
        neighbours=len(neighbours),
        drawn=len(neighbours) - len(new) + len(added),
        facts=[(h, r, t, SPLITS[split]) for h, r, t, split in rows],
        num_facts=len(facts),
        complete=complete,
        relations=[(int(r), int(counts[r])) for r in used[np.argsort(-counts[used], kind="stable")]],
    )


def _ordered(facts: Ids, splits: Ids, entity: int, added: Ids) -> tuple[Ids, Ids]:
    """Facts of what is new: first one that joins each neighbour with the entity, then the others of the entity."""
    heads, _, tails = facts.T
    own = (heads == entity) | (tails == entity)
    kept = np.flatnonzero(own | np.isin(heads, added) | np.isin(tails, added))
    others = np.where(heads == entity, tails, heads)[kept]
    order = np.argsort(others, kind="stable")
    repeats = np.empty(len(kept), np.int64)  # how many facts with the same neighbour come before
    first = np.searchsorted(others[order], others[order])
    repeats[order] = np.arange(len(kept)) - first
    kept = kept[np.lexsort((np.arange(len(kept)), np.where(own[kept], repeats, len(facts))))]
    return facts[kept], splits[kept]
