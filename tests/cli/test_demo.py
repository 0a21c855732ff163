"""`dihedral demo`."""

from __future__ import annotations

from functools import partial

import pytest

import dihedral as dh


@pytest.mark.parametrize("people", [160, pytest.param(1200, marks=pytest.mark.slow)])
def test_demo_trains_a_model_and_shows_predictions_and_a_figure(cli, tmp_path, monkeypatch, people):
    monkeypatch.setattr(dh, "make_family", partial(dh.make_family, people))
    done = cli("demo", "--out", tmp_path / "demo", "--seed", "1")
    assert done.code == 0, done.err
    assert f"1. Synthetic graph: Graph('family': {people} entities, 6 relations" in done.out
    for number in range(1, 7):
        assert f"{number}. " in done.out
    assert "spouse · parent = parent_in_law" in done.out
    assert "held out" in done.out and "finished in" in done.out
    stored = dh.load(tmp_path / "demo")
    assert stored.metrics["test"]["both"]["mrr"] >= 0.93 and stored.metrics["seed"] == 1
    assert f"{stored.metrics['test']['both']['mrr']:.4f}" in done.out
    assert (tmp_path / "demo" / "relations.png").read_bytes().startswith(b"\x89PNG")
