"""The neighbourhood of an entity, for the server: the entities that its facts lead to, and the facts between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.graph import Graph
from dihedral.graph.index import GraphIndex
from dihedral.graph.triples import SPLITS, Split

MAX_FACTS = 2000  # in one answer
MAX_EDGES = 5_000_000  # of the shown entities that are looked at, for facts between them

Ids = NDArray[Any]


class Neighbourhood(NamedTuple):
    """The entities to add to a drawing, and the facts that join them with each other and with those already there."""

    added: list[int]
    neighbours: int  # distinct ones, through the wanted relation
    drawn: int  # of these, together with those that were there before
    facts: list[tuple[int, int, int, Split]]
    num_facts: int  # between the shown entities; `facts` are the first MAX_FACTS
    complete: bool  # whether all facts between them were looked for
    relations: list[tuple[int, int]]  # of the entity, with the number of its facts


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
    facts, splits, complete = _facts_between(graph.index, together)
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


def _facts_between(index: GraphIndex, entities: Ids) -> tuple[Ids, Ids, bool]:
    """The facts between some entities as rows [n, 3], their splits, and whether these are all.

    A fact is an edge of both of its entities, so hubs are looked at last: one end suffices.
    """
    starts = index.entity_starts.numpy()
    counts = starts[entities + 1] - starts[entities]
    order = np.argsort(counts, kind="stable")
    order = order[np.cumsum(counts[order]) <= MAX_EDGES]
    complete = len(entities) - len(order) <= 1
    sources, counts = entities[order], counts[order]
    starts = starts[sources]
    edges = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    ends = index.ends.numpy()[edges]
    inside = np.isin(ends, entities)
    edges, ends, sources = edges[inside], ends[inside].astype(np.int64), np.repeat(sources, counts)[inside]
    rows = torch.searchsorted(index.starts, torch.from_numpy(edges), right=True).numpy() - 1
    steps = index.keys.numpy()[rows] % (2 * index.num_relations)
    forwards = steps < index.num_relations
    heads, tails = np.where(forwards, sources, ends), np.where(forwards, ends, sources)
    facts, first = np.unique(np.stack([heads, steps % index.num_relations, tails], axis=1), axis=0, return_index=True)
    return facts, index.splits.numpy()[edges[first]], complete


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
