"""The FastAPI application: routes, error handlers and middleware."""

from __future__ import annotations

import json
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
from dihedral.graph.vocabulary import AmbiguousNameError
from dihedral.runtime.interruption import InterruptedWorkError
from dihedral.runtime.threads import num_cores
from dihedral.serve.batching import Batcher
from dihedral.serve.guard import Guard, Metrics, busy_response, check_key, error_response
from dihedral.serve.routes import about, algebra, entities, entity_map, predictions, review_queue
from dihedral.serve.routes.about import STATIC
from dihedral.serve.served_model import ServedModel, UnknownNameError
from dihedral.serve.workers import MAX_SECONDS, WORKERS, ActiveRequests, BusyError, make_queues

MAX_BODY_BYTES = 1 << 20


def create_app(
    models: dict[str, ServedModel],
    *,
    api_key: str | None = None,
    hosts: frozenset[str] | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
    max_seconds: float = MAX_SECONDS,
    max_per_client: int | None = None,
    takes_decisions: bool = True,
) -> FastAPI:
    """The application that serves these models; the first one is the default.

    hosts: names by which requests may address this server, in lower case; by default all.
    max_seconds: for one request. max_per_client: requests of one address at a time; by default unlimited.
    takes_decisions: whether reviewers may write decisions into the folders of the models.
    """
    check_key(api_key)
    metrics, requests = Metrics(), ActiveRequests(max_seconds, max_per_client)

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
    app.state.queues, app.state.requests = make_queues(), requests
    app.state.takes_decisions = takes_decisions
    for routes in (predictions, algebra, entities, entity_map, about, review_queue):
        app.include_router(routes.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(UnknownNameError, _unknown_name)
    app.add_exception_handler(DihedralError, _refused)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(
        Guard, metrics=metrics, requests=requests, api_key=api_key, hosts=hosts, max_body_bytes=max_body_bytes
    )
    return app


def set_threads() -> None:
    """Set the number of torch threads, so that all workers together use every core once."""
    torch.set_num_threads(max(1, num_cores() // WORKERS))


# --- errors ---------------------------------------------------------------------------------------


def _unknown_name(request: Request, error: Any) -> Response:  # not a coroutine: suggestions are made in a thread
    return error_response(404, str(error), error.suggestions)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, InterruptedWorkError):
        error = BusyError(request.app.state.requests.refusal)
    if isinstance(error, BusyError):
        return busy_response(error)
    return error_response(422, str(error), error.names if isinstance(error, AmbiguousNameError) else None)


async def _validation_error(request: Request, error: Any) -> Response:
    errors = error.errors()[:5]
    if errors[0]["type"] == "json_invalid":
        reason, position = errors[0]["ctx"]["error"], errors[0]["loc"][-1]
        return error_response(400, f"the body is not JSON: {reason} at character {position}")
    return error_response(422, "; ".join(_describe(each) for each in errors))


def _describe(error: dict[str, Any]) -> str:
    """What is wrong in plain words, with the field named as in the request."""
    place, *loc = error["loc"]
    if place == "body" and loc[:1] in (["single"], ["batch"]):  # the discriminator's tag
        loc = loc[1:]
    if loc[:1] in (["questions"], ["triples"]) and len(loc) > 1:
        loc = [f"{loc[0][:-1]} {loc[1] + 1}", *loc[2:]]
    name = ": ".join(map(str, loc)) or f"the {place}"
    kind, context = error["type"], error.get("ctx", {})
    if kind == "plain":
        return context["text"] if not loc else f"{name}: {context['text']}"
    if kind == "missing":
        return f"{name} is missing"
    words = next((words for kinds, words in _WORDS.items() if kind in kinds), None)
    wanted = words.format(**context) if words else error["msg"].lower()
    return f"{name} is {_shown(error['input'])}; it must be {wanted}"


def _shown(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    return f"{value!r:.100}" if not isinstance(value, (bool, type(None))) else json.dumps(value)


_WORDS = {
    ("greater_than_equal",): "at least {ge}",
    ("less_than_equal",): "at most {le}",
    ("int_type", "int_parsing", "int_from_float", "int_parsing_size"): "a whole number",
    ("float_type", "float_parsing", "finite_number"): "a number",
    ("bool_type", "bool_parsing"): "true or false",
    ("string_type", "string_too_short", "string_unicode"): "text that is not empty",
    ("list_type", "too_short"): "a list that is not empty",
    ("too_long",): "a list of at most {max_length}",
    ("literal_error",): "{expected}",
    ("query_type",): "SPARQL as text, or an object with select and where",
    ("dict_type", "model_type", "model_attributes_type"): "an object with named fields",
}
"""What a value must be, by the type of pydantic's error."""


async def _http_error(request: Request, error: Any) -> Response:
    return error_response(error.status_code, str(error.detail), headers=error.headers)
