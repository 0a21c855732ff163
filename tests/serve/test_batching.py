"""Batched questions are answered exactly as single ones."""

from __future__ import annotations

import asyncio

import pytest

from dihedral.serve.batching import Batcher
from dihedral.serve.schemas import PredictQuestion


def make_questions(served) -> list[PredictQuestion]:
    people = served.graph.entities[:12]
    return [
        question(known="exclude" if i % 3 else "include", top=1 + i % 4, relation=relation, **given)
        for i, person in enumerate(people)
        for relation in ("spouse", "child")
        for given in [{"head": person, "tail": None} if i % 2 else {"head": None, "tail": person}]
    ]


def question(head="man_0000", relation="spouse", tail=None, top=1, known="include") -> PredictQuestion:
    return PredictQuestion(head=head, relation=relation, tail=tail, top=top, known=known)


def test_batched_answers_match_single_questions(models):
    served = models["family"]
    sizes: list[int] = []
    questions = make_questions(served)

    async def submit():
        batcher = Batcher(served, sizes.append)
        return await asyncio.gather(*(batcher.submit([each]) for each in questions))

    for asked, (found,) in zip(questions, asyncio.run(submit()), strict=True):
        expected = asked.answer(served.predictor)
        assert [(p.head, p.tail, p.known) for p in found] == [(p.head, p.tail, p.known) for p in expected]
        assert [p.score for p in found] == pytest.approx([p.score for p in expected], rel=1e-4)
    assert sizes == [len(questions)]  # all arrive before the worker starts


def test_an_error_reaches_its_requests_and_the_next_batch_continues(models):
    served = models["family"]

    async def submit():
        batcher = Batcher(served)
        with pytest.raises(ValueError, match="nobody"):
            await batcher.submit([question("nobody")])
        return await batcher.submit([question()])

    assert len(asyncio.run(submit())[0]) == 1


def test_a_cancelled_request_does_not_affect_the_others(models):
    served = models["family"]

    async def submit():
        batcher = Batcher(served)
        cancelled = asyncio.create_task(batcher.submit([question()]))
        kept = asyncio.create_task(batcher.submit([question()]))
        await asyncio.sleep(0)
        cancelled.cancel()
        return await kept

    assert len(asyncio.run(submit())[0]) == 1
