"""What is looked up: entities and their facts, and what the models are."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from dihedral.serving import messages as m
from dihedral.serving.batching import Batcher
from dihedral.serving.routes.asked import PROBLEMS, Chosen, NameParam
from dihedral.serving.served import ServedModel

MAX_SIMILAR = 8

router = APIRouter(prefix="/v1", responses=PROBLEMS)


@router.get("/entities", tags=["entities"])
async def entities(
    served: Chosen,
    search: Annotated[str, Query(description="The beginning or a part of a name.")] = "",
    top: Annotated[int, Query(ge=1, le=m.MAX_TOP)] = 10,
) -> m.Entities:
    """Entities by name as one types; without a search those with most facts."""
    found = served.search(search, top) if search else served.busiest[:top]
    counts, names = served.facts.counts, served.graph.entities
    return m.Entities(
        model=served.name, total=len(names), entities=[m.Entity(name=names[i], facts=int(counts[i])) for i in found]
    )


@router.get("/entities/{name:path}", tags=["entities"])
def entity(served: Chosen, name: str, top: Annotated[int, Query(ge=1, le=m.MAX_TOP)] = 200) -> m.EntityFacts:
    """The known facts of an entity (direction out: it is the head, in: it is the tail), and entities like it."""
    return _entity(served, name, top)


@router.get("/entity", tags=["entities"])
def entity_named(
    served: Chosen, name: NameParam, top: Annotated[int, Query(ge=1, le=m.MAX_TOP)] = 200
) -> m.EntityFacts:
    """The same for any name, also one such as `..` that no path can hold."""
    return _entity(served, name, top)


def _entity(served: ServedModel, name: str, top: int) -> m.EntityFacts:
    number = served.check_entity(name)
    names, relation_names = served.graph.entities, served.graph.relations
    name = names[number]
    facts = [
        m.Fact(
            direction=fact.direction,
            relation=relation_names[fact.relation],
            entity=names[fact.entity],
            split=fact.split,
        )
        for fact in served.facts.of(number, top)
    ]
    similar = [m.SimilarEntity(**each._asdict()) for each in served.predictor.similar(name, top=MAX_SIMILAR)]
    total = int(served.facts.counts[number])
    return m.EntityFacts(model=served.name, name=name, total=total, facts=facts, similar=similar)


@router.get("/models", tags=["models"])
async def models(request: Request) -> m.Models:
    """The models that this server holds."""
    batchers: dict[str, Batcher] = request.app.state.batchers
    held = [m.ModelSummary(**_about(batcher.served)) for batcher in batchers.values()]
    return m.Models(default=next(iter(batchers)), models=held)


@router.get("/info", tags=["models"])
def info(served: Chosen) -> m.Info:
    """Recipe, metrics and training curve of a model."""
    about = served.description
    return m.Info(
        **_about(served),
        prefixes=served.prefixes,
        recipe=about["recipe"],
        metrics=about["metrics"],
        curve=served.curve,
    )


def _about(served: ServedModel) -> dict[str, Any]:
    about = served.description
    return {
        "name": served.name,
        "kind": about["model"],
        "K": about["settings"].get("K"),
        "facts": len(served.graph.known),
        **{key: about[key] for key in ("dimension", "graph", "entities", "relations")},
    }
