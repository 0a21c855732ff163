"""`dihedral recipes`."""

from __future__ import annotations

import json

import pytest

from dihedral.training import Recipe, load_recipe, recipe_names


def test_all_recipes_are_listed(cli):
    rows = json.loads(cli("recipes", "--json").out)
    assert [row["name"] for row in rows] == recipe_names()
    assert {"demo/family", "demo/umls"} <= {row["name"] for row in rows}


def test_the_list_for_people_has_a_line_a_recipe(cli):
    lines = cli("recipes").out.splitlines()
    assert [line.split()[0] for line in lines] == ["recipe", *recipe_names()]


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_whole_and_says_what_it_is_for(cli, name):
    settings = json.loads(cli("recipes", name, "--json").out)
    assert Recipe.from_dict(settings) == load_recipe(name)
    assert settings["name"] == name and settings["about"]


def test_one_recipe_for_people(cli):
    lines = [line.split() for line in cli("recipes", "demo/umls").out.splitlines()]
    assert ["model", "dihedral-gumbel"] in lines and ["objective", "softmax"] in lines


def test_a_recipe_file_of_ones_own(cli, tmp_path):
    (tmp_path / "mine.toml").write_text("dimension = 12\n")
    assert json.loads(cli("recipes", tmp_path / "mine.toml", "--json").out)["dimension"] == 12


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("dimension = [", "is not TOML: "),
        ("dimensions = 12", "recipe setting 'dimensions' does not exist; did you mean 'dimension'"),
        ("dimension = 13", "dimension is 13; it is 2L, so it must be even"),
        ("dimension = 'wide'", "dimension is 'wide'; it must be a whole number"),
        ("relation_scale = 1", "relation_scale is 1; it must be true or false"),
        (None, "mine.toml' does not exist"),
    ],
)
def test_a_recipe_file_that_is_wrong(cli, tmp_path, content, message):
    if content is not None:
        (tmp_path / "mine.toml").write_text(content)
    done = cli("recipes", tmp_path / "mine.toml")
    assert done.code == 2 and message in done.err and done.err.count("\n") == 1


def test_an_unknown_recipe(cli):
    done = cli("recipes", "demo/umlz")
    assert done.code == 2 and "recipe 'demo/umlz' is unknown; did you mean 'demo/umls'" in done.err
