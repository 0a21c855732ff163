"""Recipes chosen by the size of a graph."""

from __future__ import annotations

import numpy as np
import pytest

import dihedral as dh
from dihedral.graph import Graph
from dihedral.training import choose_recipe
from dihedral.training.defaults import best_recipe


def graph_of(entities, triples, name="mine"):
    """Random triples in which every entity has a name."""
    generator = np.random.default_rng(0)
    train = np.stack(
        [generator.integers(entities, size=triples), generator.integers(3, size=triples),
         generator.integers(entities, size=triples)], axis=1,
    ).astype(np.int32)  # fmt: skip
    names = [f"e{i}" for i in range(entities)]
    return Graph.from_labels([(names[h], f"r{r}", names[t]) for h, r, t in train.tolist()], name=name)


def test_few_entities_are_all_candidates_and_many_are_sampled():
    assert choose_recipe(graph_of(500, 3_000)).objective == "softmax"
    many = choose_recipe(graph_of(90_000, 90_000))
    assert many.objective == "logistic" and "sampled negatives for more than 50,000 entities" in many.about


def test_sparse_graphs_get_small_batches_and_a_stronger_regulariser():
    sparse, dense = choose_recipe(graph_of(8_000, 16_000)), choose_recipe(graph_of(1_000, 16_000))
    assert sparse.batch_size < dense.batch_size
    assert sparse.regulariser_weight > dense.regulariser_weight
    assert "triples per entity" in sparse.about


def test_larger_graphs_get_fewer_epochs():
    epochs = [choose_recipe(graph_of(500, triples)).epochs for triples in (300, 6_000, 60_000)]
    assert epochs == sorted(epochs, reverse=True) and epochs[0] == 100 and epochs[-1] == 25


def test_a_tuned_recipe_for_a_benchmark_is_known_by_its_name(family):
    assert best_recipe(graph_of(10, 20, name="FB15k")) == "best/fb15k-d4-graded"
    assert best_recipe(graph_of(10, 20, name="FB15k-237")) == "best/fb15k-237-d16-graded"
    assert best_recipe(family) is None


def test_training_without_a_recipe_says_in_one_line_what_was_chosen(family, capfd):
    predictor = dh.train(family, epochs=1)
    _, said = capfd.readouterr()
    assert said == f"no recipe given: {choose_recipe(family).about}\n"
    assert predictor.recipe["epochs"] == 1 and predictor.recipe["objective"] == "softmax"
    dh.train(family, epochs=1, progress=False)
    assert capfd.readouterr() == ("", "")


def test_the_choice_is_good_on_a_small_family():
    predictor = dh.train(dh.make_family(300), device="cpu", progress=False)
    assert predictor.metrics["test"]["both"]["mrr"] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("umls", 0.90), ("family", 0.95)])
def test_the_choice_is_good_on_small_benchmarks(name, least, benchmark_graph):
    graph = dh.load_graph(name) if name == "family" else benchmark_graph(name)
    assert dh.train(graph, device="cpu", progress=False).metrics["test"]["both"]["mrr"] > least
