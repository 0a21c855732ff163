"""`python -m paper`: reproduce the paper's tables and figures, with our numbers next to the paper's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

from dihedral.cli.output import progress_bar, remark, say
from dihedral.errors import DihedralError, close_matches
from dihedral.runtime.device import choose_device
from paper.page import files_of, write_page, write_target
from paper.plan import TARGETS, plan
from paper.runs import Record, Run, find_record, perform_all


def command(
    what: Annotated[str, typer.Argument(help=f"{', '.join(TARGETS)}, or all.")],
    out: Annotated[Path, typer.Option(help="The folder for tables and figures.")] = Path("out/paper"),
    results: Annotated[Path, typer.Option(help="The folder for records of finished runs.")] = Path("results"),
    quick: Annotated[bool, typer.Option("--quick", help="Small runs: minutes on a CPU, stored in OUT.")] = False,
    seeds: Annotated[int, typer.Option(help="Seeds per recipe, from 0.")] = 3,
    only: Annotated[
        list[str] | None, typer.Option(help="Only runs whose name starts with this, such as best/wn18; repeatable.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="With `all`: write one page, such as results.md, with its files in results-files."),
    ] = None,
    train: Annotated[bool, typer.Option(help="Whether to train missing runs.")] = True,
    workers: Annotated[int, typer.Option(help="Number of concurrent runs, each in its own process.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Train missing runs, then write the tables (Markdown, JSON) and figures (PNG, SVG).

    Example: python -m paper figure4 --quick
    """
    _check(what, quick, page, seeds=seeds, workers=workers)
    choose_device(device)  # an unavailable device fails before anything else
    targets = TARGETS if what == "all" else (what,)
    if quick:
        results, seeds = out / "quick", 1
    runs = unique([run for target in targets for run in plan(target, seeds, quick=quick)])
    if only:
        runs = [run for run in runs if run.name.removeprefix("quick-").startswith(tuple(only))]
        if not runs:
            raise DihedralError(f"--only {' '.join(only)} matches no run of {what}; names start like best/wn18")
    missing = [run for run in runs if find_record(run, results / "runs") is None]
    remark(f"{len(runs) - len(missing)} of {len(runs)} runs are in {results / 'runs'}")
    if runs and len(missing) == len(runs) and not train:
        raise DihedralError(f"{str(results / 'runs')!r} holds no run of {what}; leave out --no-train to train them")
    failed = 0
    if missing and train:
        try:
            failed = _train(missing, results / "runs", device, workers)
        except KeyboardInterrupt:
            remark(f"interrupted; finished runs are in {results / 'runs'}: resume with the same command")
            raise typer.Exit(1) from None
    if page is not None:
        say(f"wrote {write_page(results, page, seeds=seeds)} and the folder {files_of(page)}")
    else:
        for target in targets:
            for path in write_target(target, results, out, seeds=seeds, quick=quick):
                say(f"wrote {path}")
    if failed:
        raise typer.Exit(1)


def _check(what: str, quick: bool, page: Path | None, **counts: int) -> None:
    if what not in (*TARGETS, "all"):
        raise DihedralError(f"{what!r} is unknown; choose {', '.join(TARGETS)} or all{close_matches(what, TARGETS)}")
    for name, value in counts.items():
        if value < 1:
            raise DihedralError(f"{name} is {value}; it must be 1 or more")
    if page is not None and (what != "all" or quick or page.suffix != ".md"):
        raise DihedralError(f"--page is {str(page)!r}; it must be a .md file, with `all` and without --quick")
    if quick and what in ("discreteness", "small"):
        raise DihedralError(f"{what} has no quick version; leave out --quick")


def unique(runs: list[Run]) -> list[Run]:
    """Return each run once, with the studies of all its targets."""
    merged: dict[str, Run] = {}
    for run in runs:
        studies = {*run.studies, *(merged[run.name].studies if run.name in merged else ())}
        merged[run.name] = Run(run.graph, run.recipe, run.seed, tuple(sorted(studies)))
    return list(merged.values())


def _train(runs: list[Run], folder: Path, device: str, workers: int) -> int:
    """Train the runs and return the number that failed."""
    failed: list[str] = []
    started = time.perf_counter()
    with progress_bar("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("runs", total=len(runs))
        remark(f"training {len(runs)} runs")

        def event(run: Run, content: dict[str, Any]) -> None:
            if content["event"] == "epoch":
                bar.update(task, description=f"{run.name}, epoch {content['epoch']} of {content['epochs']}")

        def done(run: Run, outcome: Record | str) -> None:
            bar.advance(task)
            if isinstance(outcome, str):
                failed.append(f"{run.name}: {outcome}")
                remark(f"failed: {failed[-1]}", style="red")
                return
            mrr = {split: outcome[split]["both"]["mrr"] for split in ("valid", "test")}
            scores = f"valid {mrr['valid']:.4f}, test {mrr['test']:.4f}"
            remark(f"{time.perf_counter() - started:5.0f} s  {run.name}: {scores}, {outcome['seconds']:.0f} s")

        perform_all(runs, folder, device=device, workers=workers, on_event=event, on_done=done)
    if failed:
        remark(f"{len(failed)} of {len(runs)} runs failed; the others are kept", style="red")
    return len(failed)
