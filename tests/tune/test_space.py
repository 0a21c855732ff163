"""The values to search: around a recipe, as given, and the paper's grids."""

from __future__ import annotations

import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.objectives.recipe import Recipe
from dihedral.tune.space import combinations, default_space, make_space, paper_grid

SMALL = Recipe(objective="softmax", dimension=8, epochs=4, validate_every=1, batch_size=64, entity_init=0.01)
STE = Recipe(model="dihedral-ste", dimension=8, epochs=2, validate_every=1, batch_size=64)


@pytest.mark.parametrize("name", ["demo/umls", "demo/family", "best/wn18-d4-ste", "best/wn18rr-d4-gumbel"])
def test_the_default_space_surrounds_its_recipe_and_is_valid(name):
    recipe = dh.load_recipe(name)
    space = default_space(recipe)
    for key, values in space.items():
        value = getattr(recipe, key)
        assert value in values if isinstance(values, list) else values[0] < value < values[1]
        for each in values:
            recipe.adapt(**{key: each})
    assert ("K" in space) == ("cooling" in space) == name.endswith(("umls", "family", "gumbel"))
    assert {"epochs", "model", "levels"} <= space.keys()
    assert ("dropout" in space) == (recipe.objective == "softmax")


def test_the_space_of_path_models_has_their_settings_only():
    recipe = dh.load_recipe("paths/inductive")
    space = default_space(recipe)
    assert {"steps", "update", "relation_lr", "K"} <= space.keys()
    assert not {"regulariser", "regulariser_weight", "entity_lr", "cooling"} & space.keys()
    for key, values in space.items():
        for each in values:
            assert getattr(recipe.replace(**{key: each}), key) == each


def test_choices_replace_defaults_and_fixed_settings_are_not_searched():
    space = make_space(SMALL, {"K": ["4", "8", "4"], "dropout": ["0", "0.1"]}, fixed=("dimension",))
    assert space["K"] == [4, 8] and space["dropout"] == [0.0, 0.1]
    assert "dimension" not in space and "entity_lr" in space


def test_lr_replaces_both_learning_rates():
    space = make_space(SMALL, {"lr": ["0.05", "0.5"]})
    assert space["lr"] == [0.05, 0.5] and "entity_lr" not in space and "relation_lr" not in space


# --- grids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("variant", "size"), [("gumbel", 3 * 54), ("ste", 2 * 180)])
def test_the_grids_of_the_paper_have_all_combinations(variant, size):
    recipe = Recipe(model=f"dihedral-{variant}")
    grid = make_space(recipe, paper_grid(recipe), grid=True)
    assert grid == paper_grid(recipe) and grid["batch_size"] == [512, 1024, 2048]
    assert len(combinations(grid)) == size
    assert len(combinations(paper_grid(recipe.replace(objective="softmax")))) == size / 3  # it draws no negatives


def test_a_model_without_a_grid_in_the_paper_is_rejected():
    with pytest.raises(DihedralError, match=r"model is 'distmult'; the paper has grids for its .* --choose"):
        paper_grid(Recipe(model="distmult"))


def test_a_grid_has_each_combination_once_with_typed_values():
    choices = {"K": ["4", "6", 4], "lr": ["1e-1", "0.1"], "seed": ["1"], "relation_scale": ["false"]}
    found = combinations(make_space(STE, choices, grid=True))
    assert found == [{"K": K, "lr": 0.1, "seed": 1, "relation_scale": False} for K in (4, 6)]


def test_a_value_may_be_valid_only_with_another_value():
    grid = make_space(STE, {"model": ["dihedral-gumbel"], "K": [8]}, grid=True)
    assert combinations(grid) == [{"model": "dihedral-gumbel", "K": 8}]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"K": [4, 8]}, "K is 8 with model 'dihedral-ste'"),
        ({"epochs": [1], "Kay": [4]}, "recipe setting 'Kay' does not exist"),
        ({"epochs": [1, "x"]}, "epochs is 'x'; it must be a whole number"),
        ({"seed": [0, "x"]}, "seed is 'x'; it must be a whole number"),
        ({"seed": [0, -1]}, "seed is -1; it must be a whole number"),
        ({"lr": [0.1], "relation_lr": [1.0]}, "the choices have lr and relation_lr"),
    ],
)
def test_an_invalid_combination_is_rejected(choices, message):
    with pytest.raises(DihedralError, match=message):
        make_space(STE, choices, grid=True)
