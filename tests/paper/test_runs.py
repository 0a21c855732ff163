"""Runs and their records."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import dihedral as dh
from dihedral.io.files import read_json, write_json
from paper.runs import Run, find_record, open_graph, perform, perform_all


def with_settings(run, **settings):
    return replace(run, recipe=run.recipe.replace(**settings))


def test_record_is_named_after_its_recipe_and_seed(tiny, tiny_results, tiny_record):
    assert [path.relative_to(tiny_results).as_posix() for path in tiny_results.rglob("*.json")] == [
        "runs/tiny/family-s0.json"
    ]
    json.loads((tiny_results / "runs/tiny/family-s0.json").read_text(), parse_constant=pytest.fail)
    assert tiny_record["recipe"] == tiny.recipe.to_dict()
    assert (tiny_record["graph"], tiny_record["seed"], tiny_record["epochs"]) == ("family-1", 0, 1)
    assert tiny_record["data"] == dh.make_family(parents=1).fingerprint
    assert tiny_record["hardware"] and tiny_record["environment"]["dihedral"] == dh.__version__
    assert tiny_record["seconds"] >= tiny_record["train_seconds"] >= 0 and tiny_record["concurrent_runs"] == 0


def test_record_has_the_metrics_of_training(tiny, tiny_record):
    trained = dh.train(dh.make_family(parents=1), tiny.recipe, device="cpu", progress=False)
    for split in ("valid", "test"):
        assert tiny_record[split]["both"] == trained.metrics[split]["both"]
        assert tiny_record[split]["seen_only"] == trained.metrics[split]["seen_only"]
    assert tiny_record["curve"] == [[1, pytest.approx(tiny_record["curve"][0][1]), tiny_record["valid"]["both"]["mrr"]]]


def test_record_has_the_requested_studies(tiny_record):
    assert set(tiny_record["studies"]) == {"compositions", "curves"}
    chains = tiny_record["studies"]["compositions"]
    assert chains[0]["relations"] == ["spouse", "parent", "parent_in_law"]
    for row in chains:
        for order in ("right", "swapped"):
            assert 0 <= row[order]["share"] <= 1
            assert sum(row[order]["diagonal"].values()) == 16  # two entries per component
    assert len(tiny_record["train_curve"]) == len(tiny_record["curve"]) == 1
    assert 0 < tiny_record["train_curve"][0] <= 1


def test_record_is_found(tiny, tiny_results, tiny_record):
    assert find_record(tiny, tiny_results / "runs") == tiny_record
    assert find_record(replace(tiny, studies=()), tiny_results / "runs") == tiny_record
    assert find_record(replace(tiny, studies=("curves",)), tiny_results / "runs") == tiny_record


def test_record_is_found_after_the_description_of_its_recipe_changes(tiny, tiny_results, tiny_record):
    assert find_record(with_settings(tiny, about="another description"), tiny_results / "runs") == tiny_record


@pytest.mark.parametrize("setting", [{"epochs": 2}, {"dimension": 18}, {"regulariser_weight": 0.03}, {"K": 6}])
def test_record_with_other_settings_is_not_found(tiny, tiny_results, setting):
    assert find_record(with_settings(tiny, **setting), tiny_results / "runs") is None


def test_record_without_a_requested_study_is_not_found(tiny, tiny_results):
    assert find_record(replace(tiny, studies=("compositions", "inverses")), tiny_results / "runs") is None


def test_record_with_another_seed_or_folder_is_not_found(tiny, tiny_results, tmp_path):
    assert find_record(replace(tiny, seed=1), tiny_results / "runs") is None
    assert find_record(tiny, tmp_path) is None


def test_record_with_unknown_settings_is_not_found(tiny, tiny_record, tmp_path):
    path = tiny.path(tmp_path)
    path.parent.mkdir()
    write_json(path, tiny_record | {"recipe": tiny_record["recipe"] | {"momentum": 0.9}})
    assert find_record(tiny, tmp_path) is None


def test_family_graphs_have_the_number_of_parents_in_their_name_and_are_cached():
    cache = {}
    for parents in (1, 2):
        graph = open_graph(f"family-{parents}", cache)
        assert graph.fingerprint == dh.make_family(parents=parents).fingerprint
        assert open_graph(f"family-{parents}", cache) is graph


def test_failed_run_reports_its_message_and_the_others_continue(tiny, tmp_path):
    recipe = tiny.recipe.replace(dimension=4)
    broken = Run("family-1", recipe.replace(name="tiny/broken", entity_lr=1e30, epochs=2))
    good = [Run("family-1", recipe.replace(name=f"tiny/good-{i}")) for i in range(2)]
    outcomes, events = {}, []
    perform_all(
        [good[0], broken, good[1]], tmp_path, device="cpu",
        on_event=lambda run, event: events.append((run.name, event["event"])),
        on_done=lambda run, outcome: outcomes.update({run.name: outcome}),
    )  # fmt: skip
    assert list(outcomes) == ["tiny/good-0-s0", "tiny/broken-s0", "tiny/good-1-s0"]
    assert outcomes["tiny/broken-s0"].startswith("TrainingError: the loss became ")
    assert not broken.path(tmp_path).exists()
    for run in good:
        assert outcomes[run.name] == read_json(run.path(tmp_path)) == find_record(run, tmp_path)
        assert (run.name, "epoch") in events and (run.name, "end") in events


def test_repeated_run_replaces_its_record(tiny, tmp_path):
    run = Run("family-1", tiny.recipe.replace(dimension=4))
    first = perform(run, tmp_path, device="cpu", concurrent=3)
    assert first["concurrent_runs"] == 3
    again = perform(run, tmp_path, device="cpu")
    assert again["test"] == first["test"] and again["concurrent_runs"] == 0
    assert find_record(run, tmp_path) == again
