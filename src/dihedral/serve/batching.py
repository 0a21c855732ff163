"""Micro-batching: questions that arrive concurrently are answered by one matrix product.

No request waits for a batch to fill up. Questions that arrive while a batch is processed form the next batch; on an
idle server, a single question is answered at once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any

import anyio

from dihedral.graph.steps import Side
from dihedral.predict.predictor import Prediction
from dihedral.scoring.questions import Known, Order
from dihedral.serve.served_model import ServedModel
from dihedral.serve.workers import BusyError

MAX_BATCH = 64  # questions per matrix product
MAX_WAITING = 8192  # questions; requests beyond get status 503


@dataclass(frozen=True)
class Question:
    """(anchor, relation, ?) or (?, relation, anchor); without a relation (anchor, ?, other)."""

    side: Side  # to predict; "tail" without a relation
    anchor: str
    relation: str | None
    top: int
    known: Known
    among: str = "all"  # one of `predict.questions.CANDIDATES`
    other: str | None = None
    order: Order = "auto"


class Batcher:
    """Collects questions to one model into batches. Use it from one event loop only."""

    def __init__(self, served: ServedModel, on_batch: Callable[[int], None] = lambda size: None) -> None:
        self.served = served
        self.on_batch = on_batch
        self.waiting: list[tuple[Question, asyncio.Future[list[Prediction]]]] = []
        self.worker: asyncio.Task[None] | None = None

    async def submit(self, questions: list[Question]) -> list[list[Prediction]]:
        """Answer questions whose names are already validated."""
        if len(self.waiting) + len(questions) > MAX_WAITING and self.waiting:
            self.waiting = [each for each in self.waiting if not each[1].done()]
            if len(self.waiting) + len(questions) > MAX_WAITING:
                raise BusyError(f"{len(self.waiting):,} questions are waiting; try again later")
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in questions]
        self.waiting += zip(questions, futures, strict=True)
        if self.worker is None or self.worker.done():
            # in a context of its own: the batch must not stop when the first of its clients has gone
            self.worker = loop.create_task(self._work(), context=Context())
        return await asyncio.gather(*futures)

    async def _work(self) -> None:
        limiter = anyio.CapacityLimiter(1)  # separate, so that slow requests of other kinds do not delay predictions
        while self.waiting:
            batch, self.waiting = self.waiting[:MAX_BATCH], self.waiting[MAX_BATCH:]
            batch = [each for each in batch if not each[1].done()]  # the client may have gone
            if not batch:
                continue
            self.on_batch(len(batch))
            try:
                answers = await anyio.to_thread.run_sync(
                    answer, self.served, [question for question, _ in batch], limiter=limiter
                )
            except Exception as error:  # noqa: BLE001  passed to each request of the batch; the next batch continues
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), found in zip(batch, answers, strict=True):
                if not future.done():  # the request may have been cancelled
                    future.set_result(found)


def answer(served: ServedModel, questions: list[Question]) -> list[list[Prediction]]:
    """Answer questions, with one product per group of equal options and, with `among`, relation."""
    groups: dict[tuple[Side, Known, int, str, Order, str | None], list[int]] = defaultdict(list)
    answers: list[list[Prediction]] = [[] for _ in questions]
    predictor = served.predictor
    for number, question in enumerate(questions):
        if question.relation is None:
            answers[number] = predictor.predict(
                head=question.anchor, tail=question.other, top=question.top, known=question.known
            )
            continue
        limited_by = question.relation if question.among != "all" else None
        options = question.side, question.known, question.top, question.among, question.order
        groups[*options, limited_by].append(number)
    for (side, known, top, among, order, limited_by), numbers in groups.items():
        allowed = None if limited_by is None else predictor.allowed(among, limited_by, side)
        anchors, relations = [questions[i].anchor for i in numbers], [questions[i].relation or "" for i in numbers]
        limits: dict[str, Any] = {"top": top, "known": known, "allowed": allowed, "order": order}
        found = predictor.predict_many(side, anchors, relations, **limits)
        for i, predictions in zip(numbers, found, strict=True):
            answers[i] = predictions
    return answers
