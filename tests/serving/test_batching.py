"""Questions asked together are answered as each would be alone."""

from __future__ import annotations

import asyncio

import pytest

from dihedral.serving.batching import Batcher, Question


def questions(served) -> list[Question]:
    people = served.graph.entities[:12]
    return [
        Question("tail" if i % 2 else "head", person, relation, 1 + i % 4, "exclude" if i % 3 else "include")
        for i, person in enumerate(people)
        for relation in ("spouse", "child")
    ]


def alone(served, question: Question):
    given = {"head" if question.side == "tail" else "tail": question.anchor}
    return served.predictor.predict(**given, relation=question.relation, top=question.top, known=question.known)


def test_batched_answers_are_those_of_single_questions(models):
    served = models["family"]
    sizes: list[int] = []
    asked = questions(served)

    async def ask():
        batcher = Batcher(served, sizes.append)
        return await asyncio.gather(*(batcher.ask([question]) for question in asked))

    for question, (found,) in zip(asked, asyncio.run(ask()), strict=True):
        expected = alone(served, question)
        assert [(p.head, p.tail, p.known) for p in found] == [(p.head, p.tail, p.known) for p in expected]
        assert [p.score for p in found] == pytest.approx([p.score for p in expected], rel=1e-4)
    assert sum(sizes) == len(asked) and max(sizes) > 1


def test_an_error_reaches_its_askers_and_the_next_batch_goes_on(models):
    served = models["family"]

    async def ask():
        batcher = Batcher(served)
        with pytest.raises(ValueError, match="nobody"):
            await batcher.ask([Question("tail", "nobody", "spouse", 1, "include")])
        return await batcher.ask([Question("tail", "man_0000", "spouse", 1, "include")])

    assert len(asyncio.run(ask())[0]) == 1


def test_an_asker_who_goes_away_does_not_hold_up_the_others(models):
    served = models["family"]
    question = Question("tail", "man_0000", "spouse", 1, "include")

    async def ask():
        batcher = Batcher(served)
        gone = asyncio.create_task(batcher.ask([question]))
        stays = asyncio.create_task(batcher.ask([question]))
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert len(asyncio.run(ask())[0]) == 1
