"""Triton kernels: queries of 2x2 blocks, softmax residuals in place, Adagrad in one pass over memory."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _block_queries(operators, index, entities, queries, L, TAIL: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < L
    operator = operators + tl.load(index + row) * 4 * L + j
    a = tl.load(operator, mask=inside)
    b = tl.load(operator + L, mask=inside)
    c = tl.load(operator + 2 * L, mask=inside)
    d = tl.load(operator + 3 * L, mask=inside)
    place = row * 2 * L + j
    x = tl.load(entities + place, mask=inside)
    y = tl.load(entities + place + L, mask=inside)
    if TAIL:
        tl.store(queries + place, a * x + c * y, mask=inside)
        tl.store(queries + place + L, b * x + d * y, mask=inside)
    else:
        tl.store(queries + place, a * x + b * y, mask=inside)
        tl.store(queries + place + L, c * x + d * y, mask=inside)


def block_queries(operators: Tensor, index: Tensor, entities: Tensor, tail: bool) -> Tensor:
    """Rᵀ h for each row (tail), or R t; operators [R, 4, L], index [B], entities [B, 2L]."""
    queries = torch.empty_like(entities)
    L = entities.shape[1] // 2
    block = min(512, triton.next_power_of_2(L))
    grid: Any = (len(entities), triton.cdiv(L, block))
    _block_queries[grid](operators, index, entities, queries, L, TAIL=tail, BLOCK=block)
    return queries


@triton.jit
def _block_queries_backward(
    operators, index, entities, gradient, entity_gradient, operator_gradient, L,
    TAIL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < L
    operator = tl.load(index + row) * 4 * L + j
    a = tl.load(operators + operator, mask=inside)
    b = tl.load(operators + operator + L, mask=inside)
    c = tl.load(operators + operator + 2 * L, mask=inside)
    d = tl.load(operators + operator + 3 * L, mask=inside)
    place = row * 2 * L + j
    x = tl.load(entities + place, mask=inside)
    y = tl.load(entities + place + L, mask=inside)
    u = tl.load(gradient + place, mask=inside)
    v = tl.load(gradient + place + L, mask=inside)
    result = operator_gradient + operator
    tl.atomic_add(result, x * u, mask=inside)
    tl.atomic_add(result + 3 * L, y * v, mask=inside)
    if TAIL:
        tl.atomic_add(result + L, x * v, mask=inside)
        tl.atomic_add(result + 2 * L, y * u, mask=inside)
        tl.store(entity_gradient + place, a * u + b * v, mask=inside)
        tl.store(entity_gradient + place + L, c * u + d * v, mask=inside)
    else:
        tl.atomic_add(result + L, y * u, mask=inside)
        tl.atomic_add(result + 2 * L, x * v, mask=inside)
        tl.store(entity_gradient + place, a * u + c * v, mask=inside)
        tl.store(entity_gradient + place + L, b * u + d * v, mask=inside)


def block_queries_backward(
    operators: Tensor, index: Tensor, entities: Tensor, gradient: Tensor, tail: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of operators and entities."""
    entity_gradient, operator_gradient = torch.empty_like(entities), torch.zeros_like(operators)
    L = entities.shape[1] // 2
    block = min(512, triton.next_power_of_2(L))
    grid: Any = (len(entities), triton.cdiv(L, block))
    _block_queries_backward[grid](
        operators, index, entities, gradient, entity_gradient, operator_gradient, L, TAIL=tail, BLOCK=block
    )
    return operator_gradient, entity_gradient


