"""A wall clock that jumps by hours, back and forth, every time it is read.

Changing the clock of the machine would affect everything on it, and time namespaces do not cover the wall clock.
Therefore the child processes replace Python's `time` and `datetime`, and files get dates in the future and the past.
"""

from __future__ import annotations

import datetime
import functools
import json
import os
import random
import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dihedral as dh
from dihedral.objectives.recipe import load_recipe
from dihedral.tune.search import Search, search
from soak.children import Child, Ending, command, run_child
from soak.folders import SETTINGS
from soak.kills import TUNING, digest, random_predictor, small_graph, trials
from soak.tally import Tally

HOURS = 30.0
REQUESTS = 50


def run(tally: Tally, amount: int, seed: int, folder: Path) -> None:
    """Train, resume, tune and serve with a jumping clock; the results must equal those with a steady clock."""
    checks: list[tuple[str, Callable[[Path], tuple[Any, Any]]]] = [
        ("training", check_training),
        ("a resumed run", check_resume),
        ("a search with trials", check_search),
        ("a search with a time limit", check_minutes),
        ("serving", check_serving),
    ]
    for name, check in checks:
        place = folder / name.replace(" ", "-")
        place.mkdir()
        found, expected = check(place)
        if tally.check(found == expected, f"{name} with a jumping clock: {found}; with a steady clock: {expected}"):
            tally.count("results equal to those with a steady clock")
        tally.advance()


def jumping(work: Callable[[], Any], jump: Callable[[], float] | None = None) -> Callable[[], Any]:
    """Work with a clock that jumps; `jump` returns the offset in hours for each reading."""
    rng = random.Random(0)
    hours = jump or (lambda: rng.uniform(-HOURS, HOURS))
    steady = time.time

    class Jumping(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Jumping:
            return cls.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> Jumping:
            return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    def jumped() -> Any:
        time.time = lambda: steady() + 3600 * hours()
        time.time_ns = lambda: int(1e9 * time.time())
        datetime.datetime = Jumping  # type: ignore[misc]
        return work()

    return jumped


def train(out: Path, stop_after: int | None = None, **options: Any) -> None:
    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "epoch" and event["epoch"] == stop_after:
            os._exit(1)

    options = {"checkpoint_minutes": 0, "callback": stop, **SETTINGS, **options}
    dh.train(small_graph(), "demo/family", out=out, **options)


def check_training(folder: Path) -> tuple[Any, Any]:
    """With checkpoints every minute; a short run needs only the last one."""
    run_child(functools.partial(train, folder / "steady"))
    ending = run_child(jumping(functools.partial(train, folder / "jumping", checkpoint_minutes=1.0)))
    return _digest(folder / "jumping", ending), _digest(folder / "steady")


def check_resume(folder: Path) -> tuple[Any, Any]:
    """The files of the run have dates in the future and the past."""
    run_child(functools.partial(train, folder / "steady"))
    out = folder / "jumping"
    run_child(jumping(functools.partial(train, out, stop_after=3)))
    for number, path in enumerate(sorted(out.rglob("*"))):
        moment = time.time() + 3600 * HOURS * (-1) ** number
        os.utime(path, (moment, moment))
    return _digest(out, run_child(jumping(functools.partial(train, out, resume=True)))), _digest(folder / "steady")


def check_search(folder: Path) -> tuple[Any, Any]:
    steady = run_child(functools.partial(trials, folder / "steady"))
    jumped = run_child(jumping(functools.partial(trials, folder / "jumping")))
    return (jumped.how, jumped.value), (steady.how, steady.value)


def check_minutes(folder: Path) -> tuple[Any, Any]:
    """A search of ten minutes does not stop when the clock jumps ahead; one of a second stops when it jumps back."""
    readings = iter(range(10**9))

    def trained(place: str, limit: float, count: int | None) -> int:
        recipe = load_recipe("demo/family").replace(**TUNING)
        space: Any = {"entity_lr": (0.03, 1.0)}
        rows = search(Search(small_graph(), recipe, space, folder / place, device="cpu"), trials=count, minutes=limit)
        return len(rows)

    ahead = run_child(jumping(functools.partial(trained, "ahead", 10.0, 3), lambda: 5.0 * next(readings)))
    work = jumping(functools.partial(trained, "back", 1 / 60, None), lambda: -5.0 * next(readings))
    back = run_child(work, seconds=30)
    return (ahead.value, back.how), (3, "done")


def check_serving(folder: Path) -> tuple[Any, Any]:
    """The server answers every request."""
    random_predictor(small_graph(), 0).save(folder / "model")
    server = Child(jumping(command("serve", folder / "model", "--port", 0)))
    try:
        return _count_answers(server.printed), REQUESTS
    finally:
        server.kill_after(0)


def _count_answers(printed: Path) -> int | str:
    """The number of successful requests to the address that the server prints."""
    deadline, output = time.monotonic() + 300, ""
    while not (found := re.search(r"http://[\w.]+:\d+", output)):
        output = printed.read_text() if printed.exists() else ""
        time.sleep(0.02)
        if time.monotonic() > deadline:
            return output
    url = f"{found[0]}/v1/predict?head=man_0000&relation=spouse&top=3"
    answered = 0
    for _ in range(REQUESTS):
        with urllib.request.urlopen(url, timeout=300) as answer:
            answered += answer.status == 200
    return answered


def _digest(folder: Path, ending: Ending | None = None) -> Any:
    if ending is not None and ending.how != "done":
        return str(ending)
    return json.dumps(run_child(functools.partial(digest, folder)).value)[:2000]
