"""Adagrad compared with torch.optim.Adagrad, on complete tensors and on the rows of a batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dihedral.engine import compiled
from dihedral.engine.adagrad import Adagrad, RowGradients

ROWS, WIDTH, STEPS, LR = 9, 5, 6, 0.3


@pytest.fixture(params=["compiled", "plain"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both CPU implementations of row updates."""
    if request.param == "plain":
        monkeypatch.setattr(compiled, "available", lambda: False)
    elif not compiled.available():
        pytest.skip("numba is not installed")
    return request.param


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def start() -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=seeded(0))


def torch_adagrad(gradients: list[Tensor]) -> Tensor:
    """The parameter after steps of torch.optim.Adagrad with these dense gradients."""
    parameter = start().requires_grad_()
    optimiser = torch.optim.Adagrad([parameter], lr=LR)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimiser.step()
    return parameter.detach()


def uses(step: int) -> RowGradients:
    """Repeated rows, some with multiples of the same vector; row 0 is never used."""
    generator = seeded(step)
    return RowGradients(
        ids=torch.randint(1, ROWS, (12,), generator=generator),
        vectors=torch.randn(7, WIDTH, generator=generator),
        source=torch.randint(7, (12,), generator=generator),
        weights=torch.randn(12, generator=generator),
    )


def test_dense_steps_equal_torch():
    parameter = start()
    optimiser = Adagrad(parameter, LR)
    gradients = [torch.randn(ROWS, WIDTH, generator=seeded(step)) for step in range(1, STEPS)]
    for gradient in gradients:
        optimiser.step(gradient.clone())
    torch.testing.assert_close(parameter, torch_adagrad(gradients))


@pytest.mark.usefixtures("engine")
def test_row_steps_equal_dense_steps_of_torch():
    parameter = start()
    optimiser = Adagrad(parameter, LR)
    for step in range(1, STEPS):
        optimiser.step_rows(uses(step))
    torch.testing.assert_close(parameter, torch_adagrad([uses(step).dense(ROWS) for step in range(1, STEPS)]))


@pytest.mark.usefixtures("engine")
def test_row_steps_and_dense_steps_can_alternate():
    parameter = start()
    optimiser = Adagrad(parameter, LR)
    dense = torch.randn(ROWS, WIDTH, generator=seeded(50))
    optimiser.step_rows(uses(1))
    optimiser.step(dense.clone())
    optimiser.step_rows(uses(2))
    torch.testing.assert_close(parameter, torch_adagrad([uses(1).dense(ROWS), dense, uses(2).dense(ROWS)]))


@pytest.mark.usefixtures("engine")
def test_unused_rows_do_not_change():
    parameter = start()
    optimiser = Adagrad(parameter, LR)
    optimiser.step_rows(uses(1))
    idle = torch.tensor([row not in uses(1).ids for row in range(ROWS)])
    assert torch.equal(parameter[idle], start()[idle])
    assert not optimiser.sum[idle].any()
    assert (parameter[~idle] != start()[~idle]).any(1).all()


def test_an_element_with_zero_gradient_does_not_change():
    parameter = start()
    optimiser = Adagrad(parameter, LR)
    optimiser.step(torch.zeros(ROWS, WIDTH))
    assert torch.equal(parameter, start())


def test_the_first_step_has_the_size_of_the_learning_rate():
    parameter = start()
    gradient = torch.randn(ROWS, WIDTH, generator=seeded(1)) * 1000
    Adagrad(parameter, LR).step(gradient.clone())
    torch.testing.assert_close(parameter, start() - LR * gradient.sign())


def test_the_parameter_of_a_model_is_updated_in_place():
    parameter = torch.nn.Parameter(start())
    Adagrad(parameter, LR).step(torch.ones(ROWS, WIDTH))
    torch.testing.assert_close(parameter.detach(), start() - LR)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("source", "weights", "expected"),
    [
        (None, None, [[0.0, 0.0], [5.0, 50.0], [2.0, 20.0]]),
        ([1, 1, 0], None, [[0.0, 0.0], [3.0, 30.0], [2.0, 20.0]]),
        (None, [1.0, -1.0, 0.5], [[0.0, 0.0], [3.0, 30.0], [-2.0, -20.0]]),
        ([0, 2, 2], [2.0, 1.0, 10.0], [[0.0, 0.0], [42.0, 420.0], [4.0, 40.0]]),
    ],
)
def test_gradients_of_repeated_rows_add_up(source, weights, expected):
    vectors = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    found = RowGradients(
        ids=torch.tensor([1, 2, 1]),
        vectors=vectors,
        source=None if source is None else torch.tensor(source),
        weights=None if weights is None else torch.tensor(weights),
    )
    assert found.dense(3).tolist() == expected
    parameter = torch.zeros(3, 2)
    optimiser = Adagrad(parameter, 1.0)
    optimiser.step_rows(found)
    torch.testing.assert_close(optimiser.sum, torch.tensor(expected).square())
    torch.testing.assert_close(parameter, -torch.tensor(expected).sign())