@triton.jit
def _softmax_residual(logits, targets, losses, columns, stride, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = logits + row.to(tl.int64) * stride
    lane = tl.arange(0, BLOCK)
    largest = tl.full([BLOCK], -1e30, tl.float32)  # each lane has its own maximum and sum
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + lane
        x = tl.load(base + column, mask=column < columns, other=-1e30).to(tl.float32)
        higher = tl.maximum(largest, x)
        total = total * tl.exp(largest - higher) + tl.exp(x - higher)
        largest = higher
    top = tl.max(largest, 0)
    norm = top + tl.log(tl.sum(total * tl.exp(largest - top), 0))
    target = tl.load(targets + row)
    tl.store(losses + row, norm - tl.load(base + target).to(tl.float32))
    for start in range(0, stride, BLOCK):  # the padding is made zero
        column = start + lane
        x = tl.load(base + column, mask=column < columns, other=-1e30).to(tl.float32)
        p = tl.where(column < columns, tl.exp(x - norm), 0.0)
        p = tl.where(column == target, p - 1.0, p)
        tl.store(base + column, (p * scale).to(tl.float16), mask=column < stride)


def softmax_residual(logits: Tensor, targets: Tensor, losses: Tensor, columns: int, scale: float) -> None:
    """Logits [B, padded] become scale · (softmax - one-hot target); losses [B] are written."""
    _softmax_residual[(len(logits),)](
        logits, targets, losses, columns, logits.stride(0), scale, BLOCK=4096, num_warps=8
    )


@triton.jit
def _logsumexp_update(logits, largest_out, sums, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = logits + row.to(tl.int64) * stride
    lane = tl.arange(0, BLOCK)
    largest = tl.full([BLOCK], -1e30, tl.float32)  # each lane has its own maximum and sum
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + lane
        x = tl.load(base + column, mask=column < columns, other=-1e30).to(tl.float32)
        higher = tl.maximum(largest, x)
        total = total * tl.exp(largest - higher) + tl.exp(x - higher)
        largest = higher
    before = tl.load(largest_out + row)
    top = tl.maximum(tl.max(largest, 0), before)
    here = tl.sum(total * tl.exp(largest - top), 0)
    tl.store(sums + row, tl.load(sums + row) * tl.exp(before - top) + here)
    tl.store(largest_out + row, top)


def logsumexp_update(logits: Tensor, largest: Tensor, sums: Tensor, columns: int) -> None:
    """Fold a tile of logits into the running maximum and sum of each row."""
    _logsumexp_update[(len(logits),)](logits, largest, sums, columns, logits.stride(0), BLOCK=4096, num_warps=8)


@triton.jit
def _softmax_with_norm(logits, norms, columns, stride, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = logits + row.to(tl.int64) * stride
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(base + column, mask=column < columns, other=-1e30).to(tl.float32)
    p = tl.where(column < columns, tl.exp(x - tl.load(norms + row)), 0.0)
    tl.store(base + column, (p * scale).to(tl.float16), mask=column < stride)


def softmax_with_norm(logits: Tensor, norms: Tensor, columns: int, scale: float) -> None:
    """Logits [B, padded] become scale · softmax, given each row's log-sum-exp."""
    grid = len(logits), triton.cdiv(logits.stride(0), 4096)
    _softmax_with_norm[grid](logits, norms, columns, logits.stride(0), scale, BLOCK=4096, num_warps=8)


@triton.jit
def _adagrad(parameter, total, gradient, size, lr, epsilon, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    g = tl.load(gradient + place, mask=inside, other=0.0)
    s = tl.load(total + place, mask=inside, other=0.0) + g * g
    x = tl.load(parameter + place, mask=inside, other=0.0)
    tl.store(total + place, s, mask=inside)
    tl.store(parameter + place, x - lr * g / (tl.sqrt(s) + epsilon), mask=inside)


def adagrad(parameter: Tensor, total: Tensor, gradient: Tensor, lr: float, epsilon: float) -> None:
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
            v = tl.load(vectors + tl.load(source + i) * width + column, mask=inside, other=0.0)
            if WEIGHTED:
                v = v * tl.load(weights + i)
            g += v
            i += 1
            same = tl.load(ids + i, mask=i < uses, other=-1).to(tl.int64) == row
        place = row * width + column
        s = tl.load(total + place, mask=inside, other=0.0) + g * g
        x = tl.load(parameter + place, mask=inside, other=0.0)
        tl.store(total + place, s, mask=inside)
        tl.store(parameter + place, x - lr * g / (tl.sqrt(s) + epsilon), mask=inside)


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
    """Adagrad on the rows named in sorted `ids`; the program at a row's first use adds up all its uses."""
    width = parameter.shape[1]
    block = min(1024, triton.next_power_of_2(width))
    grid: Any = (len(ids), triton.cdiv(width, block))
    _adagrad_rows[grid](
        parameter, total, ids, source, weights if weights is not None else torch.empty(0, device=ids.device), vectors,
        len(ids), width, lr, epsilon, WEIGHTED=weights is not None, BLOCK=block, num_warps=4,
    )  # fmt: skip
