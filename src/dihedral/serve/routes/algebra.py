"""Endpoints for the group elements: relations, products and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request

from dihedral.graph.patterns import RuleCount, count_rule, count_rules
from dihedral.interpretation import Match, MinedRule, Row
from dihedral.interpretation.mining import Kind
from dihedral.runtime import interruption
from dihedral.serve import schemas
from dihedral.serve.routes.common import (
    ERROR_RESPONSES,
    NameParam,
    Queue,
    SelectedModel,
    TopParam,
    find_model,
    queued,
    with_body,
)
from dihedral.serve.served_model import ServedModel

BATCH = 64  # relations summarised at a time
MAX_COUNTED = 2  # steps of a product that is counted in the graph
router = APIRouter(prefix="/v1", tags=["algebra"], responses=ERROR_RESPONSES)
MineParam = Annotated[bool, Query(description="Whether to mine rules, which is slow, if that was not done before.")]


@router.get("/relations")
@queued("heavy")
def relations(
    served: SelectedModel,
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
    found = [table[number] for number in wanted]
    return served.labelled(schemas.RelationsResponse(model=served.name, total=total, relations=found))


def _queue(served: ServedModel, mine: bool, **_: object) -> Queue:
    """Where rules are mined, if that is asked for and they are not mined yet."""
    return "slow" if mine and not served.has_rules and served.algebra is not None else "heavy"


@router.get("/relations/{name:path}")
@router.get("/relation")  # for names such as `..` that cannot be part of a path
@queued(_queue)
def relation(served: SelectedModel, name: NameParam, mine: MineParam = True) -> schemas.RelationResponse:
    """One relation: its elements of D_K, the relations nearest to its inverse, and its compositions."""
    number, a = served.check_relation(name), served.algebra
    nearest = [] if a is None else a.nearest_inverses([number], 5)[0].tolist()
    summary = _summary(served, number, nearest)
    compositions: list[MinedRule] | None = [] if a is None else None
    if a is not None and (mine or served.has_rules):
        mined = [rule for rule in served.rules if rule.kind == "composition"]
        compositions = _compared(
            [r for r in mined if summary.name in (r.head, *(served.read_step(step)[0] for step in r.body))]
        )
    row = None if a is None else a[summary.name]
    response = schemas.RelationResponse(
        **dict(summary),
        model=served.name,
        K=None if a is None else a.monoid.K,
        elements={} if row is None else row.elements(),
        components=[] if row is None else [row.algebra.monoid.name(code) for code in row.codes],
        carried=[] if row is None else row.carried().round(5).tolist(),
        compositions=compositions,
    )
    return served.labelled(response)


def _summary(served: ServedModel, number: int, nearest: Sequence[int]) -> schemas.RelationSummary:
    names, a, (both_ways, size) = served.graph.relations, served.algebra, served.mutual
    row, index = None if a is None else a[names[number]], served.graph.train_index
    inverses = []
    if a is not None and row is not None:
        num_pairs = len(a) * (len(a) + 1) // 2
        inverses = [
            schemas.NearestRelation(
                relation=names[i],
                agreement=(~row).agreement(a[names[i]]).among(num_pairs),
                counted=count_rule(index, [len(a) + number], i),
            )
            for i in nearest
        ]
    return schemas.RelationSummary(
        name=names[number],
        facts=int(served.fact_counts[number]),
        mutual=RuleCount(int(both_ways[number]), int(size[number]), 0),
        symmetry=None if row is None else row.symmetry().among(len(names)),
        skewness=None if row is None else row.skewness().among(len(names)),
        inverses=inverses,
    )


@with_body(router, "/compose")
def compose(request: Request, body: schemas.ComposeRequest) -> schemas.ComposeResponse:
    """The product of relations and inverses: its elements, and the relations nearest to it."""
    served = find_model(request, body.model)
    row = served.product(body.steps)
    matches = row.nearest(body.top)
    response = schemas.ComposeResponse(
        model=served.name,
        steps=body.steps,
        K=row.algebra.monoid.K,
        elements=row.elements(),
        identity=row.identity().among(3),
        symmetry=row.symmetry().among(3),
        skewness=row.skewness().among(3),
        nearest=[
            schemas.NearestRelation(relation=match.relation, agreement=match.share, counted=counted)
            for match, counted in zip(matches, _counted_rules(served, row, matches), strict=True)
        ],
    )
    return served.labelled(response)


def _counted_rules(served: ServedModel, row: Row, matches: list[Match]) -> Sequence[RuleCount | None]:
    """The rules that a product implies relations; longer products join too many pairs to count in a request."""
    if len(row.steps) > MAX_COUNTED:
        return [None] * len(matches)
    heads = [served.graph.relations.id(match.relation) for match in matches]
    return count_rules(served.graph.train_index, row.steps, heads)


@router.get("/rules")
@queued(_queue)
def rules(
    served: SelectedModel, kind: Kind | None = None, top: TopParam = 100, mine: MineParam = True
) -> schemas.RulesResponse:
    """Rules read off the group elements, with their counts in the graph. The first request mines them and is slow."""
    if not mine and not served.has_rules:
        return schemas.RulesResponse(model=served.name, mined=False, rules=[])
    found = [rule for rule in served.rules if kind is None or rule.kind == kind]
    return served.labelled(schemas.RulesResponse(model=served.name, mined=True, rules=_compared(found[:top])))


def _compared(rules: list[MinedRule]) -> list[MinedRule]:
    """Rules of one answer, their agreement compared as so many."""
    return [replace(rule, agreement=rule.agreement.among(len(rules))) for rule in rules]
