"""`dihedral tune`: search settings with Optuna or over a grid, and print the command that trains the best."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, TimeElapsedColumn

from dihedral.cli.options import Columns, Data, Device, Json, Seed, Settings, Verbose, Wide
from dihedral.cli.output import print_found, progress_bar, read_data, remark, say
from dihedral.cli.training import choose_for, parse_settings
from dihedral.errors import DihedralError, TrainingError
from dihedral.graph import Graph
from dihedral.learn import Recipe, load_recipe, recipe_names
from dihedral.tune.search import Row, Search, open_study, search
from dihedral.tune.space import make_space, paper_grid

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
    workers: Annotated[int, typer.Option(help="Number of concurrent trials.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the search; by default out/tune/DATA, or out/tune/DATA-grid.")
    ] = None,
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
    choices, settings = _parse_choices(choose or []), parse_settings(set_ or [])
    named = load_recipe(recipe).changed(settings) if recipe is not None else None
    graph = read_data(data, columns)
    if named is None:
        named = _paper_recipe(graph).changed(settings) if grid else choose_for(graph, settings, device)
    chosen = choices or (paper_grid(named) if grid else {})
    space = make_space(named, chosen, fixed=tuple(settings), grid=grid)
    folder = out or Path("out/tune") / (f"{graph.name}-grid" if grid else graph.name)
    task = Search(graph, named, space, folder, seed=seed, device=device, grid=grid)
    trials = TRIALS if trials is None and minutes is None and not grid else trials
    rows = _search(task, trials, minutes, workers)
    _report(task, rows, top, json)
    if not json:
        words = ["dihedral", "train", data, "--recipe", str(task.best)]
        words += ["--columns", columns] if columns else []
        best_seed = rows[0]["changes"].get("seed", seed)
        words += ["--seed", str(best_seed)] if best_seed else []
        words += ["--device", device] if device != "auto" else []
        say(f"\nto train the best settings:\n{shlex.join([*words, '--out', str(folder / 'model')])}")


def _paper_recipe(graph: Graph) -> Recipe:
    """The paper's D4-Gumbel recipe for a benchmark, or the default settings."""
    name = f"paper/{graph.name.lower()}-d4-gumbel"
    return load_recipe(name) if name in recipe_names() else Recipe(name="default settings")


def _parse_choices(choices: list[str]) -> dict[str, list[str]]:
    """Parse KEY=V1,V2,... strings; a repeated key collects all its values."""
    parsed: dict[str, list[str]] = {}
    for choice in choices:
        key, equals, values = choice.partition("=")
        if not equals:
            raise DihedralError(f"--choose got {choice!r}; write KEY=V1,V2,..., such as K=4,6")
        parsed.setdefault(key.strip(), []).extend(value.strip() for value in values.split(","))
    return parsed


def _search(task: Search, trials: int | None, minutes: float | None, workers: int) -> list[Row]:
    """Search with a progress bar; after Ctrl-C, print how to resume."""
    remark(f"{task.graph!r}, recipe {task.recipe.name}, seed {task.seed}; searching {', '.join(task.space)}")
    columns = "{task.completed} trials", BarColumn(), "best valid MRR {task.fields[best]}", TimeElapsedColumn()
    with progress_bar(*columns) as bar:
        shown = bar.add_task("", total=min(trials or task.size, task.size), best="-", start=False)

        def on_tick(rows: list[Row]) -> None:
            if not bar.tasks[0].started:
                remark(f"the trials are in {task.folder}" + (f" ({len(rows)} found)" if rows else ""))
                bar.start_task(shown)
            best = rows[0]["valid_mrr"] if rows else None
            bar.update(shown, completed=len(rows), best="-" if best is None else f"{best:.4f}")

        try:
            return search(task, trials=trials, minutes=minutes, workers=workers, on_tick=on_tick)
        except KeyboardInterrupt:
            done = f"{bar.tasks[0].completed:.0f} finished trials are in {task.folder}"
            remark(f"interrupted; {done}: resume with the same command")
            raise typer.Exit(1) from None


def _report(task: Search, rows: list[Row], top: int, json: bool) -> None:
    """Print one line per trial, at most `top`, or all of them as JSON, and draw the figures."""
    failed = [row for row in rows if row["state"] == "failed"]
    if not rows or rows[0]["state"] != "complete":
        reason = f"; the first of {len(failed)} errors: {failed[0]['failed']}" if failed else ""
        raise TrainingError(f"no trial completed{reason}")
    shown = []
    for row in rows[:top]:
        settings = " ".join(f"{key}={value}" for key, value in row["changes"].items())
        mrr = "-" if row["valid_mrr"] is None else row["valid_mrr"]
        seconds = f"{row['seconds']:.1f}" if "seconds" in row else "-"
        shown.append([settings, mrr, row["state"], row.get("best_epoch", "-"), seconds, row["trial"]])
    print_found(json, rows, ["settings", "valid MRR", "state", "best epoch", "seconds", "trial"], shown)
    if failed:
        remark(f"{len(failed)} of {len(rows)} trials failed; the first: {failed[0]['failed']}")
    from dihedral.figures.tuning import draw_search

    drawn = draw_search(open_study(task), task.folder)
    remark(f"figures: {', '.join(map(str, drawn))}")
