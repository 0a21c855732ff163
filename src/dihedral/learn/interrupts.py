"""Ctrl-C: training stops between two steps, and a second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C, after a checkpoint was written if there is a folder."""


@contextmanager
def catch_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a flag, so that no step is cut short; a second one stops at once."""
    flag, previous = threading.Event(), signal.getsignal(signal.SIGINT) or signal.SIG_DFL  # None: not set by Python

    def stop(*_: Any) -> None:
        flag.set()
        signal.signal(signal.SIGINT, previous)

    with on_interrupt(stop):
        yield flag


@contextmanager
def on_interrupt(handler: Any) -> Iterator[None]:
    """Handle Ctrl-C by `handler`; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
