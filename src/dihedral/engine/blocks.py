"""Queries of models with 2x2 blocks, with an explicit backward pass; products and transposes of blocks.

Operators are [R, 4, L]: the entries a, b, c, d of blocks [[a, b], [c, d]]. Entity rows are [B, 2L]: all first
coordinates x, then all second coordinates y. A tail query is Rᵀ h = (a x + c y, b x + d y). A head query is
R t = (a x + b y, c x + d y), the same with b and c swapped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dihedral.engine import cuda


class Questions(NamedTuple):
    """Questions of a batch: those before `half` ask for tails, the others for heads."""

    entities: Tensor  # [N, 2L]
    operators: Tensor  # one row per relation
    relation: Tensor  # [B]: the operator row of each question
    anchors: Tensor  # [B]: the known entity of each question
    half: int


def block_queries(operators: Tensor, index: Tensor, entities: Tensor, tail: bool) -> Tensor:
    """Queries [B, 2L], differentiable with respect to operators and entities; row i uses operators[index[i]]."""
    return _BlockQueries.apply(operators, index, entities, tail)


class _BlockQueries(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operators: Tensor, index: Tensor, entities: Tensor, tail: bool) -> Tensor:
        operators, index, entities = operators.contiguous(), index.contiguous(), entities.contiguous()
        ctx.save_for_backward(operators, index, entities)
        ctx.tail = tail
        if entities.is_cuda:
            return cuda.kernels().block_queries(operators, index, entities, tail)
        a, b, c, d = _entries(operators, index, tail)
        x, y = entities.chunk(2, dim=-1)
        return torch.cat([a * x + c * y, b * x + d * y], dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        operators, index, entities = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        if entities.is_cuda:
            found = cuda.kernels().block_queries_backward(operators, index, entities, gradient, ctx.tail)
            return found[0], None, found[1], None
        a, b, c, d = _entries(operators, index, ctx.tail)
        x, y = entities.chunk(2, dim=-1)
        u, v = gradient.chunk(2, dim=-1)
        entity_gradient = torch.cat([a * u + b * v, c * u + d * v], dim=-1)
        if not ctx.needs_input_grad[0]:
            return None, None, entity_gradient, None
        xv, yu = x * v, y * u
        per_row = torch.cat([x * u, xv, yu, y * v] if ctx.tail else [x * u, yu, xv, y * v], dim=-1)
        operator_gradient = torch.zeros_like(operators)
        operator_gradient.flatten(1).index_add_(0, index, per_row)
        return operator_gradient, None, entity_gradient, None


def with_transposes(operators: Tensor) -> Tensor:
    """Operators [R, 4, L], then their transposes: [2R, 4, L], as the ids of signed steps."""
    a, b, c, d = operators.unbind(1)
    return torch.cat([operators, torch.stack([a, c, b, d], dim=1)])


def block_product(left: Tensor, right: Tensor) -> Tensor:
    """Products of blocks [..., 4, L], with broadcasting."""
    a, b, c, d = left.unbind(-2)
    e, f, g, h = right.unbind(-2)
    return torch.stack([a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h], dim=-2)


def _entries(operators: Tensor, index: Tensor, tail: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The entries a, b, c, d per row, with b and c swapped for head queries: each [B, L]."""
    a, b, c, d = operators.index_select(0, index).unbind(1)
    return (a, b, c, d) if tail else (a, c, b, d)
