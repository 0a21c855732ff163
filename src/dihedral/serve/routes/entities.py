"""Entities: search, the facts of one, and its neighbourhood, which the explorer draws."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from numpy.typing import NDArray

from dihedral.graph import Graph
from dihedral.graph.joins import facts_among
from dihedral.graph.name_search import NameSearch
from dihedral.graph.triples import SPLITS
from dihedral.graph.vocabulary import Vocabulary
from dihedral.serve import schemas
from dihedral.serve.routes.common import ERROR_RESPONSES, NameParam, TopParam, endpoint
from dihedral.serve.served_model import ServedModel

MAX_SIMILAR = 8
MAX_FACTS = 2000  # in one neighbourhood
MAX_EDGES = 5_000_000  # edges of the shown entities that are looked at, for facts between them

Ids = NDArray[Any]

router = APIRouter(prefix="/v1", tags=["entities"], responses=ERROR_RESPONSES)


@endpoint(router, "/entities", queue="light")
def entities(
    served: ServedModel,
    search: Annotated[str, Query(description="Words of a name or label, or their beginnings.")] = "",
    top: TopParam = 10,
) -> schemas.EntitiesResponse:
    """Entities whose names match a search; without a search, the entities with the most facts."""
    found = served.entity_search.search(search, top) if search else served.busiest[:top]
    return schemas.EntitiesResponse(total=served.graph.num_entities, entities=_summaries(served, found))


def _summaries(served: ServedModel, entities: list[int]) -> list[schemas.EntitySummary]:
    names = served.graph.entities
    return [schemas.EntitySummary(name=names[i], facts=int(served.num_facts[i])) for i in entities]


@endpoint(router, "/search", queue="light")
def search(
    served: ServedModel,
    text: Annotated[str, Query(min_length=1, description="Words of names or labels, in any order.")],
    top: TopParam = 10,
) -> schemas.SearchResponse:
    """Entities and relations whose names or labels have these words; those with the most facts come first."""
    relations = _matches(served.relation_search, served.fact_counts, text, max(1, top // 3))
    entities = _matches(served.entity_search, served.num_facts, text, top - len(relations))
    return schemas.SearchResponse(matches=entities + relations)


def _matches(search: NameSearch, counts: NDArray[Any], text: str, top: int) -> list[schemas.SearchMatch]:
    names = search.names
    kind: Any = names.kind
    return [
        schemas.SearchMatch(kind=kind, name=names[i], facts=int(counts[i]), about=_about(names, i))
        for i in (search.search(text, top) if top else ())
    ]


def _about(names: Vocabulary, number: int) -> str:
    return "" if names.labels is None else names.labels.about(number)


@endpoint(router, "/entities/{name:path}", "/entity", queue="light")  # a name such as `..` cannot be part of a path
def entity(served: ServedModel, name: NameParam, top: TopParam = 200) -> schemas.EntityResponse:
    """The known facts of an entity (direction out: as head, in: as tail; `top` of each), and similar entities."""
    names = served.graph.entities
    number = names.id(name)
    facts, num_relations = entity_facts(served.graph, number, top)
    return schemas.EntityResponse(
        name=names[number],
        about=_about(names, number),
        total=int(served.num_facts[number]),
        num_relations=num_relations,
        facts=facts,
        similar=served.predictor.similar(names[number], top=MAX_SIMILAR),
    )


def entity_facts(graph: Graph, entity: int, max_per_side: int) -> tuple[list[schemas.EntityFact], int]:
    """Facts with the entity as head, then as tail, with many relations, and the number of all its relations."""
    steps, ends, splits = (part.numpy() for part in graph.index.edges_of(entity))
    relations, is_out = steps % graph.num_relations, steps < graph.num_relations
    facts: list[schemas.EntityFact] = []
    sides: tuple[tuple[Literal["out", "in"], Ids], ...] = ("out", is_out), ("in", ~is_out & (ends != entity))
    for direction, side in sides:
        rows = np.flatnonzero(side)
        facts += [
            schemas.EntityFact(
                direction=direction,
                relation=graph.relations[relations[i]],
                entity=graph.entities[ends[i]],
                split=SPLITS[splits[i]],
            )
            for i in rows[_fair(relations[rows], max_per_side)]
        ]
    return facts, len(np.unique(relations))


def _fair(groups: Ids, limit: int) -> NDArray[np.intp]:
    """The places of up to `limit` values of a sorted array: the first of every group, then the second, and so on."""
    place = np.arange(len(groups)) - np.searchsorted(groups, groups)  # within its group
    return np.sort(np.argsort(place, kind="stable")[:limit])


@endpoint(router, "/neighbourhood", methods=("GET", "POST"))
def neighbourhood(served: ServedModel, body: schemas.NeighbourhoodRequest) -> schemas.NeighbourhoodResponse:
    """The neighbours of an entity, those with the most facts first, and the facts between all that are shown."""
    graph, entity = served.graph, served.graph.entities.id(body.name)
    only = None if body.relation is None else graph.relations.id(body.relation)
    shown = np.array([graph.entities.id(name) for name in body.shown], np.int64)
    steps, ends, _ = (part.numpy() for part in graph.index.edges_of(entity))
    once = (ends != entity) | (steps < graph.num_relations)  # a fact about the entity and itself has two edges
    relations, ends = steps[once] % graph.num_relations, ends[once]
    counts = np.bincount(relations, minlength=graph.num_relations)
    used = np.flatnonzero(counts)
    neighbours = np.unique(ends if only is None else ends[relations == only])
    neighbours = neighbours[neighbours != entity]
    new = neighbours[~np.isin(neighbours, shown)]
    added = new[np.argsort(-served.num_facts[new], kind="stable")[: body.top]]
    together = np.unique(np.concatenate([[entity], added, shown]).astype(np.int64))
    facts, splits, complete = facts_among(graph.index, together, max_edges=MAX_EDGES)
    order = _order(facts, entity, added)
    first = order[:MAX_FACTS]
    named = graph.names_of(facts[first].astype(np.int32))
    return schemas.NeighbourhoodResponse(
        name=graph.entities[entity],
        neighbours=len(neighbours),
        drawn=len(neighbours) - len(new) + len(added),
        entities=_summaries(served, ([] if entity in shown else [entity]) + added.tolist()),
        facts=[
            schemas.KnownFact(head=head, relation=relation, tail=tail, split=SPLITS[split])
            for (head, relation, tail), split in zip(named, splits[first], strict=True)
        ],
        num_facts=len(order),
        complete=complete,
        relations=[
            schemas.RelationCount(relation=graph.relations[r], facts=int(counts[r]))
            for r in used[np.argsort(-counts[used], kind="stable")]
        ],
    )


def _order(facts: Ids, entity: int, added: Ids) -> Ids:
    """Where facts of what is new are: first one that joins each neighbour with the entity, then the others of it."""
    heads, _, tails = facts.T
    own = (heads == entity) | (tails == entity)
    kept = np.flatnonzero(own | np.isin(heads, added) | np.isin(tails, added))
    others = np.where(heads == entity, tails, heads)[kept]
    order = np.argsort(others, kind="stable")
    repeats = np.empty(len(kept), np.int64)  # how many facts with the same neighbour come before
    first = np.searchsorted(others[order], others[order])
    repeats[order] = np.arange(len(kept)) - first
    return kept[np.lexsort((np.arange(len(kept)), np.where(own[kept], repeats, len(facts))))]
