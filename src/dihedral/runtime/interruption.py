"""Work that can be stopped: long loops call `check`, which raises once an `Interruption` says that nobody wants it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import monotonic

from dihedral.errors import DihedralError


class InterruptedWorkError(DihedralError):
    """The work was stopped before its end."""


class Interruption:
    """Whether the work at hand is still wanted; may be stopped from any thread."""

    def __init__(self, seconds: float | None = None, within: Interruption | None = None) -> None:
        """seconds: how long the work may take. within: work that this is a part of, and ends with."""
        self.within = within
        self.deadline = None if seconds is None else monotonic() + seconds
        self.reason: str | None = None

    def stop(self, reason: str, within: float = 0.0) -> None:
        """Stop the work now, or within some seconds."""
        if within <= 0:
            self.reason = reason
        else:
            self.deadline = min(self.deadline or float("inf"), monotonic() + within)

    def check(self) -> None:
        if self.within is not None:
            self.within.check()
        if self.reason is None and self.deadline is not None and monotonic() > self.deadline:
            self.reason = "it took too long"
        if self.reason is not None:
            raise InterruptedWorkError(f"the work was stopped: {self.reason}")


class SharedInterruption(Interruption):
    """That of work for several clients, which nobody wants only once none of them does."""

    def __init__(self, members: Sequence[Interruption]) -> None:
        """members: those of the clients, at least one."""
        super().__init__()
        self.members = members

    def check(self) -> None:
        *others, last = self.members
        for each in others:
            with suppress(InterruptedWorkError):
                return each.check()
        return last.check()


_current: ContextVar[Interruption | None] = ContextVar("interruption", default=None)


@contextmanager
def interruptible(interruption: Interruption) -> Iterator[Interruption]:
    """Work inside this context stops when the interruption says so; threads started with a copied context too."""
    token = _current.set(interruption)
    try:
        yield interruption
    finally:
        _current.reset(token)


@contextmanager
def part() -> Iterator[Interruption]:
    """Work inside this context can be stopped without the work that it is a part of."""
    with interruptible(Interruption(within=_current.get())) as interruption:
        yield interruption


def current() -> Interruption:
    """That of the work at hand."""
    return _current.get() or Interruption()


def check() -> None:
    """Raise `InterruptedWorkError` if the work at hand is no longer wanted."""
    current().check()
