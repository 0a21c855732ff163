"""Regularisers: their values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dihedral.objectives.regularisers import NONE, make_regulariser

HEAD = torch.tensor([[3.0, 1.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0]])  # components (3, 4) and (1, 0); then zeros
TAIL = torch.tensor([[0.0, 2.0, 0.0, 0.0], [1.0, 0.0, 0.0, 2.0]])  # (0, 0) and (2, 0); then (1, 0) and (0, 2)


def test_l2_is_half_the_squared_length_of_both_entities_averaged_over_the_batch():
    found = make_regulariser("l2", 0.1).penalty(HEAD, TAIL)
    assert found.item() == pytest.approx(0.1 * 0.5 * (26 + 4 + 0 + 5) / 2)


def test_n3_is_the_cubed_length_of_every_component_averaged_over_the_batch():
    found = make_regulariser("n3", 0.1).penalty(HEAD, TAIL)
    assert found.item() == pytest.approx(0.1 * (125 + 1 + 8 + 0 + 1 + 8) / 2)


def test_the_gradient_of_n3_is_three_lengths_and_zero_at_zero():
    head = HEAD.clone().requires_grad_()
    make_regulariser("n3", 1.0).penalty(head, TAIL).backward()
    # d‖x‖³/dx = 3 ‖x‖ x, halved by the mean over two positives
    np.testing.assert_allclose(head.grad, np.array([[45.0, 3.0, 60.0, 0.0], [0.0] * 4]) / 2, rtol=1e-6)


@pytest.mark.parametrize("name", ["none", "l2", "n3"])
def test_the_gradient_written_out_is_the_gradient_of_the_penalty(name):
    regulariser = make_regulariser(name, 0.3)
    rows = torch.cat([HEAD, TAIL]).requires_grad_()
    expected = regulariser.penalty(rows[:2], rows[2:])
    value, gradient = regulariser.penalty_and_gradient(rows.detach(), 2)
    torch.testing.assert_close(value, expected.detach())
    if name != "none":
        torch.testing.assert_close(gradient, torch.autograd.grad(expected, rows)[0])
    else:
        assert not gradient.any()


@pytest.mark.parametrize(("name", "weight"), [("none", 0.0), ("none", 9.0), ("l2", 0.0), ("n3", 0.0), ("dura", 0.0)])
def test_no_name_and_no_weight_are_the_same_regulariser(name, weight):
    assert make_regulariser(name, weight) is NONE
    assert NONE.penalty(HEAD, TAIL).item() == 0.0
