"""`dihedral tune`."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing

import pytest

import dihedral as dh
from dihedral.graph.readers import write_folder

SMALL = ("--set", "dimension=8", "--set", "batch_size=64", "--set", "epochs=2", "--set", "validate_every=1")
CHOICES = ("--choose", "K=4,6", "--choose", "lr=0.1,0.5")


@pytest.fixture
def data(family, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(family, tmp_path / "people")
    return "people"


def test_a_grid_is_sorted_by_valid_mrr_and_the_last_line_trains_the_best(cli, data, tmp_path):
    done = cli("tune", data, "--grid", *CHOICES, "--choose", "seed=0,3", *SMALL)
    assert done.code == 0
    assert "recipe default settings, seed 0; searching K, lr, seed" in done.err
    assert "the trials are in out/tune/people-grid" in done.err
    lines = done.out.splitlines()
    assert re.split(r"\s{2,}", lines[0]) == ["settings", "valid MRR", "state", "best epoch", "seconds", "trial"]
    scores = [float(found) for found in re.findall(r" (0\.\d{4}) +complete ", done.out)]
    assert len(scores) == 8 and scores == sorted(scores, reverse=True)
    words = shlex.split(lines[-1])
    assert words[:3] == ["dihedral", "train", "people"] and words[-2:] == ["--out", "out/tune/people-grid/model"]
    assert cli(*words[1:]).code == 0
    best = json.loads((tmp_path / "out/tune/people-grid/trials.json").read_text())["trials"][0]
    again = dh.load(tmp_path / "out/tune/people-grid/model")
    assert again.metrics["valid"]["both"]["mrr"] == best["valid_mrr"]
    assert again.metrics["seed"] == best["changes"]["seed"]


def test_the_same_command_trains_no_combination_twice(cli, data):
    words = ("tune", data, "--grid", *CHOICES, *SMALL, "--out", "study", "--json")
    first = cli(*words)
    second = cli(*words)
    assert second.code == 0 and second.out == first.out
    assert "the trials are in study (4 found)" in second.err


def test_json_has_all_rows_and_top_limits_the_table(cli, data):
    words = ("tune", data, "--grid", "--choose", "seed=0,1,1", *SMALL, "--set", "model=dihedral-ste")
    rows = cli(*words, "--top", 1, "--json").rows
    assert sorted(row["changes"]["seed"] for row in rows) == [0, 1]
    assert {"changes", "recipe", "valid_mrr", "best_epoch", "state"} <= set(rows[0])
    lines = cli(*words, "--top", 1).out.splitlines()
    assert lines[1].split()[0] == f"seed={rows[0]['changes']['seed']}" and lines[2] == ""


def test_a_benchmark_of_the_paper_starts_from_its_recipe(cli, family, tmp_path, monkeypatch):
    """The recipe is found by the name of the graph: a small graph with that name suffices."""
    monkeypatch.chdir(tmp_path)
    write_folder(family, tmp_path / "data" / "WN18RR")
    done = cli("tune", "data/WN18RR", "--grid", "--choose", "epochs=1", *SMALL[:2])
    assert done.code == 0 and "recipe paper/wn18rr-d4-gumbel, seed 0" in done.err
    best = dh.load_recipe(tmp_path / "out/tune/WN18RR-grid/best.toml")
    expected = dh.load_recipe("paper/wn18rr-d4-gumbel").replace(dimension=8, epochs=1)
    assert best.replace(name="", about="") == expected.replace(name="", about="")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trials", "0"], "trials is 0; it must be more than 0"),
        (["--workers", "0"], "workers is 0; it must be more than 0"),
        (["--choose", "seed=0,1"], "seed is among the choices"),
        (["--choose", "lr=0.1", "--choose", "entity_lr=0.1"], "the choices have lr and entity_lr"),
        (["--choose", "Kay=4"], "recipe setting 'Kay' does not exist"),
        (["--choose", "K=4,x"], "K is 'x'; it must be a whole number"),
        (["--set", "validate_every=0"], "validate_every is 0; a search selects settings by valid MRR"),
        (["--device", "tpu"], "device is 'tpu'; choose auto, cpu, cuda or mps"),
        (["--grid", "--choose", "K"], "--choose got 'K'; write KEY=VALUE, such as epochs=40"),
        (["--grid", "--choose", "Kay=4"], "recipe setting 'Kay' does not exist"),
        (["--grid", "--choose", "K=4,"], "K is ''; it must be a whole number"),
        (["--grid", "--choose", "K=4,8", "--set", "model=dihedral-ste"], "K is 8 with model 'dihedral-ste'"),
        (["--grid", "--set", "model=distmult"], "model is 'distmult'; the paper has grids for its Gumbel-softmax"),
        (["--grid", "--set", "epochs"], "--set got 'epochs'"),
        (["--grid", "--recipe", "demo/famly"], "recipe 'demo/famly' is unknown; did you mean 'demo/family'"),
        (["--grid", "--device", "tpu"], "device is 'tpu'; choose auto, cpu, cuda or mps"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_calls_exit_with_2_and_write_nothing(cli, data, tmp_path, options, message):
    done = cli("tune", data, *options)
    assert done.code == 2 and done.out == ""
    assert message in done.err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


# --- without --grid ---------------------------------------------------------------------------------

TINY = (*SMALL, "--choose", "K=4,6", "--choose", "lr=0.05,0.5", "--device", "cpu")


def test_a_search_writes_figures_and_a_recipe_that_reproduces_the_best_trial(cli, data, tmp_path):
    done = cli("tune", data, *TINY, "--trials", 3, "--seed", 2)
    assert done.code == 0
    assert "settings for this graph and these options" in done.err and "the trials are in out/tune/people" in done.err
    folder = tmp_path / "out/tune/people"
    assert {path.name for path in folder.iterdir()} == {
        "study.db", "trials.json", "best.toml", "history.png", "importances.png",
    }  # fmt: skip
    assert (folder / "history.png").read_bytes().startswith(b"\x89PNG")
    lines = done.out.splitlines()
    scores = [float(found) for found in re.findall(r" (0\.\d{4}) +complete ", done.out)]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    assert lines[-1] == (
        "dihedral train people --recipe out/tune/people/best.toml --seed 2 --device cpu --out out/tune/people/model"
    )
    assert cli(*shlex.split(lines[-1])[1:]).code == 0
    best = json.loads((folder / "trials.json").read_text())["trials"][0]
    assert dh.load(folder / "model").metrics["valid"]["both"]["mrr"] == best["valid_mrr"]


def test_a_search_resumes_in_its_folder_and_rejects_the_folder_of_another(cli, data):
    words = ("tune", data, *TINY, "--out", "study", "--json")
    first = cli(*words, "--trials", 1).rows
    done = cli(*words, "--trials", 3)
    assert "the trials are in study (1 found)" in done.err
    rows = done.rows
    assert len(rows) > 1 and first[0] in rows
    assert cli(*words, "--trials", 3).rows == rows
    other = cli(*words, "--trials", 3, "--set", "epochs=3")
    assert other.code == 2 and "folder 'study' holds a search with another recipe" in other.err


def test_failed_trials_are_reported(cli, data):
    done = cli("tune", data, *SMALL, "--choose", "lr=1e20,0.1", "--set", "K=4", "--trials", 4, "--out", "study")
    assert done.code == 0 and "trials failed; the first: the loss became nan" in done.err
    none = cli("tune", data, *SMALL, "--choose", "lr=1e20", "--trials", 1, "--out", "other")
    assert none.code == 1 and "no trial completed; the first of 1 errors: the loss became nan" in none.err


def test_a_missing_extra_is_named(python):
    script = "import sys; sys.modules['optuna'] = None; from dihedral.cli.main import main; main()"
    done = python("-c", script, "tune", "umls")
    assert done.returncode == 2 and "error: a search needs optuna: pip install 'dihedral[tune]'" in done.stderr


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_ctrl_c_keeps_the_finished_trials(interrupted, data, tmp_path, workers):
    words = ["tune", data, *SMALL, "--set", "epochs=20", "--set", "dimension=8", "--trials", "500", "--out", "study"]
    done = interrupted([*words, "--workers", workers], lambda: finished_trials(tmp_path / "study"))
    assert done.returncode == 1 and done.stdout == "" and "Traceback" not in done.stderr
    assert re.search(r"interrupted; \d+ finished trials are in study: resume with the same command", done.stderr)
    kept = json.loads((tmp_path / "study" / "trials.json").read_text())["trials"]
    assert len(kept) >= 1 and (tmp_path / "study" / "best.toml").exists()


def finished_trials(folder):
    """Return the number of complete trials of a study that another process writes."""
    try:
        with closing(sqlite3.connect(f"file:{folder / 'study.db'}?mode=ro", uri=True)) as database:
            return database.execute("select count(*) from trials where state = 'COMPLETE'").fetchone()[0]
    except sqlite3.OperationalError:  # the study does not exist yet
        return 0
