"""Queries of models with 2x2 blocks, with the gradient written out.

Operators are [R, 4, L], the entries a, b, c, d of blocks [[a, b], [c, d]]; entity rows are [B, 2L], first
coordinates before second ones. A tail query is Rᵀ h = (a x + c y, b x + d y), a head query R t = (a x + b y,
c x + d y): the same with b and c exchanged.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dihedral.engine import cuda


def block_queries(operators: Tensor, index: Tensor, entities: Tensor, tail: bool) -> Tensor:
    """Queries [B, 2L], differentiable in operators and entities; row i uses operators[index[i]]."""
    result: Tensor = _BlockQueries.apply(operators, index, entities, tail)
    return result


class _BlockQueries(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operators: Tensor, index: Tensor, entities: Tensor, tail: bool) -> Tensor:
        operators, index, entities = operators.contiguous(), index.contiguous(), entities.contiguous()
        ctx.save_for_backward(operators, index, entities)
        ctx.tail = tail
        if entities.is_cuda:
            return cuda.block_queries(operators, index, entities, tail)
        a, b, c, d = _entries(operators, index, tail)
        x, y = entities.chunk(2, dim=-1)
        return torch.cat([a * x + c * y, b * x + d * y], dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        operators, index, entities = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        if entities.is_cuda:
            found = cuda.block_queries_backward(operators, index, entities, gradient, ctx.tail)
            return found[0], None, found[1], None
        a, b, c, d = _entries(operators, index, ctx.tail)
        x, y = entities.chunk(2, dim=-1)
        u, v = gradient.chunk(2, dim=-1)
        entity_gradient = torch.cat([a * u + b * v, c * u + d * v], dim=-1)
        xv, yu = x * v, y * u
        of_each = torch.cat([x * u, xv, yu, y * v] if ctx.tail else [x * u, yu, xv, y * v], dim=-1)
        operator_gradient = torch.zeros_like(operators)
        operator_gradient.flatten(1).index_add_(0, index, of_each)
        return operator_gradient, None, entity_gradient, None


def _entries(operators: Tensor, index: Tensor, tail: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """a, b, c, d of each row, b and c exchanged for head queries: each [B, L]."""
    a, b, c, d = operators.index_select(0, index).unbind(1)
    return (a, b, c, d) if tail else (a, c, b, d)
