"""Shared by all endpoints: model selection, error responses, and registration for both GET and POST."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Annotated, Any, TypeVar, get_type_hints

from fastapi import APIRouter, Body, Depends, Query, Request
from pydantic import Field

from dihedral.serve import schemas
from dihedral.serve.batching import Batcher
from dihedral.serve.served_model import ServedModel, UnknownNameError
from dihedral.serve.workers import Queues

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse, "description": description}
    for status, description in {
        400: "The body is not valid JSON.",
        401: "The API key is missing or wrong.",
        404: "A name is unknown; similar names are suggested.",
        408: "The body took too long to arrive.",
        413: "The body is too large.",
        422: "The request is invalid.",
        429: "This client has too many requests at a time.",
        503: "The server is busy or stopping, or the request takes too long; `Retry-After` says when to try again.",
    }.items()
}


def find_batcher(request: Request, name: str | None) -> Batcher:
    """The batcher of a model. Call it once per request: the model may be replaced meanwhile."""
    batchers: dict[str, Batcher] = request.app.state.batchers
    if name is None:
        return next(iter(batchers.values()))
    if name not in batchers:
        raise UnknownNameError("model", name, lambda: batchers, f"; this server has {', '.join(map(repr, batchers))}")
    return batchers[name]


ModelParam = Annotated[str | None, Query(description="Name of the model. Default: the first model.")]
NameParam = Annotated[str, Field(description="A full name, or one with a prefix.")]  # in the path or in the query


def find_model(request: Request, model: str | None = None) -> ServedModel:
    return find_batcher(request, model).served


async def _selected(request: Request, model: ModelParam = None) -> ServedModel:
    return find_model(request, model)  # in the event loop: a thread would have to wait for a free worker


SelectedModel = Annotated[ServedModel, Depends(_selected)]


def queues(request: Request) -> Queues:
    found: Queues = request.app.state.queues
    return found


def get_and_post(
    router: APIRouter, path: str, *, tags: list[Any], query: Any = None, query_response: Any = None
) -> Callable[[Endpoint], Endpoint]:
    """Register an endpoint `(request, body)` for GET with query parameters and for POST with a JSON body.

    An endpoint that is not a coroutine runs in the queue for heavy work. POST also accepts `?model=`; the endpoint
    finds the name in `body.model` in all cases. `query` and `query_response` are the schemas of GET where they differ
    from those in the endpoint's annotations.
    """

    def register(endpoint: Endpoint) -> Endpoint:
        hints = get_type_hints(endpoint, include_extras=True)
        body_type, response_type = hints["body"], hints["return"]

        async def get(request: Request, query: Any) -> Any:
            if iscoroutinefunction(endpoint):
                return await endpoint(request, query)
            return await queues(request).heavy.answer(partial(endpoint, request, query))

        async def post(request: Request, body: Any, model: ModelParam = None) -> Any:
            return await get(request, body.model_copy(update={"model": body.model or model}))

        get.__annotations__["query"] = Annotated[query or body_type, Query()]
        post.__annotations__["body"] = Annotated[body_type, Body()]
        for method, function, response in (
            ("GET", get, query_response or response_type),
            ("POST", post, response_type),
        ):
            router.add_api_route(
                path, function, methods=[method], tags=tags, name=endpoint.__name__, description=endpoint.__doc__,
                response_model=response,
            )  # fmt: skip
        return endpoint

    return register
