"""Search with Optuna: the space, pruning, resuming and workers."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import suppress
from dataclasses import replace

import optuna
import pytest
import sqlalchemy
from optuna.exceptions import StorageInternalError

import dihedral as dh
from dihedral import DihedralError, Graph
from dihedral.errors import TrainingError
from dihedral.objectives.recipe import Recipe
from dihedral.tune.search import Search, open_study, search

SMALL = Recipe(objective="softmax", dimension=8, epochs=4, validate_every=1, batch_size=64, entity_init=0.01)
SPACE = {"entity_lr": (0.01, 1.0), "K": [4, 6]}


@pytest.fixture
def task(family, tmp_path):
    return Search(family, SMALL, SPACE, tmp_path / "study", device="cpu")


def test_the_first_trial_is_the_recipe_itself(task):
    rows = search(task, trials=3)
    first = next(row for row in rows if row["trial"] == 0)
    assert first["changes"] == {"entity_lr": 0.1, "K": 4}
    expected = dh.train(task.graph, SMALL, device="cpu", progress=False)
    assert first["valid_mrr"] == expected.metrics["valid"]["both"]["mrr"]


def test_path_models_are_searched_as_they_are_trained(task):
    recipe = Recipe(objective="paths", model="dihedral-argmax", dimension=8, steps=2, epochs=2, validate_every=1)
    (row,) = search(replace(task, recipe=recipe, space={"K": [4]}), trials=1)
    expected = dh.train(task.graph, recipe, device="cpu", progress=False)
    assert row["valid_mrr"] == expected.metrics["valid"]["both"]["mrr"]


def test_rows_are_sorted_by_valid_mrr_and_the_best_becomes_a_recipe(task):
    rows = search(task, trials=3)
    scores = [row["valid_mrr"] for row in rows]
    assert len(rows) == 3 and scores == sorted(scores, reverse=True)
    best = dh.load_recipe(task.best)
    assert best.to_dict() == rows[0]["recipe"] and "trial" in best.about
    again = dh.train(task.graph, best, device="cpu", progress=False)
    assert again.metrics["valid"]["both"]["mrr"] == scores[0]
    assert not any("test" in row for row in rows)


def test_a_resumed_search_adds_trials_with_other_settings(task):
    first = search(task, trials=2)
    both = search(task, trials=4)
    assert len(both) == 4 and all(row in both for row in first)
    assert len({json.dumps(row["changes"]) for row in both}) == 4
    assert search(task, trials=4) == both


def test_ctrl_c_keeps_finished_trials_and_the_interrupted_one_is_resumed_first(task):
    trained = []

    def stop_in_the_second(event):
        trained.append(event["event"])
        if trained.count("start") == 2 and event["event"] == "epoch":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(task, trials=3, callback=stop_in_the_second)
    study = open_study(task)
    stopped = study.trials[1]
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "FAIL"]
    assert task.best.exists()
    rows = search(task, trials=3)
    assert len(rows) == 3
    assert next(row for row in rows if row["trial"] == 2)["changes"]["K"] == stopped.params["K"]


def test_a_trial_below_the_median_is_pruned(task):
    search(task, trials=4)
    study = open_study(task)
    study.enqueue_trial({"entity_lr": 0.01, "K": 4})  # learns nothing in four epochs
    rows = search(task, trials=5)
    (slow,) = [row for row in rows if row["trial"] == 4]
    assert slow["state"] == "pruned" and slow["epochs"] < SMALL.epochs
    assert rows[-1] == slow


def test_a_diverging_trial_is_reported_and_the_search_continues(family, tmp_path):
    task = Search(family, SMALL.replace(entity_lr=1e20), {"entity_lr": [1e20, 0.1]}, tmp_path / "study")
    rows = search(task, trials=6)
    assert [row["state"] for row in rows] == ["complete", "failed"]
    assert "the loss became nan" in rows[1]["failed"]


def test_the_same_settings_are_trained_once(family, tmp_path):
    task = Search(family, SMALL, {"K": [4, 6]}, tmp_path / "study")
    starts = []
    rows = search(task, trials=8, callback=lambda event: starts.append(event) if event["event"] == "start" else None)
    assert len(starts) == len(rows) == 2
    assert len(open_study(task).trials) == 8


@pytest.mark.thorough
def test_workers_share_one_study(task):
    rows = search(task, trials=4, workers=2)
    assert len(rows) == 4 and len(open_study(task).trials) == 4
    assert len({json.dumps(row["changes"]) for row in rows}) == 4
    assert sum(row["changes"] == {"entity_lr": 0.1, "K": 4} for row in rows) == 1


def test_two_workers_never_take_the_same_waiting_trial(task, monkeypatch):
    """The second asks when the first has read that a trial waits and is about to note that it runs."""
    monkeypatch.setattr("dihedral.tune.search.LOCK_SECONDS", 0)  # where a worker would wait, it is refused
    task.folder.mkdir()
    first, second = open_study(task), open_study(task)
    for choice in SPACE["K"]:
        first.enqueue_trial({"K": choice})
    turns, taken = iter([second]), []

    def interleave(connection, cursor, statement, *_):
        if statement.startswith("UPDATE trials"):
            for study in turns:
                with suppress(StorageInternalError):
                    taken.append(study.ask().number)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", interleave)
    try:
        taken.append(first.ask().number)
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", interleave)
    assert next(turns, None) is None
    taken.append(second.ask().number)
    assert taken == [0, 1]


def test_no_trial_starts_after_the_minutes(task, monkeypatch):
    """The clock of this test advances by one minute per trial."""
    starts = []
    monkeypatch.setattr(time, "monotonic", lambda: 60.0 * len(starts))
    rows = search(task, minutes=2, callback=lambda event: starts.append(event) if event["event"] == "start" else None)
    assert len(rows) == len(starts) == 2


def test_a_jump_of_the_wall_clock_does_not_end_a_search(task, monkeypatch):
    looks = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 1e9 + 3600 * next(looks))
    assert len(search(task, trials=3, minutes=10)) == 3


# --- grids ------------------------------------------------------------------------------------------

CHOICES = {"entity_lr": [0.1, 0.5], "seed": [0, 1]}


@pytest.fixture
def grid(task, tmp_path):
    return replace(task, space=CHOICES, folder=tmp_path / "grid", grid=True)


def test_every_combination_is_trained_once_and_rows_are_sorted_by_valid_mrr(grid):
    rows = search(grid)
    assert sorted((row["recipe"]["entity_lr"], row["changes"]["seed"]) for row in rows) == [
        (0.1, 0), (0.1, 1), (0.5, 0), (0.5, 1),
    ]  # fmt: skip
    scores = [row["valid_mrr"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    best = dh.train(
        grid.graph, dh.load_recipe(grid.best), seed=rows[0]["changes"]["seed"], device="cpu", progress=False
    )
    assert best.metrics["valid"]["both"]["mrr"] == scores[0]


def test_a_grid_resumes_and_trains_only_the_missing_combinations(grid, tmp_path):
    expected = search(replace(grid, folder=tmp_path / "uninterrupted"))
    search(grid, trials=2)
    open_study(grid).ask()  # a killed process leaves a running trial
    counts = []
    rows = search(grid, on_tick=lambda rows: counts.append(len(rows)))
    assert counts == [2, 3, 4]
    assert measured(rows) == measured(expected)


def measured(rows):
    return sorted((*row["changes"].values(), row["valid_mrr"]) for row in rows)


def test_no_trial_of_a_grid_is_pruned_and_a_failed_one_is_reported(family, tmp_path):
    task = Search(family, SMALL, {"entity_lr": [1e20, 0.1, 0.2, 0.3, 0.5, 0.01]}, tmp_path / "study", grid=True)
    rows = search(task)
    assert [row["state"] for row in rows] == ["complete"] * 5 + ["failed"]
    assert "the loss became nan" in rows[-1]["failed"] and rows[-1]["changes"] == {"entity_lr": 1e20}


# --- killed processes and damaged files -------------------------------------------------------------


def changes(rows):
    return [row["changes"] for row in sorted(rows, key=lambda row: row["trial"])]


def test_a_killed_and_resumed_search_runs_the_trials_of_an_uninterrupted_one(task, tmp_path):
    expected = search(replace(task, folder=tmp_path / "uninterrupted"), trials=5)
    search(task, trials=2)
    open_study(task).ask(
        {"K": optuna.distributions.CategoricalDistribution([4, 6])}
    )  # a killed process leaves a running trial
    search(task, trials=3)
    assert changes(search(task, trials=5)) == changes(expected)
    states = [trial.state.name for trial in open_study(task).get_trials()]
    assert states.count("FAIL") == 1 and "RUNNING" not in states


def test_a_folder_holds_one_search_at_a_time(task):
    def search_concurrently(event):
        with pytest.raises(DihedralError, match=r"folder '.*' is used by another search"):
            search(task, trials=1)
        errors.append(event)

    errors = []
    search(task, trials=1, callback=search_concurrently)
    assert errors


def test_a_study_that_is_not_a_database_is_rejected(task):
    task.folder.mkdir()
    (task.folder / "study.db").write_bytes(b"not a database" * 100)
    with pytest.raises(TrainingError, match=r"the study in '.*' cannot be used: .*file is not a database; finished"):
        search(task, trials=1)


def test_a_search_belongs_to_its_data_recipe_space_and_seed(task, tmp_path):
    search(task, trials=1)
    others = {
        "data": Search(dh.make_family(40, seed=2), SMALL, SPACE, task.folder),
        "recipe": Search(task.graph, SMALL.replace(epochs=5), SPACE, task.folder),
        "space": Search(task.graph, SMALL, {"K": [4]}, task.folder),
        "seed": Search(task.graph, SMALL, SPACE, task.folder, seed=1),
    }
    for key, other in others.items():
        with pytest.raises(DihedralError, match=f"holds a search with another {key}"):
            search(other, trials=2)


def test_a_graph_without_valid_triples_is_rejected(tmp_path):
    graph = Graph.from_names([("a", "r", "b")])
    with pytest.raises(DihedralError, match="has no valid triples"):
        search(Search(graph, SMALL, SPACE, tmp_path / "study"), trials=1)
    assert not (tmp_path / "study").exists()


def test_lr_sets_both_learning_rates(family, tmp_path):
    (row,) = search(Search(family, SMALL, {"lr": [0.5]}, tmp_path / "study"), trials=1)
    assert row["recipe"]["entity_lr"] == row["recipe"]["relation_lr"] == 0.5


def test_optuna_can_load_the_study(task):
    search(task, trials=2)
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{task.folder / 'study.db'}")
    assert len(study.trials) == 2 and study.best_value > 0
    assert set(study.trials[0].intermediate_values) == {1, 2, 3, 4}
