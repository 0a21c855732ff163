"""Figures of a hyperparameter search."""

from __future__ import annotations

import pytest

from dihedral.figures import draw_search
from dihedral.objectives.recipe import Recipe
from dihedral.tune.search import Search, open_study, search


def drawn(family, tmp_path, trials):
    recipe = Recipe(objective="softmax", dimension=8, epochs=2, validate_every=1, batch_size=64)
    task = Search(family, recipe, {"entity_lr": (0.01, 1.0), "K": [4, 6]}, tmp_path / "study", device="cpu")
    search(task, trials=trials)
    study = open_study(task)
    return study, draw_search(study, task.folder)


def test_search_has_a_history_and_importances(family, tmp_path, saved):
    study, paths = drawn(family, tmp_path, 3)
    assert [path.name for path in paths] == ["history.png", "importances.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    history, importances = (figure.axes[0] for figure in saved)
    complete = [(trial.number, trial.value) for trial in study.trials if trial.state.name == "COMPLETE"]
    assert history.get_ylabel() == "valid MRR"
    assert [tuple(point) for point in history.collections[0].get_offsets()] == [pytest.approx(row) for row in complete]
    assert {label.get_text() for label in importances.get_yticklabels()} == {"entity_lr", "K"}
    assert sum(bar.get_width() for bar in importances.patches) == pytest.approx(1)


def test_search_with_one_trial_has_no_importances(family, tmp_path):
    assert [path.name for path in drawn(family, tmp_path, 1)[1]] == ["history.png"]
