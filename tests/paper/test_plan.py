"""Runs that the tables and figures need."""

from __future__ import annotations

import pytest

from dihedral.learn import load_recipe, recipe_names
from paper.plan import TARGETS, available, discreteness, plan, recipes_of, same_setup
from paper.reported import BASELINES
from paper.studies import STUDIES

BOTH = pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
RECIPES = {
    "WN18": ["paper/wn18-d4-ste", "paper/wn18-d4-gumbel", "best/wn18-d4-ste", "best/wn18-d4-graded",
             "best/wn18-complex"],
    "FB15k": ["paper/fb15k-d4-ste", "paper/fb15k-d4-gumbel", "best/fb15k-d4-gumbel", "best/fb15k-d4-graded",
              "best/fb15k-complex"],
    "WN18RR": ["paper/wn18rr-d4-ste", "paper/wn18rr-d4-gumbel", "best/wn18rr-d4-gumbel", "best/wn18rr-d8-graded",
               "best/wn18rr-complex", "best/wn18rr-distmult", "best/wn18rr-rescal"],
    "FB15k-237": ["paper/fb15k-237-d4-ste", "paper/fb15k-237-d4-gumbel", "best/fb15k-237-d8-gumbel",
                  "best/fb15k-237-d16-graded", "best/fb15k-237-complex", "best/fb15k-237-distmult",
                  "best/fb15k-237-rescal"],
    "YAGO3-10": ["paper/yago3-10-d4-ste", "paper/yago3-10-d4-gumbel"],
    "umls": ["best/umls-d4-gumbel", "best/umls-d8-graded"],
    "family-neural-lp": ["best/family-neural-lp-d4-gumbel", "best/family-neural-lp-d8-graded"],
}  # fmt: skip
IN_TABLES = {"table3": ["WN18", "FB15k"], "table4": ["WN18RR", "FB15k-237", "YAGO3-10"]}
SMALL_RECIPES = {*RECIPES["umls"], *RECIPES["family-neural-lp"]}


def test_every_graph_has_its_recipes_in_this_order():
    assert {graph: recipes_of(graph) for graph in RECIPES} == RECIPES
    named = {name for names in RECIPES.values() for name in names}
    assert named == {name for name in recipe_names() if name.startswith(("paper/", "best/"))}


@pytest.mark.parametrize("target", IN_TABLES)
def test_a_table_has_every_recipe_of_its_graphs_once_per_seed(target):
    graphs = [graph for graph in IN_TABLES[target] if available(graph)]  # YAGO3-10 is not everywhere
    expected = {(name, graph): [0, 1, 2] for graph in graphs for name in RECIPES[graph]}
    seeds = {key: [] for key in expected}
    for run in plan(target, 3):
        if (run.recipe.name, run.graph) in seeds:
            seeds[run.recipe.name, run.graph].append(run.seed)
    assert seeds == expected


@BOTH
def test_run_names_of_a_target_are_unique(quick):
    for target in TARGETS:
        runs = plan(target, 3, quick=quick)
        assert len({run.name for run in runs}) == len(runs), target
        assert len({(run.graph, run.recipe, run.seed) for run in runs}) == len(runs), target


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


def test_best_recipes_are_named_after_their_model():
    for name in (name for names in RECIPES.values() for name in names if name.startswith("best/")):
        recipe = load_recipe(name)
        if recipe.model in BASELINES:
            assert name.endswith(f"-{recipe.model}")
        else:
            kind = recipe.model.removeprefix("dihedral-") if recipe.levels == "1" else "graded"
            assert name.endswith(f"-d{recipe.K}-{kind}") and recipe.K <= 16 and recipe.dimension <= 2000


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
    assert {run.recipe.name for run in plan("small", 2)} == SMALL_RECIPES
    assert plan("small", 2, quick=True) == []
