"""Read tab- and comma-separated text: with Arrow in blocks, and row by row where line numbers matter."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.csv as pacsv

from dihedral.errors import DihedralError
from dihedral.graph.columns import PARTS, choose_columns, common_columns
from dihedral.graph.numbering import Numbering
from dihedral.graph.rows import RowCollector, Rows
from dihedral.graph.sources import TEXT_SUFFIXES, Source

PIECE_BYTES = 1 << 20  # text per piece; Arrow reads 32 pieces ahead
BLOCK_PIECES = 16  # pieces per block; ids depend on it: the heads of a block are numbered before its tails
_QUOTED = re.compile(rb'(?:[^"]++|"")*+')  # the rest of a quoted field, without its last quote
SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars", " ": "blanks"}


def read_text(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Rows:
    """Number the triples of a text file."""
    where, delimiter = source.where, TEXT_SUFFIXES[source.suffix]
    number, cells = next(text_rows(source, delimiter, errors="replace"), (1, []))
    if number > 1 or not cells:
        raise DihedralError(f"{where} is empty or starts with an empty line; expected one triple per line")
    header = columns is not None or common_columns(cells) is not None
    layout = choose_columns(cells if header else PARTS, columns, where)
    collector = RowCollector(layout, numbering, where)
    names = [str(i) for i in range(len(layout.names))]  # a header may repeat a name
    try:
        reader = pacsv.open_csv(
            source.native(),
            # a header is skipped after the names: only then may it contain quoted line breaks
            read_options=pacsv.ReadOptions(
                block_size=PIECE_BYTES, column_names=names, skip_rows_after_names=1 if header else 0
            ),
            parse_options=_parse_options(delimiter),
            convert_options=pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
        share = min(1.0, BLOCK_PIECES * PIECE_BYTES / source.size)
        while pieces := list(itertools.islice(reader, BLOCK_PIECES)):
            collector.add(pa.Table.from_batches(pieces), share)
    except pa.ArrowInvalid as error:
        check_quotes(source, delimiter)
        _explain_bad_line(source, delimiter, len(names))
        raise DihedralError(f"{where} cannot be read: {str(error).splitlines()[0]}") from None
    check_quotes(source, delimiter)
    rows = collector.finish(source.name, "the first line is a header; " if header else "")
    if not header and collector.may_start_with_header(rows.triples):
        first = delimiter.join(cells).replace("\t", " ")
        numbering.note(
            source.name,
            f"the first line, {first[:80]!r}, is read as a triple, but its names occur nowhere else; if it is a "
            "header, name its columns with `columns`",
        )
    return rows


def _parse_options(delimiter: str) -> pacsv.ParseOptions:
    is_csv = delimiter == ","
    return pacsv.ParseOptions(delimiter=delimiter, quote_char='"' if is_csv else False, newlines_in_values=is_csv)


def text_rows(source: Source, delimiter: str, errors: str = "strict") -> Iterator[tuple[int, list[str]]]:
    """The rows of a text file as Arrow reads them, each with the number of its first line, without empty lines."""
    with source.plain() as stream, io.TextIOWrapper(stream, "utf-8-sig", errors, newline="") as text:
        number = 1
        for line in text:
            cells, lines = line.rstrip("\r\n").split(delimiter), 1
            if delimiter == "," and '"' in line:
                reader = csv.reader(itertools.chain([line], text))
                with suppress(csv.Error):  # a field longer than the csv module accepts
                    cells = next(reader)
                lines = max(1, reader.line_num)
            if line.strip():
                yield number, cells
            number += lines


def check_quotes(source: Source, delimiter: str) -> None:
    """Raise an error if a quote in a CSV file is never closed: it would take the rest of the file as one name."""
    if delimiter != ",":
        return
    opened, quoted = 0, False
    with source.plain() as stream:
        for number, line in enumerate(stream, start=1):
            if quoted or b'"' in line:
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                was_quoted, quoted = quoted, _ends_quoted(line, quoted)
                opened = number if quoted and not was_quoted else opened
    if quoted:
        raise DihedralError(f"{source.where}, line {opened}: a quote is opened and never closed; close or remove it")


def _ends_quoted(line: bytes, quoted: bool) -> bool:
    """Whether a line ends within quotes. quoted: whether it begins within them."""
    place = 0
    while True:
        if quoted:
            place = _QUOTED.match(line, place).end()  # type: ignore[union-attr]  # it also matches nothing
            if place == len(line):
                return True
            quoted = False
        elif line.startswith(b'"', place):
            quoted, place = True, place + 1
            continue
        place = line.find(b",", place) + 1
        if not place:
            return False


def _explain_bad_line(source: Source, delimiter: str, expected: int) -> None:
    """Raise an error that names the line that the reader stopped at."""
    with source.plain() as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                raw.decode("utf-8")
            except UnicodeDecodeError:
                raise DihedralError(f"{source.where}, line {number}: not UTF-8 text; save the file as UTF-8") from None
    for number, cells in text_rows(source, delimiter):
        if len(cells) != expected:
            line = delimiter.join(cells)
            raise DihedralError(
                f"{source.where}, line {number}: {len(cells)} columns; expected {expected} separated by "
                f"{SEPARATORS[delimiter]} (head, relation, tail): {line.strip()[:80]!r}{_hint(line, number, cells)}"
            )


def _hint(line: str, number: int, cells: Sequence[str]) -> str:
    """What may be wrong with a line that has another number of columns."""
    if len(cells) == 1:
        for separator, name in SEPARATORS.items():
            if len(line.strip().split(separator)) >= 3:
                return f"; it seems to be separated by {name}: save it with tabs, or with commas as .csv"
    if number == 1 and len(cells) > 3:
        return "; if it is a header, name three of its columns with `columns`"
    return ""
