"""The FastAPI application: routes, error handlers and middleware."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import torch
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

import dihedral as dh
from dihedral.errors import DihedralError
from dihedral.serving.batching import Batcher
from dihedral.serving.guard import Guard, Metrics, check_key, error_response
from dihedral.serving.routes import algebra, lookups, pages, predictions
from dihedral.serving.routes.pages import STATIC
from dihedral.serving.served_model import ServedModel, UnknownNameError

MAX_BODY_BYTES = 1 << 20
WORKERS = max(1, min(4, os.cpu_count() or 1))


def create_app(
    models: dict[str, ServedModel], *, api_key: str | None = None, max_body_bytes: int = MAX_BODY_BYTES
) -> FastAPI:
    """The application that serves these models; the first one is the default."""
    check_key(api_key)
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = WORKERS
        yield

    app = FastAPI(
        title="dihedral",
        version=dh.__version__,
        description="Link prediction with relations that are readable elements of a dihedral group.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page loads scripts from another host; /docs has our own
        redoc_url=None,
    )
    app.state.metrics = metrics
    app.state.batchers = {name: Batcher(served, metrics.batches.observe) for name, served in models.items()}
    app.state.slow_limiter = anyio.CapacityLimiter(1)  # rule mining and missing facts: one request at a time
    for routes in (predictions, algebra, lookups, pages):
        app.include_router(routes.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(UnknownNameError, _unknown_name)
    app.add_exception_handler(DihedralError, _invalid_input)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(Guard, metrics=metrics, api_key=api_key, max_body_bytes=max_body_bytes)
    return app


def set_threads() -> None:
    """Set the number of torch threads, so that all workers together use every core once."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // WORKERS))


# --- errors ---------------------------------------------------------------------------------------


async def _unknown_name(request: Request, error: Any) -> Response:
    return error_response(404, str(error), error.suggestions)


async def _invalid_input(request: Request, error: Exception) -> Response:
    return error_response(422, str(error))


async def _validation_error(request: Request, error: Any) -> Response:
    errors = error.errors()
    if errors[0]["type"] == "json_invalid":
        reason, position = errors[0]["ctx"]["error"], errors[0]["loc"][-1]
        return error_response(400, f"the body is not JSON: {reason} at character {position}")
    return error_response(422, "; ".join(_describe(each) for each in errors[:5]))


def _describe(error: dict[str, Any]) -> str:
    """The validation message, with the field named as in the request."""
    place, *loc = error["loc"]
    if place == "body" and loc[:1] in (["single"], ["batch"]):  # the discriminator's tag
        loc = loc[1:]
    if loc[:1] in (["questions"], ["triples"]) and len(loc) > 1:
        loc = [f"{loc[0][:-1]} {loc[1] + 1}", *loc[2:]]
    return f"{': '.join(map(str, loc)) or f'the {place}'}: {error['msg']}"


async def _http_error(request: Request, error: Any) -> Response:
    return error_response(error.status_code, str(error.detail), headers=error.headers)
