"""Queries of 2x2 blocks: values and gradients are those of the reference's score."""

from __future__ import annotations

import pytest
import torch

from dihedral.engine.blocks import block_queries
from tests.oracle import exact_queries

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif("not torch.cuda.is_available()"))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("tail", [True, False])
def test_queries_and_gradients_are_those_of_the_score(tail, device):
    generator = torch.Generator().manual_seed(0)
    operators, entities = torch.randn(5, 4, 7, generator=generator), torch.randn(40, 14, generator=generator)
    index, gradient = torch.randint(5, (40,), generator=generator), torch.randn(40, 14, generator=generator)
    found = []
    for queries, where in ((exact_queries, "cpu"), (block_queries, device)):
        inputs = [tensor.to(where).requires_grad_() for tensor in (operators, entities)]
        result = queries(inputs[0], index.to(where), inputs[1], tail)
        found.append([result, *torch.autograd.grad(result, inputs, gradient.to(where))])
    for wanted, got in zip(*found, strict=True):
        torch.testing.assert_close(got.cpu(), wanted, atol=1e-5, rtol=1e-5)


def test_the_index_may_be_a_strided_column():
    operators, entities = torch.randn(3, 4, 2), torch.randn(4, 4)
    table = torch.tensor([[9, 0, 9], [9, 2, 9], [9, 1, 9], [9, 2, 9]])
    found = block_queries(operators, table[:, 1], entities, True)
    torch.testing.assert_close(found, exact_queries(operators, table[:, 1], entities, True))
