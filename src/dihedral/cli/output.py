"""Shared by the commands: output as JSON or tables, progress bars, and reading a graph."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from dihedral.graph import Graph, load_graph
from dihedral.graph.sources import ARCHIVES
from dihedral.graph.triples import SPLITS
from dihedral.interpretation.shares import Share
from dihedral.io.text import visible, visible_json

console = Console()
notes = Console(stderr=True)

MAX_CELL = 1000  # characters of a cell in a table
METRICS = ("mrr", "hits@1", "hits@3", "hits@10", "mr")


def say(text: str, style: str | None = None) -> None:
    """Print literal text on stdout: names may contain rich markup and control characters."""
    console.print(Text(visible(text), style=style or ""), soft_wrap=True)


def remark(text: str, style: str | None = None) -> None:
    """Print literal text on stderr."""
    notes.print(Text(visible(text), style=style or ""), soft_wrap=True)


def print_json(content: Any) -> None:
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError:  # NaN or infinity
        text = json.dumps(_without_nan(content), indent=2, ensure_ascii=False)
    print(visible_json(text))


def _without_nan(content: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by null."""
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_without_nan(value) for value in content]
    return content


def print_table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[Any]], short: Callable[[str], str] = str
) -> None:
    """Print rows below a header; `short` abbreviates names, such as a vocabulary's `short`."""
    if title:
        say(title, style="italic")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(header):
        table.add_column(Text(name), justify="left" if i == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell_text(cell, short)) for cell in row))
    console.print(table)


def _cell_text(value: Any, short: Callable[[str], str]) -> str:
    """A cell as it is shown; very long text is cut, because fitting it into a column takes minutes."""
    if isinstance(value, float):
        return f"{value:.4f}"
    text = str(value)
    return visible(short(text if len(text) <= MAX_CELL else text[:MAX_CELL] + "…"), one_line=True)


def print_found(
    as_json: bool, content: Any, header: Sequence[str], rows: Iterable[Sequence[Any]], short: Callable[[str], str] = str
) -> None:
    """Print content as JSON, or its rows as a table without a title."""
    if as_json:
        print_json(content)
    else:
        print_table("", header, rows, short)


def cell(value: Any) -> Any:
    """A value as a table shows it: "yes" or nothing for a bool, nothing for None."""
    if isinstance(value, bool):
        return "yes" if value else ""
    return "" if value is None else value


def shown_kappa(share: Share) -> float | str:
    """The kappa of a share as a table shows it: nothing if it is not significant."""
    return share.kappa if share.significant else ""


def print_metrics(
    title: str, rows: Mapping[str, Mapping[str, float]], error: Mapping[str, float] | None = None
) -> None:
    """Print one row of metrics per name; `error` holds the standard errors of the first row if triples were sampled."""
    shown: list[list[Any]] = [
        [name, *(row[key] for key in METRICS[:-1]), f"{row['mr']:.1f}"] for name, row in rows.items()
    ]
    if error is not None:
        shown.insert(1, ["± standard error", *(f"{error[key]:.4f}" for key in METRICS[:-1]), f"{error['mr']:.1f}"])
    print_table(title, ["", "MRR", "Hits@1", "Hits@3", "Hits@10", "mean rank"], shown)


def metric_rows(report: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """Select the main rows of an evaluation report."""
    return {
        "both sides": report["both"],
        "heads": report["head"],
        "tails": report["tail"],
        f"seen entities only ({report['seen_only']['triples']} of {report['triples']})": report["seen_only"],
    }


def progress_bar(*columns: str | ProgressColumn, **options: Any) -> Progress:
    """A progress bar with these columns, shown on stderr if it is a terminal."""
    return Progress(*columns, console=notes, disable=not sys.stderr.isatty(), **options)


@contextmanager
def counted_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar; yield a function that takes the done and total counts."""
    columns = "{task.description}", BarColumn(), "{task.completed} of {task.total}", TimeRemainingColumn()
    with progress_bar(*columns, transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def read_data(
    source: str, columns: str | None = None, seed: int = 0, all_as: str | None = None, **options: Any
) -> Graph:
    """Load a graph, with a progress bar for downloads, and print the notes of the reader.

    all_as: put all triples of a single file into this split, unless it has its own splits.
    options: labels and language of `load_graph`.
    """
    names = [name.strip() for name in columns.split(",")] if columns else None
    columns_of_bar = "{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with progress_bar(*columns_of_bar, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(f"downloading {name}", total=total)
            bar.update(tasks[name], completed=done)

        unsplit = all_as is not None and Path(source).is_file() and not source.endswith(ARCHIVES)
        options |= {"valid": 0.0, "test": 0.0} if unsplit else {}
        graph = load_graph(source, columns=names, seed=seed, progress=show, **options)
    if unsplit and not len(graph.valid) + len(graph.test):
        graph.split(str(all_as))  # raises an error for an unknown split
        notes_left = tuple(note for note in graph.notes if not note.startswith("split with seed"))
        parts: dict[str, Any] = dict.fromkeys(SPLITS, graph.train[:0]) | {str(all_as): graph.known}
        graph = graph.replace(**parts, notes=notes_left)
    for note in graph.notes:
        remark(f"note: {note}", style="yellow")
    return graph
