"""Pictures of a search."""

from __future__ import annotations

from dihedral.figures.search import draw_search
from dihedral.training.recipe import Recipe
from dihedral.tuning.optuna_search import Search, open_study, search


def drawn(family, tmp_path, trials):
    recipe = Recipe(objective="softmax", dimension=8, epochs=2, validate_every=1, batch_size=64)
    task = Search(family, recipe, {"entity_lr": (0.01, 1.0), "K": [4, 6]}, tmp_path / "study", device="cpu")
    search(task, trials=trials)
    return draw_search(open_study(task), task.folder)


def test_a_search_has_a_history_and_importances(family, tmp_path):
    paths = drawn(family, tmp_path, 3)
    assert [path.name for path in paths] == ["history.png", "importances.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_a_search_of_one_trial_has_no_importances(family, tmp_path):
    assert [path.name for path in drawn(family, tmp_path, 1)] == ["history.png"]
