"""`dihedral tune`: a search by trials or a grid, its table, and the command that trains the winner."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dihedral.cli.output import Columns, Json, notes, print_json, print_table, read_data, remark, say
from dihedral.cli.train import choose_for, parse_settings
from dihedral.errors import DihedralError, TrainingError
from dihedral.graph import Graph
from dihedral.training import Recipe, load_recipe, recipe_names
from dihedral.training.loop import Event
from dihedral.tuning.grid import Choices, Row, paper_grid, tune
from dihedral.tuning.optuna_search import Search, make_space, open_study, search

NAMED_BASE = "demo/family"  # a grid's winner is written as changes to a named recipe: the default settings have none
DAY = 24 * 3600.0
PARTS = 100_000  # of a bar
TRIALS = 20


def command(
    data: Annotated[str, typer.Argument(help="A benchmark, a folder with train/valid/test, a file or an archive.")],
    grid: Annotated[bool, typer.Option("--grid", help="Train every combination of the choices.")] = False,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="The settings to start from; by default chosen by the graph's size (--grid: the paper's D4-Gumbel)."
        ),
    ] = None,
    choose: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V1,V2,...", help="A setting to search, also lr (with --grid, seed too)."),
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Fix a setting.")] = None,
    trials: Annotated[
        int | None, typer.Option(help=f"End with so many trials; {TRIALS} where no --minutes are given.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Begin no trial after so many minutes.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that train at the same time; by default 1.")] = None,
    out: Annotated[Path | None, typer.Option(help="The search's folder; by default out/tune/DATA.")] = None,
    log: Annotated[Path | None, typer.Option(help="--grid: where runs are logged; out/tune/DATA.jsonl.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of initialisation, order and sampling.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    top: Annotated[int, typer.Option(min=1, help="How many runs the table shows.")] = 20,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Search settings, select on valid; the same command again goes on where it was stopped.

    Example: dihedral tune umls --trials 20 --workers 2

    Example: dihedral tune umls --grid --choose K=4,6 --choose lr=0.1,0.5 --set epochs=40
    """
    choices, settings = parse_choices(choose or []), parse_settings(set_ or [])
    given = {"--trials": trials, "--minutes": minutes, "--workers": workers, "--out": out} if grid else {"--log": log}
    if also := [name for name, value in given.items() if value is not None]:
        there = "--grid trains every combination" if grid else "runs are logged in the folder --out"
        raise DihedralError(f"{also[0]} {'does not go' if grid else 'goes only'} with --grid: {there}")
    options = {"columns": columns, "seed": seed or None, "device": None if device == "auto" else device}
    if grid:
        graph = read_data(data, columns)
        by_grid(graph, data, recipe, choices, settings, log, options, top, json)
        return
    named = load_recipe(recipe).changed(settings) if recipe is not None else None
    graph = read_data(data, columns)
    base = named or choose_for(graph, settings)
    space = make_space(base, choices, fixed=tuple(settings))
    task = Search(graph, base, space, out or Path("out/tune") / graph.name, seed=seed, device=device)
    trials = trials if trials is not None or minutes is not None else TRIALS
    by_trials(task, data, trials, minutes, 1 if workers is None else workers, options, top, json)


