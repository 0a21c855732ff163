"""The training runs that each table and figure needs."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources

from dihedral.graph.benchmarks import find_benchmark, locate
from dihedral.learn import Recipe, load_recipe, recipe_names
from dihedral.models import MODELS
from paper.reported import BASELINES, TABLES
from paper.runs import Run

TARGETS = ("table3", "table4", "figure1", "figure2", "figure3", "figure4", "discreteness", "small")
VARIANTS = ("d4-ste", "d4-gumbel")
GRADED_LEVELS = "1, 1/2, 1/4, 0"  # for graded D4-Gumbel with the same training setup as the other models

_PLAN = tomllib.loads((resources.files(__package__) / "plan.toml").read_text("utf-8"))
SAME_SETUP = {objective: Recipe(**settings) for objective, settings in _PLAN["same_setup"].items()}
SAME_SETUP_REGULARISER: dict[str, str] = _PLAN["same_setup_regulariser"]
SAME_SETUP_WEIGHT: dict[str, dict[str, float]] = _PLAN["same_setup_weight"]  # weights of the regulariser
SAME_SETUP_EPOCHS: dict[str, int] = _PLAN["same_setup_epochs"]
SYMMETRY: dict[str, str] = _PLAN["symmetry"]
COMPOSITIONS: dict[str, str] = _PLAN["compositions"]
SMALL = ("umls", "family-neural-lp")  # compared with ConvE and R-GCN
DISCRETENESS_MODELS = ("dihedral-gumbel", "dihedral-ste", "cyclic-gumbel", "cyclic-ste", "orthogonal")


def plan(target: str, seeds: int = 3, *, quick: bool = False) -> list[Run]:
    """Return the runs that a target needs; Figure 1 needs none.

    quick: only the paper's recipes and the case studies, each reduced in size.
    """
    if not quick:
        return _plan(target, seeds)
    skipped = ("best/", "same-setup-", "discreteness/")  # too expensive for a CPU
    return [reduced(run) for run in _plan(target, seeds) if not run.recipe.name.startswith(skipped)]


def _plan(target: str, seeds: int) -> list[Run]:
    runs: list[Run] = []
    if target in TABLES:
        for graph in TABLES[target]:
            if graph == "YAGO3-10" and not available(graph):
                continue
            runs += [run for name in recipes_of(graph) for run in _seeds(graph, load_recipe(name), seeds)]
            if graph in SAME_SETUP_EPOCHS:
                runs += same_setup(graph, "softmax") + same_setup(graph, "logistic")
    elif target == "figure2":
        runs += _seeds("WN18", load_recipe("case/wn18-d4-gumbel"), seeds, ("inverses", "symmetry"))
        runs += _with_study(_plan("table3", seeds), "inverses")
    elif target == "figure3":
        for name in SYMMETRY.values():
            runs += _seeds("WN18", load_recipe(name), seeds, ("inverses", "symmetry"))
    elif target == "figure4":
        for parents in ("1", "2"):
            recipe = load_recipe("case/family-d4-gumbel")
            named = recipe.replace(name=f"case/family-{parents}-d4-gumbel")
            runs += _seeds(f"family-{parents}", named, seeds, ("compositions",))
        runs += _with_study(_plan("table4", seeds), "compositions")
    elif target == "small":
        for graph in SMALL:
            runs += [run for name in recipes_of(graph) for run in _seeds(graph, load_recipe(name), seeds)]
    elif target == "discreteness":
        runs += [run for graph in ("WN18RR", "FB15k-237") for run in discreteness(graph)]
    return runs


def recipes_of(graph: str) -> list[str]:
    """Return the names of the paper's recipes for a benchmark, then of our best recipes, then of the baselines'."""
    slug = graph.lower()
    known = recipe_names()
    names = [f"paper/{slug}-{variant}" for variant in VARIANTS if f"paper/{slug}-{variant}" in known]
    best = [name for name in known if name.startswith(f"best/{slug}-") and name[len(f"best/{slug}-")].isalpha()]
    return names + sorted(best, key=lambda name: (load_recipe(name).model in BASELINES, name.endswith("-graded")))


def available(graph: str) -> bool:
    return locate(find_benchmark(graph)) is not None


def _seeds(graph: str, recipe: Recipe, seeds: int, studies: tuple[str, ...] = ()) -> list[Run]:
    return [with_studies(Run(graph, recipe, seed, studies)) for seed in range(seeds)]


def with_studies(run: Run) -> Run:
    """Add the studies that figures need, so that one training run serves both tables and figures."""
    more = {
        "paper/fb15k-d4-gumbel": ("inverses",),
        "paper/fb15k-237-d4-gumbel": ("compositions",),
        "best/fb15k-237-d8-gumbel": ("compositions",),
    }.get(run.recipe.name, ())
    has_inverses = (
        run.recipe.name.startswith("same-setup-") and run.graph == "WN18" and MODELS[run.recipe.model].is_bilinear
    )
    studies = {*run.studies, *more, *(("inverses",) if has_inverses else ())}
    return Run(run.graph, run.recipe, run.seed, tuple(sorted(studies)))


def _with_study(runs: Sequence[Run], study: str) -> list[Run]:
    return [run for run in runs if study in run.studies]


def same_setup(graph: str, objective: str) -> list[Run]:
    """Return one run per model, all on one graph with one objective and the same training setup."""
    base = SAME_SETUP[objective]
    if objective == "logistic":
        base = base.replace(epochs=SAME_SETUP_EPOCHS[graph])
    runs = []
    for variant in ("dihedral-ste", "dihedral-gumbel", "dihedral-graded", *BASELINES):
        graded = variant == "dihedral-graded"
        model = "dihedral-gumbel" if graded else variant
        recipe = base.replace(
            name=f"same-setup-{objective}/{graph.lower()}-{variant}",
            model=model,
            relation_lr=1.0 if MODELS[model].uses_temperature else 0.1,
        )
        if graded:
            recipe = recipe.replace(levels=GRADED_LEVELS)
        if MODELS[model].is_bilinear:
            weight = SAME_SETUP_WEIGHT[objective][graph]
            recipe = recipe.replace(regulariser=SAME_SETUP_REGULARISER[objective], regulariser_weight=weight)
        else:  # a distance needs no penalty on the length of its vectors
            recipe = recipe.replace(entity_init=0.1)
        runs.append(with_studies(Run(graph, recipe, 0)))
    return runs


def discreteness(graph: str) -> list[Run]:
    """Return runs of D4, rotations only and continuous O(2), each with and without a regulariser."""
    runs = []
    for model in DISCRETENESS_MODELS:
        for weight in (0.0, SAME_SETUP_WEIGHT["softmax"][graph]):
            recipe = SAME_SETUP["softmax"].replace(
                name=f"discreteness/{graph.lower()}-{model}-{weight:g}",
                about="D4, rotations only and continuous O(2) with the same training setup",
                model=model,
                regulariser="l2",
                regulariser_weight=weight,
                averaging=0.0,
                relation_lr=1.0 if MODELS[model].uses_temperature else 0.1,
                validate_every=3,
                epochs=30,
            )
            runs.append(Run(graph, recipe, 0, ("curves",)))
    return runs


def reduced(run: Run) -> Run:
    """Return a version of a run that is small enough for a CPU; it tests the pipeline, not the quality."""
    if run.graph.startswith("family"):
        return run
    dimension, epochs = min(run.recipe.dimension, 100), min(run.recipe.epochs, 10)
    recipe = run.recipe.replace(dimension=dimension, epochs=epochs, validate_every=5, name=f"quick-{run.recipe.name}")
    return Run(run.graph, recipe, run.seed, run.studies)
