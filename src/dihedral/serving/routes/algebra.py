"""Endpoints for the group elements: relations, products and rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated
from weakref import WeakKeyDictionary

import anyio
import numpy as np
from fastapi import APIRouter, Query, Request

from dihedral.graph.patterns import count_rule
from dihedral.interpretation import Match, MinedRule, Row
from dihedral.interpretation import Share as RowShare
from dihedral.interpretation.rules import Kind
from dihedral.serving import schemas
from dihedral.serving.routes.common import ERROR_RESPONSES, NameParam, SelectedModel, find_model, get_and_post
from dihedral.serving.served_model import ServedModel

MAX_COUNTED = 2  # steps of a product that is counted in the graph
router = APIRouter(prefix="/v1", responses=ERROR_RESPONSES)
# Cached because hundreds of relations take a while and every page of the explorer needs the table. The references are
# weak, so that a replaced model is freed.
_tables: WeakKeyDictionary[ServedModel, schemas.RelationsResponse] = WeakKeyDictionary()


@router.get("/relations", tags=["algebra"])
def relations(served: SelectedModel) -> schemas.RelationsResponse:
    """All relations: number of facts, symmetry, and the relation nearest to the inverse; each also counted."""
    if served not in _tables:
        summaries = [_summary(served, number, 1) for number in range(served.graph.num_relations)]
        _tables[served] = schemas.RelationsResponse(model=served.name, relations=summaries)
    return _tables[served]


@router.get("/relations/{name:path}", tags=["algebra"])
@router.get("/relation", tags=["algebra"])  # for names such as `..` that cannot be part of a path
async def relation(request: Request, served: SelectedModel, name: NameParam) -> schemas.RelationResponse:
    """One relation: its elements of D_K, the relations nearest to its inverse, and its compositions."""
    number = served.check_relation(name)
    name = served.graph.relations[number]
    summary, a = _summary(served, number, 5), served.algebra
    if a is None:
        return schemas.RelationResponse(**dict(summary), model=served.name, K=None, elements={}, compositions=[])
    mined = [rule for rule in await _mined_rules(request, served) if rule.kind == "composition"]
    involved = [rule for rule in mined if name in (rule.head, *(served.read_step(step)[0] for step in rule.body))]
    return schemas.RelationResponse(
        **dict(summary),
        model=served.name,
        K=a.monoid.K,
        elements=a[name].elements(),
        compositions=_shown(involved),
    )


def _summary(served: ServedModel, number: int, num_inverses: int) -> schemas.RelationSummary:
    names, a, reversals = served.graph.relations, served.algebra, served.reversals
    pairs = int(reversals.size[number])
    mutual, facts = _counted(int(reversals.support[number, number]), pairs), int(served.fact_counts[number])
    if a is None:
        return schemas.RelationSummary(
            name=names[number], facts=facts, mutual=mutual, symmetry=None, skewness=None, inverses=[]
        )
    row, num_pairs = a[names[number]], len(a) * (len(a) + 1) // 2
    inverses = [
        schemas.NearestRelation(
            relation=names[i],
            agreement=_share((~row).agreement(a[names[i]]).among(num_pairs)),
            counted=_counted(int(reversals.support[number, i]), pairs),
        )
        for i in np.argsort(-a.inverse_kappas[number], kind="stable")[:num_inverses].tolist()
    ]
    return schemas.RelationSummary(
        name=names[number],
        facts=facts,
        mutual=mutual,
        symmetry=_share(row.symmetry().among(len(a))),
        skewness=_share(row.skewness().among(len(a))),
        inverses=inverses,
    )


@get_and_post(router, "/compose", tags=["algebra"])
def compose(request: Request, body: schemas.ComposeRequest) -> schemas.ComposeResponse:
    """The product of relations and inverses: its elements, and the relations nearest to it."""
    served = find_model(request, body.model)
    row = served.product(body.steps)
    return schemas.ComposeResponse(
        model=served.name,
        steps=body.steps,
        K=row.algebra.monoid.K,
        elements=row.elements(),
        identity=_share(row.identity().among(3)),
        symmetry=_share(row.symmetry().among(3)),
        skewness=_share(row.skewness().among(3)),
        nearest=[
            schemas.NearestRelation(
                relation=match.relation, agreement=_share(match.share), counted=_counted_rule(served, row, match)
            )
            for match in row.nearest(body.top)
        ],
    )


def _counted_rule(served: ServedModel, row: Row, match: Match) -> schemas.Counted | None:
    """The rule that a product implies a relation; longer products join too many pairs to count in a request."""
    if len(row.steps) > MAX_COUNTED:
        return None
    index, head = served.graph.train_index, served.graph.relations.id(match.relation)
    return _counted(*count_rule(index, row.steps, head)[:2])


@router.get("/rules", tags=["algebra"])
async def rules(
    request: Request,
    served: SelectedModel,
    kind: Kind | None = None,
    top: Annotated[int, Query(ge=1, le=schemas.MAX_TOP)] = 100,
) -> schemas.RulesResponse:
    """Rules read off the group elements, with their counts in the graph. The first request mines them and is slow."""
    found = [rule for rule in await _mined_rules(request, served) if kind is None or rule.kind == kind]
    return schemas.RulesResponse(model=served.name, rules=_shown(found[:top]))


async def _mined_rules(request: Request, served: ServedModel) -> list[MinedRule]:
    if "rules" in vars(served):  # mined already
        return served.rules
    return await anyio.to_thread.run_sync(lambda: served.rules, limiter=request.app.state.slow_limiter)


def _shown(rules: list[MinedRule]) -> list[schemas.Rule]:
    """Rules of one answer, their agreement compared as so many."""
    return [schemas.Rule(**replace(rule, agreement=rule.agreement.among(len(rules))).to_dict()) for rule in rules]


def _share(share: RowShare) -> schemas.Share:
    return schemas.Share(**share.to_dict())


def _counted(support: int, pairs: int) -> schemas.Counted:
    return schemas.Counted(support=support, pairs=pairs, confidence=support / pairs if pairs else None)