def by_trials(
    task: Search,
    data: str,
    trials: int | None,
    minutes: float | None,
    workers: int,
    options: dict[str, Any],
    top: int,
    json: bool,
) -> None:
    """Search by Optuna, then write pictures and a table."""
    remark(f"{task.graph!r}, around recipe {task.recipe.name}, seed {task.seed}; searched: {', '.join(task.space)}")
    bar = TrialBar(task.folder, trials, minutes)
    try:
        with bar.bar:
            rows = search(
                task,
                trials=trials,
                minutes=minutes,
                workers=workers,
                callback=bar.on_event,
                on_tick=bar.on_tick,
            )
    except KeyboardInterrupt:
        remark(f"stopped; finished trials are kept in {task.folder} ({bar.done}): go on with the same command")
        raise typer.Exit(1) from None
    failed = [row for row in rows if row["state"] == "failed"]
    if not rows or rows[0]["state"] != "complete":
        reason = f"; the first of {len(failed)}: {failed[0]['failed']}" if failed else ""
        raise TrainingError(f"no trial ended well{reason}")
    if json:
        print_json(rows)
    else:
        print_trials(rows, top)
    if failed:
        remark(f"{len(failed)} of {len(rows)} trials failed; the first: {failed[0]['failed']}")
    from dihedral.figures.search import draw_search

    drawn = draw_search(open_study(task), task.folder)
    remark(f"pictures: {', '.join(map(str, drawn))}")
    if not json:
        words = ["dihedral", "train", data, "--recipe", str(task.best), *option_words(options)]
        say(f"\ntrain the best again:\n{shlex.join([*words, '--out', str(task.folder / 'model')])}")


def print_trials(rows: list[Row], top: int) -> None:
    """A line for each of the first trials."""
    print_table(
        "",
        ["settings", "valid MRR", "ended", "best epoch", "seconds", "trial"],
        [
            [
                " ".join(f"{key}={value}" for key, value in row["changes"].items()),
                row["valid_mrr"] if row["valid_mrr"] is not None else "-",
                {"complete": "well", "pruned": "early", "failed": "failed"}[row["state"]],
                row.get("best_epoch", "-"),
                f"{row['seconds']:.1f}" if "seconds" in row else "-",
                row["trial"],
            ]
            for row in rows[:top]
        ],
    )


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
    """Train every combination."""
    default = f"paper/{graph.name.lower()}-d4-gumbel"
    name = recipe or (default if default in recipe_names() else None)
    base = (load_recipe(name) if name else Recipe()).replace(**settings)
    choices = choices or paper_grid(base)
    log = log or Path("out/tune") / f"{graph.name}.jsonl"
    seed = options["seed"] or 0
    remark(f"{graph!r}, {f'recipe {name}' if name else 'default settings'}, seed {seed}")
    bar = GridBar(log)
    try:
        with bar.bar:
            rows = tune(
                graph,
                base,
                choices,
                log,
                device=options["device"] or "auto",
                seed=seed,
                callback=bar.on_event,
                on_start=bar.on_start,
                on_row=bar.on_row,
            )
    except KeyboardInterrupt:
        remark(f"stopped; {bar.done} of {bar.total} combinations are in {log}: go on with the same command")
        raise typer.Exit(1) from None
    if json:
        print_json(rows)
    else:
        print_rows(rows, top)
    failed = [row for row in rows if "failed" in row]
    if len(failed) == len(rows):
        raise TrainingError(f"no run ended well; the first of {len(failed)}: {failed[0]['failed']}")
    if failed:
        remark(f"{len(failed)} of {len(rows)} runs failed; the first: {failed[0]['failed']}")
    if not json:
        options = {**options, "seed": rows[0]["seed"] or None}
        say(f"\ntrain the best again:\n{retrain(data, name, rows[0], log, options)}")


def parse_choices(choices: list[str]) -> dict[str, list[str]]:
    """key=value,value pairs; a key that is given twice has the values of both."""
    parsed: dict[str, list[str]] = {}
    for choice in choices:
        key, equals, values = choice.partition("=")
        if not equals:
            raise DihedralError(f"--choose got {choice!r}; write KEY=V1,V2,..., such as K=4,6")
        parsed.setdefault(key.strip(), []).extend(value.strip() for value in values.split(","))
    return parsed


def print_rows(rows: list[Row], top: int) -> None:
    """A line for each of the first runs, with the settings in which the runs differ."""
    varied = [key for key in rows[0]["changes"] if len({row["changes"][key] for row in rows}) > 1]
    print_table(
        "",
        [*varied, "valid MRR", "test MRR", "seen-only MRR", "best epoch", "seconds"],
        [
            [
                *(str(row["changes"][key]) for key in varied),
                "failed" if "failed" in row else row["valid"]["mrr"],
                *(row[split]["mrr"] if row.get(split) else "-" for split in ("test", "test_seen_only")),
                row.get("best_epoch", "-"),
                f"{row['seconds']:.1f}",
            ]
            for row in rows[:top]
        ],
    )


