"""Admission of work: bounded queues per class of endpoint; work stops when its client has gone or its time is up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

import anyio
import anyio.to_thread

from dihedral.errors import DihedralError
from dihedral.runtime import interruption
from dihedral.runtime.interruption import Interruption
from dihedral.runtime.threads import num_cores

Result = TypeVar("Result")
Queue = Literal["answers", "light", "decisions", "heavy", "slow"]
"""Answers of the batcher as JSON; lookups: milliseconds. Decisions of reviewers: they wait for the lock of their file.
Explanations, classification, path queries, products: up to seconds. Rule mining and missing facts: up to the limit."""

WORKERS = max(1, min(4, num_cores()))
SLOTS: dict[Queue, int] = {"answers": 1, "decisions": 1, "light": WORKERS, "heavy": max(1, WORKERS // 2), "slow": 1}
MAX_WAITING = 100  # requests in one queue; more get status 503
MAX_SECONDS = 60.0  # for one request, waiting included
MAX_STOP_SECONDS = 5.0  # for current requests when the server stops
RETRY_SECONDS = 5  # when to try again after 503


class BusyError(DihedralError):
    """The server cannot take this request now."""

    def __init__(self, message: str, status: int = 503) -> None:
        super().__init__(message)
        self.status = status


class Workers:
    """Threads for one class of work, with a bounded queue."""

    def __init__(self, slots: int) -> None:
        self.limiter, self.slots = anyio.CapacityLimiter(slots), slots
        self.admitted = 0  # requests that wait or work

    async def run(self, call: Callable[[], Result]) -> Result:
        """Call in a thread, when it is this request's turn."""
        if self.admitted >= self.slots + MAX_WAITING:
            raise BusyError(f"{MAX_WAITING} requests of this kind are waiting; try again later")

        def work() -> Result:
            interruption.check()
            return call()

        self.admitted += 1
        try:
            return await anyio.to_thread.run_sync(work, limiter=self.limiter)
        finally:
            self.admitted -= 1


class ActiveRequests:
    """The requests that are being answered, with their limits."""

    def __init__(self, max_seconds: float = MAX_SECONDS, max_per_client: int | None = None) -> None:
        self.max_seconds, self.max_per_client = max_seconds, max_per_client
        self.stopping = False
        self.active: dict[Interruption, anyio.CancelScope] = {}
        self.by_client: Counter[str] = Counter()

    @contextmanager
    def admit(self, client: str) -> Iterator[tuple[Interruption, anyio.CancelScope]]:
        """Limit what happens inside: the scope is cancelled and the work interrupted when the time is over."""
        if self.max_per_client is not None and self.by_client[client] >= self.max_per_client:
            raise BusyError(f"this client has {self.max_per_client} requests at a time; wait for an answer", status=429)
        seconds = min(self.max_seconds, MAX_STOP_SECONDS) if self.stopping else self.max_seconds
        limit = Interruption(seconds)
        self.by_client[client] += 1
        try:
            with interruption.interruptible(limit), anyio.move_on_after(seconds) as scope:
                self.active[limit] = scope
                yield limit, scope
        finally:
            del self.active[limit]
            self.by_client -= Counter([client])  # which leaves out a count of zero

    def stop(self) -> None:
        """Give current and later requests little time."""
        self.stopping = True
        latest = anyio.current_time() + MAX_STOP_SECONDS
        for limit, scope in self.active.items():
            limit.stop("the server stops", within=MAX_STOP_SECONDS)
            scope.deadline = min(scope.deadline, latest)

    @property
    def refusal(self) -> str:
        if self.stopping:
            return "the server is stopping; try again later"
        return f"the request took longer than {self.max_seconds:g} seconds; ask for less, or use the command line"
