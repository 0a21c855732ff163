"""Several processes train the same model as one: equal losses, metrics and files, also after a failure."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.evaluation import Evaluator
from dihedral.learn.trainer import build_objective
from dihedral.models import Model, build_model
from dihedral.models.registry import _normal_rows
from dihedral.runtime.distributed import Shard
from tests.runtime.worker import execute

pytestmark = pytest.mark.thorough
WORKER = Path(__file__).with_name("worker.py")
SMALL = {"dimension": 16, "regulariser": "none"}
RUN = {"dimension": 24, "epochs": 8, "batch_size": 512, "validate_every": 4, "regulariser": "none"}
PLANS = [
    {"model": "dihedral-gumbel", "objective": "logistic"},
    {"model": "dihedral-ste", "objective": "logistic", "regulariser": "l2", "regulariser_weight": 0.1},
    {"objective": "logistic", "skew_probability": 0.5, "regulariser": "l2", "regulariser_weight": 0.1},
    {"objective": "logistic", "share_negatives": 16, "negatives": 30},
    {"objective": "logistic", "skew_probability": 0.5, "regulariser": "n3", "regulariser_weight": 0.1},
    {"model": "complex", "objective": "logistic", "negatives": 3},
    {"model": "dihedral-gumbel", "objective": "softmax", "regulariser": "n3", "regulariser_weight": 0.1},
    {"objective": "softmax", "relation_weight": 0.5, "paths": 0.5, "path_length": 3},
    {"objective": "softmax", "regulariser": "dura", "regulariser_weight": 0.1, "dropout": 0.2},
    {"objective": "softmax", "levels": "1, 1/2, 0", "paths": 0.5, "composition_weight": 0.5},
    {"model": "complex", "objective": "softmax", "reciprocal": True, "relation_weight": 0.5},
    {"model": "transe", "objective": "softmax", "relation_init": 0.1, "regulariser": "l2", "regulariser_weight": 0.1},
    {"objective": "softmax", "group_questions": True, "regulariser": "n3", "regulariser_weight": 0.1, "dropout": 0.2},
]


@pytest.fixture(scope="module")
def torchrun(forks):
    """torchrun(2, tasks, folder): the results of the tasks that were completed, and the completed process."""

    def run(processes, tasks, folder, *options, together=True, limit=300):
        plan = folder / "plan.json"
        plan.write_text(json.dumps([tasks, together]))
        words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes, *options, WORKER, plan]
        with forks.start(*words, PYTHONPATH=str(Path(dh.__file__).parents[1]), OMP_NUM_THREADS="1") as process:
            done = process.wait(limit)
        result = plan.with_suffix(".out")
        return json.loads(result.read_text()) if result.exists() else [], done

    return run


@pytest.fixture(scope="module")
def results_of(torchrun):
    """results_of(2, tasks, folder): the results of all tasks."""

    def run(*arguments, **options):
        found, done = torchrun(*arguments, **options)
        assert done.returncode == 0, done.stderr[-3000:]
        return found

    return run


# --- agreement with a single process ----------------------------------------------------------------


def losses_of(graph, plans=PLANS, **options):
    return [{"task": "losses", "graph": graph, "settings": SMALL | plan} | options for plan in plans]


def training(graph, objective):
    settings = RUN | {"objective": objective} | ({"epochs": 4} if graph == "umls" else {})
    return {"task": "train", "graph": graph, "out": f"{graph}-{objective}", "settings": settings}


PATHS = {
    "model": "dihedral-argmax", "objective": "paths", "K": 8, "dimension": 8, "steps": 2, "epochs": 2,
    "facts_per_epoch": 1501, "batch_size": 50, "relation_lr": 0.02, "validate_every": 1, "validate_on": 50,
}  # fmt: skip
LOGISTIC = [plan for plan in PLANS if plan["objective"] == "logistic"]
TASKS = [
    *losses_of("umls"),
    *losses_of("umls", LOGISTIC, compiled=False),
    {"task": "answers", "graph": "umls"},
    {"task": "table", "rows": 135},
    {"task": "table", "rows": 200_001},
    training("umls", "softmax"),
    training("family", "logistic"),
    {"task": "train", "graph": "umls", "out": "umls-paths", "settings": PATHS},
]
MORE_TASKS = [  # the same on other graphs
    *losses_of("family"),
    *losses_of("family", LOGISTIC, compiled=False),
    {"task": "answers", "graph": "family"},
    training("umls", "logistic"),
    training("family", "softmax"),
]


class Single:
    """The results of tasks in this process, and the folder of its models."""

    def __init__(self, folder):
        self.folder = folder
        self.results = {}

    def __call__(self, task):
        task = {key: value for key, value in task.items() if key != "compiled"}
        key = json.dumps(task)
        if key not in self.results:
            self.results[key] = execute(self.folder, **task)
        return self.results[key]


@pytest.fixture(scope="module")
def single(tmp_path_factory, benchmark_path):
    """single(task): its result in a single process, with the compiled kernels."""
    benchmark_path("umls")
    return Single(tmp_path_factory.mktemp("single"))


# three processes: an uneven partition, and both neighbours of a rank differ from it
@pytest.fixture(
    scope="module", params=[pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(4, marks=pytest.mark.slow)]
)
def several(request, tmp_path_factory, results_of, benchmark_path):
    """The folder of several processes, and their results as pairs of a task and its result."""
    benchmark_path("umls")
    folder = tmp_path_factory.mktemp(f"several{request.param}")
    tasks = TASKS if request.param == 3 else TASKS + MORE_TASKS
    return folder, list(zip(tasks, results_of(request.param, tasks, folder), strict=True))


def pairs(kind, several):
    return [(task, found) for task, found in several[1] if task["task"] == kind]


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled kernels", "plain torch"])
def test_the_first_twenty_losses_equal_those_of_a_single_process(single, several, compiled):
    tasks = [pair for pair in pairs("losses", several) if pair[0].get("compiled", True) == compiled]
    assert len(tasks) >= len(LOGISTIC)
    for task, found in tasks:
        assert len(found) == 20
        np.testing.assert_allclose(found, single(task), rtol=1e-5, atol=0, err_msg=str(task))


def test_ranks_top_answers_and_scores_equal_those_of_a_single_process(single, several):
    for task, found in pairs("answers", several):
        expected = single(task)
        assert found["ranks"] == expected["ranks"]
        for one, other in zip(found["top"], expected["top"], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(*found["best_scores"], rtol=1e-5, atol=1e-6)


def test_gathering_restores_a_table(several):
    assert [found for _, found in pairs("table", several)] == [True, True]


def test_final_metrics_are_close_to_those_of_a_single_process(single, several):
    for task, found in pairs("train", several):
        expected = single(task)
        assert expected["processes"] == 1 and found["processes"] > 1
        for split in ("valid", "test"):
            assert found[split]["both"]["mrr"] == pytest.approx(expected[split]["both"]["mrr"], abs=0.004)
        assert expected["test"]["both"]["mrr"] > 0.1  # well above the MRR of random scores


def test_the_saved_folder_has_the_files_of_a_single_process(single, several):
    for task, _ in pairs("train", several):
        single(task)
        ours, theirs = several[0] / task["out"], single.folder / task["out"]
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


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_wn18rr_gives_the_metrics_of_a_single_process(tmp_path, single, results_of, benchmark_path, processes):
    benchmark_path("wn18rr")
    sampled = {"model": "dihedral-ste", "objective": "logistic", "dimension": 100, "batch_size": 4096}
    long = sampled | {"epochs": 40, "validate_every": 20, "regulariser": "none", "relation_lr": 1.0}
    tasks = [
        {"task": "losses", "graph": "wn18rr", "settings": sampled, "batch": 1024},
        {"task": "losses", "graph": "wn18rr", "settings": sampled | {"objective": "softmax"}, "batch": 256},
        {"task": "train", "graph": "wn18rr", "out": "wn18rr", "settings": long},
    ]
    found = results_of(processes, tasks, tmp_path, limit=1500)
    for task, losses in zip(tasks[:2], found, strict=False):
        np.testing.assert_allclose(losses, single(task), rtol=1e-5)
    one, other = (each["test"]["both"]["mrr"] for each in (single(tasks[2]), found[2]))
    assert one == pytest.approx(other, abs=0.004) and one > 0.2


# --- checkpoints ------------------------------------------------------------------------------------


def run_task(out="run", **options):
    return training("family", "logistic") | {"out": out} | options


STOPPED = run_task("stopped", stop_at=[2, 1])


@pytest.fixture(scope="module")
def two(torchrun, tmp_path_factory):
    """The folder and the results of two processes that train two models one after the other and stop in a third run."""
    folder = tmp_path_factory.mktemp("two")
    found, done = torchrun(2, [run_task("first"), run_task("second"), STOPPED], folder, together=False)
    assert len(found) == 2 and done.returncode != 0 and "Stop" in done.stderr
    assert epochs_of(folder / "stopped") == [1, 2]
    return folder, found


def test_a_program_can_train_twice(two):
    _, (first, second) = two
    assert first == second


def test_a_checkpoint_of_two_processes_resumes_in_one(single, two, tmp_path):
    shutil.copytree(two[0] / "stopped", tmp_path / "run")
    found, expected = execute(tmp_path, **run_task(resume=True)), single(run_task())
    assert epochs_of(tmp_path / "run") == epochs_of(single.folder / "run") == list(range(1, 9))
    assert found["test"]["both"]["mrr"] == pytest.approx(expected["test"]["both"]["mrr"], abs=0.004)
    losses = [[row["loss"] for row in log_of(folder / "run")] for folder in (tmp_path, single.folder)]
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.slow
def test_a_checkpoint_of_four_processes_resumes_in_one_and_then_in_two(torchrun, results_of, single, tmp_path):
    broken, done = torchrun(4, [run_task(stop_at=[2, 1])], tmp_path)
    assert broken == [] and done.returncode != 0 and "Stop" in done.stderr
    assert epochs_of(tmp_path / "run") == [1, 2]
    broken, done = torchrun(1, [run_task(stop_at=[5, 1], resume=True)], tmp_path)
    assert broken == [] and "Stop" in done.stderr, done.stderr
    assert epochs_of(tmp_path / "run") == [1, 2, 3, 4, 5]
    (found,), expected = results_of(2, [run_task(resume=True)], tmp_path), single(run_task())
    assert epochs_of(tmp_path / "run") == list(range(1, 9))
    assert found["test"]["both"]["mrr"] == pytest.approx(expected["test"]["both"]["mrr"], abs=0.004)
    losses = [[row["loss"] for row in log_of(folder / "run")] for folder in (tmp_path, single.folder)]
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.fixture(scope="module")
def restarted(torchrun, two, tmp_path_factory):
    """The folder, the results and the end of two processes, one of which is killed in the first of two runs.

    The second run gets the folder of an unfinished run; torchrun may restart once.
    """
    folder = tmp_path_factory.mktemp("restarted")
    shutil.copytree(two[0] / "stopped", folder / "stopped")
    tasks = [run_task(kill_at=12), run_task("stopped")]
    return folder, *torchrun(2, tasks, folder, "--max-restarts", "1", together=False)


def test_a_run_restarted_after_a_kill_equals_an_uninterrupted_run(two, restarted):
    (found,), (expected, _) = restarted[1], two[1]
    assert found == expected
    one, other = dh.load(restarted[0] / "run"), dh.load(two[0] / "first")
    assert torch.equal(one.model.entities, other.model.entities)
    assert torch.equal(one.model.codes, other.model.codes)


def test_a_restart_does_not_resume_the_run_of_another_launch(restarted):
    folder, _, done = restarted
    assert done.returncode != 0 and "holds an unfinished run; add --resume to continue it" in done.stderr
    assert epochs_of(folder / "stopped") == [1, 2]


def log_of(folder):
    return [json.loads(line) for line in (folder / "training" / "log.jsonl").read_text().splitlines()]


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
        assert torch.equal(shard.find(ids)[0], shard.ids().sort().values)


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


def test_component_weight_needs_a_single_process(family):
    model = build_model("dihedral-gumbel", family.num_entities, family.num_relations, dimension=4)
    recipe = dh.load_recipe("demo/umls").replace(objective="logistic", component_weight=0.1)
    several = Model(model.entities, model.relations, Shard(family.num_entities, 0, 2))
    with pytest.raises(
        DihedralError, match=r"component_weight is 0\.1 with 2 processes; leave it out or use one process"
    ):
        build_objective(recipe, several, family)
    build_objective(recipe, model, family)
