"""What the explorer draws: the neighbourhood of an entity, and the map of entities."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from dihedral.serve import schemas
from dihedral.serve.entity_map import Method, entity_map
from dihedral.serve.neighbourhood import find_neighbourhood
from dihedral.serve.routes.common import ERROR_RESPONSES, SelectedModel, find_model, queued, with_body

router = APIRouter(prefix="/v1", tags=["entities"], responses=ERROR_RESPONSES)


@with_body(router, "/neighbourhood")
def neighbourhood(request: Request, body: schemas.NeighbourhoodRequest) -> schemas.NeighbourhoodResponse:
    """The neighbours of an entity, those with the most facts first, and the facts between all that are shown."""
    served = find_model(request, body.model)
    entities, relations = served.graph.entities, served.graph.relations
    number = served.check_entity(body.name)
    relation = None if body.relation is None else served.check_relation(body.relation)
    shown = [served.check_entity(name) for name in body.shown]
    found = find_neighbourhood(served.graph, served.num_facts, number, body.top, relation, shown)
    response = schemas.NeighbourhoodResponse(
        model=served.name,
        name=entities[number],
        neighbours=found.neighbours,
        drawn=found.drawn,
        entities=[schemas.EntitySummary(name=entities[i], facts=int(served.num_facts[i])) for i in found.added],
        facts=[
            schemas.KnownFact(head=entities[h], relation=relations[r], tail=entities[t], split=split)
            for h, r, t, split in found.facts
        ],
        num_facts=found.num_facts,
        complete=found.complete,
        relations=[schemas.RelationCount(relation=relations[r], facts=count) for r, count in found.relations],
    )
    return served.labelled(response)


@router.get("/map")
@queued(lambda method, **_: "heavy" if method == "pca" else "slow")
def map_(
    served: SelectedModel,
    method: Annotated[Method, Query(description="umap: only where umap-learn is installed.")] = "pca",
) -> schemas.MapResponse:
    """The entities with the most facts in two dimensions, at most 50,000; the first request computes them."""
    return entity_map(served, method)
