"""Files of questions, and the labels of answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.columns import PARTS, common_columns
from dihedral.io.sources import Source
from dihedral.io.table_files import BLANKS, Columns, read_table
from dihedral.scoring.questions import Question

MISSING = ("", "?")


def read_questions(path: Path) -> list[Question]:
    """Rows of head, relation and tail, one of them empty or `?`, from a TSV, CSV or Parquet file.

    A header is recognised by the usual column names, in any order, and blanks around names are left out, as in files
    of triples.
    """
    if not path.is_file():
        raise DihedralError(f"file {str(path)!r} does not exist; give a TSV, CSV or Parquet file of questions")
    expected = "questions have head, relation, tail"
    table = read_table(Source(str(path), path), _by_name, PARTS, required=3, expected=expected)
    columns = (map(_part, table[name].to_pylist()) for name in PARTS)
    return list(zip(*columns, strict=True))


def _by_name(names: Sequence[str]) -> Columns | None:
    places = common_columns(names)
    return None if places is None else dict(zip(PARTS, places, strict=True))


def _part(cell: str | None) -> str | None:
    name = (cell or "").strip(BLANKS)
    return None if name in MISSING else name


def with_labels(table: pa.Table, graph: Graph) -> pa.Table:
    """The table with the labels of its columns head, relation and tail, if the graph has any."""
    for column, names in (("head", graph.entities), ("relation", graph.relations), ("tail", graph.entities)):
        if names.labels is not None:
            labels = pa.array([names.label(name) or None for name in table[column].to_pylist()], pa.string())
            table = table.append_column(f"{column}_label", labels)
    return table
