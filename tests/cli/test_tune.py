"""`dihedral tune`."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing

import pytest

import dihedral as dh
from dihedral.cli.tune import Retraining, retrain
from dihedral.graph.readers import write_folder
from dihedral.io.jsonl import read_lines

SMALL = ("--set", "dimension=8", "--set", "batch_size=64", "--set", "epochs=2", "--set", "validate_every=1")
CHOICES = ("--choose", "K=4,6", "--choose", "lr=0.1,0.5")


@pytest.fixture
def data(family, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(family, tmp_path / "people")
    return "people"


def test_the_table_is_sorted_by_valid_mrr_and_the_last_line_trains_the_best(cli, data, tmp_path):
    done = cli("tune", data, "--grid", *CHOICES, *SMALL, "--seed", 3)
    assert done.code == 0
    assert "default settings, seed 3" in done.err
    assert "4 combinations, logged in out/tune/people.jsonl" in done.err
    lines = done.out.splitlines()
    assert re.split(r"\s{2,}", lines[0]) == [
        "K",
        "lr",
        "valid MRR",
        "test MRR",
        "seen-only MRR",
        "best epoch",
        "seconds",
    ]
    scores = [float(line.split()[2]) for line in lines[1:5]]
    assert scores == sorted(scores, reverse=True)
    assert {tuple(line.split()[:2]) for line in lines[1:5]} == {("4", "0.1"), ("4", "0.5"), ("6", "0.1"), ("6", "0.5")}
    words = shlex.split(lines[-1])
    assert words[:3] == ["dihedral", "train", "people"] and words[-2:] == ["--out", "out/tune/people-best"]
    assert cli(*words[1:]).code == 0
    best = max(read_lines(tmp_path / "out/tune/people.jsonl"), key=lambda row: row["valid"]["mrr"])
    again = dh.load(tmp_path / "out/tune/people-best")
    assert again.metrics["valid"]["both"] == best["valid"] and again.metrics["seed"] == 3


def test_the_same_command_trains_only_the_missing_combinations(cli, data, tmp_path):
    words = ("tune", data, "--grid", *CHOICES, *SMALL, "--log", "log.jsonl", "--json")
    first = cli(*words)
    log = tmp_path / "log.jsonl"
    before = log.read_text()
    second = cli(*words)
    assert second.code == 0 and second.out == first.out and log.read_text() == before
    assert "4 of 4 combinations are already in log.jsonl" in second.err
    log.write_text("".join(before.splitlines(keepends=True)[:3]))
    third = cli(*words)
    assert "3 of 4 combinations are already in log.jsonl" in third.err and len(read_lines(log)) == 4


def test_json_has_all_rows_and_top_limits_the_table(cli, data):
    words = ("tune", data, "--grid", "--choose", "seed=0,1,1", *SMALL, "--set", "model=dihedral-ste")
    rows = cli(*words, "--top", 1, "--json").rows
    assert sorted(row["seed"] for row in rows) == [0, 1]
    assert {"changes", "recipe", "valid", "test", "test_seen_only", "best_epoch", "versions"} <= set(rows[0])
    lines = cli(*words, "--top", 1).out.splitlines()
    assert lines[0].split()[0] == "seed" and lines[1].split()[0] == str(rows[0]["seed"]) and lines[2] == ""


def test_failed_runs_are_shown_as_failed(cli, data):
    done = cli("tune", data, "--grid", "--choose", "lr=1e20,0.1", *SMALL)
    assert done.code == 0 and "1 of 2 runs failed; the first: the loss became nan" in done.err
    assert done.out.splitlines()[2].split()[:2] == ["1e+20", "failed"]
    none = cli("tune", data, "--grid", "--choose", "lr=1e20", *SMALL)
    assert none.code == 1 and "no run completed; the first of 1 errors: the loss became nan" in none.err
    assert "to train the best settings" not in none.out


def test_a_benchmark_of_the_paper_starts_from_its_recipe(cli, family, tmp_path, monkeypatch):
    """The recipe is found by the name of the graph: a small graph with that name suffices."""
    monkeypatch.chdir(tmp_path)
    write_folder(family, tmp_path / "data" / "WN18RR")
    done = cli("tune", "data/WN18RR", "--grid", "--choose", "epochs=1", *SMALL[:2])
    assert done.code == 0 and "recipe paper/wn18rr-d4-gumbel, seed 0" in done.err
    assert done.out.splitlines()[-1] == (
        "dihedral train data/WN18RR --recipe paper/wn18rr-d4-gumbel --set dimension=8 --set epochs=1 "
        "--out out/tune/WN18RR-best"
    )


def test_the_printed_command_sets_every_setting_that_differs_from_the_recipe(tmp_path):
    recipe = dh.load_recipe("demo/umls").replace(relation_scale=True, K=6).to_dict()
    train = Retraining("my data.csv", columns="a,b,c", device="cpu")
    command = retrain(train, "demo/umls", {"recipe": recipe, "seed": 0}, tmp_path / "log.jsonl")
    assert command == (
        "dihedral train 'my data.csv' --recipe demo/umls --set K=6 --set relation_scale=true --columns a,b,c "
        f"--device cpu --out {tmp_path}/log-best"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--grid", "--trials", "3"], "--trials works only without --grid: --grid trains every combination"),
        (["--log", "x.jsonl"], "--log works only with --grid: without it, --out names the folder of the search"),
        (["--trials", "0"], "trials is 0; it must be more than 0"),
        (["--workers", "0"], "workers is 0; it must be more than 0"),
        (["--choose", "seed=0,1"], "seed is among the choices"),
        (["--choose", "lr=0.1", "--choose", "entity_lr=0.1"], "the choices have lr and entity_lr"),
        (["--choose", "Kay=4"], "recipe setting 'Kay' does not exist"),
        (["--choose", "K=4,x"], "K is 'x'; it must be a whole number"),
        (["--set", "validate_every=0"], "validate_every is 0; a search selects settings by valid MRR"),
        (["--device", "tpu"], "device is 'tpu'; choose auto, cpu, cuda or mps"),
        (["--grid", "--choose", "K"], "--choose got 'K'; write KEY=V1,V2,..., such as K=4,6"),
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


def test_ctrl_c_keeps_the_finished_runs_and_prints_how_to_resume(interrupted, data, tmp_path):
    log = tmp_path / "log.jsonl"
    words = ["tune", data, "--grid", *SMALL, "--choose", "epochs=1,100000", "--log", log]

    done = interrupted(words, lambda: read_lines(log))
    assert done.returncode == 1 and done.stdout == "" and "Traceback" not in done.stderr
    assert f"interrupted; 1 of 2 combinations are in {log}: resume with the same command" in done.stderr
    assert [row["recipe"]["epochs"] for row in read_lines(log)] == [1]


# --- without --grid ---------------------------------------------------------------------------------

TINY = (*SMALL, "--choose", "K=4,6", "--choose", "lr=0.05,0.5", "--device", "cpu")


def test_a_search_writes_figures_and_a_recipe_that_reproduces_the_best_trial(cli, data, tmp_path):
    done = cli("tune", data, *TINY, "--trials", 3, "--seed", 2)
    assert done.code == 0
    assert "settings chosen for a graph of this size" in done.err and "the trials are in out/tune/people" in done.err
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


@pytest.mark.parametrize("workers", [1, 2])
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
