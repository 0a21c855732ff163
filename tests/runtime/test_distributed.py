"""Several processes train the same model as one: equal losses, metrics and files, also after a failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.evaluation import Evaluator
from dihedral.models.registry import _normal_rows
from dihedral.runtime.distributed import Shard

WORKER = Path(__file__).with_name("worker.py")
SMALL = {"dimension": 16, "regulariser": "none"}
RUN = {"dimension": 24, "epochs": 8, "batch_size": 512, "validate_every": 4, "regulariser": "none"}
PLANS = [
    {"model": "dihedral-gumbel", "objective": "logistic"},
    {"model": "dihedral-ste", "objective": "logistic", "regulariser": "l2", "regulariser_weight": 0.1},
    {"objective": "logistic", "share_negatives": 16, "negatives": 30},
    {"objective": "logistic", "skew_probability": 0.5, "regulariser": "n3", "regulariser_weight": 0.1},
    {"model": "complex", "objective": "logistic", "negatives": 3},
    {"model": "dihedral-gumbel", "objective": "softmax", "regulariser": "n3", "regulariser_weight": 0.1},
    {"objective": "softmax", "relation_weight": 0.5, "paths": 0.5, "path_length": 3},
    {"objective": "softmax", "regulariser": "dura", "regulariser_weight": 0.1, "dropout": 0.2},
    {"model": "transe", "objective": "softmax", "relation_init": 0.1, "regulariser": "l2", "regulariser_weight": 0.1},
]


def torchrun(processes, tasks, folder, *options, environment=None, limit=300):
    """Run tasks in several processes; the results of rank zero, or None, and the completed process."""
    folder.mkdir(exist_ok=True)
    plan = folder / "plan.json"
    plan.write_text(json.dumps(tasks))
    command = [sys.executable, str(WORKER), str(plan)]
    if processes > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), *options]
        command[1:1] = launcher
    source = Path(dh.__file__).parents[1]
    variables = {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | variables, timeout=limit)
    result = plan.with_suffix(".out")
    return json.loads(result.read_text()) if result.exists() else None, done


def results_of(processes, tasks, folder, *options, **more):
    found, done = torchrun(processes, tasks, folder, *options, **more)
    assert done.returncode == 0, done.stderr[-3000:]
    return found


# --- agreement with a single process ----------------------------------------------------------------

TASKS = [
    *({"task": "losses", "graph": graph, "settings": SMALL | plan} for graph in ("umls", "family") for plan in PLANS),
    {"task": "answers", "graph": "umls"},
    {"task": "answers", "graph": "family"},
    {"task": "table", "rows": 135},
    {"task": "table", "rows": 200_001},
]


def trainings(folder):
    return [
        {
            "task": "train",
            "graph": graph,
            "out": str(folder / f"{graph}-{objective}"),
            "settings": RUN | {"objective": objective},
        }
        for graph in ("umls", "family")
        for objective in ("softmax", "logistic")
    ]


@pytest.fixture(scope="module")
def single(tmp_path_factory, benchmark_path):
    benchmark_path("umls")
    folder = tmp_path_factory.mktemp("single")
    return folder, results_of(1, TASKS + trainings(folder), folder)


# three processes: an uneven partition, and both neighbours of a rank differ from it
@pytest.fixture(
    scope="module", params=[pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(4, marks=pytest.mark.slow)]
)
def several(request, tmp_path_factory, single):
    folder = tmp_path_factory.mktemp(f"several{request.param}")
    return folder, results_of(request.param, TASKS + trainings(folder), folder)


def pairs(kind, single, several):
    """The tasks of a kind, with the results of a single process and of several."""
    found = zip(TASKS, single[1], several[1], strict=False)
    return [(task, one, many) for task, one, many in found if task["task"] == kind]


def test_the_first_twenty_losses_equal_those_of_a_single_process(single, several):
    for task, expected, found in pairs("losses", single, several):
        assert len(found) == 20
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=0, err_msg=str(task))


def test_ranks_top_answers_and_scores_equal_those_of_a_single_process(single, several):
    for _, expected, found in pairs("answers", single, several):
        assert found["ranks"] == expected["ranks"]
        for one, other in zip(found["top"], expected["top"], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(*found["best_scores"], rtol=1e-5, atol=1e-6)


def test_gathering_restores_a_table(single, several):
    assert [found for _, _, found in pairs("table", single, several)] == [True, True]


def test_final_metrics_are_close_to_those_of_a_single_process(single, several):
    for expected, found in zip(single[1][len(TASKS) :], several[1][len(TASKS) :], strict=True):
        assert expected["processes"] == 1 and found["processes"] > 1
        for split in ("valid", "test"):
            assert found[split]["both"]["mrr"] == pytest.approx(expected[split]["both"]["mrr"], abs=0.004)
        assert expected["test"]["both"]["mrr"] > 0.1  # well above the MRR of random scores


def test_the_saved_folder_has_the_files_of_a_single_process(single, several):
    for task in trainings(several[0]):
        ours, theirs = Path(task["out"]), single[0] / Path(task["out"]).name
        sizes = [
            {file.name: file.stat().st_size for file in folder.iterdir() if file.suffix in (".safetensors", ".arrow")}
            for folder in (ours, theirs)
        ]
        assert sizes[0] == sizes[1]
        assert sorted(os.listdir(ours)) == sorted(os.listdir(theirs))
        assert os.listdir(ours / "training") == ["log.jsonl"]
        one, other = dh.load(ours), dh.load(theirs)
        assert one.graph.fingerprint == other.graph.fingerprint
        measured = Evaluator(one.graph, "test")(one.scorer)
        assert measured.mrr == pytest.approx(one.metrics["test"]["both"]["mrr"], abs=1e-4)


def test_losses_are_equal_without_compiled_kernels(single, tmp_path):
    tasks = [task for task in TASKS if task["task"] == "losses" and task["settings"]["objective"] == "logistic"]
    expected = [result for task, result in zip(TASKS, single[1], strict=False) if task in tasks]
    found = results_of(2, tasks, tmp_path, environment={"DIHEDRAL_COMPILED": "0"})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_wn18rr_gives_the_metrics_of_a_single_process(tmp_path, benchmark_path, processes):
    benchmark_path("wn18rr")
    sampled = {"model": "dihedral-ste", "objective": "logistic", "dimension": 100, "batch_size": 4096}
    long = sampled | {"epochs": 40, "validate_every": 20, "regulariser": "none", "relation_lr": 1.0}
    tasks = [
        {"task": "losses", "graph": "wn18rr", "settings": sampled, "batch": 1024},
        {"task": "losses", "graph": "wn18rr", "settings": sampled | {"objective": "softmax"}, "batch": 256},
        {"task": "train", "graph": "wn18rr", "out": "", "settings": long},
    ]
    found = []
    for count in (1, processes):
        tasks[2]["out"] = str(tmp_path / f"run{count}")
        found.append(results_of(count, tasks, tmp_path / str(count), limit=1500))
    for one, other in zip(found[0][:2], found[1][:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    one, other = (each[2]["test"]["both"]["mrr"] for each in found)
    assert one == pytest.approx(other, abs=0.004) and one > 0.2


# --- checkpoints ------------------------------------------------------------------------------------


def run_task(folder, **options):
    return {
        "task": "train",
        "graph": "family",
        "out": str(folder / "run"),
        "settings": RUN | {"objective": "logistic"},
    } | options


def test_a_checkpoint_of_two_processes_resumes_in_one(tmp_path):
    broken, done = torchrun(2, [run_task(tmp_path, stop_at=[2, 1])], tmp_path)
    assert broken is None and done.returncode != 0 and "Stop" in done.stderr
    assert epochs_of(tmp_path) == [1, 2]
    single = tmp_path / "single"
    found, expected = results_of(1, [run_task(tmp_path, resume=True), run_task(single)], tmp_path)
    assert epochs_of(tmp_path) == epochs_of(single) == list(range(1, 9))
    assert found["test"]["both"]["mrr"] == pytest.approx(expected["test"]["both"]["mrr"], abs=0.004)
    np.testing.assert_allclose(*([row["loss"] for row in log_of(each)] for each in (tmp_path, single)), rtol=1e-4)


@pytest.mark.slow
def test_a_checkpoint_of_four_processes_resumes_in_one_and_then_in_two(tmp_path):
    broken, done = torchrun(4, [run_task(tmp_path, stop_at=[2, 1])], tmp_path)
    assert broken is None and done.returncode != 0 and "Stop" in done.stderr
    assert epochs_of(tmp_path) == [1, 2]
    broken, done = torchrun(1, [run_task(tmp_path, stop_at=[5, 1], resume=True)], tmp_path)
    assert broken is None and "Stop" in done.stderr, done.stderr
    assert epochs_of(tmp_path) == [1, 2, 3, 4, 5]
    (found,) = results_of(2, [run_task(tmp_path, resume=True)], tmp_path)
    (expected,) = results_of(1, [run_task(tmp_path / "single")], tmp_path / "single")
    assert epochs_of(tmp_path) == list(range(1, 9))
    assert found["test"]["both"]["mrr"] == pytest.approx(expected["test"]["both"]["mrr"], abs=0.004)
    losses = [[row["loss"] for row in log_of(folder)] for folder in (tmp_path, tmp_path / "single")]
    np.testing.assert_allclose(*losses, rtol=1e-4)


def test_a_run_restarted_after_a_kill_equals_an_uninterrupted_run(tmp_path):
    (found,) = results_of(2, [run_task(tmp_path, kill_at=12)], tmp_path, "--max-restarts", "1")
    (expected,) = results_of(2, [run_task(tmp_path / "uninterrupted")], tmp_path / "uninterrupted")
    assert found == expected
    one, other = dh.load(tmp_path / "run"), dh.load(tmp_path / "uninterrupted" / "run")
    assert torch.equal(one.model.entities, other.model.entities)
    assert torch.equal(one.model.codes, other.model.codes)


def test_an_error_remains_when_torchrun_restarts(tmp_path):
    broken, done = torchrun(2, [run_task(tmp_path, stop_at=[2, 1])], tmp_path)
    assert broken is None and done.returncode != 0
    again, done = torchrun(2, [run_task(tmp_path)], tmp_path, "--max-restarts", "1")
    assert again is None and "holds an unfinished run; add --resume to continue it" in done.stderr
    assert epochs_of(tmp_path) == [1, 2]


def test_a_program_can_train_twice(tmp_path):
    first = run_task(tmp_path) | {"separate": True}
    second = first | {"out": str(tmp_path / "second")}
    one, other = results_of(2, [first, second], tmp_path)
    assert one == other


def log_of(folder):
    return [json.loads(line) for line in (folder / "run" / "training" / "log.jsonl").read_text().splitlines()]


def epochs_of(folder):
    return [row["epoch"] for row in log_of(folder)]


# --- partitioned tables -----------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "world"), [(135, 4), (40_943, 2), (10, 3), (7, 7), (2, 2)])
def test_each_row_is_on_exactly_one_rank(rows, world):
    shards = [Shard(rows, rank, world) for rank in range(world)]
    assert sorted(torch.cat([shard.ids() for shard in shards]).tolist()) == list(range(rows))
    ids = torch.arange(rows)
    for shard in shards:
        here, index = shard.find(shard.ids())
        assert here.tolist() == index.tolist() == list(range(shard.stop - shard.start))
        assert torch.equal(shard.find(ids)[0], (shard.owners(ids) == shard.rank).nonzero()[:, 0])


def test_the_first_rows_are_spread_over_all_ranks():
    held = [int((Shard(40_943, rank, 4).ids() < 400).sum()) for rank in range(4)]
    assert min(held) > 90


@pytest.mark.parametrize(("rows", "width"), [(135, 6), (65_536, 2), (70_001, 2), (200_003, 4)])
def test_the_initial_table_does_not_depend_on_the_number_of_ranks(rows, width):
    def draw(shard):
        return _normal_rows(shard, width, torch.Generator().manual_seed(1))

    table = draw(Shard(rows))
    assert torch.equal(table, torch.randn(rows, width, generator=torch.Generator().manual_seed(1)))
    for rank in range(3):
        shard = Shard(rows, rank, 3)
        assert torch.equal(draw(shard), table[shard.ids()])


def test_indices_in_tables_with_billions_of_rows_are_exact():
    shard = Shard(2**31 - 1, 5, 8)
    ids = torch.tensor([0, 1, 2**31 - 2])
    expected = [int(i) * shard.stride % shard.num_rows - shard.start for i in ids.tolist()]
    assert shard.local_index(ids).tolist() == expected


# --- errors -----------------------------------------------------------------------------------------


def test_several_processes_need_a_folder(monkeypatch, family):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    with pytest.raises(DihedralError, match="2 processes train one model, which needs an output folder; give `out`"):
        dh.train(family, "demo/family", progress=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"component_weight": 0.1, "objective": "logistic"}, "component_weight is 0.1 with 2 processes; set it to 0"),
    ],
)
def test_unsupported_settings_are_errors(tmp_path, settings, message):
    found, done = torchrun(2, [run_task(tmp_path, settings=RUN | settings)], tmp_path)
    assert found is None and message in done.stderr
