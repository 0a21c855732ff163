"""Queries of 2x2 blocks: the explicit backward pass agrees with autograd."""

from __future__ import annotations

import pytest
import torch

from dihedral.engine.blocks import block_queries

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif("not torch.cuda.is_available()"))]


def by_autograd(operators, index, entities, tail):
    """Rᵀ h or R t by the formula, differentiated by autograd."""
    a, b, c, d = operators[index].unbind(1)
    x, y = entities.chunk(2, dim=-1)
    if tail:
        return torch.cat([a * x + c * y, b * x + d * y], dim=-1)
    return torch.cat([a * x + b * y, c * x + d * y], dim=-1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("tail", [True, False])
def test_queries_and_gradients_agree_with_autograd(tail, device):
    generator = torch.Generator().manual_seed(0)
    operators, entities = torch.randn(5, 4, 7, generator=generator), torch.randn(40, 14, generator=generator)
    index, gradient = torch.randint(5, (40,), generator=generator), torch.randn(40, 14, generator=generator)
    found = []
    for queries, where in ((by_autograd, "cpu"), (block_queries, device)):
        inputs = [tensor.to(where).requires_grad_() for tensor in (operators, entities)]
        result = queries(inputs[0], index.to(where), inputs[1], tail)
        found.append([result, *torch.autograd.grad(result, inputs, gradient.to(where))])
    for wanted, got in zip(*found, strict=True):
        torch.testing.assert_close(got.cpu(), wanted, atol=1e-5, rtol=1e-5)


def test_the_index_may_be_a_strided_column():
    operators, entities = torch.randn(3, 4, 2), torch.randn(4, 4)
    table = torch.tensor([[9, 0, 9], [9, 2, 9], [9, 1, 9], [9, 2, 9]])
    assert torch.equal(
        block_queries(operators, table[:, 1], entities, True), by_autograd(operators, table[:, 1], entities, True)
    )
