"""Shared by the commands: JSON, tables that fit the terminal, progress bars, and reading a graph."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TimeRemainingColumn
from rich.text import Text

from dihedral.elements.shares import ComponentShare
from dihedral.evaluation.metrics import METRICS
from dihedral.graph import Graph, load_graph
from dihedral.graph.archives import ARCHIVES
from dihedral.graph.triples import SPLITS
from dihedral.io.display import visible, visible_json
from dihedral.io.table_files import write_table
from dihedral.predict.predictor import Predictor, load

console = Console()
notes = Console(stderr=True)


settings = {"wide": False, "verbose": False}  # what the options of these names set

MAX_CELL = 1000  # characters of a cell in a table
LEAST = ("precision_high", "precision_low", "score", "question", "relation")  # columns, the least important first
GAP = "  "
MIN_TEXT, MIN_TEXTS = 14, 36  # that a column of text, and all of them, should have before others are left out
MIN_CUT = 5  # the narrowest column
_LABELLED = re.compile(r"([^()]*\S) (\([^\s()]+\))", re.DOTALL)  # a label with its id
_NUMBER = re.compile(r"-?[\d.,]*%?|yes|no|true|false")


def say(text: str, style: str | None = None) -> None:
    """Print literal text on stdout: names may contain rich markup and control characters."""
    console.print(Text(visible(text), style=style or ""), soft_wrap=True)


def detail(text: str) -> None:
    """Print literal text on stderr if --verbose is given."""
    if settings["verbose"]:
        remark(text)


def remark(text: str, style: str | None = None) -> None:
    """Print literal text on stderr."""
    notes.print(Text(visible(text), style=style or ""), soft_wrap=True)


def print_json(content: Any, graph: Graph | None = None) -> None:
    """Print JSON: one line, or one per item of a list. graph: add the labels of the names in each line."""
    for each in content if isinstance(content, list) else [content]:
        labels = {} if graph is None else graph.labels_in(each)
        line = _without_nan(each | {"labels": labels} if labels else each)
        print(visible_json(json.dumps(line, ensure_ascii=False)))


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
    title: str, header: Sequence[str], rows: Iterable[Sequence[Any]], graph: Graph | None = None,
    least: Sequence[str] = (),
) -> None:  # fmt: skip
    """Print rows below a header; on a narrow terminal they are shortened unless --wide is given, in a file never.

    graph: names are shown with their labels, and with prefixes. least: the least important columns first.
    """
    if title:
        say(title, style="italic")
    show = [str if graph is None else graph.show(name) for name in header]
    cells = [[_cell_text(each, shown) for each, shown in zip(row, show, strict=True)] for row in rows]
    (first, *lines), dropped = fit(list(header), cells, None if _is_whole() else console.width, least)
    if any(header):
        console.print(Text(first, style="bold"), soft_wrap=True)
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    if dropped:
        remark(f"not shown: {', '.join(dropped)}; --wide shows all")


def fit(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, least: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """The lines of a table, the header first, and the names of columns that are left out.

    width: of the terminal; None shows everything. least: columns by importance, the least important first: text in
    them is cut first, and those of numbers are left out if the text would become too short.
    """
    places = list(range(len(header)))
    dropped: list[str] = []
    widths = [max(cell_len(row[i]) for row in [header, *rows]) for i in places]
    texts = [i for i in places if any(not _NUMBER.fullmatch(row[i]) for row in rows)]

    def excess() -> int:
        return 0 if width is None else sum(widths[i] for i in places) + len(GAP) * (len(places) - 1) - width

    for name in least:
        room = sum(max(0, widths[i] - max(MIN_TEXT, MIN_TEXTS // len(texts))) for i in texts)
        i = header.index(name) if name in header else -1
        if i in places and i not in texts and excess() > room:
            places.remove(i)
            dropped.append(name)
    order = [header.index(name) for name in least if name in header]
    order = [i for i in order if i in texts] + [i for i in reversed(texts) if i not in order]
    for narrowest in (MIN_TEXT, MIN_CUT):
        for i in order:
            widths[i] -= max(0, min(excess(), widths[i] - max(narrowest, min(cell_len(header[i]), MIN_TEXT))))
    lines = [_line([row[i] for i in places], [widths[i] for i in places]) for row in [header, *rows]]
    return lines, dropped


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Cells side by side: the first to the left, the others to the right of their column."""
    shown = [cut(cell, width) for cell, width in zip(cells, widths, strict=True)]
    padded = [" " * (width - cell_len(cell)) for cell, width in zip(shown, widths, strict=True)]
    parts = [shown[0] + padded[0], *(space + cell for space, cell in zip(padded[1:], shown[1:], strict=True))]
    return GAP.join(parts).rstrip() if len(parts) == 1 else GAP.join(parts)


