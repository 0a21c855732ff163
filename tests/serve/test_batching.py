"""Batched questions are answered exactly as single ones."""

from __future__ import annotations

import asyncio

import pytest

from dihedral.serve.batching import Batcher, Question


def make_questions(served) -> list[Question]:
    people = served.graph.entities[:12]
    return [
        Question("tail" if i % 2 else "head", person, relation, 1 + i % 4, "exclude" if i % 3 else "include")
        for i, person in enumerate(people)
        for relation in ("spouse", "child")
    ]


def alone(served, question: Question):
    given = {"head" if question.side == "tail" else "tail": question.anchor}
    return served.predictor.predict(**given, relation=question.relation, top=question.top, known=question.known)


def test_batched_answers_match_single_questions(models):
    served = models["family"]
    sizes: list[int] = []
    questions = make_questions(served)

    async def submit():
        batcher = Batcher(served, sizes.append)
        return await asyncio.gather(*(batcher.submit([question]) for question in questions))

    for question, (found,) in zip(questions, asyncio.run(submit()), strict=True):
        expected = alone(served, question)
        assert [(p.head, p.tail, p.known) for p in found] == [(p.head, p.tail, p.known) for p in expected]
        assert [p.score for p in found] == pytest.approx([p.score for p in expected], rel=1e-4)
    assert sizes == [len(questions)]  # all arrive before the worker starts


def test_an_error_reaches_its_requests_and_the_next_batch_continues(models):
    served = models["family"]

    async def submit():
        batcher = Batcher(served)
        with pytest.raises(ValueError, match="nobody"):
            await batcher.submit([Question("tail", "nobody", "spouse", 1, "include")])
        return await batcher.submit([Question("tail", "man_0000", "spouse", 1, "include")])

    assert len(asyncio.run(submit())[0]) == 1


def test_a_cancelled_request_does_not_affect_the_others(models):
    served = models["family"]
    question = Question("tail", "man_0000", "spouse", 1, "include")

    async def submit():
        batcher = Batcher(served)
        cancelled = asyncio.create_task(batcher.submit([question]))
        kept = asyncio.create_task(batcher.submit([question]))
        await asyncio.sleep(0)
        cancelled.cancel()
        return await kept

    assert len(asyncio.run(submit())[0]) == 1
