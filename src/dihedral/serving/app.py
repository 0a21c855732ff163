"""The app: routes, error handlers, and what every request passes."""

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
from dihedral.serving.guard import Guard, Metrics, check_key, problem
from dihedral.serving.routes import algebra, lookups, pages, predictions
from dihedral.serving.routes.pages import STATIC
from dihedral.serving.served import ServedModel, UnknownNameError

BODY_LIMIT = 1 << 20
WORKERS = max(1, min(4, os.cpu_count() or 1))


def create_app(models: dict[str, ServedModel], *, api_key: str | None = None, body_limit: int = BODY_LIMIT) -> FastAPI:
    """The app that serves these models; the first is the one meant where none is named."""
    check_key(api_key)
    metrics = Metrics()

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = WORKERS
        yield

    app = FastAPI(
        title="dihedral",
        version=dh.__version__,
        description="Link prediction with relations that are readable elements of a dihedral group.",
        lifespan=run,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere; ours is at /docs too
        redoc_url=None,
        responses={},
    )
    app.state.metrics = metrics
    app.state.batchers = {name: Batcher(served, metrics.batches.observe) for name, served in models.items()}
    app.state.slow = anyio.CapacityLimiter(1)  # mining rules, missing facts: one at a time
    for routes in (predictions, algebra, lookups, pages):
        app.include_router(routes.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(UnknownNameError, _unknown_name)
    app.add_exception_handler(DihedralError, _wrong_input)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _refused)
    app.add_middleware(Guard, metrics=metrics, api_key=api_key, body_limit=body_limit)
    return app


def set_threads() -> None:
    """Torch's threads, so that all workers together use the cores once."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // WORKERS))


# --- errors ---------------------------------------------------------------------------------------


async def _unknown_name(request: Request, error: Any) -> Response:
    return problem(404, str(error), error.suggestions)


async def _wrong_input(request: Request, error: Exception) -> Response:
    return problem(422, str(error))


async def _malformed(request: Request, error: Any) -> Response:
    errors = error.errors()
    if errors[0]["type"] == "json_invalid":
        return problem(400, f"the body is not JSON: {errors[0]['ctx']['error']} at character {errors[0]['loc'][-1]}")
    return problem(422, "; ".join(_sentence(each) for each in errors[:5]))


def _sentence(error: dict[str, Any]) -> str:
    """What is wrong with a field, called as the asker calls it."""
    place, *loc = error["loc"]
    if place == "body" and loc[:1] in (["one"], ["many"]):  # our own name for the kind of body
        loc = loc[1:]
    if loc[:1] in (["questions"], ["triples"]) and len(loc) > 1:
        loc = [f"{loc[0][:-1]} {loc[1] + 1}", *loc[2:]]
    return f"{': '.join(map(str, loc)) or f'the {place}'}: {error['msg']}"


async def _refused(request: Request, error: Any) -> Response:
    return problem(error.status_code, str(error.detail), headers=error.headers)
