"""Grid search: every combination is trained once, sorted by valid MRR, and a log can be resumed."""

from __future__ import annotations

import json

import pytest
import torch

import dihedral as dh
from dihedral import DihedralError, Graph
from dihedral.io.jsonl import read_lines
from dihedral.objectives.recipe import Recipe
from dihedral.tune.grid import grid_search, paper_grid, plan

SMALL = Recipe(model="dihedral-ste", dimension=8, epochs=2, validate_every=1, batch_size=64)
CHOICES = {"entity_lr": [0.1, 0.5], "seed": [0, 1]}


def test_every_combination_is_trained_once_and_rows_are_sorted_by_valid_mrr(family, tmp_path):
    rows = grid_search(family, plan(family, SMALL, CHOICES), tmp_path / "log.jsonl")
    assert sorted((row["recipe"]["entity_lr"], row["seed"]) for row in rows) == [
        (0.1, 0), (0.1, 1), (0.5, 0), (0.5, 1),
    ]  # fmt: skip
    scores = [row["valid"]["mrr"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert all("test" in row and row["curve"] for row in rows)


def test_a_search_resumes_from_its_log(family, tmp_path):
    log = tmp_path / "log.jsonl"
    complete = grid_search(family, plan(family, SMALL, CHOICES), log)
    lines = log.read_text().splitlines()
    log.write_text("\n".join(lines[:2]) + "\n" + lines[2][:40])  # killed while the third line was written
    counts = []
    again = grid_search(family, plan(family, SMALL, CHOICES), log, on_tick=lambda rows: counts.append(len(rows)))
    assert counts == [2, 3, 4]
    assert [row["valid"] for row in again] == [row["valid"] for row in complete]
    assert len(read_lines(log)) == 4


def test_a_failed_combination_is_logged_and_the_search_continues(family, tmp_path):
    rows = grid_search(family, plan(family, SMALL, {"entity_lr": [1e20, 0.1]}), tmp_path / "log.jsonl")
    assert "failed" in rows[1] and "valid" in rows[0]
    assert all(json.dumps(row) for row in rows)


def test_a_graph_without_valid_triples_is_rejected(tmp_path):
    graph = Graph.from_names([("a", "r", "b")])
    with pytest.raises(DihedralError, match="has no valid triples"):
        grid_search(graph, plan(graph, SMALL, {}), tmp_path / "log.jsonl")


def test_a_row_records_versions_device_and_time(family, tmp_path):
    (row,) = grid_search(family, plan(family, SMALL, {}), tmp_path / "log.jsonl")
    assert row["versions"] == {"dihedral": dh.__version__, "torch": torch.__version__}
    assert row["device"] == "cpu" and row["seconds"] > 0


def test_rows_without_a_newer_setting_match_and_rows_with_an_unknown_setting_do_not(family, tmp_path):
    log = tmp_path / "log.jsonl"
    (row,) = grid_search(family, plan(family, SMALL, {}), log)
    del row["versions"], row["recipe"]["averaging"]  # as if this setting, at its default, had been added later
    row["recipe"]["name"] = "names do not matter"
    newer = {**row, "recipe": {**row["recipe"], "from_the_future": 1}}
    log.write_text("".join(json.dumps(each) + "\n" for each in (newer, "not a row", {"data": 1}, {**row, "recipe": 3})))
    assert not _trains_nothing(family, log)
    log.write_text(json.dumps(row) + "\n")
    assert _trains_nothing(family, log)


def _trains_nothing(graph, log):
    counts = []
    grid_search(graph, plan(graph, SMALL, {}), log, on_tick=lambda rows: counts.append(len(rows)))
    return counts == [1]


@pytest.mark.parametrize(("variant", "size"), [("gumbel", 3 * 54), ("ste", 2 * 180)])
def test_the_grids_of_the_paper_have_all_combinations(family, variant, size):
    recipe = Recipe(model=f"dihedral-{variant}")
    rows = plan(family, recipe, paper_grid(recipe))
    assert len(rows) == size
    assert all(row["recipe"]["entity_lr"] == row["recipe"]["relation_lr"] == row["changes"]["lr"] for row in rows)
    assert {row["recipe"]["batch_size"] for row in rows} == {512, 1024, 2048}
    softmax = recipe.replace(objective="softmax")
    assert len(plan(family, softmax, paper_grid(softmax))) == size / 3  # it draws no negatives


def test_a_model_without_a_grid_in_the_paper_is_rejected():
    with pytest.raises(DihedralError, match=r"model is 'distmult'; the paper has grids for its .* --choose"):
        paper_grid(Recipe(model="distmult"))


def test_a_plan_has_each_combination_once_with_typed_values(family):
    rows = plan(family, SMALL, {"K": ["4", "6", 4], "lr": ["1e-1", "0.1"], "seed": ["1"], "relation_scale": ["false"]})
    assert [row["changes"] for row in rows] == [{"K": K, "lr": 0.1, "seed": 1, "relation_scale": False} for K in (4, 6)]
    assert [row["seed"] for row in rows] == [1, 1]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"K": [4, 8]}, "K is 8 with model 'dihedral-ste'"),
        ({"epochs": [1], "Kay": [4]}, "recipe setting 'Kay' does not exist"),
        ({"epochs": [1, "x"]}, "epochs is 'x'; it must be a whole number"),
        ({"seed": [0, "x"]}, "seed is 'x'; it must be a whole number"),
        ({"seed": [0, -1]}, "seed is -1; it must be a whole number"),
        ({"lr": [0.1], "relation_lr": [1.0]}, "the grid has lr and relation_lr"),
    ],
)
def test_an_invalid_combination_is_rejected(family, choices, message):
    with pytest.raises(DihedralError, match=message):
        plan(family, SMALL, choices)
