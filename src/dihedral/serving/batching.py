"""Questions that arrive together are answered together: one product for all of them.

Nobody waits for company. While a batch is worked on, new questions gather, and they are the next batch; a single
question on an idle server goes at once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import anyio

from dihedral.graph.steps import Side
from dihedral.inference.predictor import Known, Prediction
from dihedral.serving.served import ServedModel

AT_ONCE = 64  # questions in one product


@dataclass(frozen=True)
class Question:
    """(anchor, relation, ?) or (?, relation, anchor)."""

    side: Side  # that is asked for
    anchor: str
    relation: str
    top: int
    known: Known
    among: Literal["range"] | None = None


class Batcher:
    """Answers questions about one model; to be used from one event loop."""

    def __init__(self, served: ServedModel, on_batch: Callable[[int], None] = lambda size: None) -> None:
        self.served = served
        self.on_batch = on_batch
        self.waiting: list[tuple[Question, asyncio.Future[list[Prediction]]]] = []
        self.work: asyncio.Task[None] | None = None

    async def ask(self, questions: list[Question]) -> list[list[Prediction]]:
        """The answers of questions whose names are known to be right."""
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in questions]
        self.waiting += zip(questions, futures, strict=True)
        if self.work is None or self.work.done():
            self.work = loop.create_task(self._work())
        return await asyncio.gather(*futures)

    async def _work(self) -> None:
        limiter = anyio.CapacityLimiter(1)  # its own: slow requests of other kinds do not hold predictions up
        while self.waiting:
            batch, self.waiting = self.waiting[:AT_ONCE], self.waiting[AT_ONCE:]
            self.on_batch(len(batch))
            try:
                answers = await anyio.to_thread.run_sync(
                    answer, self.served, [question for question, _ in batch], limiter=limiter
                )
            except Exception as error:  # noqa: BLE001  each asker gets it; the next batch goes on
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), found in zip(batch, answers, strict=True):
                if not future.done():  # an asker may have gone away
                    future.set_result(found)


def answer(served: ServedModel, questions: list[Question]) -> list[list[Prediction]]:
    """All questions of one side, kind and top in one product; where entities are limited, those of one relation."""
    alike: dict[tuple[Side, Known, int, str | None], list[int]] = defaultdict(list)
    for number, question in enumerate(questions):
        limited_by = question.relation if question.among else None
        alike[question.side, question.known, question.top, limited_by].append(number)
    answers: list[list[Prediction]] = [[] for _ in questions]
    predictor = served.predictor
    for (side, known, top, limited_by), numbers in alike.items():
        allowed = None
        if limited_by is not None:
            allowed = predictor.allowed("range", predictor.graph.relations.id(limited_by), side)
        found = predictor.predict_many(
            side,
            [questions[i].anchor for i in numbers],
            [questions[i].relation for i in numbers],
            top=top,
            known=known,
            allowed=allowed,
        )
        for i, predictions in zip(numbers, found, strict=True):
            answers[i] = predictions
    return answers
