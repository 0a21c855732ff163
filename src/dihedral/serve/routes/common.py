"""Shared by all endpoints: the model that is asked, error responses, and registration with a queue of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter, Signature, signature
from itertools import product
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import BaseModel, Field

from dihedral.serve import schemas
from dihedral.serve.batching import Batcher
from dihedral.serve.served_model import ServedModel, UnknownNameError
from dihedral.serve.workers import Queue, Workers

Function = TypeVar("Function", bound=Callable[..., BaseModel])

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
ModelParam = Annotated[str | None, Query(description="Name of the model. Default: the first model.")]
NameParam = Annotated[str, Field(description="A full name, or one with a prefix.")]  # in the path or in the query
TopParam = Annotated[int, Query(ge=1, le=schemas.MAX_TOP)]
PerRelationParam = Annotated[int | None, Query(ge=1, description="At most so many facts of each relation.")]
RelationParam = Annotated[str | None, Query(min_length=1, description="Only facts of this relation.")]


def find_batcher(request: Request, name: str | None) -> Batcher:
    """The batcher of a model. Call it once per request: the model may be replaced meanwhile."""
    batchers: dict[str, Batcher] = request.app.state.batchers
    if name is None:
        return next(iter(batchers.values()))
    if name not in batchers:
        raise UnknownNameError("model", name, lambda: batchers, f"; this server has {', '.join(map(repr, batchers))}")
    return batchers[name]


async def answer_in(queue: Queue, request: Request, served: ServedModel, call: Callable[[], BaseModel]) -> Any:
    """What a call returns, as JSON with the labels of its names; all of it is made in a thread of a queue."""
    queues: dict[Queue, Workers] = request.app.state.queues
    content = await queues[queue].run(lambda: served.labelled(call()).model_dump_json().encode())
    return Response(content, media_type="application/json")


def endpoint(
    router: APIRouter,
    *paths: str,
    methods: Sequence[str] = ("GET",),
    queue: Queue | Callable[..., Queue] = "heavy",
    **options: Any,
) -> Callable[[Function], Function]:
    """Register a function that takes a served model and returns a response; it is called in a thread of a queue.

    Its other arguments are parameters in the URL. An argument `body` holds the parameters of GET and the JSON of POST;
    the name of the model is then in the body or in the URL. `request` is passed if it is among the arguments.
    queue: its name, or a function that chooses it by the served model and these arguments.
    """

    def register(function: Function) -> Function:
        for path, method in product(paths, methods):
            answer = _answering(function, method, queue)
            router.add_api_route(
                path, answer, methods=[method], name=function.__name__, description=function.__doc__,
                response_model=signature(function, eval_str=True).return_annotation, **options,
            )  # fmt: skip
        return function

    return register


def _answering(function: Function, method: str, queue: Queue | Callable[..., Queue]) -> Callable[..., Any]:
    """The coroutine that FastAPI calls, with the signature from which it reads the parameters of a request."""

    async def answer(request: Request, model: str | None = None, **arguments: Any) -> Any:
        served = find_batcher(request, getattr(arguments.get("body"), "model", None) or model).served
        chosen = queue(served, **arguments) if callable(queue) else queue
        if "request" in expected:
            arguments["request"] = request
        return await answer_in(chosen, request, served, partial(function, served, **arguments))

    expected = signature(function, eval_str=True).parameters
    others = {name: each for name, each in expected.items() if name not in ("served", "request")}
    if "body" in others:
        kind, place = others["body"].annotation, Query() if method == "GET" else Body()
        others["body"] = others["body"].replace(annotation=Annotated[kind, place])
    if "body" not in others or method == "POST":
        others["model"] = Parameter("model", Parameter.KEYWORD_ONLY, default=None, annotation=ModelParam)
    keywords = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in others.values()]
    first = Parameter("request", Parameter.POSITIONAL_OR_KEYWORD, annotation=Request)
    answer.__signature__ = Signature([first, *keywords])  # type: ignore[attr-defined]
    return answer
