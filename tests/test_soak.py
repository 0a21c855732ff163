"""A short fault campaign: the code of `make soak` with few kills and mutations."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def campaign(python, tmp_path, monkeypatch):
    """campaign("disk"): the record of each part."""

    def run(*parts, **amounts):
        words = [word for part in parts for word in ("--part", part)]
        words += [word for name, value in amounts.items() for word in (f"--{name}", value)]
        done = python("-m", "soak", *words, "--out", tmp_path, timeout=900)  # a hang, not a slow machine
        assert (tmp_path / "soak.json").exists(), done.stderr
        record = json.loads((tmp_path / "soak.json").read_text())
        assert done.returncode == (1 if record["losses"] else 0)
        return record["parts"]

    return run


def test_kills_full_disks_and_damaged_files_lose_nothing(campaign):
    found = campaign("kills", "disk", "mutations", kills=12, mutations=300)
    assert [loss for part in found.values() for loss in part["losses"]] == []
    counts = found["kills"]["counts"]
    assert sum(number for kind, number in counts.items() if kind.startswith("kills of ")) == 12
    assert counts["runs identical to an uninterrupted one"] > 0
    assert counts["Optuna searches identical to an uninterrupted one"] > 0
    assert sum(found["mutations"]["counts"].values()) == 300


def test_a_second_run_into_a_folder_is_refused(campaign):
    found = campaign("folders")["folders"]
    assert found["losses"] == []
    assert found["counts"]["second processes refused"] == 5
