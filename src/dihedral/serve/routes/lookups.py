"""Lookups: entities and their facts, and the models of this server."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from numpy.typing import NDArray

from dihedral.graph.name_search import NameSearch
from dihedral.graph.vocabulary import Vocabulary
from dihedral.serve import schemas
from dihedral.serve.batching import Batcher
from dihedral.serve.entities import entity_facts
from dihedral.serve.routes.common import ERROR_RESPONSES, NameParam, SelectedModel, TopParam, queued
from dihedral.serve.served_model import ServedModel

MAX_SIMILAR = 8

router = APIRouter(prefix="/v1", responses=ERROR_RESPONSES)


@router.get("/entities", tags=["entities"])
@queued("light")
def entities(
    served: SelectedModel,
    search: Annotated[str, Query(description="Words of a name or label, or their beginnings.")] = "",
    top: TopParam = 10,
) -> schemas.EntitiesResponse:
    """Entities whose names match a search; without a search, the entities with the most facts."""
    found = served.entity_search.search(search, top) if search else served.busiest[:top]
    counts, names = served.num_facts, served.graph.entities
    summaries = [schemas.EntitySummary(name=names[i], facts=int(counts[i])) for i in found]
    return served.labelled(schemas.EntitiesResponse(model=served.name, total=len(names), entities=summaries))


@router.get("/search", tags=["entities"])
@queued("light")
def search(
    served: SelectedModel,
    text: Annotated[str, Query(min_length=1, description="Words of names or labels, in any order.")],
    top: TopParam = 10,
) -> schemas.SearchResponse:
    """Entities and relations whose names or labels have these words; those with the most facts come first."""
    relations = _matches(served.relation_search, served.fact_counts, text, max(1, top // 3))
    entities = _matches(served.entity_search, served.num_facts, text, top - len(relations))
    return served.labelled(schemas.SearchResponse(model=served.name, matches=entities + relations))


def _matches(search: NameSearch, counts: NDArray[Any], text: str, top: int) -> list[schemas.SearchMatch]:
    names = search.names
    kind: Any = names.kind
    return [
        schemas.SearchMatch(kind=kind, name=names[i], facts=int(counts[i]), about=_about(names, i))
        for i in (search.search(text, top) if top else ())
    ]


def _about(names: Vocabulary, number: int) -> str:
    return "" if names.labels is None else names.labels.about(number)


@router.get("/entities/{name:path}", tags=["entities"])
@router.get("/entity", tags=["entities"])  # for names such as `..` that cannot be part of a path
@queued("light")
def entity(served: SelectedModel, name: NameParam, top: TopParam = 200) -> schemas.EntityResponse:
    """The known facts of an entity (direction out: as head, in: as tail; `top` of each), and similar entities."""
    number = served.check_entity(name)
    names, relations = served.graph.entities, served.graph.relations
    found, num_relations = entity_facts(served.graph, number, top)
    facts = [
        schemas.EntityFact(direction=direction, relation=relations[r], entity=names[other], split=split)
        for direction, r, other, split in found
    ]
    response = schemas.EntityResponse(
        model=served.name,
        name=names[number],
        about=_about(names, number),
        total=int(served.num_facts[number]),
        num_relations=num_relations,
        facts=facts,
        similar=served.predictor.similar(names[number], top=MAX_SIMILAR),
    )
    return served.labelled(response)


@router.get("/models", tags=["models"])
async def models(request: Request) -> schemas.ModelsResponse:
    """The models of this server."""
    batchers: dict[str, Batcher] = request.app.state.batchers
    summaries = [_summary(batcher.served) for batcher in batchers.values()]
    return schemas.ModelsResponse(default=next(iter(batchers)), models=summaries)


@router.get("/info", tags=["models"])
@queued("light")
def info(served: SelectedModel) -> schemas.InfoResponse:
    """Prefixes, recipe, metrics and training curve of a model."""
    return schemas.InfoResponse(
        **dict(_summary(served)),
        prefixes=served.prefixes,
        recipe=served.description["recipe"],
        metrics=served.description["metrics"],
        calibration=served.description["calibration"],
        curve=served.curve,
    )


def _summary(served: ServedModel) -> schemas.ModelSummary:
    description = served.description
    return schemas.ModelSummary(
        name=served.name,
        kind=description["model"],
        K=description["settings"].get("K"),
        dimension=description["dimension"],
        graph=description["graph"],
        entities=description["entities"],
        relations=description["relations"],
        facts=len(served.graph.known),
    )
