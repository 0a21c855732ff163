"""`dihedral tune`: search settings with Optuna or over a grid, and print the command that trains the best."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TimeElapsedColumn, TimeRemainingColumn

from dihedral.cli.options import Columns, Data, Device, Json, Seed, Settings, Verbose, Wide
from dihedral.cli.output import print_found, progress_bar, read_data, remark, say
from dihedral.cli.training import choose_for, parse_settings
from dihedral.errors import DihedralError, TrainingError
from dihedral.graph import Graph
from dihedral.learn import Recipe, load_recipe, recipe_names
from dihedral.learn.loop import Event
from dihedral.tune.grid import Choices, Row, grid_search, paper_grid, plan, valid_mrr
from dihedral.tune.optuna_search import Search, make_space, open_study, search

NAMED_BASE = "demo/family"  # the default settings have no name, so the best run is printed as changes to this recipe
DAY = 24 * 3600.0
BAR_STEPS = 100_000
TRIALS = 20


def tune_command(
    data: Data,
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
    choices = parse_choices(choose or [])
    settings = parse_settings(set_ or [])
    given = {"--trials": trials, "--minutes": minutes, "--workers": workers, "--out": out} if grid else {"--log": log}
    if also := [name for name, value in given.items() if value is not None]:
        reason = "--grid trains every combination" if grid else "without it, --out names the folder of the search"
        raise DihedralError(f"{also[0]} works only {'without' if grid else 'with'} --grid: {reason}")
    named = load_recipe(recipe).changed(settings) if recipe is not None and not grid else None
    graph = read_data(data, columns)
    train = Retraining(data, columns, seed, device)
    if grid:
        by_grid(graph, train, recipe, choices, settings, log or Path("out/tune") / f"{graph.name}.jsonl", top, json)
        return
    base = named or choose_for(graph, settings, device)
    space = make_space(base, choices, fixed=tuple(settings))
    task = Search(graph, base, space, out or Path("out/tune") / graph.name, seed=seed, device=device)
    trials = TRIALS if trials is None and minutes is None else trials
    by_trials(task, train, trials, minutes, 1 if workers is None else workers, top, json)


@dataclass(frozen=True)
class Retraining:
    """The options of the search that the printed command, which trains the best settings, repeats."""

    data: str
    columns: str | None = None
    seed: int = 0
    device: str = "auto"

    def command(self, recipe: str, settings: Mapping[str, Any], out: Path) -> str:
        words = ["dihedral", "train", self.data, "--recipe", recipe]
        for key, value in settings.items():
            words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
        words += ["--columns", self.columns] if self.columns else []
        words += ["--seed", str(self.seed)] if self.seed else []
        words += ["--device", self.device] if self.device != "auto" else []
        return shlex.join([*words, "--out", str(out)])


def by_trials(
    task: Search, train: Retraining, trials: int | None, minutes: float | None, workers: int, top: int, json: bool
) -> None:
    """Search with Optuna, then print the table and draw the figures."""
    remark(f"{task.graph!r}, recipe {task.recipe.name}, seed {task.seed}; searching {', '.join(task.space)}")
    bar = SearchBar(" trials", trials, minutes)

    def on_tick(rows: list[Row]) -> None:
        if not bar.started:
            remark(f"the trials are in {task.folder}" + (f" ({len(rows)} found)" if rows else ""))
        bar.update([row["valid_mrr"] if row["state"] == "complete" else -1.0 for row in rows])

    with bar.shown(lambda: f"{bar.done} finished trials are in {task.folder}"):
        rows = search(
            task, trials=trials, minutes=minutes, workers=workers, callback=bar.on_event, on_tick=on_tick
        )  # fmt: skip
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
        say(f"\nto train the best settings:\n{train.command(str(task.best), {}, task.folder / 'model')}")


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
    graph: Graph, train: Retraining, recipe: str | None, choices: Choices, settings: Mapping[str, str], log: Path,
    top: int, json: bool,
) -> None:  # fmt: skip
    """Search over a grid, then print the table."""
    default = f"paper/{graph.name.lower()}-d4-gumbel"
    name = recipe or (default if default in recipe_names() else None)
    base = (load_recipe(name) if name else Recipe()).replace(**settings)
    remark(f"{graph!r}, {f'recipe {name}' if name else 'default settings'}, seed {train.seed}")
    planned = plan(graph, base, choices or paper_grid(base), train.seed)
    total = len(planned)
    bar = SearchBar("", total)

    def on_tick(rows: list[Row]) -> None:
        if not bar.started:
            new = f"{total} combinations, logged in {log}"
            remark(f"{len(rows)} of {total} combinations are already in {log}" if rows else new)
        bar.update([valid_mrr(row) for row in rows])

    with bar.shown(lambda: f"{bar.done} of {total} combinations are in {log}"):
        rows = grid_search(graph, planned, log, device=train.device, callback=bar.on_event, on_tick=on_tick)
    print_rows(rows, top, json)
    failed = [row for row in rows if "failed" in row]
    if len(failed) == len(rows):
        raise TrainingError(f"no run completed; the first of {len(failed)} errors: {failed[0]['failed']}")
    if failed:
        remark(f"{len(failed)} of {len(rows)} runs failed; the first: {failed[0]['failed']}")
    if not json:
        say(f"\nto train the best settings:\n{retrain(train, name, rows[0], log)}")


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


def retrain(train: Retraining, recipe: str | None, row: Row, log: Path) -> str:
    """The command that trains the model of a row."""
    name = recipe or NAMED_BASE
    base, target = load_recipe(name).to_dict(), Recipe.from_dict(row["recipe"]).to_dict()
    changed = {key: value for key, value in target.items() if value != base[key] and key not in ("name", "about")}
    return replace(train, seed=row["seed"]).command(name, changed, log.with_name(f"{log.stem}-best"))


class SearchBar:
    """A progress bar over runs, by their number or by time, with the best valid MRR and the remaining time."""

    def __init__(self, unit: str, total: int | None, minutes: float | None = None) -> None:
        self.unit, self.total, self.start = unit, total, time.monotonic()
        self.seconds = 60 * minutes if minutes is not None else None
        self.done, self.best = 0, -1.0
        columns = "{task.fields[done]}", BarColumn(bar_width=24), "best valid MRR {task.fields[best]}"
        times = TimeElapsedColumn(), "remaining", TimeRemainingColumn()
        # runs take minutes: the default of 30 seconds would forget them
        self.bar = progress_bar(*columns, *times, speed_estimate_period=DAY)

    @property
    def started(self) -> bool:
        return bool(self.bar.tasks)

    @contextmanager
    def shown(self, finished: Callable[[], str]) -> Iterator[None]:
        """Show the bar; after Ctrl-C, print what is finished and how to resume."""
        try:
            with self.bar:
                yield
        except KeyboardInterrupt:
            remark(f"interrupted; {finished()}: resume with the same command")
            raise typer.Exit(1) from None

    def update(self, found: list[float]) -> None:
        """Show the valid MRR of the finished runs; -1 for those without one."""
        self.done, self.best = len(found), max(found, default=-1.0)
        self.draw()

    def on_event(self, event: Event) -> None:
        if event["event"] == "epoch":
            self.draw(event["epoch"] / event["epochs"])

    def draw(self, current: float = 0.0) -> None:
        """current: the part of the current run that is done."""
        by_runs = (self.done + current) / self.total if self.total else 0.0
        by_time = (time.monotonic() - self.start) / self.seconds if self.seconds else 0.0
        best, steps = f"{self.best:.4f}" if self.best >= 0 else "-", round(BAR_STEPS * min(1.0, max(by_runs, by_time)))
        done = f"{self.done}/{self.total or '?'}{self.unit}"
        if not self.started:  # resumed runs are complete from the start, so the speed estimate leaves them out
            self.bar.add_task("", total=BAR_STEPS, completed=steps, done=done, best=best)
        self.bar.update(self.bar.task_ids[0], completed=steps, done=done, best=best)
