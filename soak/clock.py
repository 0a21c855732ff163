"""A clock of the day that jumps by hours, back and forth, at every look at it.

Setting a machine's clock would be felt by everything on it, and time namespaces leave the clock of the day alone; so
in the child processes Python's `time` and `datetime` are exchanged, and files are dated from the future and the past.
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
from dihedral.training.recipe import load_recipe
from dihedral.tuning.optuna_search import Search, search
from soak.children import Child, Ending, ask, command
from soak.folders import SETTINGS
from soak.kills import TUNING, digest, random_predictor, small_graph, trials
from soak.tally import Tally

HOURS = 30.0
REQUESTS = 50


def run(tally: Tally, amount: int, seed: int, folder: Path) -> None:
    """Train, resume, tune and serve under a jumping clock; all must come out as under a steady one."""
    checks: list[tuple[str, Callable[[Path], tuple[Any, Any]]]] = [
        ("training", check_training),
        ("a resumed run", check_resume),
        ("a search by trials", check_search),
        ("a search for minutes", check_minutes),
        ("serving", check_serving),
    ]
    for name, check in checks:
        place = folder / name.replace(" ", "-")
        place.mkdir()
        found, expected = check(place)
        if tally.check(found == expected, f"{name} under a jumping clock: {found}; under a steady one: {expected}"):
            tally.count("kinds of work as under a steady clock")
        tally.advance()


def jumping(work: Callable[[], Any], jump: Callable[[], float] | None = None) -> Callable[[], Any]:
    """Work under a clock that jumps; `jump` gives the hours it is off at each look."""
    chance = random.Random(0)
    hours = jump or (lambda: chance.uniform(-HOURS, HOURS))
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
    """With checkpoints by the minute, of which a short run needs none but the last."""
    ask(functools.partial(train, folder / "steady"))
    ending = ask(jumping(functools.partial(train, folder / "jumping", checkpoint_minutes=1.0)))
    return _digest(folder / "jumping", ending), _digest(folder / "steady")


def check_resume(folder: Path) -> tuple[Any, Any]:
    """The files of the run are from the future and the past."""
    ask(functools.partial(train, folder / "steady"))
    out = folder / "jumping"
    ask(jumping(functools.partial(train, out, stop_after=3)))
    for number, path in enumerate(sorted(out.rglob("*"))):
        moment = time.time() + 3600 * HOURS * (-1) ** number
        os.utime(path, (moment, moment))
    return _digest(out, ask(jumping(functools.partial(train, out, resume=True)))), _digest(folder / "steady")


def check_search(folder: Path) -> tuple[Any, Any]:
    steady = ask(functools.partial(trials, folder / "steady"))
    jumped = ask(jumping(functools.partial(trials, folder / "jumping")))
    return (jumped.how, jumped.value), (steady.how, steady.value)


def check_minutes(folder: Path) -> tuple[Any, Any]:
    """A search for ten minutes is not over when the clock leaps ahead, and one for a second ends when it falls back."""
    looks = iter(range(10**9))

    def trained(place: str, limit: float, count: int | None) -> int:
        recipe = load_recipe("demo/family").replace(**TUNING)
        space: Any = {"entity_lr": (0.03, 1.0)}
        rows = search(Search(small_graph(), recipe, space, folder / place, device="cpu"), trials=count, minutes=limit)
        return len(rows)

    ahead = ask(jumping(functools.partial(trained, "ahead", 10.0, 3), lambda: 5.0 * next(looks)))
    back = ask(jumping(functools.partial(trained, "back", 1 / 60, None), lambda: -5.0 * next(looks)), seconds=30)
    return (ahead.value, back.how), (3, "done")


def check_serving(folder: Path) -> tuple[Any, Any]:
    """The server answers every request."""
    random_predictor(small_graph(), 0).save(folder / "model")
    server = Child(jumping(command("serve", folder / "model", "--port", 0)))
    try:
        return _ask_often(server.printed), REQUESTS
    finally:
        server.kill_after(0)


def _ask_often(printed: Path) -> int | str:
    """How many requests are answered at the address that the server prints."""
    deadline, said = time.monotonic() + 30, ""
    while not (found := re.search(r"http://[\w.]+:\d+", said)):
        said = printed.read_text() if printed.exists() else ""
        time.sleep(0.02)
        if time.monotonic() > deadline:
            return said
    asked = f"{found[0]}/v1/predict?head=man_0000&relation=spouse&top=3"
    answered = 0
    for _ in range(REQUESTS):
        with urllib.request.urlopen(asked, timeout=10) as answer:
            answered += answer.status == 200
    return answered


def _digest(folder: Path, ending: Ending | None = None) -> Any:
    if ending is not None and ending.how != "done":
        return str(ending)
    return json.dumps(ask(functools.partial(digest, folder)).value)[:2000]
