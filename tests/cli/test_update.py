"""`dihedral update`: it changes the folder as a whole or not at all, and says what it did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import dihedral as dh
from dihedral.learn.checkpoint import RunFolder


@pytest.fixture
def folder(model_folder, tmp_path) -> Path:
    return Path(shutil.copytree(model_folder, tmp_path / "model"))


@pytest.fixture
def new(tmp_path) -> Path:
    path = tmp_path / "new.tsv"
    path.write_text("zoe\tsibling\tman_0001\nzoe\tlikes\tman_0002\n")
    return path


@pytest.fixture
def old(tmp_path, predictor) -> Path:
    path = tmp_path / "old.tsv"
    path.write_text("\t".join(next(predictor.graph.names_of(predictor.graph.train))) + "\n")
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.usefixtures("probabilities_of_small_graphs")
def test_an_update_replaces_the_model_and_says_what_it_did(cli, folder, new, old):
    done = cli("update", folder, "--add", new, "--remove", old)
    assert done.code == 0, done.err
    assert "version 1: added 2, removed 1, new entities 1, new relations 1" in done.out
    assert "a new model was trained" in done.out and "test MRR" in done.out
    updated = dh.load(folder)
    assert updated.score("zoe", "likes", "man_0002") and updated.calibration is not None
    shown = cli("info", folder)
    assert "versions, with MRR where it was measured" in shown.out and "new model" in shown.out
    assert json.loads(cli("info", folder, "--json").out)["versions"][1]["removed"] == 1


def test_another_folder_leaves_the_model_as_it_was(cli, folder, new, tmp_path):
    before = content(folder)
    assert cli("update", folder, "--add", new, "--out", tmp_path / "two", "--json").code == 0
    assert content(folder) == before and "zoe" in dh.load(tmp_path / "two").graph.entities
    done = cli("update", folder, "--add", new, "--out", tmp_path / "two")
    assert done.code == 2 and "already holds a model" in done.err


@pytest.mark.parametrize(
    ("option", "facts", "message"),
    [
        ("--remove", "man_0000\tspouse\tman_0000\n", "a fact to remove is not in the graph"),
        ("--add", "eve\tspouse\teve\n", "entity 'eve' has no facts with other entities"),
        ("--add", "MAN_0000\tspouse\tman_0001\n", "differs from 'man_0000' only in case, space or encoding"),
    ],
)
def test_invalid_facts_change_nothing(cli, folder, tmp_path, option, facts, message):
    (tmp_path / "facts.tsv").write_text(facts)
    before = content(folder)
    done = cli("update", folder, option, tmp_path / "facts.tsv", "--out", tmp_path / "two")
    assert done.code == 2 and message in done.err and not (tmp_path / "two").exists()
    done = cli("update", folder, option, tmp_path / "facts.tsv")
    assert done.code == 2 and message in done.err and content(folder) == before


def test_two_updates_at_once_are_refused(cli, folder, new):
    with RunFolder(folder).locked():
        done = cli("update", folder, "--add", new)
    assert done.code == 2 and "in use by another training run or update" in done.err


def test_ctrl_c_leaves_the_model_as_it_was(cli, folder, new, monkeypatch):
    before = content(folder)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dihedral.learn.trainer.Trainer.step", interrupt)
    done = cli("update", folder, "--add", new)
    assert done.code == 1 and "is as it was" in done.err and content(folder) == before


def test_ctrl_c_after_the_model_was_replaced_says_so(cli, folder, new, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dihedral.store.reviews.Reviews.add", interrupt)  # follows the save
    done = cli("update", folder, "--add", new)
    assert done.code == 1 and "is already updated" in done.err and "as it was" not in done.err
    assert dh.load(folder).history.latest.version == 1


def test_nothing_to_do_is_an_error(cli, folder):
    assert "there is nothing to change" in cli("update", folder).err


def test_the_graph_of_a_path_model_is_all_that_changes(cli, path_predictor, tmp_path):
    path_predictor.save(tmp_path / "model")
    (tmp_path / "new.tsv").write_text("zoe\tsibling\tman_0001\n")
    done = cli("update", tmp_path / "model", "--add", tmp_path / "new.tsv")
    assert done.code == 0 and "nothing was trained" in done.out
    assert "facts added since the model was trained: 1 of" in done.out
    assert cli("info", tmp_path / "model").code == 0
