"""`dihedral tune`: a grid search, its table, and the command that trains the winner."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dihedral.cli.output import Columns, Json, notes, print_json, print_table, read_data, remark, say
from dihedral.cli.train import parse_settings
from dihedral.errors import DihedralError, TrainingError
from dihedral.training import Recipe, load_recipe, recipe_names
from dihedral.training.loop import Event
from dihedral.training.tune import Row, paper_grid, tune

NAMED_BASE = "demo/family"  # `dihedral train` wants a recipe's name: the default settings are written as changes to it
DAY = 24 * 3600.0


def command(
    data: Annotated[str, typer.Argument(help="A benchmark, a folder with train/valid/test, a file or an archive.")],
    grid: Annotated[bool, typer.Option("--grid", help="Train every combination of the choices.")] = False,
    recipe: Annotated[
        str | None, typer.Option(help="The settings around the grid; by default the paper's D4-Gumbel for DATA.")
    ] = None,
    choose: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V1,V2,...", help="A setting to search, also lr and seed; none: the paper's grid."),
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting.")] = None,
    log: Annotated[Path | None, typer.Option(help="Where runs are logged; by default out/tune/DATA.jsonl.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of initialisation, order and sampling.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    top: Annotated[int, typer.Option(min=1, help="How many runs the table shows.")] = 20,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Search settings, select on valid; runs that the log holds are not trained again.

    Example: dihedral tune umls --grid --choose K=4,6 --choose lr=0.1,0.5 --set epochs=40
    """
    if not grid:
        raise DihedralError("the search by grid is the only one there is: add --grid")
    choices, settings = parse_choices(choose or []), parse_settings(set_ or [])
    graph = read_data(data, columns)
    default = f"paper/{graph.name.lower()}-d4-gumbel"
    name = recipe or (default if default in recipe_names() else None)
    base = (load_recipe(name) if name else Recipe()).replace(**settings)
    choices = choices or paper_grid(base)
    log = log or Path("out/tune") / f"{graph.name}.jsonl"
    remark(f"{graph!r}, {f'recipe {name}' if name else 'default settings'}, seed {seed}")
    search = SearchBar(log)
    try:
        with search.bar:
            rows = tune(
                graph,
                base,
                choices,
                log,
                device=device,
                seed=seed,
                callback=search.on_event,
                on_start=search.on_start,
                on_row=search.on_row,
            )
    except KeyboardInterrupt:
        remark(f"stopped; {search.done} of {search.total} combinations are in {log}: go on with the same command")
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
        options = {"columns": columns, "seed": rows[0]["seed"] or None, "device": None if device == "auto" else device}
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
    for key, value in options.items():
        if value is not None:
            words += [f"--{key}", str(value)]
    return shlex.join([*words, "--out", str(log.with_name(f"{log.stem}-best"))])


class SearchBar:
    """Combinations done, the best valid MRR and the time left, on stderr where that is a terminal."""

    def __init__(self, log: Path) -> None:
        self.log, self.done, self.total, self.best = log, 0, 0, -1.0
        self.bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("best valid MRR {task.fields[best]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=notes,
            disable=not sys.stderr.isatty(),
            speed_estimate_period=DAY,  # runs take minutes: the usual 30 seconds would forget every one
        )

    def on_start(self, found: list[Row], total: int) -> None:
        self.total = total
        if found:
            remark(f"{len(found)} of {total} combinations are in {self.log} already")
        else:
            remark(f"{total} combinations, to be logged in {self.log}")
        self.task = self.bar.add_task("", total=total, best="-")
        for row in found:
            self.on_row(row)
        self.bar.reset(self.task, completed=self.done)  # what was found took no time

    def on_event(self, event: Event) -> None:
        if event["event"] == "epoch":
            self.bar.update(self.task, completed=self.done + event["epoch"] / event["epochs"])

    def on_row(self, row: Row) -> None:
        self.done += 1
        self.best = max(self.best, row.get("valid", {}).get("mrr", -1.0))
        self.bar.update(self.task, completed=self.done, best=f"{self.best:.4f}" if self.best >= 0 else "-")
