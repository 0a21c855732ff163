"""Endpoints for the group elements: relations, products and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Query, Request

from dihedral.elements.shares import ComponentShare
from dihedral.graph.patterns import RuleCount, count_rule, count_rules
from dihedral.interpretation import Match, MinedRule, Row
from dihedral.interpretation.mining import Kind
from dihedral.runtime import interruption
from dihedral.serve import schemas
from dihedral.serve.routes.common import ERROR_RESPONSES, NameParam, SelectedModel, find_model, get_and_post, queues
from dihedral.serve.served_model import ServedModel

BATCH = 64  # relations summarised at a time
MAX_COUNTED = 2  # steps of a product that is counted in the graph
router = APIRouter(prefix="/v1", responses=ERROR_RESPONSES)
MineParam = Annotated[bool, Query(description="Whether to mine rules, which is slow, if that was not done before.")]


@router.get("/relations", tags=["algebra"])
async def relations(
    request: Request,
    served: SelectedModel,
    skip: Annotated[int, Query(ge=0, description="How many relations to leave out first.")] = 0,
    top: Annotated[int, Query(ge=1, le=schemas.MAX_RELATIONS)] = schemas.MAX_RELATIONS,
) -> schemas.RelationsResponse:
    """Relations: number of facts, symmetry, and the relation nearest to the inverse; each also counted."""

    def call() -> schemas.RelationsResponse:
        wanted = range(served.graph.num_relations)[skip : skip + top]
        found, total = _summaries(served, wanted), served.graph.num_relations
        return served.labelled(schemas.RelationsResponse(model=served.name, total=total, relations=found))

    answer: schemas.RelationsResponse = await queues(request).heavy.answer(call)
    return answer


# Cached because hundreds of relations take a while and every page of the explorer needs the table. The references are
# weak, so that a replaced model is freed.
_tables: WeakKeyDictionary[ServedModel, dict[int, schemas.RelationSummary]] = WeakKeyDictionary()


def _summaries(served: ServedModel, wanted: Sequence[int]) -> list[schemas.RelationSummary]:
    table = _tables.setdefault(served, {})
    missing = [number for number in wanted if number not in table]
    for start in range(0, len(missing), BATCH):
        interruption.check()
        part = missing[start : start + BATCH]
        nearest = None if served.algebra is None else served.algebra.nearest_inverses(part, 1)
        for place, number in enumerate(part):
            table[number] = _summary(served, number, () if nearest is None else nearest[place].tolist())
    return [table[number] for number in wanted]


@router.get("/relations/{name:path}", tags=["algebra"])
@router.get("/relation", tags=["algebra"])  # for names such as `..` that cannot be part of a path
async def relation(
    request: Request, served: SelectedModel, name: NameParam, mine: MineParam = True
) -> schemas.RelationResponse:
    """One relation: its elements of D_K, the relations nearest to its inverse, and its compositions."""
    number = served.check_relation(name)
    slow = mine and served.algebra is not None and "rules" not in vars(served)
    workers = queues(request).slow if slow else queues(request).heavy
    answer: schemas.RelationResponse = await workers.answer(partial(_relation, served, number, mine))
    return answer


def _relation(served: ServedModel, number: int, mine: bool) -> schemas.RelationResponse:
    name, a = served.graph.relations[number], served.algebra
    if a is None:
        summary = _summary(served, number, ())
        nothing: dict[str, Any] = {"K": None, "elements": {}, "components": [], "carried": [], "compositions": []}
        return served.labelled(schemas.RelationResponse(**dict(summary), model=served.name, **nothing))
    summary, compositions = _summary(served, number, a.nearest_inverses([number], 5)[0].tolist()), None
    if mine or "rules" in vars(served):
        mined = [rule for rule in served.rules if rule.kind == "composition"]
        involved = [rule for rule in mined if name in (rule.head, *(served.read_step(step)[0] for step in rule.body))]
        compositions = _shown(involved)
    row = a[name]
    response = schemas.RelationResponse(
        **dict(summary),
        model=served.name,
        K=a.monoid.K,
        elements=row.elements(),
        components=[a.monoid.name(code) for code in row.codes],
        carried=row.carried().round(5).tolist(),
        compositions=compositions,
    )
    return served.labelled(response)


def _summary(served: ServedModel, number: int, nearest: Sequence[int]) -> schemas.RelationSummary:
    names, a, (both_ways, size) = served.graph.relations, served.algebra, served.mutual
    mutual = _counted(RuleCount(int(both_ways[number]), int(size[number]), 0))
    facts, index = int(served.fact_counts[number]), served.graph.train_index
    if a is None:
        return schemas.RelationSummary(
            name=names[number], facts=facts, mutual=mutual, symmetry=None, skewness=None, inverses=[]
        )
    row, num_pairs = a[names[number]], len(a) * (len(a) + 1) // 2
    inverses = [
        schemas.NearestRelation(
            relation=names[i],
            agreement=_share((~row).agreement(a[names[i]]).among(num_pairs)),
            counted=_counted(count_rule(index, [len(a) + number], i)),
        )
        for i in nearest
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
    matches = row.nearest(body.top)
    response = schemas.ComposeResponse(
        model=served.name,
        steps=body.steps,
        K=row.algebra.monoid.K,
        elements=row.elements(),
        identity=_share(row.identity().among(3)),
        symmetry=_share(row.symmetry().among(3)),
        skewness=_share(row.skewness().among(3)),
        nearest=[
            schemas.NearestRelation(relation=match.relation, agreement=_share(match.share), counted=counted)
            for match, counted in zip(matches, _counted_rules(served, row, matches), strict=True)
        ],
    )
    return served.labelled(response)


def _counted_rules(served: ServedModel, row: Row, matches: list[Match]) -> list[schemas.Counted | None]:
    """The rules that a product implies relations; longer products join too many pairs to count in a request."""
    if len(row.steps) > MAX_COUNTED:
        return [None] * len(matches)
    heads = [served.graph.relations.id(match.relation) for match in matches]
    return [_counted(each) for each in count_rules(served.graph.train_index, row.steps, heads)]


@router.get("/rules", tags=["algebra"])
async def rules(
    request: Request,
    served: SelectedModel,
    kind: Kind | None = None,
    top: Annotated[int, Query(ge=1, le=schemas.MAX_TOP)] = 100,
    mine: MineParam = True,
) -> schemas.RulesResponse:
    """Rules read off the group elements, with their counts in the graph. The first request mines them and is slow."""
    mined = "rules" in vars(served)
    if not mined and not mine:
        return schemas.RulesResponse(model=served.name, mined=False, rules=[])

    def call() -> schemas.RulesResponse:
        found = [rule for rule in served.rules if kind is None or rule.kind == kind]
        return served.labelled(schemas.RulesResponse(model=served.name, mined=True, rules=_shown(found[:top])))

    workers = queues(request).heavy if mined else queues(request).slow
    answer: schemas.RulesResponse = await workers.answer(call)
    return answer


def _shown(rules: list[MinedRule]) -> list[schemas.Rule]:
    """Rules of one answer, their agreement compared as so many."""
    return [schemas.Rule(**replace(rule, agreement=rule.agreement.among(len(rules))).to_dict()) for rule in rules]


def _share(share: ComponentShare) -> schemas.Share:
    return schemas.Share(**share.to_dict())


def _counted(count: RuleCount) -> schemas.Counted:
    interval = count.interval and schemas.Interval(**count.interval._asdict())
    return schemas.Counted(support=count.support, pairs=count.pairs, confidence=count.confidence, interval=interval)
