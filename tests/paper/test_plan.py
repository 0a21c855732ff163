"""Runs that the tables and figures need."""

from __future__ import annotations

import re

import pytest

from dihedral.learn import load_recipe, recipe_names
from paper.plan import SMALL, TARGETS, available, discreteness, plan, recipes_of, same_setup
from paper.reported import BASELINES, TABLES
from paper.studies import STUDIES

BOTH = pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
GRAPHS = {graph.lower(): (target, graph) for target, graphs in TABLES.items() for graph in graphs}
SMALL_RECIPES = [name for name in recipe_names() if name.startswith(tuple(f"best/{graph}-" for graph in SMALL))]
OF_TABLES = [name for name in recipe_names() if name.startswith(("paper/", "best/")) and name not in SMALL_RECIPES]


def place_of(name):
    """Return the table and the graph of a recipe, derived from its name."""
    return GRAPHS[re.sub(f"-(d[0-9]+-[a-z]+|{'|'.join(BASELINES)})$", "", name.split("/")[1])]


@BOTH
@pytest.mark.parametrize("target", TARGETS)
def test_run_names_of_a_target_are_unique(target, quick):
    runs = plan(target, 3, quick=quick)
    assert len({run.name for run in runs}) == len(runs)
    assert len({(run.graph, run.recipe, run.seed) for run in runs}) == len(runs)


@BOTH
def test_a_name_means_the_same_run_in_every_target(quick):
    known = {}
    for target in TARGETS:
        for run in plan(target, 2, quick=quick):
            assert known.setdefault(run.name, (run.graph, run.recipe, run.seed)) == (run.graph, run.recipe, run.seed)
            assert run.name == f"{run.recipe.name}-s{run.seed}"


@BOTH
def test_figure_1_needs_no_run(quick):
    assert plan("figure1", 3, quick=quick) == []


@pytest.mark.parametrize("target", TARGETS)
def test_quick_plan_is_small(target):
    runs = plan(target, 1, quick=True)
    assert len(runs) <= 6
    for run in runs:
        assert run.recipe.epochs <= (60 if run.graph.startswith("family") else 10)
        assert run.recipe.dimension <= (400 if run.graph.startswith("family") else 100)
        assert not run.recipe.name.removeprefix("quick-").startswith(("best/", "same-setup-", "discreteness/"))


@pytest.mark.parametrize("target", TARGETS)
def test_quick_runs_of_benchmarks_have_a_prefix(target):
    full = {run.recipe.name for run in plan(target, 1)}
    quick = [run for run in plan(target, 1, quick=True) if not run.graph.startswith("family")]
    assert all(run.recipe.name.startswith("quick-") for run in quick)
    assert {run.recipe.name.removeprefix("quick-") for run in quick} <= full


@pytest.mark.parametrize("name", OF_TABLES)
def test_every_recipe_of_a_benchmark_is_in_its_table_once_per_seed(name):
    target, graph = place_of(name)
    assert name in recipes_of(graph)
    seeds = [run.seed for run in plan(target, 3) if run.recipe.name == name and run.graph == graph]
    missing = graph == "YAGO3-10" and not available(graph)  # the dataset is not available everywhere
    assert seeds == ([] if missing else [0, 1, 2])


@pytest.mark.parametrize("graph", [graph for graphs in TABLES.values() for graph in graphs])
def test_a_table_has_exactly_the_recipes_of_its_benchmarks(graph):
    assert sorted(recipes_of(graph)) == [name for name in OF_TABLES if place_of(name)[1] == graph]
    assert {f"paper/{graph.lower()}-d4-{variant}" for variant in ("ste", "gumbel")} <= set(recipes_of(graph))


@pytest.mark.parametrize("name", [name for name in OF_TABLES if name.startswith("best/")])
def test_best_recipes_are_named_after_their_model(name):
    recipe = load_recipe(name)
    if recipe.model in BASELINES:
        assert name.endswith(f"-{recipe.model}")
        return
    assert recipe.K <= 16 and recipe.dimension <= 2000
    graded = recipe.levels != "1"
    assert name.endswith(f"-d{recipe.K}-{'graded' if graded else recipe.model.removeprefix('dihedral-')}")


@pytest.mark.parametrize("graph", [*GRAPHS, *SMALL])
def test_strict_and_graded_recipes_are_next_to_each_other(graph):
    best = [load_recipe(name) for name in recipes_of(graph) if name.startswith("best/")]
    levels = [recipe.levels for recipe in best if recipe.model not in BASELINES]
    assert graph == "yago3-10" or (levels[0] == "1" and levels[-1] != "1")


@pytest.mark.parametrize("objective", ["logistic", "softmax"])
@pytest.mark.parametrize("graph", ["WN18", "FB15k", "WN18RR", "FB15k-237"])
def test_runs_with_the_same_training_setup_differ_only_in_the_model(graph, objective):
    runs = same_setup(graph, objective)
    assert len({(run.recipe.model, run.recipe.levels) for run in runs}) == len(runs) == 10
    assert {run.seed for run in runs} == {0}
    own = {
        "transe": {"regulariser", "regulariser_weight", "relation_init", "entity_init"},
        "dihedral-gumbel": {"relation_lr", "cooling", "levels"},
    }
    shared = {key: value for key, value in runs[0].recipe.to_dict().items() if key not in ("name", "model")}
    assert shared["objective"] == objective
    for run in runs:
        settings = run.recipe.to_dict()
        different = {key for key, value in shared.items() if settings[key] != value}
        assert different <= own.get(run.recipe.model, set())


@pytest.mark.parametrize("graph", ["WN18RR", "FB15k-237"])
def test_discreteness_is_tested_with_and_without_a_regulariser(graph):
    runs = discreteness(graph)
    assert all("curves" in run.studies and not run.recipe.averaging for run in runs)
    weights = {run.recipe.model: set() for run in runs}
    for run in runs:
        weights[run.recipe.model].add(run.recipe.regulariser_weight > 0)
    assert len(weights) == 5 and all(found == {False, True} for found in weights.values())


@pytest.mark.parametrize(
    ("target", "study"), [("figure2", "inverses"), ("figure3", "symmetry"), ("figure4", "compositions")]
)
@BOTH
def test_runs_of_a_figure_include_its_study(target, study, quick):
    runs = plan(target, 2, quick=quick)
    assert runs and all(study in run.studies for run in runs)
    assert all(set(run.studies) <= set(STUDIES) for run in runs)


def test_small_graphs_have_their_own_recipes():
    assert {run.recipe.name for run in plan("small", 2)} == set(SMALL_RECIPES)
    assert plan("small", 2, quick=True) == []
