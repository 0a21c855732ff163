"""The HTTP API: one function an endpoint, which asks the library and shapes the answer."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import numpy as np
import torch
from fastapi import APIRouter, Body, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse

import dihedral as dh
from dihedral.algebra import Match, MinedRule
from dihedral.algebra import Share as RowShare
from dihedral.algebra.rules import Kind
from dihedral.errors import DihedralError
from dihedral.predictor import Prediction
from dihedral.serving import messages as m
from dihedral.serving.batching import Batcher, Question
from dihedral.serving.guard import Guard, Metrics, check_key, problem
from dihedral.serving.served import Served, UnknownNameError

STATIC = Path(__file__).parent / "static"
BODY_LIMIT = 1 << 20
WORKERS = max(1, min(4, os.cpu_count() or 1))

PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": m.Problem, "description": "The body cannot be read."},
    401: {"model": m.Problem, "description": "The API key is missing or wrong."},
    404: {"model": m.Problem, "description": "A name is not known; close ones are suggested."},
    413: {"model": m.Problem, "description": "The body is too large."},
    422: {"model": m.Problem, "description": "The request makes no sense."},
}
MOST_SIMILAR = 8

api = APIRouter(prefix="/v1", responses=PROBLEMS)
pages = APIRouter()


def create_app(models: dict[str, Served], *, api_key: str | None = None, body_limit: int = BODY_LIMIT) -> FastAPI:
    """The app that serves these models; the first is the one meant where none is named."""
    check_key(api_key)
    metrics = Metrics()

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = WORKERS
        yield

    app = FastAPI(
        title="dihedral",
        version=dh.__version__,
        description="Link prediction with relations that are readable elements of a dihedral group.",
        lifespan=run,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere; ours is at /docs too
        redoc_url=None,
        responses={},
    )
    app.state.models = models
    app.state.metrics = metrics
    app.state.batchers = {name: Batcher(served, metrics.batches.observe) for name, served in models.items()}
    app.state.slow = anyio.CapacityLimiter(1)  # mining rules, missing facts: one at a time
    app.include_router(api)
    app.include_router(pages)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(UnknownNameError, _unknown_name)
    app.add_exception_handler(DihedralError, _wrong_input)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _refused)
    app.add_middleware(Guard, metrics=metrics, api_key=api_key, body_limit=body_limit)
    return app


def set_threads() -> None:
    """Torch's threads, so that all workers together use the cores once."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // WORKERS))


# --- errors ---------------------------------------------------------------------------------------


async def _unknown_name(request: Request, error: Any) -> Response:
    return problem(404, str(error), error.suggestions)


async def _wrong_input(request: Request, error: Exception) -> Response:
    return problem(422, str(error))


async def _malformed(request: Request, error: Any) -> Response:
    errors = error.errors()
    if errors[0]["type"] == "json_invalid":
        return problem(400, f"the body is not JSON: {errors[0]['ctx']['error']} at character {errors[0]['loc'][-1]}")
    return problem(422, "; ".join(_sentence(each) for each in errors[:5]))


def _sentence(error: dict[str, Any]) -> str:
    """What is wrong with a field, called as the asker calls it."""
    place, *loc = error["loc"]
    if place == "body" and loc[:1] in (["one"], ["many"]):  # our own name for the kind of body
        loc = loc[1:]
    if loc[:1] in (["questions"], ["triples"]) and len(loc) > 1:
        loc = [f"{loc[0][:-1]} {loc[1] + 1}", *loc[2:]]
    return f"{': '.join(map(str, loc)) or f'the {place}'}: {error['msg']}"


async def _refused(request: Request, error: Any) -> Response:
    return problem(error.status_code, str(error.detail), headers=error.headers)


# --- the model meant ------------------------------------------------------------------------------


def find_model(request: Request, name: str | None) -> Served:
    models: dict[str, Served] = request.app.state.models
    if name is None:
        return next(iter(models.values()))
    if name not in models:
        raise UnknownNameError("model", name, models, f"; this server has {', '.join(map(repr, models))}")
    return models[name]


ModelParam = Annotated[str | None, Query(description="A model's name; the first one if not given.")]
NameParam = Annotated[str, Query(min_length=1, description="A name in full, or with a prefix.")]


def _chosen(request: Request, model: ModelParam = None) -> Served:
    return find_model(request, model)


Chosen = Annotated[Served, Depends(_chosen)]


# --- predictions ----------------------------------------------------------------------------------


