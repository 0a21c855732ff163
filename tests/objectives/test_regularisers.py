"""Regularisers: their values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dihedral.objectives.regularisers import NONE, make_regulariser

HEAD = torch.tensor([[3.0, 1.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0]])  # components (3, 4) and (1, 0); then zeros
TAIL = torch.tensor([[0.0, 2.0, 0.0, 0.0], [1.0, 0.0, 0.0, 2.0]])  # (0, 0) and (2, 0); then (1, 0) and (0, 2)


def penalty_and_gradient(name, weight):
    return make_regulariser(name, weight).penalty_and_gradient(torch.cat([HEAD, TAIL]), len(HEAD))


def test_l2_is_half_the_squared_length_of_both_entities_averaged_over_the_batch():
    found, _ = penalty_and_gradient("l2", 0.1)
    assert found.item() == pytest.approx(0.1 * 0.5 * (26 + 4 + 0 + 5) / 2)


def test_n3_is_the_cubed_length_of_every_component_averaged_over_the_batch():
    found, _ = penalty_and_gradient("n3", 0.1)
    assert found.item() == pytest.approx(0.1 * (125 + 1 + 8 + 0 + 1 + 8) / 2)


def test_the_gradient_of_n3_is_three_lengths_and_zero_at_zero():
    _, gradient = penalty_and_gradient("n3", 1.0)
    # d‖x‖³/dx = 3 ‖x‖ x, halved by the mean over two positives
    np.testing.assert_allclose(gradient[:2], np.array([[45.0, 3.0, 60.0, 0.0], [0.0] * 4]) / 2, rtol=1e-6)


@pytest.mark.parametrize("name", ["l2", "n3"])
def test_the_gradient_written_out_is_the_gradient_of_the_penalty(name):
    rows = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    value, gradient = make_regulariser(name, 0.3).penalty_and_gradient(rows, 2)
    torch.testing.assert_close(gradient, torch.autograd.grad(value, rows)[0])


@pytest.mark.parametrize(("name", "weight"), [("none", 0.0), ("none", 9.0), ("l2", 0.0), ("n3", 0.0), ("dura", 0.0)])
def test_no_name_and_no_weight_are_the_same_regulariser(name, weight):
    assert make_regulariser(name, weight) is NONE
    value, gradient = penalty_and_gradient(name, weight)
    assert value.item() == 0.0 and not gradient.any()
