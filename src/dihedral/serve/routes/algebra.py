"""Endpoints for the group elements: relations, products and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import matmul
from typing import Annotated

from fastapi import APIRouter, Query

from dihedral.elements.shares import ComponentShare
from dihedral.graph.patterns import RuleCount, count_rule, count_rules
from dihedral.graph.steps import parse_steps, split_step
from dihedral.interpretation import MinedRule
from dihedral.interpretation.mining import Kind, Sort
from dihedral.runtime import interruption
from dihedral.serve import schemas
from dihedral.serve.routes.common import ERROR_RESPONSES, NameParam, TopParam, endpoint
from dihedral.serve.served_model import ServedModel
from dihedral.serve.workers import Queue

BATCH = 64  # relations summarised at a time
MAX_COUNTED = 2  # steps of a product that is counted in the graph
router = APIRouter(prefix="/v1", tags=["algebra"], responses=ERROR_RESPONSES)
MineParam = Annotated[bool, Query(description="Whether to mine rules, which is slow, if that was not done before.")]


@endpoint(router, "/relations")
def relations(
    served: ServedModel,
    skip: Annotated[int, Query(ge=0, description="How many relations to leave out first.")] = 0,
    top: Annotated[int, Query(ge=1, le=schemas.MAX_RELATIONS)] = schemas.MAX_RELATIONS,
) -> schemas.RelationsResponse:
    """Relations: number of facts, symmetry, and the relation nearest to the inverse; each also counted."""
    total, table = served.graph.num_relations, served.relation_summaries
    wanted = range(total)[skip : skip + top]
    missing = [number for number in wanted if number not in table]
    for start in range(0, len(missing), BATCH):
        interruption.check()
        part = missing[start : start + BATCH]
        nearest = None if served.algebra is None else served.algebra.nearest_inverses(part, 1)
        for place, number in enumerate(part):
            table[number] = _summary(served, number, () if nearest is None else nearest[place].tolist())
    return schemas.RelationsResponse(total=total, relations=[table[number] for number in wanted])


def _queue(served: ServedModel, mine: bool, **_: object) -> Queue:
    """Where rules are mined, if that is asked for and they are not mined yet."""
    return "slow" if mine and served.rules is None and served.algebra is not None else "heavy"


@endpoint(router, "/relations/{name:path}", "/relation", queue=_queue)  # a name such as `..` cannot be part of a path
def relation(served: ServedModel, name: NameParam, mine: MineParam = True) -> schemas.RelationResponse:
    """One relation: its elements of D_K, the relations nearest to its inverse, and its compositions."""
    names, a = served.graph.relations, served.algebra
    number = names.id(name)
    if a is None:
        summary = _summary(served, number, ())
        return schemas.RelationResponse(
            **dict(summary), K=None, elements={}, components=[], carried=[], compositions=[]
        )
    row, compositions = a.step(number), None
    if mine or served.rules is not None:
        mined = [rule for rule in served.mined_rules() if rule.kind == "composition"]
        compositions = _compared(
            [r for r in mined if row.name in (r.head, *(split_step(step, names)[0] for step in r.body))]
        )
    return schemas.RelationResponse(
        **dict(_summary(served, number, a.nearest_inverses([number], 5)[0].tolist())),
        K=a.monoid.K,
        elements=row.elements(),
        components=[a.monoid.name(code) for code in row.codes],
        carried=row.carried().round(5).tolist(),
        compositions=compositions,
    )


def _summary(served: ServedModel, number: int, nearest: Sequence[int]) -> schemas.RelationSummary:
    names, a, reversals = served.graph.relations, served.algebra, served.predictor.reversals
    shares: list[ComponentShare | None] = [None, None]
    inverses = []
    if a is not None:
        row, num_pairs = a.step(number), len(a) * (len(a) + 1) // 2
        shares = [share.among(len(a)) for share in (row.symmetry(), row.skewness())]
        for i in nearest:
            agreement = (~row).agreement(a.step(i)).among(num_pairs)
            counted = count_rule(served.graph.train_index, [len(a) + number], i)
            inverses.append(schemas.NearestRelation(relation=names[i], agreement=agreement, counted=counted))
    return schemas.RelationSummary(
        name=names[number],
        facts=int(served.fact_counts[number]),
        mutual=RuleCount(int(reversals.support[number, number]), int(reversals.size[number]), 0),
        symmetry=shares[0],
        skewness=shares[1],
        inverses=inverses,
    )


@endpoint(router, "/compose", methods=("GET", "POST"))
def compose(served: ServedModel, body: schemas.ComposeRequest) -> schemas.ComposeResponse:
    """The product of relations and inverses: its elements, and the relations nearest to it."""
    a = served.need_algebra()
    row = reduce(matmul, map(a.step, parse_steps(body.steps, a.names)))
    matches = row.nearest(body.top)
    counts: Sequence[RuleCount | None] = [None] * len(matches)
    if len(row.steps) <= MAX_COUNTED:  # longer products join too many pairs to count in a request
        counts = count_rules(served.graph.train_index, row.steps, [a.names.id(match.relation) for match in matches])
    return schemas.ComposeResponse(
        steps=body.steps,
        K=a.monoid.K,
        elements=row.elements(),
        identity=row.identity().among(3),
        symmetry=row.symmetry().among(3),
        skewness=row.skewness().among(3),
        nearest=[
            schemas.NearestRelation(relation=match.relation, agreement=match.share, counted=counted)
            for match, counted in zip(matches, counts, strict=True)
        ],
    )


@endpoint(router, "/rules", queue=_queue)
def rules(
    served: ServedModel,
    kind: Kind | None = None,
    top: TopParam = 100,
    min_confidence: Annotated[float, Query(ge=0, le=1, description="Leave out rules with a lower confidence.")] = 0.0,
    sort: Annotated[Sort, Query(description="The order; confidence is its lower 95 % bound.")] = "confidence",
    mine: MineParam = True,
) -> schemas.RulesResponse:
    """The surest rules that the model believes in, with their counts. The first request mines them and is slow."""
    if not mine and served.rules is None:
        return schemas.RulesResponse(mined=False, rules=[])
    every = (rule for rule in served.mined_rules() if kind is None or rule.kind == kind)
    found = sorted((r for r in every if r.confidence >= min_confidence), key=lambda rule: rule.sort_key(sort))
    return schemas.RulesResponse(mined=True, rules=_compared(found[:top]))


def _compared(rules: list[MinedRule]) -> list[MinedRule]:
    """Rules of one answer, their agreement compared as so many."""
    return [replace(rule, agreement=rule.agreement.among(len(rules))) for rule in rules]
