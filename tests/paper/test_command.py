"""`python -m paper`."""

from __future__ import annotations

import json
from functools import partial

import pytest

from dihedral.io.files import write_json
from paper.__main__ import app
from paper.command import unique
from paper.plan import TARGETS, plan
from paper.runs import Run, perform

pytest.importorskip("matplotlib")


@pytest.fixture
def reproduce(cli):
    """reproduce("figure1"): what `python -m paper figure1` prints and its exit code."""
    return partial(cli, application=app)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run in an empty folder, which the default values of --out and --results refer to."""
    monkeypatch.chdir(tmp_path)


def test_figure_1_needs_no_runs(reproduce, tmp_path):
    done = reproduce("figure1", "--out", tmp_path / "figures")
    assert done.code == 0
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert names == {"figure1.png", "figure1.svg", "figure1.json", "figure1.md"}
    assert all(f"wrote {tmp_path / 'figures' / name}" in done.out for name in names)
    assert "0 of 0 runs are in" in done.err


def test_files_are_written_to_out_paper_by_default(reproduce, tmp_path):
    assert reproduce("figure1").code == 0
    assert (tmp_path / "out" / "paper" / "figure1.md").read_text().startswith("# Figure 1")


def test_an_unknown_target_is_rejected_with_the_list_of_targets(reproduce, tmp_path):
    done = reproduce("figure9", "--out", tmp_path / "out")
    assert done.code == 2 and done.out == ""
    assert "'figure9' is unknown; choose" in done.err and "did you mean 'figure" in done.err
    assert all(target in done.err for target in (*TARGETS, "all"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["figure1", "--page", "page.md"], "it must be a .md file, with `all` and without --quick"),
        (["all", "--quick", "--page", "page.md"], "it must be a .md file, with `all` and without --quick"),
        (["figure1", "--seeds", "0"], "seeds is 0; it must be 1 or more"),
        (["figure1", "--workers", "-1"], "workers is -1; it must be 1 or more"),
        (["small", "--quick"], "small has no quick version; leave out --quick"),
    ],
    ids=" ".join,
)
def test_invalid_calls_exit_with_2_and_write_nothing(reproduce, tmp_path, words, message):
    done = reproduce(*words)
    assert done.code == 2 and done.out == "" and message in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "figure1"])
def test_no_train_without_any_run_writes_nothing(reproduce, tmp_path, target):
    done = reproduce(target, "--no-train", "--out", tmp_path / "out", "--results", tmp_path / "results")
    assert done.code == 2 and f"holds no run of {target}" in done.err
    assert f"0 of {len(plan(target))} runs are in" in done.err
    assert not (tmp_path / "results").exists() and not (tmp_path / "out").exists()


def test_no_train_writes_the_available_results(reproduce, tmp_path):
    run = next(run for run in plan("figure4") if run.graph == "family-1")
    tiny = Run(run.graph, run.recipe.replace(epochs=1, dimension=8), run.seed, run.studies)
    record = perform(tiny, tmp_path / "results" / "runs", device="cpu")
    write_json(run.path(tmp_path / "results" / "runs"), record | {"recipe": run.recipe.to_dict()})
    done = reproduce("figure4", "--no-train", "--out", tmp_path / "out", "--results", tmp_path / "results")
    assert done.code == 0 and f"1 of {len(plan('figure4'))} runs are in" in done.err
    assert json.loads((tmp_path / "out" / "figure4.json").read_text())["target"] == "figure4"
    paged = reproduce("all", "--no-train", "--page", tmp_path / "page.md", "--results", tmp_path / "results")
    assert paged.code == 0 and (tmp_path / "page.md").read_text().startswith("# Results")
    assert (tmp_path / "page-files" / "figure4.svg").exists()


def test_only_selects_runs_by_prefix(reproduce):
    some = ("--only", "best/wn18-d4-ste", "--only", "paper/fb15k-d4-ste", "--seeds", 2)
    assert "0 of 4 runs are in" in reproduce("table3", "--no-train", *some).err
    none = reproduce("table3", "--only", "best/umls")
    assert none.code == 2 and "matches no run of table3" in none.err


def test_runs_shared_by_targets_are_merged_with_all_their_studies():
    runs = [run for target in ("figure2", "figure3", "table3") for run in plan(target, 2)]
    merged = unique(runs)
    assert len(merged) == len({run.name for run in runs}) < len(runs)
    for run in runs:
        (one,) = [found for found in merged if found.name == run.name]
        assert set(run.studies) <= set(one.studies) and one.recipe == run.recipe


def test_missing_runs_are_trained_once_and_recorded(reproduce, tmp_path, monkeypatch):
    run = next(run for run in plan("figure4") if run.graph == "family-1")
    tiny = Run(run.graph, run.recipe.replace(epochs=1, dimension=8), run.seed, run.studies)
    monkeypatch.setattr("paper.command.plan", lambda *_, **__: [tiny])
    words = ("figure4", "--out", tmp_path / "out", "--results", tmp_path / "results", "--device", "cpu")
    done = reproduce(*words)
    assert done.code == 0 and "0 of 1 runs are in" in done.err and "training 1 runs" in done.err
    assert f"{tiny.name}: valid 0." in done.err
    assert tiny.path(tmp_path / "results" / "runs").exists()
    again = reproduce(*words)
    assert again.code == 0 and "1 of 1 runs are in" in again.err and "training" not in again.err
