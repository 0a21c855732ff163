"""`dihedral tune`."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

import dihedral as dh
from dihedral.cli.tune import retrain
from dihedral.graph.readers import write_folder
from dihedral.tuning.grid import read_log

SMALL = ("--set", "dimension=8", "--set", "batch_size=64", "--set", "epochs=2", "--set", "validate_every=1")
CHOICES = ("--choose", "K=4,6", "--choose", "lr=0.1,0.5")


@pytest.fixture
def data(family, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(family, tmp_path / "people")
    return "people"


def test_the_table_is_sorted_on_valid_and_ends_with_the_command_that_trains_the_winner(cli, data, tmp_path):
    done = cli("tune", data, "--grid", *CHOICES, *SMALL, "--seed", 3)
    assert done.code == 0
    assert "default settings, seed 3" in done.err
    assert "4 combinations, to be logged in out/tune/people.jsonl" in done.err
    lines = done.out.splitlines()
    assert lines[0].split() == [
        "K",
        "lr",
        "valid",
        "MRR",
        "test",
        "MRR",
        "seen-only",
        "MRR",
        "best",
        "epoch",
        "seconds",
    ]
    scores = [float(line.split()[2]) for line in lines[1:5]]
    assert scores == sorted(scores, reverse=True)
    assert {tuple(line.split()[:2]) for line in lines[1:5]} == {("4", "0.1"), ("4", "0.5"), ("6", "0.1"), ("6", "0.5")}
    words = shlex.split(lines[-1])
    assert words[:3] == ["dihedral", "train", "people"] and words[-2:] == ["--out", "out/tune/people-best"]
    assert cli(*words[1:]).code == 0
    best = max(read_log(tmp_path / "out/tune/people.jsonl"), key=lambda row: row["valid"]["mrr"])
    again = dh.load(tmp_path / "out/tune/people-best")
    assert again.metrics["valid"]["both"] == best["valid"] and again.metrics["seed"] == 3


def test_the_same_command_again_trains_only_what_is_missing(cli, data, tmp_path):
    words = ("tune", data, "--grid", *CHOICES, *SMALL, "--log", "log.jsonl", "--json")
    first = cli(*words)
    log = tmp_path / "log.jsonl"
    before = log.read_text()
    second = cli(*words)
    assert second.code == 0 and second.out == first.out and log.read_text() == before
    assert "4 of 4 combinations are in log.jsonl already" in second.err
    log.write_text("".join(before.splitlines(keepends=True)[:3]))
    third = cli(*words)
    assert "3 of 4 combinations are in log.jsonl already" in third.err and len(read_log(log)) == 4


def test_json_has_all_rows_and_top_cuts_the_table(cli, data):
    words = ("tune", data, "--grid", "--choose", "seed=0,1,1", *SMALL, "--set", "model=dihedral-ste")
    rows = json.loads(cli(*words, "--top", 1, "--json").out, parse_constant=pytest.fail)
    assert sorted(row["seed"] for row in rows) == [0, 1]
    assert {"changes", "recipe", "valid", "test", "test_seen_only", "best_epoch", "versions"} <= set(rows[0])
    lines = cli(*words, "--top", 1).out.splitlines()
    assert lines[0].split()[0] == "seed" and lines[1].split()[0] == str(rows[0]["seed"]) and lines[2] == ""


def test_failed_runs_are_shown_as_failed(cli, data):
    done = cli("tune", data, "--grid", "--choose", "lr=1e20,0.1", *SMALL)
    assert done.code == 0 and "1 of 2 runs failed; the first: the loss became nan" in done.err
    assert done.out.splitlines()[2].split()[:2] == ["1e+20", "failed"]
    none = cli("tune", data, "--grid", "--choose", "lr=1e20", *SMALL)
    assert none.code == 1 and "no run ended well; the first of 1: the loss became nan" in none.err
    assert "train the best again" not in none.out


def test_a_benchmark_of_the_paper_starts_from_its_recipe(cli, family, tmp_path, monkeypatch):
    """By the name of the graph: here a small one that is called so."""
    monkeypatch.chdir(tmp_path)
    write_folder(family, tmp_path / "data" / "WN18RR")
    done = cli("tune", "data/WN18RR", "--grid", "--choose", "epochs=1", *SMALL[:2])
    assert done.code == 0 and "recipe paper/wn18rr-d4-gumbel, seed 0" in done.err
    assert done.out.splitlines()[-1] == (
        "dihedral train data/WN18RR --recipe paper/wn18rr-d4-gumbel --set dimension=8 --set epochs=1 "
        "--out out/tune/WN18RR-best"
    )


def test_the_command_for_the_winner_holds_every_setting_that_is_not_the_recipes(tmp_path):
    recipe = dh.load_recipe("demo/umls").replace(relation_scale=True, K=6).to_dict()
    options = {"columns": "a,b,c", "seed": None, "device": "cpu"}
    command = retrain("my data.csv", "demo/umls", {"recipe": recipe}, tmp_path / "log.jsonl", options)
    assert command == (
        "dihedral train 'my data.csv' --recipe demo/umls --set K=6 --set relation_scale=true --columns a,b,c "
        f"--device cpu --out {tmp_path}/log-best"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--grid", "--trials", "3"], "--trials does not go with --grid: --grid trains every combination"),
        (["--log", "x.jsonl"], "--log goes only with --grid: runs are logged in the folder --out"),
        (["--trials", "0"], "trials is 0; it must be more than 0"),
        (["--workers", "0"], "workers is 0; it must be more than 0"),
        (["--choose", "seed=0,1"], "seed is among the choices"),
        (["--choose", "lr=0.1", "--choose", "entity_lr=0.1"], "the choices have lr and entity_lr"),
        (["--choose", "Kay=4"], "recipe setting 'Kay' does not exist"),
        (["--choose", "K=4,x"], "K is 'x'; it must be a whole number"),
        (["--set", "validate_every=0"], "validate_every is 0; a search selects on valid"),
        (["--device", "tpu"], "device is 'tpu'; choose auto, cpu, cuda or mps"),
        (["--grid", "--choose", "K"], "--choose got 'K'; write KEY=V1,V2,..., such as K=4,6"),
        (["--grid", "--choose", "Kay=4"], "recipe setting 'Kay' does not exist"),
        (["--grid", "--choose", "K=4,"], "K is ''; it must be a whole number"),
        (["--grid", "--choose", "K=4,8", "--set", "model=dihedral-ste"], "K is 8 with model 'dihedral-ste'"),
        (["--grid", "--set", "model=distmult"], "model is 'distmult'; the paper has grids for models that end in"),
        (["--grid", "--set", "epochs"], "--set got 'epochs'"),
        (["--grid", "--recipe", "demo/famly"], "recipe 'demo/famly' is unknown; did you mean 'demo/family'"),
        (["--grid", "--device", "tpu"], "device is 'tpu'; choose auto, cpu, cuda or mps"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_calls_exit_with_2_and_write_nothing(cli, data, tmp_path, options, message):
    done = cli("tune", data, *options)
    assert done.code == 2 and done.out == ""
    assert message in done.err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_ctrl_c_keeps_the_finished_runs_and_says_how_to_go_on(cli, data, tmp_path):
    log = tmp_path / "log.jsonl"
    words = [str(word) for word in ("tune", data, "--grid", *SMALL, "--choose", "epochs=1,100000", "--log", log)]
    process = subprocess.Popen(
        [sys.executable, "-m", "dihedral", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "400"},
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not read_log(log):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)
    time.sleep(0.1)  # now the second run is under way
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 1 and stdout == "" and "Traceback" not in stderr
    assert f"stopped; 1 of 2 combinations are in {log}: go on with the same command" in stderr
    assert [row["recipe"]["epochs"] for row in read_log(log)] == [1]


# --- without --grid ---------------------------------------------------------------------------------

TINY = (*SMALL, "--choose", "K=4,6", "--choose", "lr=0.05,0.5", "--device", "cpu")


def test_a_search_writes_pictures_and_a_recipe_that_trains_the_winner_again(cli, data, tmp_path):
    done = cli("tune", data, *TINY, "--trials", 3, "--seed", 2)
    assert done.code == 0
    assert "no --recipe: D4-Gumbel" in done.err and "trials are kept in out/tune/people" in done.err
    folder = tmp_path / "out/tune/people"
    assert {path.name for path in folder.iterdir()} == {
        "study.db", "trials.json", "best.toml", "history.png", "importances.png", "lock",
    }  # fmt: skip
    assert (folder / "history.png").read_bytes().startswith(b"\x89PNG")
    lines = done.out.splitlines()
    scores = [float(found) for found in re.findall(r" (0\.\d{4}) +well ", done.out)]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    assert lines[-1] == (
        "dihedral train people --recipe out/tune/people/best.toml --seed 2 --device cpu --out out/tune/people/model"
    )
    assert cli(*shlex.split(lines[-1])[1:]).code == 0
    best = json.loads((folder / "trials.json").read_text())["trials"][0]
    assert dh.load(folder / "model").metrics["valid"]["both"]["mrr"] == best["valid_mrr"]


def test_a_search_goes_on_in_its_folder_and_refuses_that_of_another(cli, data):
    words = ("tune", data, *TINY, "--out", "study", "--json")
    first = json.loads(cli(*words, "--trials", 1).out)
    done = cli(*words, "--trials", 3)
    assert "trials are kept in study (found: 1)" in done.err
    rows = json.loads(done.out)
    assert len(rows) > 1 and first[0] in rows
    assert json.loads(cli(*words, "--trials", 3).out) == rows
    other = cli(*words, "--trials", 3, "--set", "epochs=3")
    assert other.code == 2 and "folder 'study' holds a search with another recipe" in other.err


def test_trials_that_fail_are_told(cli, data):
    done = cli("tune", data, *SMALL, "--choose", "lr=1e20,0.1", "--set", "K=4", "--trials", 4, "--out", "study")
    assert done.code == 0 and "trials failed; the first: the loss became nan" in done.err
    none = cli("tune", data, *SMALL, "--choose", "lr=1e20", "--trials", 1, "--out", "other")
    assert none.code == 1 and "no trial ended well; the first of 1: the loss became nan" in none.err


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_keeps_the_finished_trials(cli, data, tmp_path, workers):
    words = ["tune", data, *SMALL, "--set", "epochs=60", "--trials", "500", "--out", "study", "--workers", workers]
    process = subprocess.Popen(
        [sys.executable, "-m", "dihedral", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "400"},
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not finished_trials(tmp_path / "study"):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 1 and stdout == "" and "Traceback" not in stderr, stderr
    assert "stopped; finished trials are kept in study (" in stderr and "go on with the same command" in stderr
    kept = json.loads((tmp_path / "study" / "trials.json").read_text())["trials"]
    assert len(kept) >= 1 and (tmp_path / "study" / "best.toml").exists()


def finished_trials(folder):
    """How many trials of a study ended, read as another process may."""
    try:
        with closing(sqlite3.connect(f"file:{folder / 'study.db'}?mode=ro", uri=True)) as database:
            return database.execute("select count(*) from trials where state = 'COMPLETE'").fetchone()[0]
    except sqlite3.OperationalError:  # not there yet
        return 0
