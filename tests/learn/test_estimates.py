"""The time of an epoch, measured on a few steps."""

from __future__ import annotations

import time

import pytest
import torch

import dihedral as dh
from dihedral.learn.estimates import LARGEST, num_threads, seconds_per_epoch
from dihedral.learn.loop import Trainer

RECIPE = dh.load_recipe("demo/umls").replace(objective="softmax", dimension=64, batch_size=128, validate_every=0)
CPU = torch.device("cpu")


def test_the_estimate_is_close_to_the_time_of_an_epoch():
    graph = dh.make_family(300)
    trainer = Trainer(graph, RECIPE)
    trainer.run_epoch()
    ratios = []
    for _ in range(5):
        started = time.perf_counter()
        trainer.run_epoch()
        taken = time.perf_counter() - started
        ratios.append(seconds_per_epoch(graph, RECIPE, CPU) / taken)
    assert 0.4 < sorted(ratios)[2] < 2.5  # the machine may be busy


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
