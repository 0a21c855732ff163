"""Micro-batching: questions that arrive while a batch is processed form the next; an idle server answers at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextvars import Context

import anyio

from dihedral.graph.steps import Side
from dihedral.predict.predictor import Prediction
from dihedral.scoring.questions import Known, Order
from dihedral.serve.schemas import PredictQuestion
from dihedral.serve.served_model import ServedModel
from dihedral.serve.workers import BusyError

MAX_BATCH = 64  # questions per matrix product
MAX_WAITING = 8192  # questions; requests beyond get status 503


class Batcher:
    """Collects questions to one model into batches. Use it from one event loop only."""

    def __init__(self, served: ServedModel, on_batch: Callable[[int], None] = lambda size: None) -> None:
        self.served = served
        self.on_batch = on_batch
        self.waiting: list[tuple[PredictQuestion, asyncio.Future[list[Prediction]]]] = []
        self.worker: asyncio.Task[None] | None = None

    async def submit(self, questions: Sequence[PredictQuestion]) -> list[list[Prediction]]:
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


def answer(served: ServedModel, questions: Sequence[PredictQuestion]) -> list[list[Prediction]]:
    """Answer questions, with one product per group of equal options and, with `among`, relation."""
    groups: dict[tuple[Side, int, Known, str, Order, str | None], list[int]] = defaultdict(list)
    answers: list[list[Prediction]] = [[] for _ in questions]
    predictor = served.predictor
    for i, asked in enumerate(questions):
        if asked.relation is None:
            answers[i] = asked.answer(predictor)
            continue
        side: Side = "head" if asked.head is None else "tail"
        limited_by = asked.relation if asked.among != "all" else None
        groups[side, asked.top, asked.known, asked.among, asked.order, limited_by].append(i)
    for (side, top, known, among, order, limited_by), numbers in groups.items():
        allowed = None if limited_by is None else predictor.allowed(among, limited_by, side)
        anchors = [str(questions[i].tail if side == "head" else questions[i].head) for i in numbers]
        relations = [str(questions[i].relation) for i in numbers]
        found = predictor.predict_many(side, anchors, relations, top=top, known=known, allowed=allowed, order=order)
        for i, predictions in zip(numbers, found, strict=True):
            answers[i] = predictions
    return answers
