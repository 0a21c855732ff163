"""How many threads the work uses: as many as this process may keep busy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import TypeVar

import torch

from dihedral.errors import DihedralError
from dihedral.runtime import interruption

CGROUP = Path("/sys/fs/cgroup")
_limiting = Lock()
Item = TypeVar("Item")


def num_cores() -> int:
    """The CPU cores that this process may use: its CPU affinity, limited by the quota of its control group."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return affinity if quota is None else max(1, min(affinity, round(quota)))


def use_threads(count: int | None = None) -> int | None:
    """Use this many threads, and return what was given; by default one per core, unless OMP_NUM_THREADS is set."""
    if count is not None and count < 1:
        raise DihedralError(f"threads is {count}; it must be 1 or more")
    if count is None and "OMP_NUM_THREADS" in os.environ:
        return count
    torch.set_num_threads(count or num_cores())
    return count


@contextmanager
def at_most(count: int | None) -> Iterator[None]:
    """Limit torch to this many threads in this context. Only for a process that does one thing, not for a server."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else min(before, count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def for_each(
    work: Callable[[Item], None],
    items: Sequence[Item],
    on_done: Callable[[Item], None] | None = None,
    *,
    max_threads: int | None = None,
) -> None:
    """Work on items, on as many threads as torch is set to use; on each, torch uses one, which suits small operations.

    on_done: called with each item that is finished, on the caller's thread.
    """
    on_done = on_done or (lambda item: None)
    allowed = torch.get_num_threads()
    threads = min(max_threads or allowed, allowed, len(items))
    if threads <= 1:
        for item in items:
            work(item)
            on_done(item)
        return
    one_each = partial(_use_one_thread, allowed)
    with interruption.part() as running, ThreadPoolExecutor(threads, "dihedral", one_each) as pool:
        try:
            futures = {pool.submit(copy_context().run, work, item): item for item in items}
            for future in as_completed(futures):
                future.result()
                on_done(futures[future])
        finally:  # of an error, or of Ctrl-C
            running.stop("another thread has failed")
            pool.shutdown(cancel_futures=True)


def _use_one_thread(default: int) -> None:
    """Limit torch to one thread in the thread that calls this, and in no other.

    `torch.set_num_threads` sets the calling thread and what later threads start with. Another thread restores that.
    """
    torch.get_num_threads()  # a thread takes the setting of the process when it first asks
    with _limiting:
        torch.set_num_threads(1)
        restoring = Thread(target=torch.set_num_threads, args=(default,))
        restoring.start()
        restoring.join()
    torch.set_flush_denormal(True)  # as in the main thread


def _quota() -> float | None:
    """CPU seconds per second that the control group (version 2) allows; None without a limit."""
    try:
        limit, period = (CGROUP / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        return None
