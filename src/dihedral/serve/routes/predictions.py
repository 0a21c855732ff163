"""Predictions, triple classification, missing facts, explanations and queries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request

import dihedral as dh
from dihedral import ask as queries
from dihedral.ask.tree import path_query
from dihedral.errors import DihedralError
from dihedral.graph.steps import Side
from dihedral.predict.predictor import Prediction
from dihedral.scoring.questions import check_options, missing_part
from dihedral.serve import schemas
from dihedral.serve.batching import Batcher, Question
from dihedral.serve.routes.common import (
    ERROR_RESPONSES,
    ModelParam,
    SelectedModel,
    find_batcher,
    find_model,
    get_and_post,
    queues,
)
from dihedral.serve.served_model import ServedModel

router = APIRouter(prefix="/v1", responses=ERROR_RESPONSES)


@get_and_post(
    router, "/predict", tags=["predictions"], query=schemas.PredictRequest, query_response=schemas.PredictResponse
)
async def predict(
    request: Request, body: schemas.PredictBody
) -> schemas.PredictResponse | schemas.PredictBatchResponse:
    """The best completions of a triple with two given parts. POST also answers a batch, {"questions": [...]}."""
    batcher = find_batcher(request, body.model)
    name = batcher.served.name
    if isinstance(body, schemas.PredictBatchRequest):
        answers = await _predict(batcher, body.questions)
        batch: schemas.PredictBatchResponse = await queues(request).light.answer(
            lambda: batcher.served.labelled(
                schemas.PredictBatchResponse.model_construct(model=name, answers=_shown(answers))
            )
        )
        return batch
    (shown,) = _shown(await _predict(batcher, [body]))
    response = schemas.PredictResponse.model_construct(model=name, predictions=shown, labels={})
    if not batcher.served.has_labels:
        return response
    labelled: schemas.PredictResponse = await queues(request).light.answer(partial(batcher.served.labelled, response))
    return labelled


async def _predict(batcher: Batcher, queries: Sequence[schemas.PredictQuestion]) -> list[list[Prediction]]:
    served = batcher.served
    _check_answers(queries)
    questions: list[Question] = []
    for number, query in enumerate(queries, start=1):
        with _numbered("question", number) if len(queries) > 1 else nullcontext():
            _check(served, query)
        anchor = query.head if query.head is not None else query.tail
        assert anchor is not None
        side: Side = "head" if query.head is None else "tail"
        other = query.tail if query.relation is None else None
        options = query.top, query.known, query.among, other, query.order
        questions.append(Question(side, anchor, query.relation, *options))
    return await batcher.submit(questions)


def _check_answers(queries: Sequence[schemas.PredictQuestion]) -> None:
    num_answers = sum(query.top for query in queries)
    if num_answers > schemas.MAX_BATCH_ANSWERS:
        raise DihedralError(
            f"the questions ask for {num_answers:,} answers in total, and a request may ask for at most "
            f"{schemas.MAX_BATCH_ANSWERS:,}; use smaller batches"
        )


def _shown(answers: Sequence[Sequence[Prediction]]) -> list[list[schemas.Prediction]]:
    return [[schemas.Prediction.model_construct(**each._asdict()) for each in answer] for answer in answers]


def _check(served: ServedModel, query: schemas.PredictQuestion, new: Collection[str] = ()) -> None:
    """Check a question; `new` are entities that the model does not know."""
    part = missing_part(query.head, query.relation, query.tail)
    check_options(query.top, query.known, among=query.among, part=part, order=query.order)
    if query.order == "probability" and served.predictor.calibration is None:
        raise DihedralError(f"order is 'probability', but there are none: {served.predictor.why_not_calibrated}")
    for entity in (query.head, query.tail):
        if entity is not None and entity not in new:
            served.check_entity(entity)
    if query.relation is not None:
        served.check_relation(query.relation)


@router.post("/fold-in", tags=["predictions"])
async def fold_in(
    request: Request, body: schemas.FoldInRequest, model: ModelParam = None
) -> schemas.PredictBatchResponse:
    """Place entities that the model does not know by their facts, and answer questions about them."""
    served = find_model(request, body.model or model)
    answer: schemas.PredictBatchResponse = await queues(request).heavy.answer(partial(_fold_in, served, body))
    return answer


def _fold_in(served: ServedModel, body: schemas.FoldInRequest) -> schemas.PredictBatchResponse:
    _check_answers(body.questions)
    names = set(body.entities)
    for number, fact in enumerate(body.facts, start=1):
        with _numbered("fact", number):
            served.check_relation(fact.relation)
            for entity in {fact.head, fact.tail} - names:
                served.check_entity(entity)
    for number, query in enumerate(body.questions, start=1):
        with _numbered("question", number):
            _check(served, query, names)
    facts = [(fact.head, fact.relation, fact.tail) for fact in body.facts]
    grown = served.predictor.fold_in(body.entities, facts)
    answers = []
    for number, query in enumerate(body.questions, start=1):
        with _numbered("question", number):
            answers.append(grown.predict(**query.model_dump()))
    return served.labelled(schemas.PredictBatchResponse.model_construct(model=served.name, answers=_shown(answers)))


@contextmanager
def _numbered(kind: str, number: int) -> Iterator[None]:
    """Say in an error which item of a list it is about."""
    try:
        yield
    except DihedralError as error:
        error.args = (f"{kind} {number}: {error}",)
        raise


@router.post("/classify", tags=["predictions"])
async def classify(
    request: Request, body: schemas.ClassifyRequest, model: ModelParam = None
) -> schemas.ClassifyResponse:
    """Classify triples as true or false. The probability assumes as many true as false triples."""
    served = find_model(request, body.model or model)
    answer: schemas.ClassifyResponse = await queues(request).light.answer(partial(_classify, served, body))
    return answer


def _classify(served: ServedModel, body: schemas.ClassifyRequest) -> schemas.ClassifyResponse:
    if served.predictor.calibration is None:
        raise DihedralError(f"model {served.name!r} has no probabilities: {served.predictor.why_not_calibrated}")
    triples = []
    for number, triple in enumerate(body.triples, start=1):
        with _numbered("triple", number):
            triples.append(served.check_triple(triple.head, triple.relation, triple.tail))
    judgements = [schemas.Judgement(**each._asdict()) for each in served.predictor.classify(triples)]
    return served.labelled(schemas.ClassifyResponse(model=served.name, judgements=judgements))


@router.get("/missing", tags=["predictions"])
async def missing(
    request: Request,
    served: SelectedModel,
    relation: Annotated[str | None, Query(min_length=1, description="Only facts of this relation.")] = None,
    top: Annotated[int, Query(ge=1, le=schemas.MAX_TOP)] = 10,
    among: Annotated[Literal["signature", "range", "all"], Query(description="As for /v1/predict.")] = "signature",
    min_precision: Annotated[float | None, Query(ge=0, le=1, description="The expected share that holds.")] = None,
) -> schemas.MissingResponse:
    """The most likely facts missing from the graph, with the share of the list that is expected to hold."""

    def call() -> schemas.MissingResponse:
        found = served.missing(relation, top, among, min_precision)
        facts = [schemas.MissingFact(**each) for each in found]
        return served.labelled(schemas.MissingResponse(model=served.name, facts=facts))

    answer: schemas.MissingResponse = await queues(request).slow.answer(call)
    return answer


@get_and_post(router, "/explain", tags=["predictions"])
def explain(request: Request, body: schemas.ExplainRequest) -> schemas.ExplainResponse:
    """Paths of known facts that support a triple, similar facts, and the elements that contribute to its score."""
    served = find_model(request, body.model)
    head, relation, tail = served.check_triple(body.head, body.relation, body.tail)
    found = dh.explain(served.predictor, head, relation, tail, top=body.top)
    content = found.to_dict() | {"head": head, "relation": relation, "tail": tail}
    content["unsupported"] = None if found.supported else found.unsupported
    parts = ("head", "relation", "tail")
    content["similar_facts"] = [
        dict(zip(parts, each.fact, strict=True)) | {"similarity": each.similarity} for each in found.similar_facts
    ]
    return served.labelled(schemas.ExplainResponse(model=served.name, **content))


@get_and_post(router, "/query", tags=["predictions"])
def query(request: Request, body: schemas.PathQueryRequest) -> schemas.AskResponse:
    """The entities that a path of relations leads to: `ask` for a path. Repeat `via` for each step."""
    served = find_model(request, body.model)
    return _ask(served, path_query(body.start, body.via, served.graph.relations), top=body.top)


@router.post("/ask", tags=["predictions"])
async def ask(request: Request, body: schemas.AskRequest, model: ModelParam = None) -> schemas.AskResponse:
    """The answers of a query of several facts, in SPARQL or in its JSON form, with the facts that each rests on."""
    served = find_model(request, body.model or model)
    options = body.model_dump(exclude={"query", "model"})
    answer: schemas.AskResponse = await queues(request).heavy.answer(partial(_ask, served, body.query, **options))
    return answer


def _ask(served: ServedModel, asked: str | dict[str, Any] | queries.Query, **options: Any) -> schemas.AskResponse:
    query, found = served.ask(asked, **options)
    answers = [
        schemas.Answer(**each._asdict() | {"facts": [fact._asdict() for fact in each.facts]}) for each in found.answers
    ]
    response = schemas.AskResponse(
        model=served.name, query=query.to_dict(), answers=answers, plan=found.plan, exact=found.exact
    )
    return served.labelled(response)
