"""Files of questions and of answers: TSV, CSV and Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as papq

from dihedral.errors import DihedralError
from dihedral.graph.readers import common_columns, split_line
from dihedral.inference.questions import Question
from dihedral.io.files import atomic_path, make_folder

MISSING = ("", "?")


def read_questions(path: Path) -> list[Question]:
    """Rows of head, relation and tail, one of them empty or `?`, from a TSV, CSV or Parquet file.

    A header is recognised by the usual column names, in any order, as in files of triples.
    """
    if not path.is_file():
        raise DihedralError(f"file {str(path)!r} does not exist; give a TSV, CSV or Parquet file of questions")
    try:
        rows = _parquet_rows(path) if path.suffix.lower() == ".parquet" else _text_rows(path)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise DihedralError(f"file {str(path)!r} cannot be read: {str(error).splitlines()[0]}") from None
    return [tuple(None if part is None or part in MISSING else part for part in row) for row in rows]  # type: ignore[misc]


def _parquet_rows(path: Path) -> list[list[str | None]]:
    table = papq.read_table(path)
    places = common_columns(table.column_names) or range(min(3, table.num_columns))
    if len(places) != 3:
        raise DihedralError(f"file {str(path)!r} has {table.num_columns} columns; questions have head, relation, tail")
    columns = [table.column(place).cast(pa.string()).to_pylist() for place in places]
    return [list(row) for row in zip(*columns, strict=True)]


def _text_rows(path: Path) -> list[list[str]]:
    delimiter = "," if path.suffix.lower() == ".csv" else "\t"
    rows: list[list[str]] = []
    places: Sequence[int] = range(3)
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if not line.strip(delimiter + " "):
            continue
        cells = split_line(line, delimiter)
        if len(cells) < 3:
            raise DihedralError(f"{path}, line {number}: {len(cells)} columns; questions have head, relation, tail")
        header = common_columns(cells) if number == 1 else None
        if header:
            places = header
        else:
            rows.append([cells[place] for place in places])
    return rows


def check_table_path(path: Path) -> None:
    """Refuse a table path that does not end in .parquet, .csv or .tsv."""
    if path.suffix not in (".parquet", ".csv", ".tsv"):
        raise DihedralError(f"out is {str(path)!r}; its name must end in .parquet, .csv or .tsv")


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as Parquet, CSV or TSV, by the suffix of the path."""
    check_table_path(path)
    make_folder(path.parent)
    with atomic_path(path) as part:
        if path.suffix == ".parquet":
            papq.write_table(table, part)
        else:
            pacsv.write_csv(table, part, pacsv.WriteOptions(delimiter="," if path.suffix == ".csv" else "\t"))