@api.get("/predict", tags=["predictions"])
async def predict(request: Request, asked: Annotated[m.PredictOne, Query()]) -> m.Predictions:
    """The best completions of a triple of which two parts are given."""
    served = find_model(request, asked.model)
    return m.Predictions(model=served.name, predictions=(await _predict(request, served, [asked]))[0])


@api.post("/predict", tags=["predictions"])
async def predict_batch(
    request: Request, asked: Annotated[m.Predict, Body()], model: ModelParam = None
) -> m.Predictions | m.PredictionLists:
    """The same for one question, or for many as {"questions": [...]}."""
    served = find_model(request, asked.model or model)
    if isinstance(asked, m.PredictOne):
        return m.Predictions(model=served.name, predictions=(await _predict(request, served, [asked]))[0])
    return m.PredictionLists(model=served.name, answers=await _predict(request, served, asked.questions))


async def _predict(request: Request, served: Served, asked: Sequence[m.PredictQuestion]) -> list[list[m.Predicted]]:
    questions: list[Question] = []
    for number, each in enumerate(asked, start=1):
        try:
            _check(served, each)
        except DihedralError as error:
            if len(asked) > 1:
                error.args = (f"question {number}: {error}",)
            raise
        if each.relation is not None:
            anchor = each.head if each.head is not None else each.tail
            assert anchor is not None
            side: Any = "tail" if each.head is not None else "head"
            questions.append(Question(side, anchor, each.relation, each.top, each.known, each.among))
    batcher: Batcher = request.app.state.batchers[served.name]
    found = iter(await batcher.ask(questions))
    answers = []
    for each in asked:
        if each.relation is None:
            answers.append(
                await anyio.to_thread.run_sync(
                    partial(served.predictor.predict, head=each.head, tail=each.tail, top=each.top, known=each.known)
                )
            )
        else:
            answers.append(next(found))
    return [[_predicted(one) for one in answer] for answer in answers]


def _check(served: Served, asked: m.PredictQuestion) -> None:
    given = [part for part in (asked.head, asked.relation, asked.tail) if part is not None]
    if len(given) != 2:
        raise DihedralError(f"{len(given)} of head, relation and tail are given; give two, the third is predicted")
    for entity in (asked.head, asked.tail):
        if entity is not None:
            served.check_entity(entity)
    if asked.relation is not None:
        served.check_relation(asked.relation)
    elif asked.among is not None:
        raise DihedralError("among limits entities, but the relation is asked for; leave it out")


def _predicted(one: Prediction) -> m.Predicted:
    return m.Predicted.model_construct(
        head=one.head, relation=one.relation, tail=one.tail, score=one.score,
        probability=one.probability, known=one.known,
    )  # fmt: skip


@api.post("/classify", tags=["predictions"])
def classify(request: Request, asked: m.Classify, model: ModelParam = None) -> m.Judgements:
    """True or false for each triple, and how likely it is among as many true as false ones."""
    served = find_model(request, asked.model or model)
    if served.predictor.calibration is None:
        raise DihedralError(
            f"model {served.name!r} has no thresholds; calibrate it on valid triples before it is saved"
        )
    entities, relations = served.graph.entities, served.graph.relations
    triples = []
    for number, each in enumerate(asked.triples, start=1):
        try:
            h, t = served.check_entity(each.head), served.check_entity(each.tail)
            triples.append((entities[h], relations[served.check_relation(each.relation)], entities[t]))
        except UnknownNameError as error:
            error.args = (f"triple {number}: {error}",)
            raise
    found = served.predictor.classify(triples)
    return m.Judgements(model=served.name, judgements=[m.Judgement(**each._asdict()) for each in found])


@api.get("/missing", tags=["predictions"])
async def missing(
    request: Request,
    served: Chosen,
    relation: Annotated[str | None, Query(min_length=1, description="Only facts of this relation.")] = None,
    top: Annotated[int, Query(ge=1, le=m.MOST_TOP)] = 10,
) -> m.Predictions:
    """The likeliest facts that the graph lacks, among entities that training has on that side of the relation."""
    work = partial(served.missing, relation, top)
    found = await anyio.to_thread.run_sync(work, limiter=request.app.state.slow)
    return m.Predictions(model=served.name, predictions=[m.Predicted(**each) for each in found])


@api.get("/explain", tags=["predictions"])
def explain(request: Request, asked: Annotated[m.Explain, Query()]) -> m.Explained:
    """The paths of known facts that support a triple, alike facts, and the elements that carry its score."""
    return _explain(find_model(request, asked.model), asked)


