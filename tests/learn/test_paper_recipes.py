"""Slower proofs: the paper's recipes on the paper's data."""

from __future__ import annotations

import pytest

import dihedral as dh
from dihedral.objectives.recipe import load_recipe, recipe_names


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith("paper/")])
def test_a_paper_recipe_keeps_to_the_paper(name):
    recipe = load_recipe(name)
    dimensions = {"wn18": 200, "wn18rr": 200, "fb15k": 1500, "fb15k-237": 600, "yago3-10": 600}
    dataset = name.removeprefix("paper/").rsplit("-d4-", 1)[0]
    assert recipe.dimension == dimensions[dataset]
    assert recipe.K == 4 and recipe.objective == "logistic" and recipe.regulariser == "l2"
    assert recipe.negatives in (1, 6, 10) and recipe.batch_size in (512, 1024, 2048)


@pytest.mark.slow
def test_d4_ste_learns_wn18rr_on_a_cpu(benchmark_graph):
    predictor = dh.train(benchmark_graph("WN18RR"), "paper/wn18rr-d4-ste", epochs=160, validate_every=40)
    assert predictor.metrics["test"]["both"]["mrr"] >= 0.44
    assert predictor.metrics["test"]["seen_only"]["mrr"] >= 0.47
