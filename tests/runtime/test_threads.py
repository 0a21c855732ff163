"""The number of threads follows the CPU affinity and the quota of the control group."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.runtime import threads
from dihedral.runtime.interruption import InterruptedWorkError, Interruption, check, interruptible
from dihedral.runtime.threads import at_most, for_each, num_cores, use_threads


@pytest.fixture
def group(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    return tmp_path


@pytest.mark.parametrize(
    ("content", "cores"), [("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("max 100000", 8), ("?", 8)]
)
def test_a_quota_limits_the_cores(group, content, cores):
    (group / "cpu.max").write_text(content)
    assert num_cores() == cores


def test_without_a_group_the_affinity_counts(group):
    assert num_cores() == 8


def test_the_number_may_be_given(group, monkeypatch):
    before = torch.get_num_threads()
    try:
        use_threads(3)
        assert torch.get_num_threads() == 3
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        use_threads()
        assert torch.get_num_threads() == 3  # the variable decides, when torch starts
        monkeypatch.delenv("OMP_NUM_THREADS")
        use_threads()
        assert torch.get_num_threads() == 8
    finally:
        torch.set_num_threads(before)
    with pytest.raises(DihedralError, match="threads is 0; it must be 1 or more"):
        use_threads(0)


def test_small_graphs_train_on_one_thread(family):
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        for objective in ("softmax", "logistic"):
            settings = {"objective": objective, "dimension": 8, "epochs": 1}
            dh.train(
                family,
                "demo/umls",
                **settings,
                callback=lambda event: seen.append((event["event"], torch.get_num_threads())),
            )
            assert torch.get_num_threads() == 2
        with at_most(None):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert [threads for event, threads in seen if event == "epoch"] == [1, 2]


def test_waiting_threads_do_not_spin():
    code = "import os, dihedral; print(os.environ['OMP_WAIT_POLICY'])"
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    for given, expected in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        more = {"OMP_WAIT_POLICY": given} if given else {}
        done = subprocess.run([sys.executable, "-c", code], env=environment | more, capture_output=True, text=True)
        assert done.stdout.strip() == expected


@pytest.mark.parametrize("count", [1, 3])
def test_all_items_are_worked_on_and_reported_to_the_caller(count, set_threads):
    set_threads(count)
    done, told, workers = [], [], set()

    def work(item: int) -> None:
        workers.add(threading.current_thread())
        done.append(item)

    for_each(work, range(50), lambda item: told.append((item, threading.current_thread())))
    assert sorted(done) == list(range(50))
    assert sorted(item for item, _ in told) == list(range(50))
    assert {thread for _, thread in told} == {threading.current_thread()}
    assert (threading.current_thread() in workers) == (count == 1)


@pytest.mark.parametrize("count", [1, 3])
def test_a_failure_ends_the_work(count, set_threads):
    set_threads(count)
    done = []

    def work(item: int) -> None:
        if item == 3:
            raise DihedralError("three")
        while item > 3:  # until the failure stops it
            check()
        done.append(item)

    with pytest.raises(DihedralError, match="three"):
        for_each(work, range(100))
    assert sorted(done) == [0, 1, 2]


def test_threads_stop_with_their_caller(set_threads):
    set_threads(2)
    interruption = Interruption()
    interruption.stop("nobody waits")
    with interruptible(interruption), pytest.raises(InterruptedWorkError, match="nobody waits"):
        for_each(lambda item: check(), range(4))


def test_an_interrupted_caller_stops_its_threads(set_threads):
    set_threads(2)
    both, stopped = threading.Barrier(2), []

    def work(item: int) -> None:
        both.wait()
        try:
            while item == 1:
                check()
        except InterruptedWorkError:
            stopped.append(item)
            raise

    def press_ctrl_c(item: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for_each(work, range(2), press_ctrl_c)
    assert stopped == [1]


def test_threads_that_start_during_the_work_keep_the_setting_of_the_process(set_threads):
    """A server starts threads for other requests meanwhile; torch would leave them with one thread for good."""
    set_threads(3)
    both, inside, outside, told = threading.Barrier(2), [], [], []

    def work(item: int) -> None:
        both.wait()
        inside.append(torch.get_num_threads())
        other = threading.Thread(target=lambda: outside.append(torch.get_num_threads()))
        other.start()
        other.join()

    for_each(work, range(2), lambda item: told.append(torch.get_num_threads()))
    assert inside == [1, 1] and outside == told == [3, 3]
