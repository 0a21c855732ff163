"""`dihedral tune`: search settings with Optuna or over a grid, and print the command that trains the best."""

from __future__ import annotations

import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TimeElapsedColumn, TimeRemainingColumn

from dihedral.cli.options import Columns, Device, Json, Seed, Settings, Verbose, Wide
from dihedral.cli.output import print_found, progress_bar, read_data, remark, say
from dihedral.cli.train import choose_for, parse_settings
from dihedral.errors import DihedralError, TrainingError
from dihedral.graph import Graph
from dihedral.learn import Recipe, load_recipe, recipe_names
from dihedral.learn.loop import Event
from dihedral.tune.grid import Choices, Row, grid_search, paper_grid
from dihedral.tune.optuna_search import Search, make_space, open_study, search

NAMED_BASE = "demo/family"  # the default settings have no name, so the best run is printed as changes to this recipe
DAY = 24 * 3600.0
BAR_STEPS = 100_000
TRIALS = 20


def command(
    data: Annotated[str, typer.Argument(help="A benchmark, a folder with train/valid/test, a file or an archive.")],
    grid: Annotated[bool, typer.Option("--grid", help="Train every combination of the choices.")] = False,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="The recipe to start from; by default chosen by the graph's size (--grid: the paper's D4-Gumbel)."
        ),
    ] = None,
    choose: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V1,V2,...", help="Values to search; KEY may be lr and, with --grid, seed; repeatable."
        ),
    ] = None,
    set_: Settings = None,
    trials: Annotated[
        int | None, typer.Option(help=f"Total number of trials; by default {TRIALS}, or no limit with --minutes.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Start no trial after this many minutes.")] = None,
    workers: Annotated[int | None, typer.Option(help="Number of concurrent trials; by default 1.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the search; by default out/tune/DATA.")] = None,
    log: Annotated[Path | None, typer.Option(help="The log of --grid; by default out/tune/DATA.jsonl.")] = None,
    seed: Seed = 0,
    device: Device = "auto",
    top: Annotated[int, typer.Option(min=1, help="Number of rows in the table.")] = 20,
    columns: Columns = None,
    verbose: Verbose = False,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Search settings by valid MRR; the same command resumes an interrupted search.

    Example: dihedral tune umls --trials 20 --workers 2

    Example: dihedral tune umls --grid --choose K=4,6 --choose lr=0.1,0.5 --set epochs=40
    """
    choices, settings = parse_choices(choose or []), parse_settings(set_ or [])
    given = {"--trials": trials, "--minutes": minutes, "--workers": workers, "--out": out} if grid else {"--log": log}
    if also := [name for name, value in given.items() if value is not None]:
        reason = "--grid trains every combination" if grid else "without it, --out names the folder of the search"
        raise DihedralError(f"{also[0]} works only {'without' if grid else 'with'} --grid: {reason}")
    options = {"columns": columns, "seed": seed or None, "device": None if device == "auto" else device}
    if grid:
        graph = read_data(data, columns)
        by_grid(graph, data, recipe, choices, settings, log, options, top, json)
        return
    named = load_recipe(recipe).changed(settings) if recipe is not None else None
    graph = read_data(data, columns)
    base = named or choose_for(graph, settings, device)
    space = make_space(base, choices, fixed=tuple(settings))
    task = Search(graph, base, space, out or Path("out/tune") / graph.name, seed=seed, device=device)
    trials = trials if trials is not None or minutes is not None else TRIALS
    limits = {"trials": trials, "minutes": minutes, "workers": 1 if workers is None else workers}
    by_trials(task, data, limits, options, top, json)


def by_trials(task: Search, data: str, limits: dict[str, Any], options: dict[str, Any], top: int, json: bool) -> None:
    """Search with Optuna, then print the table and draw the figures."""
    remark(f"{task.graph!r}, recipe {task.recipe.name}, seed {task.seed}; searching {', '.join(task.space)}")
    bar = TrialBar(task.folder, limits["trials"], limits["minutes"])
    with bar.shown(lambda: f"{bar.done} finished trials are in {task.folder}"):
        rows = search(task, **limits, callback=bar.on_event, on_tick=bar.on_tick)
    failed = [row for row in rows if row["state"] == "failed"]
    if not rows or rows[0]["state"] != "complete":
        reason = f"; the first of {len(failed)} errors: {failed[0]['failed']}" if failed else ""
        raise TrainingError(f"no trial completed{reason}")
    print_trials(rows, top, json)
    if failed:
        remark(f"{len(failed)} of {len(rows)} trials failed; the first: {failed[0]['failed']}")
    from dihedral.figures.tuning import draw_search

    drawn = draw_search(open_study(task), task.folder)
    remark(f"figures: {', '.join(map(str, drawn))}")
    if not json:
        words = ["dihedral", "train", data, "--recipe", str(task.best), *option_words(options)]
        say(f"\nto train the best settings:\n{shlex.join([*words, '--out', str(task.folder / 'model')])}")


def print_trials(rows: list[Row], top: int, json: bool) -> None:
    """Print one line per trial, at most `top`; all of them as JSON."""
    shown = []
    for row in rows[:top]:
        settings = " ".join(f"{key}={value}" for key, value in row["changes"].items())
        mrr = "-" if row["valid_mrr"] is None else row["valid_mrr"]
        seconds = f"{row['seconds']:.1f}" if "seconds" in row else "-"
        shown.append([settings, mrr, row["state"], row.get("best_epoch", "-"), seconds, row["trial"]])
    print_found(json, rows, ["settings", "valid MRR", "state", "best epoch", "seconds", "trial"], shown)


def by_grid(
    graph: Graph,
    data: str,
    recipe: str | None,
    choices: Choices,
    settings: dict[str, str],
    log: Path | None,
    options: dict[str, Any],
    top: int,
    json: bool,
) -> None:
    """Search over a grid, then print the table."""
    default = f"paper/{graph.name.lower()}-d4-gumbel"
    name = recipe or (default if default in recipe_names() else None)
    base = (load_recipe(name) if name else Recipe()).replace(**settings)
    choices = choices or paper_grid(base)
    log = log or Path("out/tune") / f"{graph.name}.jsonl"
    seed = options["seed"] or 0
    remark(f"{graph!r}, {f'recipe {name}' if name else 'default settings'}, seed {seed}")
    bar = GridBar(log)
    hooks: dict[str, Any] = {"callback": bar.on_event, "on_start": bar.on_start, "on_row": lambda row: bar.add([row])}
    with bar.shown(lambda: f"{bar.done} of {bar.total} combinations are in {log}"):
        rows = grid_search(graph, base, choices, log, device=options["device"] or "auto", seed=seed, **hooks)
    print_rows(rows, top, json)
    failed = [row for row in rows if "failed" in row]
    if len(failed) == len(rows):
        raise TrainingError(f"no run completed; the first of {len(failed)} errors: {failed[0]['failed']}")
    if failed:
        remark(f"{len(failed)} of {len(rows)} runs failed; the first: {failed[0]['failed']}")
    if not json:
        options = {**options, "seed": rows[0]["seed"] or None}
        say(f"\nto train the best settings:\n{retrain(data, name, rows[0], log, options)}")


def parse_choices(choices: list[str]) -> dict[str, list[str]]:
    """Parse KEY=V1,V2,... strings; a repeated key collects all its values."""
    parsed: dict[str, list[str]] = {}
    for choice in choices:
        key, equals, values = choice.partition("=")
        if not equals:
            raise DihedralError(f"--choose got {choice!r}; write KEY=V1,V2,..., such as K=4,6")
        parsed.setdefault(key.strip(), []).extend(value.strip() for value in values.split(","))
    return parsed


def print_rows(rows: list[Row], top: int, json: bool) -> None:
    """Print one line per run, at most `top`, with the settings that vary; all of them as JSON."""
    varied = [key for key in rows[0]["changes"] if len({row["changes"][key] for row in rows}) > 1]
    shown = []
    for row in rows[:top]:
        settings = [str(row["changes"][key]) for key in varied]
        valid = "failed" if "failed" in row else row["valid"]["mrr"]
        test = [row[split]["mrr"] if row.get(split) else "-" for split in ("test", "test_seen_only")]
        shown.append([*settings, valid, *test, row.get("best_epoch", "-"), f"{row['seconds']:.1f}"])
    print_found(json, rows, [*varied, "valid MRR", "test MRR", "seen-only MRR", "best epoch", "seconds"], shown)


def retrain(data: str, recipe: str | None, row: Row, log: Path, options: dict[str, Any]) -> str:
    """Return the command that trains the model of a row."""
    name = recipe or NAMED_BASE
    base, target = load_recipe(name).to_dict(), Recipe.from_dict(row["recipe"]).to_dict()
    words = ["dihedral", "train", data, "--recipe", name]
    for key, value in target.items():
        if value != base[key] and key not in ("name", "about"):
            words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return shlex.join([*words, *option_words(options), "--out", str(log.with_name(f"{log.stem}-best"))])


def option_words(options: dict[str, Any]) -> list[str]:
    return [word for key, value in options.items() if value is not None for word in (f"--{key}", str(value))]


class SearchBar(ABC):
    """A progress bar with the best valid MRR and the remaining time."""

    def __init__(self) -> None:
        self.done, self.best = 0, -1.0
        columns = "{task.fields[done]}", BarColumn(bar_width=24), "best valid MRR {task.fields[best]}"
        times = TimeElapsedColumn(), "remaining", TimeRemainingColumn()
        # runs take minutes: the default of 30 seconds would forget them
        self.bar = progress_bar(*columns, *times, speed_estimate_period=DAY)

    @contextmanager
    def shown(self, finished: Callable[[], str]) -> Iterator[None]:
        """Show the bar; after Ctrl-C, print what is finished and how to resume."""
        try:
            with self.bar:
                yield
        except KeyboardInterrupt:
            remark(f"interrupted; {finished()}: resume with the same command")
            raise typer.Exit(1) from None

    @abstractmethod
    def draw(self, current: float = 0.0) -> None:
        """Show the finished runs and the part of the current run that is done."""

    def on_event(self, event: Event) -> None:
        if event["event"] == "epoch":
            self.draw(event["epoch"] / event["epochs"])

    def show(self, share: float, done: str) -> None:
        best, steps = f"{self.best:.4f}" if self.best >= 0 else "-", round(BAR_STEPS * share)
        if not self.bar.tasks:  # resumed runs are complete from the start, so the speed estimate leaves them out
            self.bar.add_task("", total=BAR_STEPS, completed=steps, done=done, best=best)
        self.bar.update(self.bar.task_ids[0], completed=steps, done=done, best=best)


class GridBar(SearchBar):
    """Progress over the combinations of a grid."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log, self.total = log, 0

    def on_start(self, found: list[Row], total: int) -> None:
        self.total = total
        new = f"{total} combinations, logged in {self.log}"
        remark(f"{len(found)} of {total} combinations are already in {self.log}" if found else new)
        self.add(found)

    def add(self, rows: list[Row]) -> None:
        self.done += len(rows)
        self.best = max([self.best, *(row.get("valid", {}).get("mrr", -1.0) for row in rows)])
        self.draw()

    def draw(self, current: float = 0.0) -> None:
        self.show((self.done + current) / self.total, f"{self.done}/{self.total}")


class TrialBar(SearchBar):
    """Progress over the trials of a search, by their number or by time."""

    def __init__(self, folder: Path, trials: int | None, minutes: float | None) -> None:
        super().__init__()
        self.folder, self.trials, self.started = folder, trials, time.monotonic()
        self.seconds = 60 * minutes if minutes is not None else None

    def on_tick(self, rows: list[Row]) -> None:
        self.done = len(rows)
        self.best = max((row["valid_mrr"] for row in rows if row["state"] == "complete"), default=-1.0)
        if not self.bar.tasks:
            remark(f"the trials are in {self.folder}" + (f" ({self.done} found)" if rows else ""))
        self.draw()

    def draw(self, current: float = 0.0) -> None:
        by_trials = (self.done + current) / self.trials if self.trials else 0.0
        by_time = (time.monotonic() - self.started) / self.seconds if self.seconds else 0.0
        self.show(min(1.0, max(by_trials, by_time)), f"{self.done}/{self.trials or '?'} trials")
