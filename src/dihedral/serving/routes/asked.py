"""What endpoints share: the model that is meant, and the problems that a request may have."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query, Request

from dihedral.serving import messages as m
from dihedral.serving.batching import Batcher
from dihedral.serving.served import ServedModel, UnknownNameError

PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": m.Problem, "description": "The body cannot be read."},
    401: {"model": m.Problem, "description": "The API key is missing or wrong."},
    404: {"model": m.Problem, "description": "A name is not known; close ones are suggested."},
    408: {"model": m.Problem, "description": "The body took too long to arrive."},
    413: {"model": m.Problem, "description": "The body is too large."},
    422: {"model": m.Problem, "description": "The request makes no sense."},
}


def find_batcher(request: Request, name: str | None) -> Batcher:
    """The one of the model meant. A request asks once and keeps to it: the model may be swapped meanwhile."""
    batchers: dict[str, Batcher] = request.app.state.batchers
    if name is None:
        return next(iter(batchers.values()))
    if name not in batchers:
        raise UnknownNameError("model", name, batchers, f"; this server has {', '.join(map(repr, batchers))}")
    return batchers[name]


def find_model(request: Request, name: str | None) -> ServedModel:
    return find_batcher(request, name).served


ModelParam = Annotated[str | None, Query(description="A model's name; the first one if not given.")]
NameParam = Annotated[str, Query(min_length=1, description="A name in full, or with a prefix.")]


def _chosen(request: Request, model: ModelParam = None) -> ServedModel:
    return find_model(request, model)


Chosen = Annotated[ServedModel, Depends(_chosen)]
