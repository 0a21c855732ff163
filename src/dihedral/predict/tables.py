"""Files of questions and of answers: TSV, CSV and Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as papq

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.columns import common_columns
from dihedral.graph.decoding import decoding_parquet
from dihedral.graph.numbering import BLANKS
from dihedral.graph.sources import TEXT_SUFFIXES, Source
from dihedral.graph.text import text_rows
from dihedral.io.files import atomic_path, make_folder
from dihedral.scoring.questions import Question

MISSING = ("", "?")
NOT_IN_TSV = frozenset("\t\r\n")


def read_questions(path: Path) -> list[Question]:
    """Rows of head, relation and tail, one of them empty or `?`, from a TSV, CSV or Parquet file.

    A header is recognised by the usual column names, in any order, and blanks around names are left out, as in files
    of triples.
    """
    if not path.is_file():
        raise DihedralError(f"file {str(path)!r} does not exist; give a TSV, CSV or Parquet file of questions")
    source = Source(str(path), path)
    try:
        rows = _parquet_rows(source) if source.suffix == ".parquet" else _text_rows(source)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise DihedralError(f"file {str(path)!r} cannot be read: {str(error).splitlines()[0]}") from None
    return [tuple(map(_part, row)) for row in rows]  # type: ignore[misc]


def _part(cell: str | None) -> str | None:
    name = (cell or "").strip(BLANKS)
    return None if name in MISSING else name


def _parquet_rows(source: Source) -> list[list[str | None]]:
    with decoding_parquet(source) as work:
        about = work.line()
        names = about["columns"]
        places = common_columns(names) or range(min(3, len(names)))
        if len(places) != 3:
            raise DihedralError(f"file {source.where!r} has {len(names)} columns; questions have head, relation, tail")
        work.ask({"used": list(places), "watched": [], "max_values": 0})
        columns = [[cell for part in work.column() for cell in part.cast(pa.string()).to_pylist()] for _ in places]
        if any(len(column) != about["rows"] for column in columns):
            raise work.failure(f"it claims {about['rows']} rows, which its columns do not have")
        work.finish()
    return [list(row) for row in zip(*columns, strict=True)]


def _text_rows(source: Source) -> list[list[str]]:
    rows: list[list[str]] = []
    places: Sequence[int] | None = None
    for number, cells in text_rows(source, TEXT_SUFFIXES.get(source.suffix, "\t")):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) < 3:
            raise DihedralError(
                f"{source.where}, line {number}: {len(cells)} columns; questions have head, relation, tail"
            )
        header = common_columns(cells) if places is None else None
        if header is None:
            rows.append([cells[place] for place in places or range(3)])
        places = places or header or range(3)
    return rows


def check_table_path(path: Path) -> None:
    """Refuse a table path that does not end in .parquet, .csv or .tsv."""
    if path.suffix not in (".parquet", ".csv", ".tsv"):
        raise DihedralError(f"out is {str(path)!r}; its name must end in .parquet, .csv or .tsv")


def write_table(table: pa.Table, path: Path, *, spreadsheet_safe: bool = False) -> None:
    """Write a table as Parquet, CSV or TSV, by the suffix of the path.

    spreadsheet_safe: put an apostrophe before text that a spreadsheet would take for a formula.
    """
    check_table_path(path)
    if spreadsheet_safe and path.suffix != ".parquet":
        table = _without_formulas(table)
    lines = tab_separated(table, path) if path.suffix == ".tsv" else None  # refused before the file is opened
    make_folder(path.parent)
    with atomic_path(path) as part:
        if lines is not None:
            with part.open("w", encoding="utf-8", newline="") as out:
                out.writelines(lines)
        elif path.suffix == ".parquet":
            papq.write_table(table, part)
        else:
            pacsv.write_csv(table, part)


def with_labels(table: pa.Table, graph: Graph) -> pa.Table:
    """The table with the labels of its columns head, relation and tail, if the graph has any."""
    for column, names in (("head", graph.entities), ("relation", graph.relations), ("tail", graph.entities)):
        if names.labels is not None:
            labels = pa.array([names.label(name) or None for name in table[column].to_pylist()], pa.string())
            table = table.append_column(f"{column}_label", labels)
    return table


def _without_formulas(table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        if field.type in (pa.string(), pa.large_string()):
            safe = pc.replace_substring_regex(table.column(place), r"^([=+\-@\t\r])", r"'\1")
            table = table.set_column(place, field, safe)
    return table


def tab_separated(table: pa.Table, path: Path) -> list[str]:
    """Lines without quotes, because the reader of TSV files takes quotes as part of a name."""
    columns = []
    for column in table.columns:
        cells = [cell or "" for cell in column.cast(pa.string()).to_pylist()]
        for cell in cells:
            if not NOT_IN_TSV.isdisjoint(cell):
                raise DihedralError(
                    f"name {cell!r} has a tab or a line break, which {str(path)!r} cannot hold; write .csv or .parquet"
                )
        columns.append(cells)
    rows = [table.column_names, *zip(*columns, strict=True)]
    return ["\t".join(row) + "\n" for row in rows]
