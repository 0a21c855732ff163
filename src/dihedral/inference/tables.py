"""Files of questions and of answers: TSV, CSV and Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as papq

from dihedral.errors import DihedralError
from dihedral.graph.columns import common_columns
from dihedral.graph.numbering import BLANKS
from dihedral.graph.sources import TEXT_SUFFIXES, Source
from dihedral.graph.text import text_rows
from dihedral.inference.questions import Question
from dihedral.io.files import atomic_path, make_folder

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
        rows = _parquet_rows(path) if source.suffix == ".parquet" else _text_rows(source)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise DihedralError(f"file {str(path)!r} cannot be read: {str(error).splitlines()[0]}") from None
    return [tuple(map(_part, row)) for row in rows]  # type: ignore[misc]


def _part(cell: str | None) -> str | None:
    name = (cell or "").strip(BLANKS)
    return None if name in MISSING else name


def _parquet_rows(path: Path) -> list[list[str | None]]:
    table = papq.read_table(path)
    places = common_columns(table.column_names) or range(min(3, table.num_columns))
    if len(places) != 3:
        raise DihedralError(f"file {str(path)!r} has {table.num_columns} columns; questions have head, relation, tail")
    columns = [table.column(place).cast(pa.string()).to_pylist() for place in places]
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


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as Parquet, CSV or TSV, by the suffix of the path."""
    check_table_path(path)
    lines = _tab_separated(table, path) if path.suffix == ".tsv" else None  # refused before the file is opened
    make_folder(path.parent)
    with atomic_path(path) as part:
        if lines is not None:
            with part.open("w", encoding="utf-8", newline="") as out:
                out.writelines(lines)
        elif path.suffix == ".parquet":
            papq.write_table(table, part)
        else:
            pacsv.write_csv(table, part)


def _tab_separated(table: pa.Table, path: Path) -> list[str]:
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
