"""The CUDA paths compared with the references; `python -m benchmarks.gpu --only check` prints the errors."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from dihedral.engine.adagrad import Adagrad, RowGradients
from dihedral.engine.cross_entropy import tiled_cross_entropy
from dihedral.learn.trainer import Trainer
from dihedral.objectives.recipe import Recipe
from tests.oracle import exact_cross_entropy

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("width", [6, 72, 256, 500, 600])
@pytest.mark.parametrize("tile_mb", [1, 256])
def test_half_precision_is_close_to_the_reference(tile_mb, width):
    queries, candidates = torch.randn(300, width), torch.randn(5003, width) * 0.2
    targets = torch.randint(5003, (300,))
    wanted = exact_cross_entropy(queries, candidates, targets)
    got = tiled_cross_entropy(queries.cuda(), candidates.cuda(), targets.cuda(), precision="half", tile_mb=tile_mb)
    for g, w in zip(got, wanted, strict=True):
        assert (g.cpu() - w).norm() / w.norm() < 2e-3


@pytest.mark.parametrize("width", [72, 600])
@pytest.mark.parametrize("precision", ["half", "float32"])
def test_parts_of_the_candidates_add_up_to_the_total(precision, width):
    queries, candidates = torch.randn(300, width).cuda(), torch.randn(5003, width).cuda() * 0.2
    targets = torch.randint(5003, (300,)).cuda()
    bounds, own = [0, 2000, 2001, 5003], []

    def of_parts(combine):
        return [
            tiled_cross_entropy(queries, candidates[start:end], targets - start, precision=precision, combine=combine)
            for start, end in pairwise(bounds)
        ]

    of_parts(lambda part: own.append(part.clone()) or part)
    found = of_parts(lambda part: torch.stack(own).logsumexp(0))
    losses, query_gradients, candidate_gradients = zip(*found, strict=True)
    total = sum(losses), sum(query_gradients), torch.cat(candidate_gradients)
    wanted = exact_cross_entropy(queries, candidates, targets)
    for g, w in zip(total, wanted, strict=True):
        assert (g - w).norm() / w.norm() < 2e-3


def test_a_dominant_entity_does_not_distort_the_gradients_of_others():
    queries, candidates = torch.randn(64, 64), torch.randn(200_000, 64) * 0.05
    targets = torch.randint(200_000, (64,))
    candidates[0] = queries.mean(0) * 20
    wanted = exact_cross_entropy(queries, candidates, targets)
    got = tiled_cross_entropy(queries.cuda(), candidates.cuda(), targets.cuda(), precision="half", tile_mb=1)
    for g, w in zip(got, wanted, strict=True):
        assert (g.cpu() - w).norm() / w.norm() < 2e-3
    others = slice(1, None)
    assert (got[2][others].cpu() - wanted[2][others]).norm() / wanted[2][others].norm() < 2e-3


def test_row_updates_equal_dense_updates():
    table = torch.randn(100, 24)
    rows, dense = Adagrad(table.clone().cuda(), 0.1), Adagrad(table.clone(), 0.1)
    for _ in range(3):
        uses = RowGradients(torch.randint(100, (50,)), torch.randn(7, 24), torch.randint(7, (50,)), torch.randn(50))
        dense.step(uses.dense(100))
        rows.step_rows(RowGradients(*(part.cuda() for part in vars(uses).values())))
    torch.testing.assert_close(rows.parameter.cpu(), dense.parameter)


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "logistic"},
        {"objective": "logistic", "share_negatives": 16},
        {"objective": "softmax"},
        {"objective": "softmax", "paths": 1.0, "path_length": 3, "relation_weight": 1.0},
    ],
)
def test_captured_steps_train_like_plain_steps(family, settings, monkeypatch):
    recipe = Recipe(model="dihedral-ste", dimension=32, epochs=5, batch_size=64, **settings)
    losses = []
    for min_captured in (10**9, 1):
        monkeypatch.setattr("dihedral.learn.trainer.MIN_CAPTURED", min_captured)
        trainer = Trainer(family, recipe.replace(validate_every=0), device="cuda")
        trainer.run()
        losses.append(trainer.state.history[-1]["loss"])
    assert trainer.captured is not None
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
