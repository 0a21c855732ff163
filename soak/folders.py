"""Two processes that write into one folder: the second is refused, and the first is not affected."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dihedral as dh
from soak.children import Child, Ending, is_clear, run_child
from soak.kills import digest, random_predictor, small_graph
from soak.tally import Tally

SETTINGS: dict[str, Any] = {"epochs": 6, "dimension": 8, "batch_size": 64, "progress": False, "device": "cpu"}
OPTIONS: list[dict[str, bool]] = [{}, {"resume": True}, {"overwrite": True}, {"resume": True, "overwrite": True}]


def run(tally: Tally, amount: int, seed: int, folder: Path) -> None:
    """New, resumed and overwriting runs into the folder of a current run, and a save into that of a current save."""
    run_child(functools.partial(train, folder / "alone"))
    expected = run_child(functools.partial(digest, folder / "alone")).value
    for number, options in enumerate(OPTIONS):
        out, gate = folder / f"{number}", folder / f"{number}.go"
        first = Child(functools.partial(train, out, gate))
        _wait_for(lambda out=out: any((out / "training").glob("checkpoint.*")))  # type: ignore[misc]
        second = run_child(functools.partial(train, out, **options))
        gate.touch()
        _check(tally, f"a second run with {', '.join(options) or 'no options'}", first.wait(), second)
        found = run_child(functools.partial(digest, out)).value
        tally.check(found == expected, f"the first of two runs differs from a single run: {found}")
        tally.advance()
    after_kill(tally, folder / "killed", expected)
    tally.advance()
    out, gate = folder / "model", folder / "model.go"
    first = Child(functools.partial(hold, out, gate))
    _wait_for((folder / "model.held").exists)
    second = run_child(functools.partial(save, out))
    gate.touch()
    _check(tally, "a second save", first.wait(), second)
    tally.advance()


def after_kill(tally: Tally, out: Path, expected: Any) -> None:
    """The lock of a killed run does not block the next run."""
    first = Child(functools.partial(train, out, out.with_suffix(".go")))
    _wait_for(lambda: any((out / "training").glob("checkpoint.*")))
    first.kill_after(0)
    ending = run_child(functools.partial(train, out, resume=True))
    found = run_child(functools.partial(digest, out)).value
    tally.check(ending.how == "done" and found == expected, f"after a kill, the folder is still locked: {ending}")
    tally.count("runs resumed in the folder of a killed run", ending.how == "done")


def _check(tally: Tally, what: str, first: Ending, second: Ending) -> None:
    refused = second.how == "refused" and is_clear(second.value)
    tally.check(refused, f"{what} should be refused, but {second}")
    tally.check(first.how == "done", f"the first process failed during {what}: {first}")
    tally.count("second processes refused", refused)


def train(out: Path, gate: Path | None = None, **options: bool) -> None:
    """A run that waits after its second epoch until the file `gate` exists."""

    def wait(event: dict[str, Any]) -> None:
        if gate is not None and event["event"] == "epoch" and event["epoch"] == 2:
            _wait_for(gate.exists)

    dh.train(small_graph(), "demo/family", out=out, checkpoint_minutes=0, callback=wait, **SETTINGS, **options)


def save(out: Path) -> None:
    random_predictor(small_graph(), 1).save(out, overwrite=True)


def hold(out: Path, gate: Path) -> None:
    """A save that waits until the file `gate` exists."""
    from dihedral.io.files import lock_folder, make_folder

    make_folder(out)
    with lock_folder(out, "taken"):
        out.with_suffix(".held").touch()
        _wait_for(gate.exists)


def _wait_for(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {os.getpid()} waited {seconds:.0f} s")
        time.sleep(0.005)
