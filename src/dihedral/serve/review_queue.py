"""The review queue of a served model: missing facts that were looked for once, and what was decided about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dihedral.errors import DihedralError
from dihedral.predict.reviewing import (
    Proposal,
    at_least,
    check_min_probability,
    fact_of,
    find_proposals,
    left_open,
    make_decision,
)
from dihedral.serve import schemas
from dihedral.serve.served_model import SearchKey, ServedModel, UnknownNameError
from dihedral.store.reviews import Decision, Fact, Reviews, Verdict, clean

MAX_FOUND = 1000  # facts of one search
MAX_KEPT = 16  # searches
MAX_TYPES = 200  # in an answer
EVERYONE = ""  # instead of a reviewer: a search that leaves out nobody's skips

State = Literal["open", "accept", "reject", "skip"]


@dataclass(frozen=True)
class Filters:
    """Which facts are wanted, by full names."""

    relation: str | None
    type: str | None
    min_probability: float | None
    reviewer: str

    @classmethod
    def read(
        cls, served: ServedModel, relation: str | None, type: str | None, min_probability: float | None, reviewer: str
    ) -> Filters:
        """Filters of a request; an error for an unknown relation or type."""
        if relation is not None:
            relation = served.graph.relations[served.check_relation(relation)]
        if type is not None and type not in served.types:
            raise UnknownNameError("type", type, lambda: served.types)
        check_min_probability(served.predictor, min_probability)
        return cls(relation, type, min_probability, clean(reviewer))

    def key(self, reviewer: str) -> SearchKey:
        """Where the facts of a search without the skips of this reviewer are kept."""
        return self.relation, self.type, reviewer


def reviews_of(served: ServedModel) -> Reviews:
    if served.reviews is None:
        raise DihedralError(f"model {served.name!r} has no folder to keep decisions in")
    return served.reviews


def find(served: ServedModel, filters: Filters) -> None:
    """Look for missing facts, unless some found before are still open. It takes long; call it in one thread."""
    reviews, reviewer = reviews_of(served), filters.reviewer
    if left_open(_found(served, filters) or [], reviews, reviewer):
        return
    served.check_cost(filters.relation)
    has_skipped = not reviews.opinions(reviewer).keys() <= reviews.standing().keys()
    suits = reviewer if has_skipped else EVERYONE
    names = [filters.relation] if filters.relation else ()
    found = find_proposals(
        served.predictor,
        reviews,
        reviewer=suits,
        relations=names,
        type=filters.type,
        types=served.types,
        top=MAX_FOUND,
    )
    for name in (reviewer, suits):
        served.proposals.pop(filters.key(name), None)  # the reviewer has decided about all of it
    served.proposals[filters.key(suits)] = found
    for oldest in list(served.proposals)[:-MAX_KEPT]:
        del served.proposals[oldest]


def _found(served: ServedModel, filters: Filters) -> list[Proposal] | None:
    """What was found for this reviewer, or else for everyone; None if nothing was looked for."""
    own = served.proposals.get(filters.key(filters.reviewer))
    return served.proposals.get(filters.key(EVERYONE)) if own is None else own


def page(served: ServedModel, filters: Filters, state: State, skip: int, top: int) -> schemas.ReviewResponse:
    """Facts that are open to a reviewer, or those with a verdict, the latest first."""
    reviews = reviews_of(served)
    found = _found(served, filters)
    if state == "open":
        rows = left_open(at_least(found or [], filters.min_probability), reviews, filters.reviewer)
    else:
        rows = [row for row in _decided(reviews, state) if _matches(served, row, filters)]
        rows = at_least(rows, filters.min_probability)
    decisions = reviews.opinions(filters.reviewer) | reviews.standing()
    facts = [schemas.ReviewFact(**row, decision=decisions.get(fact_of(row))) for row in rows[skip : skip + top]]
    types = [schemas.EntityType(name=name, entities=len(ids)) for name, ids in list(served.types.items())[:MAX_TYPES]]
    response = schemas.ReviewResponse(
        model=served.name, found=found is not None, total=len(rows), facts=facts, counts=_counts(reviews), types=types,
    )  # fmt: skip
    return served.labelled(response)


def _decided(reviews: Reviews, verdict: Verdict) -> list[Proposal]:
    likely = reviews.probabilities()
    return [_row(fact) | {"probability": likely.get(fact)} for fact in reversed(reviews.facts(verdict))]


def _row(fact: Fact) -> Proposal:
    return dict(zip(("head", "relation", "tail"), fact, strict=True))


def _matches(served: ServedModel, row: Proposal, filters: Filters) -> bool:
    if filters.relation not in (None, row["relation"]):
        return False
    if filters.type is None:
        return True
    entities, members = served.graph.entities, served.types[filters.type]
    return any(row[part] in entities and entities.id(row[part]) in members for part in ("head", "tail"))


def _counts(reviews: Reviews) -> schemas.ReviewCounts:
    verdicts: tuple[Verdict, ...] = ("accept", "reject", "skip")
    accepted, rejected, skipped = (len(reviews.facts(verdict)) for verdict in verdicts)
    return schemas.ReviewCounts(accepted=accepted, rejected=rejected, skipped=skipped)


def decide(served: ServedModel, body: schemas.ReviewRequest) -> schemas.DecidedResponse:
    """Keep a decision; it is on the disk when this returns."""
    reviews, given = reviews_of(served), (body.head, body.relation, body.tail)
    if None in given and (body.decision != "undo" or set(given) != {None}):
        raise DihedralError(f"the decision {body.decision!r} is about a fact; give its head, relation and tail")
    undone: Decision | None = None
    if body.decision == "undo":
        undone = reviews.undo(body.reviewer, None if None in given else served.check_triple(*map(str, given)))
        fact = undone.fact
    else:
        fact = served.check_triple(*map(str, given))
        reviews.add(make_decision(served.predictor, fact, body.decision, body.reviewer, body.note))
    decision = reviews.standing().get(fact) or reviews.opinion(fact, clean(body.reviewer))
    response = schemas.DecidedResponse(
        model=served.name, fact=schemas.ReviewFact(**_row(fact), decision=decision), undone=undone,
        counts=_counts(reviews),
    )  # fmt: skip
    return served.labelled(response)
