"""The compiled CPU kernels: the same numbers for any number of threads, and a switch to plain torch."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from unittest.mock import patch

import pytest
import torch

from dihedral.engine import compiled
from dihedral.learn.trainer import Trainer
from dihedral.objectives.recipe import Recipe

pytestmark = pytest.mark.skipif(not compiled.available(), reason="numba is not installed")


def trained(graph):
    trainer = Trainer(graph, Recipe(model="dihedral-ste", dimension=16, epochs=3, batch_size=64, validate_every=0))
    trainer.run()
    return trainer.model


def test_results_do_not_depend_on_the_number_of_threads(family):
    before = torch.get_num_threads()
    models = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        models.append(trained(family))
    torch.set_num_threads(before)
    assert torch.equal(models[0].entities, models[1].entities)
    assert torch.equal(models[0].codes, models[1].codes)


@pytest.mark.parametrize(("size", "parts"), [(1, [1]), (6, [2, 2, 2]), (20, [7, 7, 6]), (40, [8, 8, 8, 8, 8])])
def test_few_questions_are_divided_among_all_threads(monkeypatch, size, parts):
    monkeypatch.setattr(compiled, "_threads", 3)
    found = []
    compiled.in_threads(lambda start, stop: found.append((start, stop)), size, 8)
    found.sort()
    assert [stop - start for start, stop in found] == parts
    assert [each for start, stop in found for each in range(start, stop)] == list(range(size))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_creates_its_own_threads():
    scores, true = torch.randn(50, 8), torch.zeros(8)
    with compiled.own_threads():
        compiled._threads = 2
        wanted = compiled.count_ranks(scores, true)[0]
        child = os.fork()
        if child == 0:  # would wait forever for threads of the parent
            signal.alarm(600)
            os._exit(0 if torch.equal(compiled.count_ranks(scores, true)[0], wanted) else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_training_restores_the_number_of_threads(family):
    before = torch.get_num_threads()
    trained(family)
    assert torch.get_num_threads() == before


def test_the_compiled_kernels_can_be_disabled_temporarily(family):
    with patch.dict(os.environ, DIHEDRAL_COMPILED="0"):
        assert not compiled.available()
        plain = trained(family)
    assert compiled.available()
    torch.testing.assert_close(trained(family).entities, plain.entities, atol=1e-4, rtol=1e-3)


def test_compiled_and_plain_training_agree_on_real_data(benchmark_graph):
    graph = benchmark_graph("umls")
    recipe = Recipe(model="dihedral-gumbel", dimension=32, epochs=4, relation_lr=1.0, validate_every=4)
    found = []
    for context in (patch.dict(os.environ, DIHEDRAL_COMPILED="0"), nullcontext()):
        with context:
            trainer = Trainer(graph, recipe)
            trainer.run()
        found.append(trainer.state.best_mrr)
    assert found[0] == pytest.approx(found[1], abs=0.004)
