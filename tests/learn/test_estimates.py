"""The time of an epoch, measured on a few steps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import dihedral as dh
from dihedral.learn.estimates import LARGEST, num_threads, seconds_per_epoch
from dihedral.learn.trainer import Trainer

RECIPE = dh.load_recipe("demo/umls").replace(objective="softmax", dimension=64, batch_size=128, validate_every=0)
CPU = torch.device("cpu")


def test_the_estimate_is_the_time_of_an_epoch(monkeypatch):
    """On a clock that only the steps of training move."""
    graph, step, clock = dh.make_family(300), Trainer.step, [0.0]

    def timed_step(trainer: Trainer, batch: torch.Tensor) -> torch.Tensor:
        clock[0] += 0.01
        return step(trainer, batch)

    monkeypatch.setattr(Trainer, "step", timed_step)
    monkeypatch.setattr("dihedral.learn.estimates.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    Trainer(graph, RECIPE).run_epoch()
    taken = clock[0]
    assert seconds_per_epoch(graph, RECIPE, CPU) == pytest.approx(taken)


def test_an_estimate_leaves_the_random_numbers_of_the_caller_alone(family):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    seconds_per_epoch(family, RECIPE, CPU)
    assert torch.equal(torch.rand(3), expected)


def test_a_table_too_large_to_copy_is_not_tried(family):
    assert seconds_per_epoch(family, RECIPE.replace(dimension=2 * int(LARGEST)), CPU) is None


@pytest.mark.parametrize(("batch", "expected"), [(32, 1), (2**22, None)])
def test_small_products_use_one_thread(family, batch, expected):
    assert num_threads(RECIPE.replace(batch_size=batch), family, CPU) == expected
