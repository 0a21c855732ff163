"""Completions, judgements, missing facts, explanations and path questions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import anyio
import torch
from fastapi import APIRouter, Body, Query, Request

import dihedral as dh
from dihedral.errors import DihedralError
from dihedral.inference.predictor import Prediction
from dihedral.serving import messages as m
from dihedral.serving.batching import Batcher, Question
from dihedral.serving.routes.asked import PROBLEMS, Chosen, ModelParam, find_batcher, find_model
from dihedral.serving.served import ServedModel, UnknownNameError

router = APIRouter(prefix="/v1", responses=PROBLEMS)


@router.get("/predict", tags=["predictions"])
async def predict(request: Request, asked: Annotated[m.PredictOne, Query()]) -> m.Predictions:
    """The best completions of a triple of which two parts are given."""
    batcher = find_batcher(request, asked.model)
    return m.Predictions(model=batcher.served.name, predictions=(await _predict(batcher, [asked]))[0])


@router.post("/predict", tags=["predictions"])
async def predict_batch(
    request: Request, asked: Annotated[m.Predict, Body()], model: ModelParam = None
) -> m.Predictions | m.PredictionLists:
    """The same for one question, or for many as {"questions": [...]}."""
    batcher = find_batcher(request, asked.model or model)
    name = batcher.served.name
    if isinstance(asked, m.PredictOne):
        return m.Predictions(model=name, predictions=(await _predict(batcher, [asked]))[0])
    return m.PredictionLists(model=name, answers=await _predict(batcher, asked.questions))


async def _predict(batcher: Batcher, asked: Sequence[m.PredictQuestion]) -> list[list[m.Predicted]]:
    served = batcher.served
    together = sum(each.top for each in asked)
    if together > m.MAX_ANSWERS:
        raise DihedralError(
            f"the questions ask for {together:,} answers together, a request for at most {m.MAX_ANSWERS:,}; "
            "ask in smaller batches"
        )
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


def _check(served: ServedModel, asked: m.PredictQuestion) -> None:
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


@router.post("/classify", tags=["predictions"])
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


@router.get("/missing", tags=["predictions"])
async def missing(
    request: Request,
    served: Chosen,
    relation: Annotated[str | None, Query(min_length=1, description="Only facts of this relation.")] = None,
    top: Annotated[int, Query(ge=1, le=m.MAX_TOP)] = 10,
) -> m.Predictions:
    """The likeliest facts that the graph lacks, among entities that training has on that side of the relation."""
    work = partial(served.missing, relation, top)
    found = await anyio.to_thread.run_sync(work, limiter=request.app.state.slow)
    return m.Predictions(model=served.name, predictions=[m.Predicted(**each) for each in found])


@router.get("/explain", tags=["predictions"])
def explain(request: Request, asked: Annotated[m.Explain, Query()]) -> m.Explained:
    """The paths of known facts that support a triple, similar facts, and the elements that carry its score."""
    return _explain(find_model(request, asked.model), asked)


@router.post("/explain", tags=["predictions"])
def explain_posted(request: Request, asked: m.Explain, model: ModelParam = None) -> m.Explained:
    """The same, asked by a body."""
    return _explain(find_model(request, asked.model or model), asked)


def _explain(served: ServedModel, asked: m.Explain) -> m.Explained:
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


@router.get("/query", tags=["predictions"])
def query(request: Request, asked: Annotated[m.Query, Query()]) -> m.PathAnswers:
    """Where a path of relations leads from an entity; repeat `via` for each step."""
    return _query(find_model(request, asked.model), asked)


@router.post("/query", tags=["predictions"])
def query_posted(request: Request, asked: m.Query, model: ModelParam = None) -> m.PathAnswers:
    """The same, asked by a body."""
    return _query(find_model(request, asked.model or model), asked)


def _query(served: ServedModel, asked: m.Query) -> m.PathAnswers:
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
