"""`dihedral info`."""

from __future__ import annotations

import json


def test_json_holds_model_data_recipe_and_metrics(cli, model_folder, predictor):
    done = cli("info", model_folder, "--json")
    content = json.loads(done.out)
    assert done.code == 0 and done.err == ""
    assert {key: content[key] for key in ("format", "version", "model", "entities", "relations", "dimension")} == {
        "format": "dihedral-model", "version": 1, "model": "dihedral", "entities": 40, "relations": 6, "dimension": 16,
    }  # fmt: skip
    assert content["settings"] == {"K": 4}
    assert content["graph"] == "family" and content["fingerprint"] == predictor.graph.fingerprint
    assert content["recipe"] == predictor.recipe.to_dict()
    assert content["metrics"]["test"]["both"] == predictor.metrics["test"]["both"]
    files = [path for path in model_folder.iterdir() if path.name not in ("model.json", "README.md")]
    assert content["bytes"] == sum(path.stat().st_size for path in files)


def test_prints_tables(cli, model_folder, predictor):
    lines = [line.split() for line in cli("info", model_folder).out.splitlines()]
    assert ["entities", "40"] in lines and ["recipe.epochs", "30"] in lines
    test = predictor.metrics["test"]["both"]
    expected = [f"{test[key]:.4f}" for key in ("mrr", "hits@1", "hits@3", "hits@10")] + [f"{test['mr']:.1f}"]
    assert ["both", "sides", *expected] in lines


def test_a_model_without_metrics_is_described(cli, family, tmp_path):
    from dihedral import Predictor, TrainedModel
    from dihedral.models import build_model

    Predictor(TrainedModel(build_model("complex", 40, 6, dimension=4), family)).save(tmp_path / "model")
    done = cli("info", tmp_path / "model")
    assert done.code == 0 and "MRR" not in done.out and "complex" in done.out


def test_format_version_1_is_described(cli, fixtures):
    assert json.loads(cli("info", fixtures / "model-v1", "--json").out)["dimension"] == 8


def test_a_folder_without_a_model_is_rejected(cli, tmp_path):
    done = cli("info", tmp_path)
    assert (done.code, done.err) == (2, f"error: '{tmp_path}' is not a model folder: it has no model.json\n")


def test_settings_that_a_model_ignores_are_not_printed(cli, model_folder, path_model_folder):
    table, paths = (cli("info", folder).out for folder in (model_folder, path_model_folder))
    assert "recipe.steps" in paths and "recipe.entity_lr" not in paths and "recipe.negatives" not in paths
    assert "recipe.entity_lr" in table and "recipe.steps" not in table


def test_values_are_to_the_left_and_each_note_has_a_line(cli, model_folder):
    lines = cli("info", model_folder).out.splitlines()
    fields = dict(line.split(maxsplit=1) for line in lines[:4])
    start = lines[0].index(fields["format"])
    assert fields["format"] == "dihedral-model" and all(line[start] != " " == line[start - 1] for line in lines[:4])
    assert max(map(len, lines[:4])) < 80
