"""Scores and losses of path models on all threads of a CPU; on a GPU, `engine.path_tables` computes the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dihedral.engine import compiled
from dihedral.errors import DihedralError
from dihedral.graph.index import GraphIndex

if TYPE_CHECKING:
    from dihedral.engine.path_tables import PathTables

ROWS_PER_TASK = 8  # questions that a thread takes at a time: they take unequally long


class PathWeights(NamedTuple):
    """What a path model applies to a batch of B questions of U distinct steps; differentiable."""

    blocks: Tensor  # [2R, 4, L]: the elements of steps
    shared: Tensor  # [4, T, L]: α, what states keep; β, restarts; c and f, exponents of degrees and of fans
    gates: Tensor  # [U, T, 2R, L]
    mixing: Tensor  # [T, 3L, L]: how components that reach an entity rescale each other; empty without
    rescaling: Tensor  # [U, T, L]: the same for all entities; empty without
    vectors: Tensor  # [B, 2L]: question vectors
    reading: Tensor  # [B, 3, L]
    bias: Tensor  # [B]


class PathEdges:
    """The edges that a path model walks along, and the memory of the threads that do."""

    def __init__(self, index: GraphIndex) -> None:
        self.index, self.num_entities, self.num_relations = index, index.num_entities, index.num_relations
        self.device, count, starts, ends = index.keys.device, 2 * index.num_relations, index.starts, index.ends
        rows = torch.searchsorted(index.keys, torch.arange(self.num_entities + 1, device=self.device) * count)
        steps = (index.keys % count).int()
        self.tables: PathTables | None = None
        if self.device.type == "cuda":
            from dihedral.engine.path_tables import PathTables

            self.tables = PathTables(rows, steps, starts, ends, self.num_relations)
            return
        edges = starts[rows]
        self.arrays = [each.numpy() for each in (rows, steps, starts, ends)]
        max_degree = int((edges[1:] - edges[:-1]).max()) if self.num_entities else 0
        self.logs = np.log(np.maximum(1, np.arange(max_degree + 2, dtype=np.float32)))
        self._free: dict[tuple[int, int], list[Any]] = {}  # memory by steps and components
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return PathEdges, (self.index,)  # copies and pickles hold neither the memory nor its lock

    @cached_property
    def edges(self) -> Any:
        return _kernels().Edges(*self.arrays)

    @contextmanager
    def memory(self, num_steps: int, num_components: int) -> Iterator[Any]:
        """Memory that no other thread uses now."""
        key, n, width = (num_steps, num_components), self.num_entities, 2 * num_components
        with self._lock:
            free = self._free.setdefault(key, [])
            taken = free.pop() if free else None
        if taken is None:
            number = lambda *shape: np.empty(shape, np.float32)  # noqa: E731
            whole = lambda shape: np.empty(shape, np.int32)  # noqa: E731
            _, steps, _, ends = self.arrays
            taken = _kernels().Memory(
                place=np.full(n, -1, np.int32), reached=whole(n), degrees=whole(n),
                counts=np.empty(num_steps + 1, np.int64), first=np.empty(num_steps + 1, np.int64),
                counters=np.empty(3, np.int64),
                rows=whole((n, 2)), steps=whole(len(steps)), starts=whole((len(steps), 2)), ends=whole(len(ends)),
                states=number((num_steps + 1) * n, width), factors=number((num_steps + 1) * n, num_components),
                slopes=number(2, n, width), scores=number(n), small=number(2, 3 * num_components),
            )  # fmt: skip
        yield taken
        with self._lock:  # not after an error, which may leave marks
            free.append(taken)


def _kernels() -> Any:
    if not compiled.available():
        raise DihedralError("path models need kernels compiled by numba, and these are not available here")
    from dihedral.engine import path_kernels

    return path_kernels


def is_compiled() -> bool:
    """Whether the kernels that train were compiled before; otherwise the first step waits for them."""
    kernel = _kernels().train_questions
    return any(Path(kernel.stats.cache_path).glob(f"path_kernels.{kernel.__name__}-*.nbi"))


class PathQuestions(NamedTuple):
    """Questions, with the gates of each among those of the distinct steps."""

    entities: Tensor  # int64 [B]
    steps: Tensor  # int64 [B]
    which: Tensor  # int64 [B]


def path_scores(
    graph: PathEdges, questions: PathQuestions, weights: PathWeights, without: Tensor | None = None
) -> Tensor:
    """The scores [B, N] of all entities, 0 where no path leads; without: answers [B] whose fact is left out, or -1."""
    size = len(questions.entities)
    if graph.tables is not None:
        return graph.tables.scores(questions, weights, without)
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
    if graph.tables is not None:
        return graph.tables.loss(questions, answers, known, weights, without_pair)
    row, known_answers = known
    starts = torch.searchsorted(row, torch.arange(len(answers) + 1))
    return _PathLoss.apply(graph, questions, (answers, starts, known_answers), without_pair, *weights)


class _PathLoss(torch.autograd.Function):
    """The kernels compute the loss and all gradients in one pass over the questions."""

    @staticmethod
    def forward(ctx: Any, graph: Any, questions: Any, answers: Any, without_pair: bool, *weights: Tensor) -> Tensor:
        found = PathWeights(*weights)
        size, width = found.vectors.shape
        zeros = lambda *shape: np.zeros(shape, np.float32)  # noqa: E731
        gradients = _kernels().Gradients(
            losses=np.zeros(size), vectors=zeros(size, width), gates=zeros(size, *found.gates.shape[1:]),
            rescaling=zeros(size, *found.rescaling.shape[1:]), blocks=zeros(size, *found.blocks.shape),
            shared=zeros(size, *found.shared.shape), mixing=zeros(size, *found.mixing.shape),
            reading=zeros(*found.reading.shape), bias=zeros(size),
        )  # fmt: skip
        _run("train_questions", graph, questions, answers, found, without_pair, gradients)
        each = {name: torch.from_numpy(array) for name, array in gradients._asdict().items()}

        def by_step(name: str) -> Tensor:
            return torch.zeros_like(getattr(found, name)).index_add_(0, questions.which, each[name])

        shared = each["blocks"].sum(0), each["shared"].sum(0)
        sums = *shared, by_step("gates"), each["mixing"].sum(0), by_step("rescaling")
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
    keep, restart, degree, fan = array(weights.shared)
    about = kernels.Weights(
        blocks=array(weights.blocks), keep=keep, restart=restart, logs=graph.logs,
        degree_powers=np.exp(graph.logs[1:, None] * -degree[:, None]),
        fan_powers=np.exp(graph.logs[:, None] * -fan[:, None]),
        mixing=array(weights.mixing), mixing_back=array(weights.mixing.transpose(1, 2)),
    )  # fmt: skip
    asked = kernels.Questions(
        *map(array, (questions.entities, questions.steps, *answers, weights.vectors, weights.gates)),
        *map(array, (weights.rescaling, questions.which, weights.reading, weights.bias)),
    )
    num_steps, num_components = len(keep), weights.blocks.shape[2]
    lanes = (0,) * num_components

    def work(start: int, stop: int) -> None:
        with graph.memory(num_steps, num_components) as memory:
            arguments = graph.edges, about, asked, graph.num_relations, without_pair, memory, lanes, result
            getattr(kernels, kernel)(start, stop, *arguments)

    compiled.in_threads(work, len(questions.entities), ROWS_PER_TASK)
