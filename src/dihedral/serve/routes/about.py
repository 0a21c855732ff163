"""The models of this server, its health and metrics, and the explorer's pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import FileResponse

from dihedral.objectives.recipe import applicable
from dihedral.serve import schemas
from dihedral.serve.batching import Batcher
from dihedral.serve.routes.common import ERROR_RESPONSES, endpoint
from dihedral.serve.served_model import ServedModel

STATIC = Path(__file__).parent.parent / "static"

router = APIRouter()


@router.get("/v1/models", tags=["models"], responses=ERROR_RESPONSES)
async def models(request: Request) -> schemas.ModelsResponse:
    """The models of this server."""
    batchers: dict[str, Batcher] = request.app.state.batchers
    summaries = [schemas.ModelSummary(**_summary(batcher.served)) for batcher in batchers.values()]
    return schemas.ModelsResponse(default=next(iter(batchers)), models=summaries)


@endpoint(router, "/v1/info", queue="light", tags=["models"], responses=ERROR_RESPONSES)
def info(served: ServedModel) -> schemas.InfoResponse:
    """Prefixes, recipe, metrics and training curve of a model."""
    prefixes = served.graph.relations.prefixes | served.graph.entities.prefixes
    return schemas.InfoResponse(**_summary(served) | {"prefixes": prefixes, "curve": served.curve})


def _summary(served: ServedModel) -> dict[str, Any]:
    kind, settings = served.description["model"], served.description["settings"]
    own = {"name": served.name, "kind": kind, "K": settings.get("K"), "facts": len(served.graph.known)}
    own["recipe"] = applicable(served.description["recipe"])
    return served.description | own


@router.head("/healthz", include_in_schema=False)  # used by some monitors
@router.get("/healthz", tags=["server"])
async def healthz() -> dict[str, str]:
    """Health check."""
    return {"status": "ok"}


@router.get("/metrics", tags=["server"], response_class=Response, responses={401: ERROR_RESPONSES[401]})
async def metrics(request: Request) -> Response:
    """Counts and durations of requests, for Prometheus."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.head("/", include_in_schema=False)
@router.get("/", include_in_schema=False)
async def explorer() -> FileResponse:
    return FileResponse(STATIC / "index.html")


@router.get("/docs", include_in_schema=False)
async def docs() -> FileResponse:
    return FileResponse(STATIC / "docs.html")
