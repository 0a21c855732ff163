"""The values that a search may choose: around a recipe, as given, or the paper's grids."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dihedral.errors import DihedralError, check_seed
from dihedral.models import MODELS
from dihedral.objectives.recipe import Recipe

Choices = Mapping[str, Sequence[Any]]
Values = list[Any] | tuple[float, float]  # a list holds choices, a pair the bounds of a log-uniform range
Space = dict[str, Values]

# the grids of Xu & Li (ACL 2019), from their section on the experimental setup
_SHARED = {"batch_size": [512, 1024, 2048], "negatives": [1, 6, 10]}
PAPER_GRIDS: dict[str, dict[str, list[Any]]] = {
    "gumbel": {"K": [4, 6, 8], "regulariser_weight": [1e-5, 1e-4, 1e-3], "lr": [0.5, 1.0], **_SHARED},
    "ste": {"K": [4, 6], "regulariser_weight": [1e-3, 0.01, 0.1, 0.2], "lr": [0.01, 0.02, 0.03, 0.05, 0.1], **_SHARED},
}


def paper_grid(recipe: Recipe) -> dict[str, list[Any]]:
    """The paper's grid for a recipe's variant of DihEdral.

    >>> paper_grid(Recipe(model="dihedral-ste"))["K"]
    [4, 6]
    """
    estimator = recipe.model.rpartition("-")[2]  # of dihedral-ste or cyclic-ste: ste
    if estimator not in PAPER_GRIDS:
        raise DihedralError(
            f"model is {recipe.model!r}; the paper has grids for its Gumbel-softmax and straight-through models: "
            "give your own with --choose, such as --choose lr=0.1,0.5"
        )
    choices = dict(PAPER_GRIDS[estimator])
    if recipe.objective == "softmax":  # draws no negatives, so each run would be repeated three times
        del choices["negatives"]
    return choices


def default_space(recipe: Recipe) -> Space:
    """Return a small search space around a recipe.

    >>> default_space(Recipe(model="distmult", objective="softmax"))["dimension"]
    [100, 200, 400]
    """
    around: Callable[[float, float], tuple[float, float]] = lambda value, factor: (value / factor, value * factor)  # noqa: E731
    space: Space = {
        "dimension": [max(2, recipe.dimension // 4 * 2), recipe.dimension, 2 * recipe.dimension],
        "regulariser": sorted({"l2", "n3", recipe.regulariser} - {"none"}),
        "regulariser_weight": around(recipe.regulariser_weight or 0.01, 10),
        "entity_lr": around(recipe.entity_lr, 3),
        "relation_lr": around(recipe.relation_lr, 3),
        "batch_size": [max(1, recipe.batch_size // 2), recipe.batch_size, 2 * recipe.batch_size],
        "epochs": [recipe.epochs, 2 * recipe.epochs],
    }
    model = MODELS[recipe.model]
    if recipe.objective == "softmax" and model.is_bilinear:
        space["dropout"] = sorted({0.0, 0.1, 0.2, 0.4, recipe.dropout})
    if recipe.model in ("dihedral-gumbel", "dihedral-ste"):
        space["model"] = ["dihedral-gumbel", "dihedral-ste"]
        space["levels"] = sorted({"1", "1, 1/2, 1/4, 0", recipe.levels})
    if model.uses_temperature:
        space["K"] = sorted({4, 6, 8, recipe.K})
        space["cooling"] = around(recipe.cooling or 0.01, 3)
    if recipe.objective == "paths":  # it has no entity vectors
        space = {key: space[key] for key in ("dimension", "relation_lr", "batch_size", "epochs", "K") if key in space}
        space |= {"steps": [max(1, recipe.steps - 1), recipe.steps, recipe.steps + 1], "update": ["linear", "gate"]}
    return space


def make_space(recipe: Recipe, choices: Choices, *, fixed: Sequence[str] = (), grid: bool = False) -> Space:
    """Return the choices alone for a grid, otherwise the default space with `choices` and without the fixed settings.

    choices: values per setting, as strings or in the setting's type; also `lr` for both entity_lr and relation_lr, and
    `seed` for a grid.
    """
    if "seed" in choices and not grid:
        raise DihedralError("seed is among the choices; a search by trials uses one seed: use --grid to search seeds")
    if "lr" in choices and (also := [key for key in ("entity_lr", "relation_lr") if key in choices]):
        raise DihedralError(f"the choices have lr and {also[0]}; lr sets both entity_lr and relation_lr: choose either")
    space = {} if grid else {key: values for key, values in default_space(recipe).items() if key not in fixed}
    if "lr" in choices:
        space = {key: values for key, values in space.items() if key not in ("entity_lr", "relation_lr")}
    single = [{key: value} for key, values in choices.items() for value in values]
    # all combinations of a grid must be valid; elsewhere, a trial leaves out settings that do not apply
    read = [_typed(recipe, settings) for settings in (combinations(choices) if grid else single)]
    for key in choices:
        space[key] = list(dict.fromkeys(settings[key] for settings in read if key in settings))
    return space


def combinations(choices: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the choices; the last setting changes fastest.

    >>> combinations({"K": [4, 6], "lr": [0.1]})
    [{'K': 4, 'lr': 0.1}, {'K': 6, 'lr': 0.1}]
    """
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


def with_both_lr(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a recipe, where `lr` sets both entity_lr and relation_lr."""
    found = dict(settings)
    if "lr" in found:
        found["entity_lr"] = found["relation_lr"] = found.pop("lr")
    return found


def _typed(recipe: Recipe, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in their types, after a check that they apply to the recipe."""
    changes = with_both_lr(settings)
    seed = changes.pop("seed", 0)
    read = recipe.replace(**changes).to_dict()
    read |= {"lr": read["entity_lr"], "seed": check_seed(int(seed) if str(seed).isdecimal() else seed)}
    return {key: read[key] for key in settings}
