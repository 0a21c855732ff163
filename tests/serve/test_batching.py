"""Batched questions are answered exactly as single ones."""

from __future__ import annotations

import asyncio
import threading
from itertools import count

import pytest

from dihedral.runtime import interruption
from dihedral.runtime.interruption import InterruptedWorkError, Interruption, interruptible
from dihedral.serve import batching
from dihedral.serve.batching import BATCH_SECONDS, Batcher, answer
from dihedral.serve.schemas import PredictQuestion


def alone(predictor, question):
    """The answers to one question."""
    return predictor.predict(**question.model_dump(include=set(PredictQuestion.model_fields)))


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
        expected = alone(served.predictor, asked)
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


def test_requests_take_turns_so_that_many_questions_of_one_do_not_delay_another(models, monkeypatch):
    """Each question takes as long as a whole batch may."""
    answered, times = [], count(step=BATCH_SECONDS)
    monkeypatch.setattr(
        batching, "answer", lambda served, questions: [answered.append(q.head) or [] for q in questions]
    )
    monkeypatch.setattr(batching, "perf_counter", lambda: next(times))

    async def submit():
        batcher = Batcher(models["family"])
        batcher.paid = 1
        many = asyncio.create_task(batcher.submit([question(f"many_{i}") for i in range(5)]))
        dear = asyncio.create_task(batcher.submit([question("dear", top=1000)]))
        await asyncio.sleep(0)
        one = asyncio.create_task(batcher.submit([question("one")]))
        await asyncio.gather(many, dear, one)

    asyncio.run(submit())
    assert answered == ["many_0", "one", "many_1", "many_2", "many_3", "many_4", "dear"]


def test_a_batch_is_stopped_once_none_of_its_clients_is_there(models, monkeypatch):
    staying, leaving, started, checked = Interruption(), Interruption(), threading.Event(), threading.Event()

    def answer(served, questions):
        leaving.stop("the client has gone")
        interruption.check()  # the other one is there
        checked.set()
        while True:
            started.set()
            interruption.check()

    monkeypatch.setattr(batching, "answer", answer)

    async def submit():
        batcher, requests = Batcher(models["family"]), []
        for limit in (leaving, staying):
            with interruptible(limit):
                requests.append(asyncio.create_task(batcher.submit([question()])))
        await asyncio.to_thread(started.wait)
        staying.stop("its time is up")
        return await asyncio.gather(*requests, return_exceptions=True)

    assert [type(each) for each in asyncio.run(submit())] == [InterruptedWorkError] * 2
    assert checked.is_set()


def test_questions_for_relations_are_answered_together_as_alone(models, monkeypatch):
    predictor, (a, b, *_) = models["family"].predictor, models["family"].graph.entities[:12]
    questions = [
        PredictQuestion(head=head, tail=tail, top=top, known=known)
        for head, tail in ((a, b), (b, a), (a, a))
        for top, known in ((1, "include"), (4, "exclude"), (1000, "exclude"))
    ]
    expected = [alone(predictor, each) for each in questions]
    products, score = [], type(predictor.scorer).score
    monkeypatch.setattr(type(predictor.scorer), "score", lambda *given: products.append(1) or score(*given))
    found = answer(predictor, questions)
    assert len(products) == 3  # one for each pair of options
    for one, other in zip(found, expected, strict=True):
        assert [p[:3] for p in one] == [p[:3] for p in other] and [p.known for p in one] == [p.known for p in other]
        assert [p.score for p in one] == pytest.approx([p.score for p in other], rel=1e-4)
        assert [p.probability for p in one] == pytest.approx([p.probability for p in other], rel=1e-4)
