"""CUDA: Triton kernels, imported on first use, cross-entropy with half-precision products, and steps as CUDA graphs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dihedral.engine.adagrad import RowGradients

SCALE = 1024.0  # softmax values are stored times this to avoid float16 subnormals
MIN_ROWS = 256  # per tile of queries; the products are slow with fewer
MIN_SHARED_MEMORY = 200_000  # bytes per multiprocessor; Hopper has more, earlier architectures have less

Combine = Callable[[Tensor], Tensor]
"""Turns the log-sum-exp [B] over one rank's part of a partitioned table into that over all ranks."""


def local_targets(targets: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """1 or 0 [B] for targets inside or outside a rank's candidates, and the targets clamped to valid rows."""
    inside = (targets >= 0) & (targets < len(candidates))
    return inside.to(candidates.dtype), targets.clamp(0, len(candidates) - 1)


@cache
def kernels() -> Any:
    """The module of Triton kernels."""
    from dihedral.engine import triton_kernels

    return triton_kernels


def adagrad_rows(parameter: Tensor, total: Tensor, gradients: RowGradients, lr: float, epsilon: float) -> None:
    """Adagrad on the rows in use, which are sorted so that all uses of a row are adjacent."""
    ordered, order = torch.sort(gradients.ids.int(), stable=True)  # 32-bit keys sort twice as fast
    source = order if gradients.source is None else gradients.source[order]
    weights = None if gradients.weights is None else gradients.weights[order]
    kernels().adagrad_rows(parameter, total, ordered, source, weights, gradients.vectors.contiguous(), lr, epsilon)


def half_cross_entropy(
    queries: Tensor, candidates: Tensor, targets: Tensor, scale: float, tile_bytes: int, combine: Combine | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`cross_entropy.tiled_cross_entropy` with float16 products, padded for tensor cores, and float32 sums."""
    batch, width = queries.shape
    half_queries = _padded_half(queries, batch, _round_up(width, 8))
    entities = _round_up(len(candidates), 64)
    rows = min(batch, max(MIN_ROWS, tile_bytes // (2 * entities)))
    if combine or (rows < batch and fits_registers(queries)):
        return _half_in_registers(half_queries, candidates, targets, scale, combine)
    half_candidates = _padded_half(candidates, entities, half_queries.shape[1])
    losses = torch.empty(batch, device=queries.device)
    query_gradients = []
    candidate_gradient: Tensor | None = None
    for start in range(0, batch, rows):
        part = slice(start, start + rows)
        logits = half_queries[part] @ half_candidates.T
        kernels().softmax_residual(logits, targets[part], losses[part], len(candidates), SCALE)
        query_gradients.append(_product(logits, half_candidates, scale / SCALE))
        gradient = _product(logits.T, half_queries[part], scale / SCALE)
        candidate_gradient = gradient if candidate_gradient is None else candidate_gradient.add_(gradient)
    assert candidate_gradient is not None
    query_gradient = query_gradients[0] if len(query_gradients) == 1 else torch.cat(query_gradients)
    return losses.sum(), query_gradient[:, :width], candidate_gradient[: len(candidates), :width]


def fits_registers(queries: Tensor) -> bool:
    """Whether rows are narrow enough and the device has enough shared memory."""
    device = torch.cuda.get_device_properties(queries.device)
    return queries.shape[1] <= kernels().MAX_WIDTH and device.shared_memory_per_multiprocessor >= MIN_SHARED_MEMORY


def _half_in_registers(
    half_queries: Tensor, candidates: Tensor, targets: Tensor, scale: float, combine: Combine | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The same with logits in registers only, where they are computed once for each of the two gradients."""
    width = candidates.shape[1]
    half_candidates = _padded_half(candidates, len(candidates), half_queries.shape[1])
    multiprocessors = torch.cuda.get_device_properties(half_queries.device).multi_processor_count
    own, query_gradient = kernels().softmax_means(half_queries, half_candidates, multiprocessors)
    norm = combine(own) if combine else own
    inside, targets = local_targets(targets, candidates)
    positives = half_candidates[targets].float() * inside[:, None]
    loss = (norm * inside - (half_queries.float() * positives).sum(1)).sum()
    query_gradient = ((own - norm).exp()[:, None] * query_gradient - positives) * scale
    candidate_gradient = kernels().softmax_gradient(half_queries, half_candidates, norm, scale)
    candidate_gradient.index_add_(0, targets, half_queries.float() * inside[:, None], alpha=-scale)
    return loss, query_gradient[:, :width], candidate_gradient[:, :width]


def _product(left: Tensor, right: Tensor, scale: float) -> Tensor:
    """scale · left @ right of float16 matrices with a float32 result."""
    empty = torch.empty((), device=left.device)
    return torch.addmm(empty, left, right, out_dtype=torch.float32, beta=0, alpha=scale)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _padded_half(values: Tensor, rows: int, columns: int) -> Tensor:
    """A float16 copy, padded with zeros to [rows, columns]."""
    if values.shape == (rows, columns):
        return values.half()
    result = torch.empty(rows, columns, dtype=torch.float16, device=values.device)
    result[: values.shape[0], : values.shape[1]] = values
    result[values.shape[0] :] = 0
    if values.shape[1] < columns:
        result[:, values.shape[1] :] = 0
    return result


class CapturedStep:
    """A training step captured once as a CUDA graph and replayed on each batch of the same size."""

    def __init__(self, step: Callable[[Tensor], Tensor], batch: Tensor, generator: torch.Generator) -> None:
        self.batch = batch.clone()
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(generator)
        collects = gc.isenabled()
        gc.collect()
        gc.disable()  # freeing an earlier CUDA graph during a capture would invalidate the capture
        try:
            with torch.cuda.graph(self.graph):
                self.loss = step(self.batch)
        finally:
            if collects:
                gc.enable()

    def __call__(self, batch: Tensor) -> Tensor:
        """Train on a batch; the next call overwrites the returned loss."""
        self.batch.copy_(batch)
        self.graph.replay()
        return self.loss
