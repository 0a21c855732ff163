"""Predictions, triple classification, missing facts, explanations and queries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request

import dihedral as dh
from dihedral.ask.asking import Answers
from dihedral.ask.tree import Query as Tree
from dihedral.ask.tree import path_query
from dihedral.errors import DihedralError
from dihedral.scoring.questions import check_options, missing_part
from dihedral.serve import schemas
from dihedral.serve.routes.common import (
    ERROR_RESPONSES,
    RelationParam,
    SelectedModel,
    TopParam,
    answer_in,
    find_batcher,
    find_model,
    queued,
    with_body,
)
from dihedral.serve.served_model import ServedModel

router = APIRouter(prefix="/v1", tags=["predictions"], responses=ERROR_RESPONSES)


@with_body(router, "/predict", query=schemas.PredictRequest, query_response=schemas.PredictResponse)
async def predict(
    request: Request, body: schemas.PredictBody
) -> schemas.PredictResponse | schemas.PredictBatchResponse:
    """The best completions of a triple with two given parts. POST also answers a batch, {"questions": [...]}."""
    batcher = find_batcher(request, body.model)
    served = batcher.served
    questions = body.questions if isinstance(body, schemas.PredictBatchRequest) else [body]
    _check_answers(questions)
    for number, question in enumerate(questions, start=1):
        with _numbered("question", number) if len(questions) > 1 else nullcontext():
            _check(served, question)
    answers = await batcher.submit(questions)
    if isinstance(body, schemas.PredictBatchRequest):
        batch: schemas.PredictBatchResponse = await answer_in(
            "light", request, lambda: served.labelled(schemas.PredictBatchResponse(model=served.name, answers=answers))
        )
        return batch
    response = schemas.PredictResponse(model=served.name, predictions=answers[0])
    if not served.has_labels:
        return response
    labelled: schemas.PredictResponse = await answer_in("light", request, partial(served.labelled, response))
    return labelled


def _check_answers(questions: Sequence[schemas.PredictQuestion]) -> None:
    num_answers = sum(question.top for question in questions)
    if num_answers > schemas.MAX_BATCH_ANSWERS:
        raise DihedralError(
            f"the questions ask for {num_answers:,} answers in total, and a request may ask for at most "
            f"{schemas.MAX_BATCH_ANSWERS:,}; use smaller batches"
        )


def _check(served: ServedModel, question: schemas.PredictQuestion, new: Collection[str] = ()) -> None:
    """Check a question; `new` are entities that the model does not know."""
    part = missing_part(question.head, question.relation, question.tail)
    check_options(question.top, question.known, among=question.among, part=part, order=question.order)
    if question.order == "probability" and served.predictor.calibration is None:
        raise DihedralError(f"order is 'probability', but there are none: {served.predictor.why_not_calibrated}")
    for entity in (question.head, question.tail):
        if entity is not None and entity not in new:
            served.check_entity(entity)
    if question.relation is not None:
        served.check_relation(question.relation)


@with_body(router, "/fold-in", methods=["POST"])
def fold_in(request: Request, body: schemas.FoldInRequest) -> schemas.PredictBatchResponse:
    """Place entities that the model does not know by their facts, and answer questions about them."""
    served = find_model(request, body.model)
    _check_answers(body.questions)
    names = set(body.entities)
    for number, fact in enumerate(body.facts, start=1):
        with _numbered("fact", number):
            served.check_relation(fact.relation)
            for entity in {fact.head, fact.tail} - names:
                served.check_entity(entity)
    for number, question in enumerate(body.questions, start=1):
        with _numbered("question", number):
            _check(served, question, names)
    grown = served.predictor.fold_in(body.entities, [(fact.head, fact.relation, fact.tail) for fact in body.facts])
    answers = []
    for number, question in enumerate(body.questions, start=1):
        with _numbered("question", number):
            answers.append(question.answer(grown))
    return served.labelled(schemas.PredictBatchResponse(model=served.name, answers=answers))


@contextmanager
def _numbered(kind: str, number: int) -> Iterator[None]:
    """Say in an error which item of a list it is about."""
    try:
        yield
    except DihedralError as error:
        error.args = (f"{kind} {number}: {error}",)
        raise


@with_body(router, "/classify", methods=["POST"], queue="light")
def classify(request: Request, body: schemas.ClassifyRequest) -> schemas.ClassifyResponse:
    """Classify triples as true or false. The probability assumes as many true as false triples."""
    served = find_model(request, body.model)
    if served.predictor.calibration is None:
        raise DihedralError(f"model {served.name!r} has no probabilities: {served.predictor.why_not_calibrated}")
    triples = []
    for number, triple in enumerate(body.triples, start=1):
        with _numbered("triple", number):
            triples.append(served.check_triple(triple.head, triple.relation, triple.tail))
    judgements = served.predictor.classify(triples)
    return served.labelled(schemas.ClassifyResponse(model=served.name, judgements=judgements))


@router.get("/missing")
@queued("slow")
def missing(
    served: SelectedModel,
    relation: RelationParam = None,
    top: TopParam = 10,
    among: Annotated[Literal["signature", "range", "all"], Query(description="As for /v1/predict.")] = "signature",
    min_precision: Annotated[float | None, Query(ge=0, le=1, description="The expected share that holds.")] = None,
) -> schemas.MissingResponse:
    """The most likely facts missing from the graph, with the share of the list that is expected to hold."""
    found = served.missing(relation, top, among, min_precision)
    facts = [schemas.MissingFact.model_validate(each) for each in found]
    return served.labelled(schemas.MissingResponse(model=served.name, facts=facts))


@with_body(router, "/explain")
def explain(request: Request, body: schemas.ExplainRequest) -> schemas.ExplainResponse:
    """Paths of known facts that support a triple, similar facts, and the elements that contribute to its score."""
    served = find_model(request, body.model)
    head, relation, tail = served.check_triple(body.head, body.relation, body.tail)
    found = dh.explain(served.predictor, head, relation, tail, top=body.top)
    similar = [(*each.fact, each.similarity) for each in found.similar_facts]
    response = schemas.ExplainResponse(
        model=served.name,
        head=head,
        relation=relation,
        tail=tail,
        known=found.known,
        split=found.split,
        score=found.score,
        probability=found.probability,
        ranks=found.ranks,
        supported=found.supported,
        paths=list(found.paths),
        complete=found.complete,
        kinds=found.kinds,
        best_support=found.best_support,
        unsupported=None if found.supported else found.unsupported,
        similar_facts=[schemas.SimilarFact(head=h, relation=r, tail=t, similarity=value) for h, r, t, value in similar],
        elements=found.elements,
    )
    return served.labelled(response)


@with_body(router, "/query")
def query(request: Request, body: schemas.PathQueryRequest) -> schemas.AskResponse:
    """The entities that a path of relations leads to: `ask` for a path. Repeat `via` for each step."""
    served = find_model(request, body.model)
    return _answered(served, *served.ask(path_query(body.start, body.via, served.graph.relations), body.top))


@with_body(router, "/ask", methods=["POST"])
def ask(request: Request, body: schemas.AskRequest) -> schemas.AskResponse:
    """The answers of a query of several facts, in SPARQL or in its JSON form, with the facts that each rests on."""
    served = find_model(request, body.model)
    found = served.ask(
        body.query, body.top, known=body.known, facts=body.facts, conjunction=body.conjunction, ways=body.ways,
        width=body.width,
    )  # fmt: skip
    return _answered(served, *found)


def _answered(served: ServedModel, query: Tree, found: Answers) -> schemas.AskResponse:
    response = schemas.AskResponse(
        model=served.name, query=query.to_dict(), answers=found.answers, plan=found.plan, exact=found.exact
    )
    return served.labelled(response)
