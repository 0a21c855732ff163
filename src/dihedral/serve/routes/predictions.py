"""Predictions, triple classification, missing facts, explanations and queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query, Request

import dihedral as dh
from dihedral.ask.asking import Answers
from dihedral.ask.tree import Query as Tree
from dihedral.ask.tree import path_query
from dihedral.errors import DihedralError
from dihedral.predict.predictor import Prediction
from dihedral.scoring.questions import check_options, missing_part
from dihedral.serve import schemas
from dihedral.serve.batching import Batcher, answer
from dihedral.serve.routes.common import (
    ERROR_RESPONSES,
    ModelParam,
    PerRelationParam,
    RelationParam,
    TopParam,
    answer_in,
    endpoint,
    find_batcher,
)
from dihedral.serve.served_model import ServedModel

Item = TypeVar("Item")
Result = TypeVar("Result")

router = APIRouter(prefix="/v1", tags=["predictions"], responses=ERROR_RESPONSES)


@router.get("/predict", response_model=schemas.PredictResponse)
async def predict(request: Request, body: Annotated[schemas.PredictRequest, Query()]) -> Any:
    """The best completions of a triple with two given parts."""
    batcher = find_batcher(request, body.model)
    _check(batcher.served, body)
    (found,) = await _answers(request, batcher, [body])
    response = schemas.PredictResponse(predictions=found)
    if not batcher.served.has_labels:
        return batcher.served.labelled(response)
    return await answer_in("answers", request, batcher.served, lambda: response)


@router.post("/predict", name="predict", response_model=schemas.PredictResponse | schemas.PredictBatchResponse)
async def predict_posted(request: Request, body: schemas.PredictBody, model: ModelParam = None) -> Any:
    """The best completions of a triple with two given parts, or those of a batch, {"questions": [...]}."""
    if body.questions is None:
        return await predict(request, body.model_copy(update={"model": body.model or model}))
    if body.model_fields_set - {"questions", "model"}:
        raise DihedralError("the body has questions and parts of one question; give only one of them")
    batcher = find_batcher(request, body.model or model)
    _check_batch(batcher.served, body.questions)
    answers = await _answers(request, batcher, body.questions)
    make_response = partial(schemas.PredictBatchResponse, answers=answers)
    return await answer_in("answers", request, batcher.served, make_response)


async def _answers(
    request: Request, batcher: Batcher, questions: Sequence[schemas.PredictQuestion]
) -> list[list[Prediction]]:
    """The answers of questions. Those for a relation are heavy work: their price is that of all relations."""
    answers = iter(await batcher.submit([each for each in questions if each.relation is not None]))
    pairs = [each for each in questions if each.relation is None]
    queues, predictor = request.app.state.queues, batcher.served.predictor
    relations = iter(await queues["heavy"].run(partial(answer, predictor, pairs)) if pairs else ())
    return [next(relations if each.relation is None else answers) for each in questions]


def _check_batch(served: ServedModel, questions: Sequence[schemas.PredictQuestion], new: Collection[str] = ()) -> None:
    num_answers = sum(question.top for question in questions)
    if num_answers > schemas.MAX_BATCH_ANSWERS:
        raise DihedralError(
            f"the questions ask for {num_answers:,} answers in total, and a request may ask for at most "
            f"{schemas.MAX_BATCH_ANSWERS:,}; use smaller batches"
        )
    _each("question", questions, lambda question: _check(served, question, new))


def _check(served: ServedModel, question: schemas.PredictQuestion, new: Collection[str] = ()) -> None:
    """Check a question; `new` are entities that the model does not know."""
    part = missing_part(question.head, question.relation, question.tail)
    check_options(question.top, question.known, among=question.among, part=part, order=question.order)
    served.predictor.resolve_order(question.order)
    _check_names(served, (question.head, question.tail), question.relation, new)


def _check_names(
    served: ServedModel, entities: Iterable[str | None], relation: str | None, new: Collection[str] = ()
) -> None:
    for entity in entities:
        if entity is not None and entity not in new:
            served.graph.entities.id(entity)
    if relation is not None:
        served.graph.relations.id(relation)


def _each(kind: str, items: Iterable[Item], call: Callable[[Item], Result]) -> list[Result]:
    """The result of a call for each item; an error says which item it is about."""
    results = []
    for number, item in enumerate(items, start=1):
        try:
            results.append(call(item))
        except DihedralError as error:
            error.args = (f"{kind} {number}: {error}",)
            raise
    return results


@endpoint(router, "/fold-in", methods=("POST",))
def fold_in(served: ServedModel, body: schemas.FoldInRequest) -> schemas.PredictBatchResponse:
    """Place entities that the model does not know by their facts, and answer questions about them."""
    names = set(body.entities)
    _each("fact", body.facts, lambda fact: _check_names(served, (fact.head, fact.tail), fact.relation, names))
    _check_batch(served, body.questions, names)
    grown = served.predictor.update(add=[(fact.head, fact.relation, fact.tail) for fact in body.facts])
    return schemas.PredictBatchResponse(answers=answer(grown, body.questions))


@endpoint(router, "/classify", methods=("POST",))
def classify(served: ServedModel, body: schemas.ClassifyRequest) -> schemas.ClassifyResponse:
    """Classify triples as true or false. The probability assumes as many true as false triples."""
    if served.predictor.calibration is None:
        raise DihedralError(f"model {served.name!r} has no probabilities: {served.predictor.why_not_calibrated}")
    triples = _each("triple", body.triples, lambda each: served.full_names(each.head, each.relation, each.tail))
    return schemas.ClassifyResponse(judgements=served.predictor.classify(triples))


@endpoint(router, "/missing", queue="slow")
def missing(
    served: ServedModel,
    relation: RelationParam = None,
    top: TopParam = 10,
    per_relation: PerRelationParam = None,
    among: Annotated[Literal["signature", "range", "all"], Query(description="As for /v1/predict.")] = "signature",
    min_precision: Annotated[float | None, Query(ge=0, le=1, description="The expected share that holds.")] = None,
) -> schemas.MissingResponse:
    """The most likely facts missing from the graph, with the share of the list that is expected to hold."""
    found = served.missing(relation, among, top=top, per_relation=per_relation, min_precision=min_precision)
    return schemas.MissingResponse.model_validate({"facts": found})


@endpoint(router, "/explain", methods=("GET", "POST"))
def explain(served: ServedModel, body: schemas.ExplainRequest) -> schemas.ExplainResponse:
    """Paths of known facts that support a triple, the best first, similar facts, and what elements add to its score."""
    found = dh.explain(served.predictor, body.head, body.relation, body.tail, top=body.top)
    similar = [schemas.named(each.fact) | {"similarity": each.similarity} for each in found.similar_facts]
    texts = {"unsupported": None if found.supported else found.unsupported, "note": found.note}
    content = found.to_dict() | schemas.named(found.triple) | {"similar_facts": similar} | texts
    return schemas.ExplainResponse(**content)


@endpoint(router, "/query", methods=("GET", "POST"))
def query(served: ServedModel, body: schemas.PathQueryRequest) -> schemas.AskResponse:
    """The entities that a path of relations leads to: `ask` for a path. Repeat `via` for each step."""
    return _answered(*served.ask(path_query(body.start, body.via, served.graph.relations), body.top))


@endpoint(router, "/ask", methods=("POST",))
def ask(served: ServedModel, body: schemas.AskRequest) -> schemas.AskResponse:
    """The answers of a query of several facts, in SPARQL or in its JSON form, with the facts that each rests on."""
    return _answered(*served.ask(**body.model_dump(exclude={"model"})))


def _answered(query: Tree, found: Answers) -> schemas.AskResponse:
    return schemas.AskResponse(query=query.to_dict(), answers=found.answers, plan=found.plan, exact=found.exact)