@api.post("/explain", tags=["predictions"])
def explain_posted(request: Request, asked: m.Explain, model: ModelParam = None) -> m.Explained:
    """The same, asked by a body."""
    return _explain(find_model(request, asked.model or model), asked)


def _explain(served: Served, asked: m.Explain) -> m.Explained:
    h, t = served.check_entity(asked.head), served.check_entity(asked.tail)
    r = served.check_relation(asked.relation)
    entities, relations, calibration = served.graph.entities, served.graph.relations, served.predictor.calibration
    found = dh.explain(served.predictor, entities[h], relations[r], entities[t], top=asked.top)
    likely = calibration.probabilities(torch.tensor(found.score), torch.tensor(r)) if calibration else None
    split = served.facts.split_of(h, r, t)
    return m.Explained(
        model=served.name,
        head=entities[h],
        relation=relations[r],
        tail=entities[t],
        known=split is not None,  # as /v1/predict has it; found.known is that of training
        split=split,
        score=found.score,
        probability=None if likely is None else float(likely),
        ranks=found.ranks,
        supported=found.supported,
        paths=[
            m.Path(
                relations=list(path.relations), entities=list(path.entities), support=path.support,
                confidence=path.confidence, pairs=path.pairs,
            )
            for path in found.paths
        ],
        alike=[
            m.Alike(head=each.fact[0], relation=each.fact[1], tail=each.fact[2], likeness=each.likeness)
            for each in found.alike
        ],
        elements=found.elements,
    )  # fmt: skip


@api.get("/query", tags=["predictions"])
def query(request: Request, asked: Annotated[m.Query, Query()]) -> m.PathAnswers:
    """Where a path of relations leads from an entity; repeat `via` for each step."""
    return _query(find_model(request, asked.model), asked)


@api.post("/query", tags=["predictions"])
def query_posted(request: Request, asked: m.Query, model: ModelParam = None) -> m.PathAnswers:
    """The same, asked by a body."""
    return _query(find_model(request, asked.model or model), asked)


def _query(served: Served, asked: m.Query) -> m.PathAnswers:
    served.check_entity(asked.start)
    for step in asked.via:
        served.read_step(step)
    found = served.predictor.query(asked.start, asked.via, top=asked.top, mode=asked.mode)
    answers = [
        m.PathAnswer(entity=each.entity, score=each.score, through=list(each.through))
        for each in found
        if math.isfinite(each.score)  # a beam gives -inf to what no way leads to
    ]
    return m.PathAnswers(model=served.name, answers=answers)


# --- the algebra ----------------------------------------------------------------------------------


@api.get("/relations", tags=["algebra"])
def relations(served: Chosen) -> m.Relations:
    """All relations: their facts, how symmetric they are, and the relation nearest to their inverse."""
    return _relations(served)


@lru_cache(maxsize=32)  # hundreds of relations take a while, and every page of the explorer asks
def _relations(served: Served) -> m.Relations:
    summaries = [_summary(served, number, 1) for number in range(served.graph.num_relations)]
    return m.Relations(model=served.name, relations=summaries)


@api.get("/relations/{name:path}", tags=["algebra"])
async def relation(request: Request, served: Chosen, name: str) -> m.RelationDetail:
    """One relation: its elements of D_K, the relations nearest to its inverse, the compositions it is part of."""
    return await _relation(request, served, name)


@api.get("/relation", tags=["algebra"])
async def relation_named(request: Request, served: Chosen, name: NameParam) -> m.RelationDetail:
    """The same for any name, also one such as `..` that no path can hold."""
    return await _relation(request, served, name)


async def _relation(request: Request, served: Served, name: str) -> m.RelationDetail:
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


def _summary(served: Served, number: int, inverses: int) -> m.RelationSummary:
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


@api.get("/compose", tags=["algebra"])
def compose(request: Request, asked: Annotated[m.Compose, Query()]) -> m.Product:
    """The product of relations and inverses: its elements, and the relations nearest to it."""
    return _compose(find_model(request, asked.model), asked)


@api.post("/compose", tags=["algebra"])
def compose_posted(request: Request, asked: m.Compose, model: ModelParam = None) -> m.Product:
    """The same, asked by a body."""
    return _compose(find_model(request, asked.model or model), asked)


def _compose(served: Served, asked: m.Compose) -> m.Product:
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


