"""Recipes chosen by the size of a graph."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral.graph import Graph
from dihedral.learn import choose_recipe
from dihedral.learn.defaults import MIN_ANSWERS, answers_per_question, best_recipe, num_threads

EMBEDDING = {"model": "dihedral-gumbel"}


def graph_of(entities, triples, name="mine"):
    """Random triples in which every entity has a name."""
    generator = np.random.default_rng(0)
    train = np.stack(
        [generator.integers(entities, size=triples), generator.integers(3, size=triples),
         generator.integers(entities, size=triples)], axis=1,
    ).astype(np.int32)  # fmt: skip
    names = [f"e{i}" for i in range(entities)]
    return Graph.from_names([(names[h], f"r{r}", names[t]) for h, r, t in train.tolist()], name=name)


def test_the_choice_does_not_depend_on_the_number_of_cores(monkeypatch):
    graph = graph_of(5_000, 100_000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    alone = choose_recipe(graph, minutes=3)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    assert choose_recipe(graph, minutes=3) == alone


def test_a_path_model_is_chosen_while_there_is_time_for_its_paths():
    graph = graph_of(500, 6_000)  # 18,000 facts times steps
    assert [choose_recipe(graph, minutes=minutes).objective == "paths" for minutes in (0.4, 0.2)] == [True, False]


def test_too_few_facts_for_a_path_model_get_an_embedding():
    assert [choose_recipe(graph_of(40, count)).objective for count in (60, 600)] == ["softmax", "paths"]


def test_a_path_model_is_chosen_only_where_one_can_be_trained(monkeypatch):
    graph = graph_of(500, 6_000)
    assert choose_recipe(graph, device="cuda").objective == "paths"
    assert choose_recipe(graph, device="mps").objective == "softmax"
    monkeypatch.setenv("DIHEDRAL_COMPILED", "0")
    assert choose_recipe(graph).objective == "softmax"


@pytest.mark.parametrize(
    ("settings", "objective"),
    [
        ({"epochs": "3", "K": "4", "batch_size": "64"}, "paths"), ({"steps": 2}, "paths"),
        ({"dimension": 64}, "softmax"), ({"model": "dihedral-argmax"}, "softmax"), ({"dropout": 0.1}, "softmax"),
        ({"objective": "logistic"}, "logistic"),
    ],
)  # fmt: skip
def test_settings_of_embeddings_ask_for_one(settings, objective):
    assert choose_recipe(graph_of(500, 6_000), settings).objective == objective


def test_settings_of_embeddings_to_search_ask_for_one_too():
    graph = graph_of(500, 6_000)
    found = [choose_recipe(graph, searched=[name]).objective for name in ("K", "relation_lr", "entity_lr", "lr")]
    assert found == ["paths", "paths", "softmax", "softmax"]


def test_the_softmax_is_over_all_entities_if_there_is_time_and_else_over_a_sample():
    few, many = graph_of(500, 3_000), graph_of(30_000, 100_000)
    full, sampled = choose_recipe(few, EMBEDDING), choose_recipe(many, EMBEDDING)
    assert full.candidates == 0 and "full softmax" in full.about
    assert sampled.candidates == 1000 and "softmax over a sample of 1,000 entities" in sampled.about
    assert choose_recipe(many, EMBEDDING, minutes=1000).candidates == 0
    assert choose_recipe(many, EMBEDDING, device="cuda").candidates == 0


def test_less_time_means_fewer_dimensions_and_then_sampled_negatives():
    graph = graph_of(5_000, 100_000)
    chosen = [choose_recipe(graph, EMBEDDING, minutes=minutes) for minutes in (30, 3, 1)]
    assert [recipe.dimension for recipe in chosen] == [400, 200, 200]
    assert [recipe.objective for recipe in chosen] == ["softmax", "softmax", "logistic"]
    assert "leave no time for a softmax" in chosen[-1].about


def test_sparse_graphs_get_small_batches_and_a_stronger_regulariser():
    sparse, dense = (choose_recipe(graph_of(entities, 16_000), EMBEDDING) for entities in (8_000, 1_000))
    assert sparse.batch_size < dense.batch_size
    assert sparse.regulariser_weight > dense.regulariser_weight
    assert "triples per entity" in sparse.about


def test_questions_with_several_answers_are_grouped_on_a_cpu():
    many, few = graph_of(500, 6_000), graph_of(8_000, 30_000)
    assert answers_per_question(many) >= MIN_ANSWERS > answers_per_question(few)
    chosen, on_gpu = choose_recipe(many, EMBEDDING), choose_recipe(many, EMBEDDING, device="cuda")
    assert chosen.group_questions and "grouped questions for" in chosen.about
    assert chosen.batch_size == 2 * on_gpu.batch_size
    assert not choose_recipe(few, EMBEDDING).group_questions and not on_gpu.group_questions


@pytest.mark.parametrize("settings", [{"paths": 0.5}, {"group_questions": False}, {"objective": "logistic"}])
def test_settings_of_single_facts_leave_the_choices_for_them(settings):
    graph = graph_of(500, 6_000)
    chosen, single = choose_recipe(graph, settings), choose_recipe(graph, {"group_questions": False})
    assert not chosen.group_questions
    assert (chosen.batch_size, chosen.entity_lr, chosen.patience) == (single.batch_size, 0.1, 3)


def test_every_question_and_its_answers_are_counted_in_both_directions():
    facts = [("a", "r", "b"), ("a", "r", "c"), ("d", "r", "b")]  # (a, r, ?), (d, r, ?), (?, r, b) and (?, r, c)
    assert answers_per_question(Graph.from_names(facts, name="four")) == 6 / 4


@pytest.mark.parametrize(("entities", "steps"), [(1000, 5), (500, 4), (100, 3)])
def test_a_path_model_has_settings_of_its_own(entities, steps):
    graph = graph_of(entities, 2_000)
    chosen = choose_recipe(graph, {"objective": "paths", "epochs": 2})
    assert (chosen.objective, chosen.steps, chosen.epochs, chosen.update) == ("paths", steps, 2, "gate")
    assert f"up to {steps} steps" in chosen.about


def test_training_stops_when_valid_no_longer_improves():
    assert choose_recipe(graph_of(500, 6_000), EMBEDDING).patience > 0


def test_a_tuned_recipe_for_a_benchmark_is_known_by_its_name(family):
    paths, embedding = (choose_recipe(family, {"objective": each}) for each in ("paths", "softmax"))
    assert best_recipe(graph_of(10, 20, name="FB15k"), embedding) == "best/fb15k-d4-graded"
    assert best_recipe(graph_of(10, 20, name="FB15k-237"), embedding) == "best/fb15k-237-d16-graded"
    assert best_recipe(graph_of(10, 20, name="WN18RR"), paths) == "paths/wn18rr"
    assert best_recipe(family, paths) is None is best_recipe(family, embedding)


def test_training_without_a_recipe_says_in_one_line_what_was_chosen(family, capfd):
    predictor = dh.train(family, epochs=1)
    _, said = capfd.readouterr()
    assert said.splitlines()[0] == (
        "settings for this graph and these options: a path model (an embedding: model='dihedral-gumbel'); "
        "`predictor.recipe` holds them"
    )
    assert predictor.recipe.about.startswith(choose_recipe(family).about)
    assert predictor.recipe.epochs == 1 and predictor.recipe.objective == "paths"
    dh.train(family, epochs=1, progress=False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.thorough
def test_the_choice_is_good_on_a_small_family():
    predictor = dh.train(dh.make_family(300), device="cpu", progress=False)
    assert predictor.metrics["test"]["both"]["mrr"] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("umls", 0.90), ("family", 0.95)])
def test_the_choice_is_good_on_small_benchmarks(name, least, benchmark_graph):
    graph = dh.load_graph(name) if name == "family" else benchmark_graph(name)
    assert dh.train(graph, device="cpu", progress=False).metrics["test"]["both"]["mrr"] > least


@pytest.mark.parametrize(("batch", "expected"), [(32, 1), (2**22, None)])
def test_small_products_use_one_thread(family, batch, expected):
    recipe = dh.load_recipe("demo/umls").replace(objective="softmax", dimension=64, batch_size=batch)
    assert num_threads(recipe, family, torch.device("cpu")) == expected


def test_grouped_questions_have_fewer_products():
    graph, cpu = graph_of(500, 6_000), torch.device("cpu")
    single = dh.Recipe(objective="softmax", dimension=200, batch_size=2_000)
    assert num_threads(single, graph, cpu) is None
    assert num_threads(single.replace(group_questions=True), graph, cpu) == 1
