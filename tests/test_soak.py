"""A short fault campaign: the code of `make soak` with few kills and mutations."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.thorough
PARTS = ("kills", "updates", "disk", "mutations", "folders", "hostile")


@pytest.fixture(
    scope="module", params=[(8, 100), pytest.param((12, 300), marks=pytest.mark.slow)], ids=["short", "longer"]
)
def sizes(request):
    """The number of kills, of which eight affect every kind of work, and the number of damaged files."""
    return request.param


@pytest.fixture(scope="module")
def found(forks, sizes, tmp_path_factory):
    """The record of each part of a campaign."""
    out = tmp_path_factory.mktemp("soak")
    words = [word for part in PARTS for word in ("--part", part)]
    amounts = ("--kills", sizes[0], "--mutations", sizes[1], "--hostile", sizes[1])
    with forks.start("-m", "soak", *words, *amounts, "--out", out) as process:
        done = process.wait(3600)  # a hang, not a slow machine
    assert (out / "soak.json").exists(), done.stderr
    record = json.loads((out / "soak.json").read_text())
    assert done.returncode == (1 if record["losses"] else 0)
    return record["parts"]


def test_kills_full_disks_and_damaged_files_lose_nothing(found, sizes):
    assert [loss for part in found.values() for loss in part["losses"]] == []
    counts = found["kills"]["counts"]
    assert sum(number for kind, number in counts.items() if kind.startswith("kills of ")) == sizes[0]
    assert counts["runs identical to an uninterrupted one"] > 0
    assert counts["Optuna searches identical to an uninterrupted one"] > 0
    assert sum(found["mutations"]["counts"].values()) == sum(found["hostile"]["counts"].values()) == sizes[1]


def test_killed_updates_leave_the_old_or_the_new_model(found, sizes):
    counts = found["updates"]["counts"]
    assert found["updates"]["losses"] == [] and counts["kills of updating"] == sizes[0] // 2
    assert counts["updates that left the old model"] > 0


def test_a_second_run_into_a_folder_is_refused(found):
    assert found["folders"]["losses"] == []
    assert found["folders"]["counts"]["second processes refused"] == 5
