"""Read JSON lines: one object per line, with a member for each column."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.graph.columns import Layout, choose_columns
from dihedral.graph.numbering import Numbering
from dihedral.graph.rows import RowCollector, Rows
from dihedral.graph.sources import Source
from dihedral.io.files import parse_json

ROWS_PER_BLOCK = 1 << 16
MAX_LINE = 1 << 20  # bytes


def read_json_lines(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Rows:
    """Number the triples of a file of JSON lines; the members of the first line are the columns."""
    lines = read_objects(source)
    first = next(lines, None)
    if first is None:
        raise DihedralError(f"{source.where} is empty; expected one triple per line")
    layout = choose_columns(list(first[1]), columns, source.where)
    collector = RowCollector(layout, numbering, source.where)
    block = [_cells(source, layout, *first)]
    for number, row in lines:
        block.append(_cells(source, layout, number, row))
        if len(block) == ROWS_PER_BLOCK:
            collector.add(_table(block))
            block = []
    if block:
        collector.add(_table(block))
    return collector.finish(source.name)


def _table(block: list[list[str | None]]) -> pa.Table:
    columns = [pa.array(column, pa.string()) for column in zip(*block, strict=True)]
    return pa.Table.from_arrays(columns, [str(i) for i in range(len(columns))])


def read_objects(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file with the numbers of their lines."""
    number = 0
    try:
        with source.plain() as stream:
            while line := stream.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE:
                    raise DihedralError(f"{source.where}, line {number}: it has more than {MAX_LINE >> 20} MiB")
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if text:
                    row = parse_json(text)
                    if not isinstance(row, dict):
                        raise DihedralError(f"{source.where}, line {number}: {text[:80]!r} is not an object")
                    yield number, {name.strip(): value for name, value in row.items()}
    except UnicodeDecodeError:
        raise DihedralError(f"{source.where}, line {number}: not UTF-8 text; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, DihedralError):
            raise
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error).split(";")[0]
        raise DihedralError(f"{source.where}, line {number}: not JSON ({reason}); expected an object") from None


def _cells(source: Source, layout: Layout, number: int, row: dict[str, Any]) -> list[str | None]:
    """The values of one object in the order of the columns; columns that are not used may be missing."""
    needed = [*layout.triple, *([] if layout.split is None else [layout.split])]
    for place in needed:
        value = row.get(layout.names[place])
        if not isinstance(value, (str, int, float)) or isinstance(value, bool) or value != value:
            shown = "is missing" if value is None else f"is {json.dumps(value, ensure_ascii=False)[:80]}"
            raise DihedralError(
                f"{source.where}, line {number}: {layout.names[place]!r} {shown}; names are strings or numbers"
            )
    if layout.split is None and any(name.lower() == "split" for name in row):
        raise DihedralError(f"{source.where}, line {number}: it has a split, but line 1 has none; give all or none")
    return [None if row.get(name) is None else _text(row[name]) for name in layout.names]


def _text(value: Any) -> str:
    """A value as text; half a character, which JSON can escape and UTF-8 cannot hold, becomes a question mark."""
    return str(value).encode("utf-8", "replace").decode()
