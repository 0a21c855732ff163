"""Ctrl-C: the first one sets a flag, and a second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from dihedral.learn.loop import catch_interrupt, on_interrupt


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """A process in the background ignores Ctrl-C; these tests are about one that does not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_ctrl_c_sets_a_flag_and_the_second_one_stops():
    before = signal.getsignal(signal.SIGINT)
    with catch_interrupt() as interrupted:
        assert not interrupted.is_set()
        signal.raise_signal(signal.SIGINT)
        assert interrupted.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_only_the_main_thread_handles_ctrl_c():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with on_interrupt(signal.SIG_IGN):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