def cut(text: str, width: int) -> str:
    """Text of at most this width: a label is cut before its id, a path at its beginning, other text at its end.

    >>> cut("Douglas Noel Adams (Q42)", 16), cut("/people/person/profession", 14), cut("a long text", 8)
    ('Douglas N… (Q42)', '…on/profession', 'a long …')
    """
    if cell_len(text) <= width:
        return text
    labelled = _LABELLED.fullmatch(text)
    if labelled and cell_len(labelled[2]) + 8 <= width:
        return f"{cut(labelled[1], width - cell_len(labelled[2]) - 1)} {labelled[2]}"
    if "/" in text and " " not in text:
        return "…" + text[-(width - 1) :]
    return set_cell_size(text, width - 1) + "…"


def _cell_text(value: Any, shown: Callable[[str], str]) -> str:
    """A cell as it is shown: a share as its kappa, if significant; on a terminal, very long text is cut."""
    if value is None or isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, ComponentShare):
        value = value.kappa if value.significant else ""
    if isinstance(value, float):
        return f"{value:.4f}"
    text = " · ".join(map(shown, value)) if isinstance(value, tuple) else shown(str(value))
    return visible(text if len(text) <= MAX_CELL or _is_whole() else text[:MAX_CELL] + "…", one_line=True)


def _is_whole() -> bool:
    """Whether tables are shown whole: where --wide is given, and in files and pipes."""
    return settings["wide"] or not sys.stdout.isatty()


def print_found(
    as_json: bool, content: list[Any], header: Sequence[str], rows: Iterable[Sequence[Any]] | None = None,
    graph: Graph | None = None, least: Sequence[str] = (),
) -> None:  # fmt: skip
    """Print content as lines of JSON, or as a table without a title; its rows are those of content if not given."""
    if as_json:
        print_json(content, graph)
    else:
        shown = [[each[name] for name in header] for each in content] if rows is None else rows
        print_table("", header, shown, graph, least)


def print_answers(found: pa.Table, graph: Graph, out: Path | None, spreadsheet_safe: bool, as_json: bool) -> None:
    """Print a table of triples, with labels beside names, or write it to a file with its columns of labels."""
    if out is not None:
        write_table(found, out, spreadsheet_safe=spreadsheet_safe)
        remark(f"wrote {len(found)} rows to {out}")
        return
    found = found.drop_columns([name for name in found.column_names if name.endswith("_label")])
    rows = found.to_pylist()
    cells = [["no" if name == "true" and not value else value for name, value in row.items()] for row in rows]
    print_found(as_json, rows, found.column_names, cells, graph, LEAST)


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


def filtered(split: str) -> str:
    """A split, and by which known answers its ranks are filtered (`Graph.filtered`)."""
    return f"{split}, filtered by {'all splits' if split == 'test' else 'train and valid'}"


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
def counted_bar(description: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function that takes the done and total counts, and shows them as a progress bar."""
    columns = "{task.description}", BarColumn(), "{task.completed} of {task.total}", TimeRemainingColumn()
    with progress_bar(*columns, transient=True) as bar:

        def show(done: int, total: int | None) -> None:
            task = bar.task_ids[0] if bar.task_ids else bar.add_task(description)
            bar.update(task, completed=done, total=total)

        yield show


def open_model(folder: Path, graph: str | None, **options: Any) -> Predictor:
    """Open a model, to answer from another graph if one is given; options: of `load`."""
    return load(folder, graph=None if graph is None else read_data(graph, all_as="train"), **options)


def read_data(
    source: str, columns: str | None = None, seed: int = 0, *, all_as: str | None = None, **options: Any
) -> Graph:  # fmt: skip
    """Load a graph, with a progress bar for downloads, and print the notes of the reader.

    all_as: put all triples of a single file into this split, unless it has its own splits. options: of `load_graph`.
    """
    names = [name.strip() for name in columns.split(",")] if columns else None
    unsplit = all_as is not None and Path(source).is_file() and not source.endswith(ARCHIVES)
    share = 0.0 if unsplit else 0.1
    with counted_bar("downloading") as show:
        graph = load_graph(
            source, columns=names, valid=share, test=share, seed=seed,
            progress=lambda name, done, total: show(done, total), **options,
        )  # fmt: skip
    if unsplit and not len(graph.valid) + len(graph.test):
        graph.split(str(all_as))  # raises an error for an unknown split
        notes_left = tuple(note for note in graph.notes if not note.startswith("split with seed"))
        train, valid, test = (graph.known if split == all_as else graph.train[:0] for split in SPLITS)
        graph = graph.replace(train=train, valid=valid, test=test, notes=notes_left)
    for note in graph.notes:
        remark(f"note: {note}", style="yellow")
    return graph
