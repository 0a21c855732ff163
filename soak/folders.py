"""Two processes into one folder: the second is refused, and the first ends as if alone."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dihedral as dh
from soak.children import Child, Ending, ask, is_clear
from soak.kills import digest, random_predictor, small_graph
from soak.tally import Tally

SETTINGS: dict[str, Any] = {"epochs": 6, "dimension": 8, "batch_size": 64, "progress": False, "device": "cpu"}
OPTIONS: list[dict[str, bool]] = [{}, {"resume": True}, {"overwrite": True}, {"resume": True, "overwrite": True}]


def run(tally: Tally, amount: int, seed: int, folder: Path) -> None:
    """Runs, resumed runs and overwriting ones into the folder of a run; a save into the folder of a save."""
    ask(functools.partial(train, folder / "alone"))
    expected = ask(functools.partial(digest, folder / "alone")).value
    for number, options in enumerate(OPTIONS):
        out, gate = folder / f"{number}", folder / f"{number}.go"
        first = Child(functools.partial(train, out, gate))
        _wait_for(lambda out=out: any((out / "training").glob("checkpoint.*")))  # type: ignore[misc]
        second = ask(functools.partial(train, out, **options))
        gate.touch()
        _check(tally, f"a second run with {', '.join(options) or 'no options'}", first.wait(), second)
        found = ask(functools.partial(digest, out)).value
        tally.check(found == expected, f"the first of two runs ended otherwise than alone: {found}")
        tally.advance()
    after_kill(tally, folder / "killed", expected)
    tally.advance()
    out, gate = folder / "model", folder / "model.go"
    first = Child(functools.partial(hold, out, gate))
    _wait_for((folder / "model.held").exists)
    second = ask(functools.partial(save, out))
    gate.touch()
    _check(tally, "a second save", first.wait(), second)
    tally.advance()


def after_kill(tally: Tally, out: Path, expected: Any) -> None:
    """The lock of a run that was killed does not keep the next one out."""
    first = Child(functools.partial(train, out, out.with_suffix(".go")))
    _wait_for(lambda: any((out / "training").glob("checkpoint.*")))
    first.kill_after(0)
    ending = ask(functools.partial(train, out, resume=True))
    found = ask(functools.partial(digest, out)).value
    tally.check(ending.how == "done" and found == expected, f"after a kill the folder was not free: {ending}")
    tally.count("runs that go on in the folder of a killed one", ending.how == "done")


def _check(tally: Tally, what: str, first: Ending, second: Ending) -> None:
    refused = second.how == "refused" and is_clear(second.value)
    tally.check(refused, f"{what} was to be refused, but {second}")
    tally.check(first.how == "done", f"the first did not end well beside {what}: {first}")
    tally.count("second processes refused", refused)


def train(out: Path, gate: Path | None = None, **options: bool) -> None:
    """A run, which waits after its second epoch until `gate` is there."""

    def wait(event: dict[str, Any]) -> None:
        if gate is not None and event["event"] == "epoch" and event["epoch"] == 2:
            _wait_for(gate.exists)

    dh.train(small_graph(), "demo/family", out=out, checkpoint_minutes=0, callback=wait, **SETTINGS, **options)


def save(out: Path) -> None:
    random_predictor(small_graph(), 1).save(out, overwrite=True)


def hold(out: Path, gate: Path) -> None:
    """A save that stands still until `gate` is there."""
    from dihedral.io.files import make_folder
    from dihedral.io.locks import lock_folder

    make_folder(out)
    with lock_folder(out):
        out.with_suffix(".held").touch()
        _wait_for(gate.exists)


def _wait_for(held: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not held():
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {os.getpid()} waited {seconds:.0f} s")
        time.sleep(0.005)
