"""Triton kernels for CUDA: queries of 2x2 blocks, softmax in place or in registers, and Adagrad in one pass."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _block_queries(operators, index, entities, queries, L, b_place, c_place, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < L
    operator = operators + tl.load(index + row).to(tl.int64) * 4 * L + j
    place = row * 2 * L + j
    x = tl.load(entities + place, mask=inside)
    y = tl.load(entities + place + L, mask=inside)
    a, b = tl.load(operator, mask=inside), tl.load(operator + b_place, mask=inside)
    c, d = tl.load(operator + c_place, mask=inside), tl.load(operator + 3 * L, mask=inside)
    tl.store(queries + place, a * x + c * y, mask=inside)
    tl.store(queries + place + L, b * x + d * y, mask=inside)


def block_queries(operators: Tensor, index: Tensor, entities: Tensor, tail: bool) -> Tensor:
    """Rᵀ h per row for tail queries, R t for head queries; operators [R, 4, L], index [B], entities [B, 2L]."""
    queries = torch.empty_like(entities)
    grid, L, *places, block = _by_components(entities, tail)
    _block_queries[grid](operators, index, entities, queries, L, *places, BLOCK=block)
    return queries


@triton.jit
def _block_queries_backward(
    operators, index, entities, gradient, entity_gradient, operator_gradient, L, b_place, c_place, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < L
    place = row * 2 * L + j
    x = tl.load(entities + place, mask=inside)
    y = tl.load(entities + place + L, mask=inside)
    u = tl.load(gradient + place, mask=inside)
    v = tl.load(gradient + place + L, mask=inside)
    offset = tl.load(index + row).to(tl.int64) * 4 * L + j
    operator, result = operators + offset, operator_gradient + offset
    a, b = tl.load(operator, mask=inside), tl.load(operator + b_place, mask=inside)
    c, d = tl.load(operator + c_place, mask=inside), tl.load(operator + 3 * L, mask=inside)
    tl.atomic_add(result, x * u, mask=inside)
    tl.atomic_add(result + b_place, x * v, mask=inside)
    tl.atomic_add(result + c_place, y * u, mask=inside)
    tl.atomic_add(result + 3 * L, y * v, mask=inside)
    tl.store(entity_gradient + place, a * u + b * v, mask=inside)
    tl.store(entity_gradient + place + L, c * u + d * v, mask=inside)


def block_queries_backward(
    operators: Tensor, index: Tensor, entities: Tensor, gradient: Tensor, tail: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of the operators and of the entities."""
    entity_gradient, operator_gradient = torch.empty_like(entities), torch.zeros_like(operators)
    grid, L, *places, block = _by_components(entities, tail)
    _block_queries_backward[grid](
        operators, index, entities, gradient, entity_gradient, operator_gradient, L, *places, BLOCK=block
    )
    return operator_gradient, entity_gradient


def _by_components(entities: Tensor, tail: bool) -> tuple[Any, int, int, int, int]:
    """A grid over rows and components, L, where the entries b and c are (swapped for head queries), and the block."""
    L = entities.shape[1] // 2
    block = min(512, triton.next_power_of_2(L))
    return (len(entities), triton.cdiv(L, block)), L, *((L, 2 * L) if tail else (2 * L, L)), block


