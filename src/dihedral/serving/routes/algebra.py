"""What the group's elements say: relations, products, rules."""

from __future__ import annotations

from typing import Annotated
from weakref import WeakKeyDictionary

import anyio
import numpy as np
from fastapi import APIRouter, Query, Request

from dihedral.interpretation import Match, MinedRule
from dihedral.interpretation import Share as RowShare
from dihedral.interpretation.rules import Kind
from dihedral.serving import messages as m
from dihedral.serving.routes.asked import PROBLEMS, Chosen, ModelParam, NameParam, find_model
from dihedral.serving.served import ServedModel

router = APIRouter(prefix="/v1", responses=PROBLEMS)
# hundreds of relations take a while, and every page of the explorer asks; weak, or a swapped model would stay
_tables: WeakKeyDictionary[ServedModel, m.Relations] = WeakKeyDictionary()


@router.get("/relations", tags=["algebra"])
def relations(served: Chosen) -> m.Relations:
    """All relations: their facts, how symmetric they are, and the relation nearest to their inverse."""
    if served not in _tables:
        summaries = [_summary(served, number, 1) for number in range(served.graph.num_relations)]
        _tables[served] = m.Relations(model=served.name, relations=summaries)
    return _tables[served]


@router.get("/relations/{name:path}", tags=["algebra"])
async def relation(request: Request, served: Chosen, name: str) -> m.RelationDetail:
    """One relation: its elements of D_K, the relations nearest to its inverse, the compositions it is part of."""
    return await _relation(request, served, name)


@router.get("/relation", tags=["algebra"])
async def relation_named(request: Request, served: Chosen, name: NameParam) -> m.RelationDetail:
    """The same for any name, also one such as `..` that no path can hold."""
    return await _relation(request, served, name)


async def _relation(request: Request, served: ServedModel, name: str) -> m.RelationDetail:
    number = served.check_relation(name)
    name = served.graph.relations[number]
    summary, a = _summary(served, number, 5), served.algebra
    if a is None:
        return m.RelationDetail(**dict(summary), model=served.name, K=None, elements={}, compositions=[])
    mined = [rule for rule in await _rules(request, served) if rule.kind == "composition"]
    taking_part = [rule for rule in mined if name in (rule.head, *(served.read_step(step)[0] for step in rule.body))]
    return m.RelationDetail(
        **dict(summary),
        model=served.name,
        K=a.group.K,
        elements=a[name].elements(),
        compositions=[_rule(rule) for rule in taking_part],
    )


def _summary(served: ServedModel, number: int, inverses: int) -> m.RelationSummary:
    name, facts = served.graph.relations[number], int(served.fact_counts[number])
    if served.algebra is None:
        return m.RelationSummary(name=name, facts=facts, symmetry=None, skewness=None, inverses=[])
    a = served.algebra
    row, names = a[name], served.graph.relations
    nearest = np.argsort(-served.inverse_shares[number], kind="stable")[:inverses]
    return m.RelationSummary(
        name=name,
        facts=facts,
        symmetry=_share(row.symmetry()),
        skewness=_share(row.skewness()),
        inverses=[_nearest(Match(names[i], (~row).agreement(a[names[i]]))) for i in nearest],
    )


@router.get("/compose", tags=["algebra"])
def compose(request: Request, asked: Annotated[m.Compose, Query()]) -> m.Product:
    """The product of relations and inverses: its elements, and the relations nearest to it."""
    return _compose(find_model(request, asked.model), asked)


@router.post("/compose", tags=["algebra"])
def compose_posted(request: Request, asked: m.Compose, model: ModelParam = None) -> m.Product:
    """The same, asked by a body."""
    return _compose(find_model(request, asked.model or model), asked)


def _compose(served: ServedModel, asked: m.Compose) -> m.Product:
    row = served.product(asked.steps)
    return m.Product(
        model=served.name,
        steps=asked.steps,
        K=row.algebra.group.K,
        elements=row.elements(),
        identity=_share(row.identity()),
        symmetry=_share(row.symmetry()),
        skewness=_share(row.skewness()),
        nearest=[_nearest(match) for match in row.nearest(asked.top)],
    )


@router.get("/rules", tags=["algebra"])
async def rules(
    request: Request,
    served: Chosen,
    kind: Kind | None = None,
    top: Annotated[int, Query(ge=1, le=m.MAX_TOP)] = 100,
) -> m.Rules:
    """The rules that the model believes in, with their counts in the graph; the first call takes a while."""
    found = [rule for rule in await _rules(request, served) if kind is None or rule.kind == kind]
    return m.Rules(model=served.name, rules=[_rule(rule) for rule in found[:top]])


async def _rules(request: Request, served: ServedModel) -> list[MinedRule]:
    if "rules" in vars(served):
        return served.rules
    return await anyio.to_thread.run_sync(lambda: served.rules, limiter=request.app.state.slow)


def _rule(rule: MinedRule) -> m.Rule:
    return m.Rule.model_validate(rule.to_dict())


def _share(share: RowShare) -> m.Share:
    return m.Share(weighted=float(share), count=share.count)


def _nearest(match: Match) -> m.Nearest:
    return m.Nearest(relation=match.relation, share=_share(match.share))
