"""Shared by all endpoints: model selection, error responses, the queues of work, and registration of endpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter, iscoroutinefunction, signature
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from fastapi import APIRouter, Body, Depends, Query, Request
from pydantic import Field

from dihedral.serve import schemas
from dihedral.serve.batching import Batcher
from dihedral.serve.served_model import ServedModel, UnknownNameError
from dihedral.serve.workers import Queues

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
Queue = Literal["light", "heavy", "slow"]  # a queue of `workers.Queues`

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
TopParam = Annotated[int, Query(ge=1, le=schemas.MAX_TOP)]
RelationParam = Annotated[str | None, Query(min_length=1, description="Only facts of this relation.")]


def find_model(request: Request, model: str | None = None) -> ServedModel:
    return find_batcher(request, model).served


async def _selected(request: Request, model: ModelParam = None) -> ServedModel:
    return find_model(request, model)  # in the event loop: a thread would have to wait for a free worker


SelectedModel = Annotated[ServedModel, Depends(_selected)]


async def answer_in(queue: Queue, request: Request, call: Callable[[], Any]) -> Any:
    """The response that a call makes in a thread of a queue."""
    queues: Queues = request.app.state.queues
    return await getattr(queues, queue).answer(call)


def queued(queue: Queue | Callable[..., Queue]) -> Callable[[Endpoint], Any]:
    """Let a plain function, which returns a response, answer requests in a queue.

    queue: its name, or a function that chooses it by the arguments of the endpoint.
    """

    def register(endpoint: Endpoint) -> Any:
        expected = signature(endpoint, eval_str=True)

        async def answer(request: Request, **arguments: Any) -> Any:
            chosen = queue if isinstance(queue, str) else queue(**arguments)
            if "request" in expected.parameters:
                arguments["request"] = request
            return await answer_in(chosen, request, partial(endpoint, **arguments))

        others = [each for name, each in expected.parameters.items() if name != "request"]
        first = Parameter("request", Parameter.KEYWORD_ONLY, annotation=Request)
        keywords = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in others]
        answer.__name__, answer.__doc__ = endpoint.__name__, endpoint.__doc__
        answer.__signature__ = expected.replace(parameters=[first, *keywords])  # type: ignore[attr-defined]
        return answer

    return register


def with_body(
    router: APIRouter,
    path: str,
    *,
    methods: Sequence[str] = ("GET", "POST"),
    queue: Queue = "heavy",
    query: Any = None,
    query_response: Any = None,
    responses: dict[int | str, dict[str, Any]] | None = None,
) -> Callable[[Endpoint], Endpoint]:
    """Register an endpoint `(request, body)` for GET with query parameters and for POST with a JSON body.

    An endpoint that is not a coroutine runs in a queue. POST also accepts `?model=`; the endpoint finds the name in
    `body.model` in all cases. `query` and `query_response` are the schemas of GET where they differ from those in the
    endpoint's annotations.
    """

    def register(endpoint: Endpoint) -> Endpoint:
        hints = get_type_hints(endpoint, include_extras=True)
        body_type, response_type = hints["body"], hints["return"]

        async def get(request: Request, query: Any) -> Any:
            if iscoroutinefunction(endpoint):
                return await endpoint(request, query)
            return await answer_in(queue, request, partial(endpoint, request, query))

        async def post(request: Request, body: Any, model: ModelParam = None) -> Any:
            return await get(request, body.model_copy(update={"model": body.model or model}))

        get.__annotations__["query"] = Annotated[query or body_type, Query()]
        post.__annotations__["body"] = Annotated[body_type, Body()]
        functions: dict[str, Callable[..., Any]] = {"GET": get, "POST": post}
        models = {"GET": query_response or response_type, "POST": response_type}
        for method in methods:
            router.add_api_route(
                path, functions[method], methods=[method], name=endpoint.__name__, description=endpoint.__doc__,
                response_model=models[method], responses=responses,
            )  # fmt: skip
        return endpoint

    return register
