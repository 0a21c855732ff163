"""The history of a model: stored in a file of its own, and read from the metrics of older folders."""

from __future__ import annotations

import json

import pytest

import dihedral as dh
from dihedral.errors import DihedralError
from dihedral.store.folder import describe
from dihedral.store.trained import History, Version

HISTORY = History(
    (Version(version=0, facts=9, entities=4, relations=2), Version(version=1, parent=0, facts=10, added=1))
)


@pytest.fixture
def folder(predictor, tmp_path):
    trained = dh.TrainedModel(
        predictor.model, predictor.graph, recipe=predictor.recipe, metrics={"seed": 3}, history=HISTORY
    )
    dh.Predictor(trained).save(tmp_path / "model")
    return tmp_path / "model"


def test_it_has_a_file_of_its_own(folder):
    loaded = dh.load(folder)
    assert loaded.history == HISTORY and loaded.history.names_at_split == (4, 2)
    assert "versions" not in loaded.metrics and describe(folder)["versions"][1]["added"] == 1


def test_a_model_that_was_never_updated_has_none(predictor, tmp_path):
    predictor.save(tmp_path / "model")
    assert not (tmp_path / "model" / "history.json").exists()
    assert dh.load(tmp_path / "model").history == History() and History().names_at_split is None


def make_older(folder, versions):
    """Put the versions among the metrics, where folders of version 0.2 have them."""
    manifest = json.loads((folder / "model.json").read_text())
    (folder / manifest["files"].pop("history")).unlink()
    metrics = json.loads((folder / "metrics.json").read_text()) | {"versions": versions}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    manifest["bytes"].pop("history.json")
    manifest["bytes"]["metrics.json"] = (folder / "metrics.json").stat().st_size
    (folder / "model.json").write_text(json.dumps(manifest))


def test_older_folders_have_it_among_the_metrics(folder):
    first = {"version": 0, "parent": None, "facts": 9, "entities": 4, "relations": 2}
    make_older(folder, [first, {"version": 1, "parent": 0, "facts": 10, "added": 1, "unknown": []}])
    loaded = dh.load(folder)
    assert loaded.history == HISTORY and loaded.metrics == {"seed": 3}


@pytest.mark.parametrize(
    "versions", [[{"a": 1}], [3], "x", [{"version": 1, "facts": "many"}], [{"version": 1, "facts": 2, "epochs": []}]]
)
def test_damaged_versions_are_refused(folder, versions):
    make_older(folder, versions)
    with pytest.raises(DihedralError, match=r"versions are damaged: .*; copy the folder again"):
        dh.load(folder)
