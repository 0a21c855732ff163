"""The FastAPI application: routes, error handlers and middleware."""

from __future__ import annotations

import json
import re
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

import dihedral as dh
from dihedral.errors import DihedralError
from dihedral.graph.vocabulary import AmbiguousNameError
from dihedral.io.jsonl import LockedError
from dihedral.runtime.interruption import InterruptedWorkError
from dihedral.serve.batching import Batcher
from dihedral.serve.guard import Guard, Metrics, busy_response, check_key, error_response
from dihedral.serve.routes import about, algebra, entities, entity_map, predictions, review_queue
from dihedral.serve.routes.about import STATIC
from dihedral.serve.served_model import ServedModel, UnknownNameError
from dihedral.serve.workers import MAX_SECONDS, SLOTS, ActiveRequests, BusyError, Workers


def create_app(
    models: dict[str, ServedModel],
    *,
    api_key: str | None = None,
    hosts: frozenset[str] | None = None,
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

    app = FastAPI(
        title="dihedral",
        version=dh.__version__,
        description="Link prediction with relations that are readable elements of a dihedral group.",
        docs_url=None,  # FastAPI's page loads scripts from another host; /docs has our own
        redoc_url=None,
    )
    app.state.metrics = metrics
    app.state.batchers = {name: Batcher(served, metrics.batches.observe) for name, served in models.items()}
    app.state.queues, app.state.requests = {name: Workers(slots) for name, slots in SLOTS.items()}, requests
    app.state.takes_decisions = takes_decisions
    for routes in (predictions, algebra, entities, entity_map, about, review_queue):
        app.include_router(routes.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(UnknownNameError, _unknown_name)
    app.add_exception_handler(DihedralError, _refused)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _failed)
    app.add_middleware(Guard, metrics=metrics, requests=requests, api_key=api_key, hosts=hosts)
    return app


def _unknown_name(request: Request, error: Any) -> Response:  # not a coroutine: suggestions are made in a thread
    return error_response(404, str(error), error.suggestions)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, InterruptedWorkError):
        error = BusyError(request.app.state.requests.refusal)
    text = str(error)
    for batcher in request.app.state.batchers.values():  # a client need not know where files are
        text = text.replace(f"{batcher.served.folder}/", "")
    if isinstance(error, LockedError):
        error = BusyError(text)
    if isinstance(error, BusyError):
        return busy_response(error)
    return error_response(422, text, error.names if isinstance(error, AmbiguousNameError) else None)


async def _failed(request: Request, error: Exception) -> Response:
    return error_response(500, "the server failed to answer; its log says why")


async def _validation_error(request: Request, error: Any) -> Response:
    errors = error.errors()[:5]
    if errors[0]["type"] == "json_invalid":
        reason, position = errors[0]["ctx"]["error"], errors[0]["loc"][-1]
        return error_response(400, f"the body is not JSON: {reason} at character {position}")
    return error_response(422, "; ".join(_describe(each) for each in errors))


def _describe(error: dict[str, Any]) -> str:
    """What is wrong in plain words, with the field named as in the request."""
    place, *loc = error["loc"]
    if len(loc) > 1 and isinstance(loc[1], int):
        one = "entity" if loc[0] == "entities" else loc[0].removesuffix("s")
        loc = [f"{one} {loc[1] + 1}", *loc[2:]]
    name = ": ".join(map(str, loc)) or f"the {place}"
    if error["type"] == "plain":
        return error["msg"] if not loc else f"{name}: {error['msg']}"
    if error["type"] == "missing":
        return f"{name} is missing"
    wanted = re.sub(r"^\w+ should", "it must", error["msg"])  # pydantic's own words
    wanted = re.sub(r"a valid dictionary.*", "an object", wanted)
    return f"{name} is {_shown(error['input'])}; {wanted}"


def _shown(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    return f"{value!r:.100}" if not isinstance(value, (bool, type(None))) else json.dumps(value)


async def _http_error(request: Request, error: Any) -> Response:
    return error_response(error.status_code, str(error.detail), headers=error.headers)
