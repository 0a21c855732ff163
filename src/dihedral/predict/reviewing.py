"""Reviewing: the proposals that are left to decide about, and decisions with the probabilities that were shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dihedral.errors import DihedralError
from dihedral.graph.types import Members, members_of
from dihedral.predict.completion import OnProgress, missing_facts
from dihedral.predict.predictor import Predictor
from dihedral.probability.corrections import scale_odds
from dihedral.store.reviews import Decision, Fact, Reviews, now

Proposal = dict[str, Any]  # head, relation, tail, score and probability


def find_proposals(
    predictor: Predictor,
    reviews: Reviews,
    *,
    reviewer: str | None = None,
    relations: Sequence[str] = (),
    type: str | None = None,
    types: Members | None = None,
    top: int = 100,
    per_relation: int | None = None,
    on_progress: OnProgress | None = None,
) -> list[Proposal]:
    """The most probable missing facts that nobody has accepted or rejected, and that the reviewer has not skipped.

    type: only facts with an entity of this type (`graph.types`). types: those of the graph, if they are at hand.
    """
    about = None if type is None else members_of(predictor.graph, type, types)
    decided = [*reviews.standing(), *(reviews.opinions(reviewer) if reviewer is not None else ())]
    found = missing_facts(
        predictor, relations=relations, top=top, per_relation=per_relation, about=about, exclude=decided,
        on_progress=on_progress,
    )  # fmt: skip
    return found.select(["head", "relation", "tail", "score", "probability"]).to_pylist()


def fact_of(proposal: Proposal) -> Fact:
    return proposal["head"], proposal["relation"], proposal["tail"]


def at_least(proposals: Sequence[Proposal], min_probability: float | None) -> list[Proposal]:
    """The proposals with at least this probability."""
    return [each for each in proposals if min_probability is None or (each["probability"] or 0) >= min_probability]


def left_open(proposals: Sequence[Proposal], reviews: Reviews, reviewer: str) -> list[Proposal]:
    """Those that nobody has accepted or rejected, and that this reviewer has not skipped."""
    decided = reviews.standing().keys() | reviews.opinions(reviewer).keys()
    return [each for each in proposals if fact_of(each) not in decided]


def make_decision(
    predictor: Predictor, fact: Fact, decision: str, reviewer: str, note: str = "", time: str = ""
) -> Decision:
    """A decision about a fact that the graph does not hold, with its probability now."""
    ids = predictor.triple_ids([fact])
    (name,) = predictor.graph.names_of(ids.cpu().numpy())
    if bool(predictor.known.contains(*ids.T)[0]):
        raise DihedralError(f"fact {name!r:.300} is in the graph; decide about facts that it does not hold")
    (shown,) = predictor.probabilities(ids)
    before = None
    if predictor.calibration is not None and predictor.calibration.offsets is not None:
        ratio = np.exp(-predictor.calibration.offsets[int(ids[0, 1])])
        before = float(scale_odds(np.array([shown]), ratio)[0])
    return Decision(name, decision, reviewer, time or now(), note, _short(shown), _short(before))


def _short(probability: float | None) -> float | None:
    return None if probability is None else float(f"{probability:.4g}")
