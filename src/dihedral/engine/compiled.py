"""CPU kernels compiled by numba where it is installed, on torch's threads; results do not depend on their number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dihedral.engine.blocks import Questions
from dihedral.runtime import interruption

if TYPE_CHECKING:
    from dihedral.engine.adagrad import RowGradients

_CHAIN_TYPES = (torch.int64, torch.int32, torch.int32, torch.int64)


@cache
def _kernels() -> Any:
    """The kernels module, or None if the smallest kernel cannot be compiled."""
    try:
        from dihedral.engine import numba_kernels

        numba_kernels.chain(*(torch.empty(0, dtype=dtype).numpy() for dtype in _CHAIN_TYPES))
    except (ImportError, RuntimeError, OSError):  # numba is not installed, or has no writable cache
        return None
    return numba_kernels


def available() -> bool:
    """Whether the compiled kernels can be used; DIHEDRAL_COMPILED=0 disables them."""
    return os.environ.get("DIHEDRAL_COMPILED") != "0" and _kernels() is not None


_threads = 0  # threads reserved by own_threads; 0 outside it


@contextmanager
def own_threads() -> Iterator[None]:
    """Reserve torch's threads for the kernels: idle threads of torch would spin on the cores that these need."""
    global _threads
    before = torch.get_num_threads()
    _threads = before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _threads = 0


def _in_threads(kernel: Any, size: int, *arguments: Any) -> None:
    """Run a kernel on 0..size, one range per thread; tensors are passed as arrays."""
    arrays: list[Any] = [each.detach().numpy() if isinstance(each, Tensor) else each for each in arguments]
    in_threads(lambda start, stop: kernel(start, stop, *arrays), size)


def in_threads(work: Callable[[int, int], None], size: int, per_task: int = 0) -> None:
    """Call work(start, stop) for the parts of 0..size on all threads: one part per thread, at most `per_task` long.

    Between parts, it stops if nobody wants the work any longer.
    """
    threads = min(_threads or torch.get_num_threads(), max(1, size))
    length = -(-size // threads)
    length = min(per_task or length, length)
    starts = iter(range(0, size, max(1, length)))  # each thread takes the next part that is left
    wanted = interruption.current()

    def run() -> None:
        for start in starts:
            wanted.check()
            work(start, min(size, start + length))

    futures = [_pool().submit(run) for _ in range(1, threads)]
    run()
    for future in futures:
        future.result()


@cache
def _pool() -> ThreadPoolExecutor:
    # the flag is per thread: flush subnormal numbers to zero, as the main thread does
    return ThreadPoolExecutor(thread_name_prefix="dihedral", initializer=lambda: torch.set_flush_denormal(True))


if hasattr(os, "register_at_fork"):  # a forked child inherits the pool without its threads and would wait forever
    os.register_at_fork(after_in_child=_pool.cache_clear)


def adagrad_rows(
    parameter: Tensor, total: Tensor, last: Tensor, gradients: RowGradients, lr: float, epsilon: float
) -> None:
    """Add up the uses of each row and update it in one pass; `last` is int32 [rows], all -1."""
    kernels = _kernels()
    ids, uses = gradients.ids, len(gradients.ids)
    source = torch.arange(uses) if gradients.source is None else gradients.source
    weights = torch.ones(uses) if gradients.weights is None else gradients.weights
    before, rows = torch.empty(uses, dtype=torch.int32), torch.empty(uses, dtype=torch.int64)
    count = kernels.chain(ids.numpy(), last.numpy(), before.numpy(), rows.numpy())
    uses_of_rows = last, before, rows, source, weights, gradients.vectors
    _in_threads(kernels.adagrad_rows, count, parameter, total, *uses_of_rows, lr, epsilon)


def block_logistic(
    questions: Questions, targets: Tensor, negatives: Tensor, decay: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The losses [B] of the sampled logistic loss, the gradient of the operators, vectors [3B, 2L] and weights [B, k].

    The vectors are gradients of anchors and of targets, then queries; that of a negative is its weight times its query.
    """
    (size, k), width = negatives.shape, questions.entities.shape[1]
    losses, weights = torch.empty(size, dtype=torch.float64), torch.empty(size, k)
    vectors, query_gradients = torch.empty(3 * size, width), torch.empty(size, width)
    results = losses, vectors, weights, query_gradients
    _in_threads(_kernels().block_logistic, size, *questions, targets, negatives, decay, *results)
    gradient = torch.zeros_like(questions.operators)
    _in_threads(_kernels().operator_gradient, gradient.shape[2], *questions, query_gradients, gradient)
    return losses, gradient, vectors, weights


def count_ranks(scores: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """The number of scores [N, B] greater than true [B], and the number equal to it: each int64 [B]."""
    greater, equal = torch.empty(len(true), dtype=torch.int64), torch.empty(len(true), dtype=torch.int64)
    _in_threads(_kernels().count_ranks, len(true), scores.contiguous(), true.contiguous(), greater, equal)
    return greater, equal
