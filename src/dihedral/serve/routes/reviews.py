"""The review queue: missing facts to decide about, decisions, and their export."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response

from dihedral.serve import review_queue, schemas
from dihedral.serve.review_queue import Filters, State
from dihedral.serve.routes.common import (
    ERROR_RESPONSES,
    RelationParam,
    SelectedModel,
    TopParam,
    find_model,
    queued,
    with_body,
)
from dihedral.store.review_files import MEDIA_TYPES, ReviewFormat, to_text

REFUSAL = "this server takes no decisions, because it has no API key and others can reach it; start it with --api-key"
READ_ONLY: dict[int | str, dict[str, Any]] = {
    403: {"model": schemas.ErrorResponse, "description": "The server takes no decisions."}
}

router = APIRouter(prefix="/v1", tags=["reviews"], responses=ERROR_RESPONSES)


@router.get("/review")
@queued(lambda find, **_: "slow" if find else "light")
def review(
    request: Request,
    served: SelectedModel,
    relation: RelationParam = None,
    type: Annotated[str | None, Query(min_length=1, description="Only facts with an entity of this type.")] = None,
    min_probability: Annotated[float | None, Query(ge=0, le=1)] = None,
    state: Annotated[State, Query(description="Facts to decide about, or those with a decision.")] = "open",
    reviewer: Annotated[str, Query(description="Facts that this reviewer has skipped are not open.")] = "",
    find: Annotated[bool, Query(description="Look for missing facts if none are open, which may take long.")] = False,
    skip: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
    top: TopParam = 100,
) -> schemas.ReviewResponse:
    """Missing facts that nobody has accepted or rejected, the most probable first; or facts with a decision."""
    filters = Filters.read(served, relation, type, min_probability, reviewer)
    if find and state == "open":
        review_queue.find(served, filters)
    response = review_queue.page(served, filters, state, skip, top)
    response.writable = request.app.state.takes_decisions
    return response


@with_body(router, "/review", methods=["POST"], queue="light", responses=READ_ONLY)
def decide(request: Request, body: schemas.ReviewRequest) -> schemas.DecidedResponse:
    """Keep a decision beside the model. It is on the disk when the answer comes."""
    if not request.app.state.takes_decisions:
        raise HTTPException(403, REFUSAL)
    return review_queue.decide(find_model(request, body.model), body)


@router.get("/review/export", response_class=Response)
async def export(
    request: Request,
    served: SelectedModel,
    format: Annotated[ReviewFormat, Query(description="N-Triples hold the accepted facts alone.")] = "tsv",
) -> Response:
    """Accepted and rejected facts, with reviewers, times and notes."""
    text = await request.app.state.queues.light.run(lambda: to_text(review_queue.reviews_of(served), format))
    name = {"tsv": "reviews.tsv", "ntriples": "reviews.nt", "nquads": "reviews.nq"}[format]
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text.encode("utf-8", "replace"), media_type=MEDIA_TYPES[format], headers=headers)
