"""The review queue: missing facts that were looked for once, decisions about them, and their export."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, HTTPException, Query, Request, Response

from dihedral.errors import DihedralError
from dihedral.predict.completion import check_share
from dihedral.predict.reviewing import Proposal, at_least, fact_of, find_proposals, left_open, make_decision
from dihedral.serve import schemas
from dihedral.serve.routes.common import (
    ERROR_RESPONSES,
    ModelParam,
    PerRelationParam,
    RelationParam,
    TopParam,
    endpoint,
    find_batcher,
)
from dihedral.serve.served_model import ServedModel, UnknownNameError
from dihedral.store.reviews import MEDIA_TYPES, PAST, Decision, ReviewFormat, Reviews, Verdict, clean, to_text

MAX_FOUND = 1000  # facts of one search that a reviewer has not skipped
MAX_KEPT = 16  # searches
MAX_TYPES = 200  # in an answer
REFUSAL = "this server takes no decisions, because it has no API key and others can reach it; start it with --api-key"
State = Literal["open", "accept", "reject", "skip"]
READ_ONLY: dict[int | str, dict[str, Any]] = {
    403: {"model": schemas.ErrorResponse, "description": "The server takes no decisions."}
}

router = APIRouter(prefix="/v1", tags=["reviews"], responses=ERROR_RESPONSES)


@endpoint(router, "/review", queue=lambda _, find, **__: "slow" if find else "light")
def review(
    served: ServedModel,
    request: Request,
    relation: RelationParam = None,
    type: Annotated[str | None, Query(min_length=1, description="Only facts with an entity of this type.")] = None,
    min_probability: Annotated[float | None, Query(ge=0, le=1)] = None,
    state: Annotated[State, Query(description="Facts to decide about, or those with a decision.")] = "open",
    reviewer: Annotated[str, Query(description="Facts that this reviewer has skipped are not open.")] = "",
    find: Annotated[bool, Query(description="Look for missing facts if none are open, which may take long.")] = False,
    skip: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
    top: TopParam = 100,
    per_relation: PerRelationParam = None,
) -> schemas.ReviewResponse:
    """Missing facts that nobody has accepted or rejected, the most probable first; or facts with a decision."""
    reviews, names = served.reviews, served.graph.relations
    relation, reviewer = None if relation is None else names[names.id(relation)], clean(reviewer)
    if type is not None and type not in served.types:
        raise UnknownNameError("type", type, lambda: served.types)
    check_share(served.predictor, "min_probability", min_probability)
    if find and state == "open":
        _find(served, relation, type, per_relation, reviewer)
    found = served.proposals.get((relation, type, per_relation))
    rows = left_open(found or [], reviews, reviewer) if state == "open" else _decided(served, state, relation, type)
    rows = at_least(rows, min_probability)
    decisions = reviews.opinions(reviewer) | reviews.standing()
    types = list(served.types.items())[:MAX_TYPES]
    return schemas.ReviewResponse(
        found=found is not None,
        total=len(rows),
        facts=[schemas.ReviewFact(**row, decision=decisions.get(fact_of(row))) for row in rows[skip : skip + top]],
        counts=_counts(reviews),
        types=[schemas.TypeSummary(name=name, entities=len(members)) for name, members in types],
        writable=request.app.state.takes_decisions,
    )


def _find(served: ServedModel, relation: str | None, type: str | None, per_relation: int | None, reviewer: str) -> None:
    """Look for missing facts, unless some found before are still open. It takes long; call it in one thread."""
    reviews, key = served.reviews, (relation, type, per_relation)
    if left_open(served.proposals.get(key, ()), reviews, reviewer):
        return
    served.check_cost(relation)
    num_skipped = len(reviews.opinions(reviewer).keys() - reviews.standing().keys())
    served.proposals.pop(key, None)  # the latest search comes last
    served.proposals[key] = find_proposals(
        served.predictor,
        reviews,
        relations=[relation] if relation else (),
        type=type,
        types=served.types,
        top=MAX_FOUND + num_skipped,
        per_relation=per_relation,
    )
    for oldest in list(served.proposals)[:-MAX_KEPT]:
        del served.proposals[oldest]


def _decided(served: ServedModel, verdict: Verdict, relation: str | None, type: str | None) -> list[Proposal]:
    """The facts with a verdict, the latest first."""
    entities, likely = served.graph.entities, served.reviews.probabilities()
    members = None if type is None else set(served.types[type].tolist())
    found = []
    for fact in reversed(served.reviews.facts(verdict)):
        ends = {entities.id(name) for name in (fact[0], fact[2]) if name in entities}
        if relation in (None, fact[1]) and (members is None or ends & members):
            found.append(schemas.named(fact) | {"probability": likely.get(fact)})
    return found


def _counts(reviews: Reviews) -> schemas.ReviewCounts:
    return schemas.ReviewCounts(**{PAST[verdict]: len(reviews.facts(verdict)) for verdict in get_args(Verdict)})


@endpoint(router, "/review", methods=("POST",), queue="decisions", responses=READ_ONLY)
def decide(served: ServedModel, request: Request, body: schemas.ReviewRequest) -> schemas.DecidedResponse:
    """Keep a decision beside the model. It is on the disk when the answer comes."""
    if not request.app.state.takes_decisions:
        raise HTTPException(403, REFUSAL)
    reviews, given = served.reviews, (body.head, body.relation, body.tail)
    named = None if None in given else served.full_names(*map(str, given))
    undone: Decision | None = None
    if body.decision == "undo" and (named or set(given) == {None}):
        undone = reviews.undo(body.reviewer, named)
        fact = undone.fact
    elif body.decision != "undo" and named:
        fact = named
        reviews.add(make_decision(served.predictor, fact, body.decision, body.reviewer, body.note))
    else:
        raise DihedralError(f"the decision {body.decision!r} is about a fact; give its head, relation and tail")
    stands = reviews.standing().get(fact) or reviews.opinions(clean(body.reviewer)).get(fact)
    return schemas.DecidedResponse(
        fact=schemas.ReviewFact(**schemas.named(fact), decision=stands), undone=undone, counts=_counts(reviews)
    )


@router.get("/review/export", response_class=Response)
async def export(
    request: Request,
    format: Annotated[ReviewFormat, Query(description="N-Triples hold the accepted facts alone.")] = "tsv",
    model: ModelParam = None,
) -> Response:
    """Accepted and rejected facts, with reviewers, times and notes."""
    reviews = find_batcher(request, model).served.reviews
    text = await request.app.state.queues["light"].run(lambda: to_text(reviews, format))
    name = {"tsv": "reviews.tsv", "ntriples": "reviews.nt", "nquads": "reviews.nq"}[format]
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text.encode("utf-8", "replace"), media_type=MEDIA_TYPES[format], headers=headers)