@api.get("/rules", tags=["algebra"])
async def rules(
    request: Request,
    served: Chosen,
    kind: Kind | None = None,
    top: Annotated[int, Query(ge=1, le=m.MOST_TOP)] = 100,
) -> m.Rules:
    """The rules that the model believes in, with their counts in the graph; the first call takes a while."""
    found = [rule for rule in await _rules(request, served) if kind is None or rule.kind == kind]
    return m.Rules(model=served.name, rules=[_rule(rule) for rule in found[:top]])


async def _rules(request: Request, served: Served) -> list[MinedRule]:
    if "rules" in vars(served):
        return served.rules
    return await anyio.to_thread.run_sync(lambda: served.rules, limiter=request.app.state.slow)


def _rule(rule: MinedRule) -> m.Rule:
    return m.Rule.model_validate(rule.to_dict())


def _share(share: RowShare) -> m.Share:
    return m.Share(weighed=float(share), count=share.count)


def _nearest(match: Match) -> m.Nearest:
    return m.Nearest(relation=match.relation, share=_share(match.share))


# --- entities -------------------------------------------------------------------------------------


@api.get("/entities", tags=["entities"])
async def entities(
    served: Chosen,
    search: Annotated[str, Query(description="The beginning or a part of a name.")] = "",
    top: Annotated[int, Query(ge=1, le=m.MOST_TOP)] = 10,
) -> m.Entities:
    """Entities by name as one types; without a search those with most facts."""
    found = served.search(search, top) if search else served.busiest[:top]
    counts, names = served.facts.counts, served.graph.entities
    return m.Entities(
        model=served.name, total=len(names), entities=[m.Entity(name=names[i], facts=int(counts[i])) for i in found]
    )


@api.get("/entities/{name:path}", tags=["entities"])
def entity(served: Chosen, name: str, top: Annotated[int, Query(ge=1, le=m.MOST_TOP)] = 200) -> m.EntityFacts:
    """The known facts of an entity (direction out: it is the head, in: it is the tail), and entities like it."""
    return _entity(served, name, top)


@api.get("/entity", tags=["entities"])
def entity_named(
    served: Chosen, name: NameParam, top: Annotated[int, Query(ge=1, le=m.MOST_TOP)] = 200
) -> m.EntityFacts:
    """The same for any name, also one such as `..` that no path can hold."""
    return _entity(served, name, top)


def _entity(served: Served, name: str, top: int) -> m.EntityFacts:
    number = served.check_entity(name)
    names, relation_names = served.graph.entities, served.graph.relations
    name = names[number]
    facts = [
        m.Fact(
            direction=fact.direction,
            relation=relation_names[fact.relation],
            entity=names[fact.entity],
            split=fact.split,
        )
        for fact in served.facts.of(number, top)
    ]
    similar = [m.SimilarEntity(**each._asdict()) for each in served.predictor.similar(name, top=MOST_SIMILAR)]
    total = int(served.facts.counts[number])
    return m.EntityFacts(model=served.name, name=name, total=total, facts=facts, similar=similar)


# --- models ---------------------------------------------------------------------------------------


@api.get("/models", tags=["models"])
async def models(request: Request) -> m.Models:
    """The models that this server holds."""
    held: dict[str, Served] = request.app.state.models
    return m.Models(default=next(iter(held)), models=[m.ModelSummary(**_about(served)) for served in held.values()])


@api.get("/info", tags=["models"])
def info(served: Chosen) -> m.Info:
    """Recipe, metrics and training curve of a model."""
    about = served.description
    return m.Info(
        **_about(served),
        prefixes=served.prefixes,
        recipe=about["recipe"],
        metrics=about["metrics"],
        curve=served.curve,
    )


def _about(served: Served) -> dict[str, Any]:
    about = served.description
    return {
        "name": served.name,
        "kind": about["model"],
        "K": about["settings"].get("K"),
        "facts": len(served.graph.known),
        **{key: about[key] for key in ("dimension", "graph", "entities", "relations")},
    }


# --- pages ----------------------------------------------------------------------------------------


@pages.head("/healthz", include_in_schema=False)  # monitors ask so
@pages.get("/healthz", tags=["server"])
async def healthz() -> m.Health:
    """Whether the server answers."""
    return m.Health()


@pages.get("/metrics", tags=["server"], response_class=Response, responses={401: PROBLEMS[401]})
async def metrics(request: Request) -> Response:
    """Counts and times of requests, for Prometheus."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@pages.head("/", include_in_schema=False)
@pages.get("/", include_in_schema=False)
async def explorer() -> FileResponse:
    return FileResponse(STATIC / "index.html")


@pages.get("/docs", include_in_schema=False)
async def docs() -> FileResponse:
    return FileResponse(STATIC / "docs.html")
