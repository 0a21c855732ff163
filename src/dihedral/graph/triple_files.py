"""Read the triples of one file or table: choose its columns and number its names.

To add a data format, add its suffix to `io.sources.SUFFIXES` and its reader to `READERS`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.graph.archives import ARCHIVES
from dihedral.graph.columns import (
    NO_SPLIT,
    NO_SPLITS,
    PARTS,
    Layout,
    LeftOver,
    Splits,
    choose_columns,
    common_columns,
    split_codes,
)
from dihedral.graph.numbering import Numbering
from dihedral.graph.rdf import read_rdf
from dihedral.graph.triples import Triples
from dihedral.io.decoding import decoding_parquet
from dihedral.io.sources import JSON_SUFFIXES, RDF_SUFFIXES, TEXT_SUFFIXES, Source
from dihedral.io.table_files import is_name, json_rows, json_text, text_blocks, text_rows

NO_TRIPLES = np.empty((0, 3), np.int32)
MIN_ROWS = 3  # a shorter file does not show whether its first line is a header
MAX_ROWS = 100  # that a note lists
ROWS_PER_BLOCK = 1 << 16  # JSON lines that are numbered together


class NumberedTriples(NamedTuple):
    """The triples of one file or table, and the split of each if a column gives it."""

    triples: Triples
    splits: Splits | None = None


def read_triples(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> NumberedTriples:
    """Number the triples of one file. columns: the names of the head, relation and tail columns, if they are given."""
    if source.suffix not in READERS:
        expected = ", ".join((*READERS, *ARCHIVES))
        raise DihedralError(f"{source.where} has the suffix {source.suffix!r}; expected one of {expected}")
    if columns is not None and len(columns) != 3:
        raise DihedralError(f"columns are {list(columns)!r}; name three: head, relation, tail")
    found = READERS[source.suffix](source, columns, numbering)
    if len(found.triples) == 0:
        raise DihedralError(f"{source.where} is empty; expected one triple per line")
    return found


def number_table(table: pa.Table, columns: Sequence[str] | None, numbering: Numbering, where: str) -> NumberedTriples:
    """Number the triples of a table in memory."""
    collector = TripleCollector(choose_columns(table.schema.names, columns, where), numbering, where)
    collector.add(table.rename_columns(list(map(str, range(table.num_columns)))))
    return collector.finish(where)


class TripleCollector:
    """Collects the numbered triples of one source, given in blocks, with notes about its columns."""

    def __init__(self, layout: Layout, numbering: Numbering, where: str) -> None:
        self.layout, self.numbering, self.where = layout, numbering, where
        self.left_over = LeftOver(layout)
        self.sizes = len(numbering.entities), len(numbering.relations)  # before this source
        self._triples, self._splits = [NO_TRIPLES], [NO_SPLITS]
        self._read = 0  # rows
        self._blank: list[int] = []  # the first rows with a blank cell, from 0

    def add(self, table: pa.Table) -> None:
        """Number the rows of a table, whose columns are named by their places in the source."""
        columns = [table.column(str(place)) for place in self.layout.triple]
        triples, blank = self.numbering.number(columns, self.where)
        if blank.any():
            self._blank += (self._read + np.flatnonzero(blank)[:MAX_ROWS]).tolist()
            # Arrow does not filter views of strings
            texts = (each.cast(pa.large_string()) if each.type == pa.string_view() else each for each in table.columns)
            self.add(pa.table([text.filter(pa.array(~blank)) for text in texts], table.column_names))
            self._read += int(blank.sum())
            return
        self._triples.append(triples)
        self._read += len(table)
        if self.layout.split is not None:
            self._splits.append(split_codes(table.column(str(self.layout.split)), self.where))
        for place in list(self.left_over.values):
            if str(place) in table.column_names:
                self.left_over.add(place, table.column(str(place)))

    def finish(self, name: str, start: str = "", lines: Iterable[int] | None = None) -> NumberedTriples:
        """All triples; a split column without values counts as none. name, start: of the note about the columns.

        lines: the number of each row's line in a text file.
        """
        self.numbering.settle()
        end = sum(map(len, self._triples))
        if end < self._read:
            self._report_blank(name, self._read - end, lines)
        triples = np.empty((end, 3), np.int32)
        while self._triples:  # each block is freed when it has been copied
            block = self._triples.pop()
            triples[end - len(block) : end] = block
            end -= len(block)
        layout, splits = self.layout, np.concatenate(self._splits)
        if layout.split is not None and (splits == NO_SPLIT).all():
            layout = replace(layout, split=None)
        elif missing := (splits == NO_SPLIT).sum():
            raise DihedralError(
                f"{self.where}: column split has {missing} missing values; give the split of every triple or of none"
            )
        if start or not layout.is_plain:
            self.numbering.note(name, f"{start}{layout}")
        for remark in self.left_over.remarks(self.where):
            self.numbering.note(name, remark)
        return NumberedTriples(triples, None if layout.split is None else splits)

    def _report_blank(self, name: str, count: int, lines: Iterable[int] | None) -> None:
        rows = self._blank[:MAX_ROWS]
        numbers = itertools.islice(itertools.count(1) if lines is None else lines, rows[-1] + 1)
        listed = ", ".join(str(number) for row, number in enumerate(numbers) if row in rows)
        listed += f" and {count - MAX_ROWS} more" if count > MAX_ROWS else ""
        found = f"blank cells in {count} {'rows (from 1)' if lines is None else 'lines'}: {listed}"
        if not self.numbering.skip_blank:
            left_out = "to train, `dihedral train --skip-blank` and load_graph(skip_blank=True) leave them out"
            raise DihedralError(f"{self.where} has {found}; fill them in or remove them; {left_out}")
        self.numbering.note(name, f"left out: {found}")

    def may_start_with_header(self, triples: Triples) -> bool:
        """Whether the names of the first triple occur nowhere else, so that it may be a header."""
        if len(triples) < MIN_ROWS:
            return False
        head, relation, tail = triples[0].tolist()
        if min(head, tail) < self.sizes[0] or relation < self.sizes[1] or head == tail:
            return False
        rest = triples[1:]
        return not (rest[:, 1] == relation).any() and not np.isin(rest[:, [0, 2]], (head, tail)).any()


def _read_text(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> NumberedTriples:
    number, cells = next(text_rows(source, errors="replace"), (1, []))
    if number > 1 or not cells:
        raise DihedralError(f"{source.where} is empty or starts with an empty line; expected one triple per line")
    header = columns is not None or common_columns(cells) is not None
    layout = choose_columns(cells if header else PARTS, columns, source.where)
    collector = TripleCollector(layout, numbering, source.where)
    for block in text_blocks(source, len(layout.names), header, ", ".join(PARTS)):
        collector.add(block)
    lines = itertools.islice((number for number, _ in text_rows(source, errors="replace")), int(header), None)
    found = collector.finish(source.name, "the first line is a header; " if header else "", lines)
    if not header and collector.may_start_with_header(found.triples):
        first = TEXT_SUFFIXES[source.suffix].join(cells).replace("\t", " ")
        numbering.note(
            source.name,
            f"the first line, {first[:80]!r}, is read as a triple, but its names occur nowhere else; if it is a "
            "header, name its columns with `columns`",
        )
    return found


def _read_json_lines(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> NumberedTriples:
    """The members of the first line are the columns."""
    rows: Iterator[tuple[int, dict[str, Any]]] = json_rows(source)
    first = next(rows, None)
    if first is None:
        raise DihedralError(f"{source.where} is empty; expected one triple per line")
    layout = choose_columns(list(first[1]), columns, source.where)
    collector = TripleCollector(layout, numbering, source.where)
    rows = itertools.chain([first], rows)
    while block := list(itertools.islice(rows, ROWS_PER_BLOCK)):
        cells = [_json_cells(source, layout, number, row) for number, row in block]
        arrays = [pa.array(column, pa.string()) for column in zip(*cells, strict=True)]
        collector.add(pa.Table.from_arrays(arrays, [str(i) for i in range(len(arrays))]))
    return collector.finish(source.name, lines=(number for number, _ in json_rows(source)))


def _json_cells(source: Source, layout: Layout, number: int, row: dict[str, Any]) -> list[str | None]:
    """The values of one object in the order of the columns; columns that are not used may be missing."""
    for place in layout.used:
        value = row.get(layout.names[place])
        if value is not None and not is_name(value):
            raise DihedralError(
                f"{source.where}, line {number}: {layout.names[place]!r} is "
                f"{json.dumps(value, ensure_ascii=False)[:80]}; names are strings or numbers"
            )
    if layout.split is None and any(name.lower() == "split" for name in row):
        raise DihedralError(f"{source.where}, line {number}: it has a split, but line 1 has none; give all or none")
    return [None if row.get(name) is None else json_text(row[name]) for name in layout.names]


def _read_parquet(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> NumberedTriples:
    with decoding_parquet(source) as file:
        layout = choose_columns(file.names, columns, source.where)
        collector = TripleCollector(layout, numbering, source.where)
        for table in file.read(layout.used, list(collector.left_over.values)):
            collector.add(table)
    return collector.finish(source.name)


Reader = Callable[[Source, Sequence[str] | None, Numbering], NumberedTriples]
READERS: dict[str, Reader] = {
    **dict.fromkeys(TEXT_SUFFIXES, _read_text),
    ".parquet": _read_parquet,
    **dict.fromkeys(RDF_SUFFIXES, lambda *asked: NumberedTriples(read_rdf(*asked))),
    **dict.fromkeys(JSON_SUFFIXES, _read_json_lines),
}