def retrain(data: str, recipe: str | None, row: Row, log: Path, options: dict[str, Any]) -> str:
    """The command that trains a row's model."""
    name = recipe or NAMED_BASE
    base, wanted = load_recipe(name).to_dict(), Recipe.from_dict(row["recipe"]).to_dict()
    words = ["dihedral", "train", data, "--recipe", name]
    for key, value in wanted.items():
        if value != base[key] and key not in ("name", "about"):
            words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return shlex.join([*words, *option_words(options), "--out", str(log.with_name(f"{log.stem}-best"))])


def option_words(options: dict[str, Any]) -> list[str]:
    return [word for key, value in options.items() if value is not None for word in (f"--{key}", str(value))]


class SearchBar:
    """What is done, the best valid MRR and the time left, on stderr where that is a terminal."""

    def __init__(self) -> None:
        self.done, self.best = 0, -1.0
        self.bar = Progress(
            TextColumn("{task.fields[done]}"),
            BarColumn(bar_width=24),
            TextColumn("best valid MRR {task.fields[best]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=notes,
            disable=not sys.stderr.isatty(),
            speed_estimate_period=DAY,  # runs take minutes: the usual 30 seconds would forget every one
        )

    def show(self, share: float, done: str) -> None:
        best, parts = f"{self.best:.4f}" if self.best >= 0 else "-", round(PARTS * share)
        if not self.bar.tasks:
            self.bar.add_task("", total=PARTS, completed=parts, done=done, best=best)  # what was found took no time
        self.bar.update(self.bar.task_ids[0], completed=parts, done=done, best=best)


class GridBar(SearchBar):
    """Combinations of a grid."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log, self.total = log, 0

    def on_start(self, found: list[Row], total: int) -> None:
        self.total = total
        if found:
            remark(f"{len(found)} of {total} combinations are in {self.log} already")
        else:
            remark(f"{total} combinations, to be logged in {self.log}")
        self.done = len(found)
        self.best = max((row.get("valid", {}).get("mrr", -1.0) for row in found), default=-1.0)
        self.draw()

    def on_event(self, event: Event) -> None:
        if event["event"] == "epoch":
            self.draw(event["epoch"] / event["epochs"])

    def on_row(self, row: Row) -> None:
        self.done += 1
        self.best = max(self.best, row.get("valid", {}).get("mrr", -1.0))
        self.draw()

    def draw(self, of_this_run: float = 0.0) -> None:
        self.show((self.done + of_this_run) / self.total, f"{self.done}/{self.total}")


class TrialBar(SearchBar):
    """Trials of a search, which ends with their number or with the time."""

    def __init__(self, folder: Path, trials: int | None, minutes: float | None) -> None:
        super().__init__()
        self.folder, self.trials, self.started = folder, trials, time.monotonic()
        self.seconds = 60 * minutes if minutes is not None else None
        self.told = False

    def on_tick(self, rows: list[Row]) -> None:
        self.done = len(rows)
        self.best = max((row["valid_mrr"] for row in rows if row["state"] == "complete"), default=-1.0)
        if not self.told:
            self.told = True
            remark(f"trials are kept in {self.folder}" + (f" (found: {self.done})" if rows else ""))
        self.draw()

    def on_event(self, event: Event) -> None:
        if event["event"] == "epoch":
            self.draw(event["epoch"] / event["epochs"])

    def draw(self, of_this_trial: float = 0.0) -> None:
        by_trials = (self.done + of_this_trial) / self.trials if self.trials else 0.0
        by_time = (time.monotonic() - self.started) / self.seconds if self.seconds else 0.0
        self.show(min(1.0, max(by_trials, by_time)), f"{self.done}/{self.trials or '?'} trials")
