"""Scores and losses of path models on a CPU: the arrays of `engine.path_kernels`, and its kernels on all threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dihedral.engine import compiled
from dihedral.errors import DihedralError

ROWS_PER_TASK = 8  # questions that a thread takes at a time: they take unequally long


class PathWeights(NamedTuple):
    """What a path model applies to a batch of B questions of U distinct steps; differentiable."""

    blocks: Tensor  # [2R, 4, L]: the elements of steps
    shared: Tensor  # [4, T]: α, what states keep; β, restarts; c and f, exponents of degrees and of fans
    gates: Tensor  # [U, T, 2R, L]
    vectors: Tensor  # [B, 2L]: question vectors
    reading: Tensor  # [B, 3, L]
    bias: Tensor  # [B]


class PathEdges:
    """The edges that a path model walks along, and the memory of the threads that do."""

    def __init__(self, keys: Tensor, starts: Tensor, ends: Tensor, num_entities: int, num_relations: int) -> None:
        """The arrays of a `GraphIndex`: keys (entity · 2R + step), sorted, and the edges of each."""
        self.num_entities, self.num_relations = num_entities, num_relations
        rows = torch.searchsorted(keys, torch.arange(num_entities + 1) * (2 * num_relations))
        steps = (keys % (2 * num_relations)).int()
        self._arrays = [each.numpy() for each in (rows, steps, starts, ends)]
        self._free: dict[tuple[int, int], list[Any]] = {}  # memory by steps and components
        self._lock = threading.Lock()

    @cached_property
    def edges(self) -> Any:
        return _kernels().Edges(*self._arrays)

    @contextmanager
    def memory(self, num_steps: int, num_components: int) -> Iterator[Any]:
        """Memory that no other thread uses now."""
        key, n, width = (num_steps, num_components), self.num_entities, 2 * num_components
        with self._lock:
            free = self._free.setdefault(key, [])
            taken = free.pop() if free else None
        if taken is None:
            number = np.empty(n, np.float32)
            taken = _kernels().Memory(
                place=np.full(n, -1, np.int32), reached=np.empty(n, np.int32), degrees=number,
                counts=np.empty(num_steps + 1, np.int64), first=np.empty(num_steps + 1, np.int64),
                states=np.empty(((num_steps + 1) * n, width), np.float32),
                slopes=np.empty((2, n, width), np.float32), scores=np.empty_like(number),
                message=np.empty(width, np.float32),
            )  # fmt: skip
        yield taken
        with self._lock:  # not after an error, which may leave marks
            free.append(taken)


def _kernels() -> Any:
    if not compiled.available():
        raise DihedralError("path models need kernels compiled by numba, and these are not available here")
    from dihedral.engine import path_kernels

    return path_kernels


class PathQuestions(NamedTuple):
    """Questions, with the gates of each among those of the distinct steps."""

    entities: Tensor  # int64 [B]
    steps: Tensor  # int64 [B]
    which: Tensor  # int64 [B]


def path_scores(
    graph: PathEdges, questions: PathQuestions, weights: PathWeights, without: Tensor | None = None
) -> Tensor:
    """The scores [B, N] of all entities; those that no path reaches have the score 0.

    without: an answer of each question [B] whose fact is left out of the graph; -1 leaves none out.
    """
    size = len(questions.entities)
    rows = np.empty((size, graph.num_entities), np.float32)
    without = torch.full((size,), -1) if without is None else without
    answers = without, torch.zeros(size + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    _run("score_questions", graph, questions, answers, weights, False, rows)
    return torch.from_numpy(rows)


def path_loss(
    graph: PathEdges,
    questions: PathQuestions,
    answers: Tensor,
    known: tuple[Tensor, Tensor],
    weights: PathWeights,
    *,
    without_pair: bool = False,
) -> Tensor:
    """The mean cross-entropy of the answers [B] among all entities, each question without its own fact in the graph.

    known: the known answers of each question, flat (row in the batch, answer); those other than its own do not count.
    without_pair: all edges between the two entities leave the graph, not only the fact.
    """
    row, known_answers = known
    starts = torch.searchsorted(row, torch.arange(len(answers) + 1))
    found: Tensor = _PathLoss.apply(graph, questions, (answers, starts, known_answers), without_pair, *weights)
    return found


class _PathLoss(torch.autograd.Function):
    """The kernels compute the loss and all gradients in one pass over the questions."""

    @staticmethod
    def forward(ctx: Any, graph: Any, questions: Any, answers: Any, without_pair: bool, *weights: Tensor) -> Tensor:
        found = PathWeights(*weights)
        size, width = found.vectors.shape
        zeros = lambda *shape: np.zeros(shape, np.float32)  # noqa: E731
        gradients = _kernels().Gradients(
            losses=np.zeros(size), vectors=zeros(size, width), gates=zeros(size, *found.gates.shape[1:]),
            blocks=zeros(size, *found.blocks.shape), shared=zeros(size, *found.shared.shape),
            reading=zeros(*found.reading.shape), bias=zeros(size),
        )  # fmt: skip
        _run("train_questions", graph, questions, answers, found, without_pair, gradients)
        each = {name: torch.from_numpy(array) for name, array in gradients._asdict().items()}
        gates = torch.zeros_like(found.gates).index_add_(0, questions.which, each["gates"])
        sums = each["blocks"].sum(0), each["shared"].sum(0), gates
        ctx.save_for_backward(*(part / size for part in (*sums, each["vectors"], each["reading"], each["bias"])))
        return each["losses"].mean().float()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        return (None,) * 4 + tuple(slope * gradient for gradient in ctx.saved_tensors)


def _run(
    kernel: str,
    graph: PathEdges,
    questions: PathQuestions,
    answers: tuple[Tensor, Tensor, Tensor],
    weights: PathWeights,
    without_pair: bool,
    result: Any,
) -> None:
    """Run a kernel on all questions; answers: those of the questions, and the known ones with their starts."""
    kernels = _kernels()
    array = lambda tensor: np.ascontiguousarray(tensor.detach().numpy())  # noqa: E731
    shared = array(weights.shared)
    about = kernels.Weights(array(weights.blocks), *shared)
    asked = kernels.Questions(
        *map(array, (questions.entities, questions.steps, *answers, weights.vectors, weights.gates)),
        *map(array, (questions.which, weights.reading, weights.bias)),
    )
    num_steps, num_components = shared.shape[1], weights.blocks.shape[2]
    lanes = (0,) * num_components

    def work(start: int, stop: int) -> None:
        with graph.memory(num_steps, num_components) as memory:
            arguments = graph.edges, about, asked, graph.num_relations, without_pair, memory, lanes, result
            getattr(kernels, kernel)(start, stop, *arguments)

    compiled.in_threads(work, len(questions.entities), ROWS_PER_TASK)
