"""The explorer's pages, the health check and the metrics."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import FileResponse

from dihedral.serve import schemas
from dihedral.serve.routes.common import ERROR_RESPONSES

STATIC = Path(__file__).parent.parent / "static"

router = APIRouter()


@router.head("/healthz", include_in_schema=False)  # used by some monitors
@router.get("/healthz", tags=["server"])
async def healthz() -> schemas.HealthResponse:
    """Health check."""
    return schemas.HealthResponse()


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
