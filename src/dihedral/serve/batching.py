"""Micro-batching: questions that arrive while a batch is processed form the next; an idle server answers at once.

Requests take turns: each question has a price, and the next question is that of the request that has paid least. A
batch takes as many questions as may be answered in BATCH_SECONDS, by the time that an answer took so far. So a request
with many answers, or with a slow model, delays others by about one batch.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextvars import Context
from time import perf_counter
from typing import NamedTuple

import anyio

from dihedral.predict.predictor import Prediction, Predictor
from dihedral.probability.ordering import POOL
from dihedral.runtime.interruption import Interruption, SharedInterruption, current, interruptible
from dihedral.scoring.questions import PARTS, Known, Order, Part, missing_part
from dihedral.serve.schemas import PredictQuestion
from dihedral.serve.served_model import ServedModel
from dihedral.serve.workers import BusyError

MAX_BATCH = 64  # questions per matrix product
MAX_WAITING = 8192  # questions; requests beyond get status 503
BATCH_SECONDS = 0.1
FIRST_PRICE = 20_000  # of answers that take BATCH_SECONDS, until it was measured
MEMORY = 0.9  # how much the latest batch but one counts of the latest


class Waiting(NamedTuple):
    """A question that waits for its turn: what its request has paid, this question included."""

    turn: int
    place: int  # of arrival, which no other question has
    question: PredictQuestion
    price: int
    answer: asyncio.Future[list[Prediction]]
    limit: Interruption  # of the request


class Batcher:
    """Collects questions to one model into batches. Use it from one event loop only."""

    def __init__(self, served: ServedModel, on_batch: Callable[[int], None] = lambda size: None) -> None:
        self.served = served
        self.on_batch = on_batch
        self.waiting: list[Waiting] = []  # a heap
        self.worker: asyncio.Task[None] | None = None
        self.spent, self.paid = BATCH_SECONDS, float(FIRST_PRICE)  # seconds and prices of batches, the latest most
        self.turn = self.arrived = 0  # the latest turn; questions so far

    async def submit(self, questions: Sequence[PredictQuestion]) -> list[list[Prediction]]:
        """Answer questions for an entity whose names are already validated."""
        if len(self.waiting) + len(questions) > MAX_WAITING and self.waiting:
            self.waiting = [each for each in self.waiting if not each.answer.done()]
            heapq.heapify(self.waiting)
            if len(self.waiting) + len(questions) > MAX_WAITING:
                raise BusyError(f"{len(self.waiting):,} questions are waiting; try again later")
        loop, turn, limit = asyncio.get_running_loop(), self.turn, current()
        futures = [loop.create_future() for _ in questions]
        for question, future in zip(questions, futures, strict=True):
            price = POOL + question.top
            turn, self.arrived = turn + price, self.arrived + 1
            heapq.heappush(self.waiting, Waiting(turn, self.arrived, question, price, future, limit))
        if self.worker is None or self.worker.done():
            # in a context of its own: the batch must not stop when the first of its clients has gone
            self.worker = loop.create_task(self._work(), context=Context())
        return await asyncio.gather(*futures)

    def _next(self) -> list[Waiting]:
        """The questions of the next batch."""
        batch: list[Waiting] = []
        left = BATCH_SECONDS * self.paid / self.spent
        while self.waiting and len(batch) < MAX_BATCH and (not batch or self.waiting[0].price <= left):
            first = heapq.heappop(self.waiting)
            self.turn = max(self.turn, first.turn - first.price)
            if not first.answer.done():  # the client may have gone
                batch.append(first)
                left -= first.price
        return batch

    async def _work(self) -> None:
        limiter = anyio.CapacityLimiter(1)  # separate, so that slow requests of other kinds do not delay predictions
        while batch := self._next():
            self.on_batch(len(batch))
            started, questions = perf_counter(), [each.question for each in batch]
            try:
                with interruptible(SharedInterruption([each.limit for each in batch])):
                    answers = await anyio.to_thread.run_sync(answer, self.served.predictor, questions, limiter=limiter)
            except Exception as error:  # noqa: BLE001  passed to each request of the batch; the next batch continues
                for each in batch:
                    if not each.answer.done():
                        each.answer.set_exception(error)
                continue
            self.spent = MEMORY * self.spent + perf_counter() - started
            self.paid = MEMORY * self.paid + sum(each.price for each in batch)
            for each, found in zip(batch, answers, strict=True):
                if not each.answer.done():  # the request may have been cancelled
                    each.answer.set_result(found)


def answer(predictor: Predictor, questions: Sequence[PredictQuestion]) -> list[list[Prediction]]:
    """Answer questions, with one product per group of equal options and, with `among`, relation."""
    groups: dict[tuple[Part, int, Known, str, Order, str | None], list[int]] = defaultdict(list)
    answers: list[list[Prediction]] = [[] for _ in questions]
    for i, asked in enumerate(questions):
        part = missing_part(asked.head, asked.relation, asked.tail)
        limited_by = asked.relation if asked.among != "all" else None
        groups[part, asked.top, asked.known, asked.among, asked.order, limited_by].append(i)
    for (part, top, known, among, order, limited_by), numbers in groups.items():
        heads, relations, tails = ([str(getattr(questions[i], each)) for i in numbers] for each in PARTS)
        if part == "relation":
            found = predictor.predict_relations(heads, tails, top=top, known=known)
        else:
            anchors = heads if part == "tail" else tails
            allowed = None if limited_by is None else predictor.allowed(among, limited_by, part)
            found = predictor.predict_many(part, anchors, relations, top=top, known=known, allowed=allowed, order=order)
        for i, predictions in zip(numbers, found, strict=True):
            answers[i] = predictions
    return answers
