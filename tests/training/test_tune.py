"""The grid search: every combination once, selected on valid, resumed from its log."""

from __future__ import annotations

import json

import pytest

from dihedral import DihedralError, Graph
from dihedral.training.recipe import Recipe
from dihedral.training.tune import read_log, tune

SMALL = Recipe(model="dihedral-ste", dimension=8, epochs=2, validate_every=1, batch_size=64)
CHOICES = {"entity_lr": [0.1, 0.5], "seed": [0, 1]}


def test_every_combination_is_trained_once_and_the_best_on_valid_comes_first(family, tmp_path):
    rows = tune(family, SMALL, CHOICES, tmp_path / "log.jsonl")
    assert sorted((row["recipe"]["entity_lr"], row["seed"]) for row in rows) == [
        (0.1, 0), (0.1, 1), (0.5, 0), (0.5, 1),
    ]  # fmt: skip
    scores = [row["valid"]["mrr"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert all("test" in row and row["curve"] for row in rows)


def test_a_search_goes_on_where_its_log_ends(family, tmp_path):
    log = tmp_path / "log.jsonl"
    whole = tune(family, SMALL, CHOICES, log)
    lines = log.read_text().splitlines()
    log.write_text("\n".join(lines[:2]) + "\n" + lines[2][:40])  # killed while the third line was written
    trained = []
    again = tune(family, SMALL, CHOICES, log, on_row=trained.append)
    assert len(trained) == 2
    assert [row["valid"] for row in again] == [row["valid"] for row in whole]
    assert len(read_log(log)) == 4


def test_a_combination_that_fails_is_logged_and_the_search_goes_on(family, tmp_path):
    rows = tune(family, SMALL, {"entity_lr": [1e20, 0.1]}, tmp_path / "log.jsonl")
    assert "failed" in rows[1] and "valid" in rows[0]
    assert all(json.dumps(row) for row in rows)


def test_a_graph_without_valid_triples_is_refused(tmp_path):
    graph = Graph.from_labels([("a", "r", "b")])
    with pytest.raises(DihedralError, match="has no valid triples"):
        tune(graph, SMALL, {}, tmp_path / "log.jsonl")