@triton.jit
def _softmax_residual(logits, targets, losses, columns, stride, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = logits + row.to(tl.int64) * stride
    largest = tl.full([BLOCK], -1e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)  # of exp(logit - largest), separately per lane
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(base + column, mask=column < columns, other=-1e30).to(tl.float32)
        higher = tl.maximum(largest, x)
        total = total * tl.exp(largest - higher) + tl.exp(x - higher)
        largest = higher
    top = tl.max(largest, 0)
    norm = top + tl.log(tl.sum(total * tl.exp(largest - top), 0))
    target = tl.load(targets + row)
    tl.store(losses + row, norm - tl.load(base + target).to(tl.float32))
    for start in range(0, stride, BLOCK):  # up to the stride: the padding becomes zero
        column = start + tl.arange(0, BLOCK)
        x = tl.load(base + column, mask=column < columns, other=-1e30).to(tl.float32)
        p = tl.where(column < columns, tl.exp(x - norm), 0.0)
        p = tl.where(column == target, p - 1.0, p)
        tl.store(base + column, (p * scale).to(tl.float16), mask=column < stride)


def softmax_residual(logits: Tensor, targets: Tensor, losses: Tensor, columns: int, scale: float) -> None:
    """Replace logits [B, padded] by scale · (softmax - one-hot target) and write losses [B]."""
    _softmax_residual[(len(logits),)](
        logits, targets, losses, columns, logits.stride(0), scale, BLOCK=4096, num_warps=8
    )


# --- cross-entropy with logits in registers only: attention whose keys and values are the same rows ----

LOG2E = tl.constexpr(1.4426950408889634)
SHIFT = tl.constexpr(14.0)  # softmax values are stored times 2^14 to avoid float16 subnormals
MAX_WIDTH = 256  # columns that fit into registers
OUTER_ROWS, INNER_ROWS = 128, 64  # rows of the block that a program keeps, and of the blocks it loops over


@triton.jit
def _accumulate(logits, candidate, top, total, mean):
    """Add a block of logits to the running maximum, sum of exponentials and weighted sum of candidates."""
    higher = tl.maximum(top, tl.max(logits, 1) * LOG2E)
    p = tl.exp2(logits * LOG2E - (higher - SHIFT)[:, None])
    decay = tl.exp2(top - higher)
    total = total * decay + tl.sum(p, 1)
    mean = tl.dot(p.to(tl.float16), candidate, mean * decay[:, None])
    return higher, total, mean


@triton.jit
def _softmax_means(
    queries, candidates, norms, means, batch, padded, entities, part_size,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS
    part = tl.program_id(1)
    query = queries.load([row, 0])
    top = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mean = tl.zeros([ROWS, WIDTH], tl.float32)
    start = part * part_size
    count = min(part_size, entities - start)
    full_end = start + count // COLUMNS * COLUMNS
    for entity in tl.range(start, full_end, COLUMNS):
        candidate = candidates.load([entity, 0])
        top, total, mean = _accumulate(tl.dot(query, candidate.T), candidate, top, total, mean)
    if full_end < start + count:  # the last block has rows past the end
        candidate = candidates.load([full_end, 0])
        inside = full_end + tl.arange(0, COLUMNS) < entities
        logits = tl.where(inside[None, :], tl.dot(query, candidate.T), -1e30)
        top, total, mean = _accumulate(logits, candidate, top, total, mean)
    rows = row + tl.arange(0, ROWS)
    tl.store(norms + part.to(tl.int64) * batch + rows, (top + tl.log2(total) - SHIFT) / LOG2E, mask=rows < batch)
    means.store([part * padded + row, 0], mean / total[:, None])


def softmax_means(queries: Tensor, candidates: Tensor, multiprocessors: int) -> tuple[Tensor, Tensor]:
    """Each query's log-sum-exp [B] and mean of the candidates by softmax [B, d]; float16, a multiple of 8 columns."""
    batch, width = queries.shape
    blocks = triton.cdiv(batch, OUTER_ROWS)
    parts = triton.cdiv(4 * multiprocessors, blocks)
    part_size = triton.cdiv(triton.cdiv(len(candidates), parts), INNER_ROWS) * INNER_ROWS
    parts, padded = triton.cdiv(len(candidates), part_size), blocks * OUTER_ROWS
    norms = torch.empty(parts, batch, device=queries.device)
    means = torch.empty(parts, padded, width, device=queries.device)
    grid: Any = (blocks, parts)
    _softmax_means[grid](
        _blocks(queries, OUTER_ROWS), _blocks(candidates, INNER_ROWS), norms, _blocks(means.flatten(0, 1), OUTER_ROWS),
        batch, padded, len(candidates), part_size, **_launch_options(width),
    )  # fmt: skip
    if parts == 1:
        return norms[0], means[0, :batch]
    norm = norms.logsumexp(0)
    return norm, torch.einsum("pb,pbd->bd", (norms - norm).exp(), means[:, :batch])


@triton.jit
def _softmax_gradient(
    queries, candidates, norms, gradient, batch, scale,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS
    candidate = candidates.load([row, 0])
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in tl.range(0, batch, COLUMNS):
        query = queries.load([start, 0])  # rows past the end are zero and add nothing
        rows = start + tl.arange(0, COLUMNS)
        norm = tl.load(norms + rows, mask=rows < batch, other=0.0) * LOG2E - SHIFT
        p = tl.exp2(tl.dot(candidate, query.T) * LOG2E - norm[None, :])
        total = tl.dot(p.to(tl.float16), query, total)
    gradient.store([row, 0], total * scale)


def softmax_gradient(queries: Tensor, candidates: Tensor, norms: Tensor, scale: float) -> Tensor:
    """scale · softmaxᵀ @ queries [N, d], given the log-sum-exp of each query; recomputes the logits."""
    gradient = torch.empty(candidates.shape, device=queries.device)
    _softmax_gradient[(triton.cdiv(len(candidates), OUTER_ROWS),)](
        _blocks(queries, INNER_ROWS), _blocks(candidates, OUTER_ROWS), norms, _blocks(gradient, OUTER_ROWS),
        len(queries), scale * 2.0**-SHIFT.value, **_launch_options(queries.shape[1]),
    )  # fmt: skip
    return gradient


def _launch_options(width: int) -> dict[str, int]:
    """Block sizes and launch options: the fastest of those tried on an H200."""
    return {"ROWS": OUTER_ROWS, "COLUMNS": INNER_ROWS, "WIDTH": _power_of_2(width), "num_warps": 8, "num_stages": 3}


def _power_of_2(width: int) -> int:
    return max(16, triton.next_power_of_2(width))


def _blocks(values: Tensor, rows: int) -> TensorDescriptor:
    """A matrix that kernels access in blocks of complete rows; elements outside it read as zero."""
    return TensorDescriptor.from_tensor(values, [rows, _power_of_2(values.shape[1])])


@triton.jit
def _adagrad_update(parameter, total, place, g, inside, lr, epsilon):
    s = tl.load(total + place, mask=inside, other=0.0) + g * g
    x = tl.load(parameter + place, mask=inside, other=0.0)
    tl.store(total + place, s, mask=inside)
    tl.store(parameter + place, x - lr * g / (tl.sqrt(s) + epsilon), mask=inside)


@triton.jit
def _adagrad(parameter, total, gradient, size, lr, epsilon, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    g = tl.load(gradient + place, mask=inside, other=0.0)
    _adagrad_update(parameter, total, place, g, inside, lr, epsilon)


def adagrad(parameter: Tensor, total: Tensor, gradient: Tensor, lr: float, epsilon: float) -> None:
    """Adagrad on all elements; `total` is the running sum of squared gradients."""
    size = parameter.numel()
    _adagrad[(triton.cdiv(size, 2048),)](parameter, total, gradient, size, lr, epsilon, BLOCK=2048, num_warps=8)


@triton.jit
def _adagrad_rows(
    parameter, total, ids, source, weights, vectors, uses, width, lr, epsilon,
    WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    use = tl.program_id(0)
    row = tl.load(ids + use).to(tl.int64)
    first = tl.where(use == 0, True, tl.load(ids + use - 1, mask=use > 0, other=-1).to(tl.int64) != row)
    if first:
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = column < width
        g = tl.zeros([BLOCK], tl.float32)
        i = use
        same = True
        while same:
            v = tl.load(vectors + tl.load(source + i).to(tl.int64) * width + column, mask=inside, other=0.0)
            if WEIGHTED:
                v = v * tl.load(weights + i)
            g += v
            i += 1
            same = tl.load(ids + i, mask=i < uses, other=-1).to(tl.int64) == row
        _adagrad_update(parameter, total, row * width + column, g, inside, lr, epsilon)


def adagrad_rows(
    parameter: Tensor,
    total: Tensor,
    ids: Tensor,
    source: Tensor,
    weights: Tensor | None,
    vectors: Tensor,
    lr: float,
    epsilon: float,
) -> None:
    """Adagrad on the rows in sorted `ids`; the program at the first use of a row adds up all its uses."""
    width = parameter.shape[1]
    block = min(1024, triton.next_power_of_2(width))
    grid: Any = (len(ids), triton.cdiv(width, block))
    _adagrad_rows[grid](
        parameter, total, ids, source, weights if weights is not None else torch.empty(0, device=ids.device), vectors,
        len(ids), width, lr, epsilon, WEIGHTED=weights is not None, BLOCK=block, num_warps=4,
    )  # fmt: skip
