"""The explorer's pages, and what monitors ask."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import FileResponse

from dihedral.serving import messages as m
from dihedral.serving.routes.asked import PROBLEMS

STATIC = Path(__file__).parent.parent / "static"

router = APIRouter()


@router.head("/healthz", include_in_schema=False)  # monitors ask so
@router.get("/healthz", tags=["server"])
async def healthz() -> m.Health:
    """Whether the server answers."""
    return m.Health()


@router.get("/metrics", tags=["server"], response_class=Response, responses={401: PROBLEMS[401]})
async def metrics(request: Request) -> Response:
    """Counts and times of requests, for Prometheus."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.head("/", include_in_schema=False)
@router.get("/", include_in_schema=False)
async def explorer() -> FileResponse:
    return FileResponse(STATIC / "index.html")


@router.get("/docs", include_in_schema=False)
async def docs() -> FileResponse:
    return FileResponse(STATIC / "docs.html")
