"""`dihedral recipes`."""

from __future__ import annotations

import json

import pytest

from dihedral.learn import Recipe, load_recipe, recipe_names


def test_all_recipes_are_listed(cli):
    rows = cli("recipes", "--json").rows
    assert [row["name"] for row in rows] == recipe_names()
    assert {"demo/family", "demo/umls"} <= {row["name"] for row in rows}


def test_the_table_has_one_line_per_recipe(cli):
    lines = cli("recipes").out.splitlines()
    assert [line.split()[0] for line in lines] == ["recipe", *recipe_names()]


@pytest.mark.parametrize("name", ["demo/family", "paper/wn18rr-d4-ste", "best/fb15k-237-complex"])
def test_a_recipe_is_printed_with_all_its_settings(cli, name):
    settings = json.loads(cli("recipes", name, "--json").out)
    assert Recipe.from_dict(settings) == load_recipe(name)
    assert settings["name"] == name and settings["about"]


def test_one_recipe_is_printed_as_a_table(cli):
    lines = [line.split() for line in cli("recipes", "demo/umls").out.splitlines()]
    assert ["model", "dihedral-gumbel"] in lines and ["objective", "softmax"] in lines


def test_a_recipe_file_can_be_shown(cli, tmp_path):
    (tmp_path / "mine.toml").write_text("dimension = 12\n")
    assert json.loads(cli("recipes", tmp_path / "mine.toml", "--json").out)["dimension"] == 12


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("dimension = [", "is not TOML: "),
        ("dimensions = 12", "recipe setting 'dimensions' does not exist; did you mean 'dimension'"),
        ("dimension = 13", "dimension is 13; it must be even, because it is 2L"),
        ("dimension = 'wide'", "dimension is 'wide'; it must be a whole number"),
        ("relation_scale = 1", "relation_scale is 1; it must be true or false"),
    ],
)
def test_an_invalid_recipe_file_is_rejected(cli, tmp_path, content, message):
    (tmp_path / "mine.toml").write_text(content)
    done = cli("recipes", tmp_path / "mine.toml")
    assert done.code == 2 and message in done.err and done.err.count("\n") == 1


def test_a_missing_recipe_file_is_rejected(cli, tmp_path):
    done = cli("recipes", tmp_path / "mine.toml")
    assert done.code == 2 and "mine.toml' does not exist" in done.err and done.err.count("\n") == 1


def test_an_unknown_recipe_is_rejected_with_a_suggestion(cli):
    done = cli("recipes", "demo/umlz")
    assert done.code == 2 and "recipe 'demo/umlz' is unknown; did you mean 'demo/umls'" in done.err
