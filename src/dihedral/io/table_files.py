"""Tables in files: TSV, CSV and Parquet are read and written, JSON lines are read; another process decodes Parquet."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from dihedral.errors import DihedralError
from dihedral.io.decoding import decoding_parquet
from dihedral.io.files import atomic_path, check_suffix, make_folder, parse_json
from dihedral.io.sources import TEXT_SUFFIXES, Source

PIECE_BYTES = 1 << 20  # text per piece; Arrow reads 32 pieces ahead
BLOCK_PIECES = 16  # pieces per block; ids depend on it: the heads of a block are numbered before its tails
MAX_LINE = 1 << 20  # bytes of a line of JSON
SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars", " ": "blanks"}
BLANKS = " \t\r\n\u00a0"  # not part of a name at its ends
TABLE_SUFFIXES = (".parquet", ".csv", ".tsv")  # that are written
NOT_IN_TSV = frozenset("\t\r\n")
END = "\0"  # a line after the last, which is a row of its own unless a quote is still open

Columns = dict[str, int]  # the places of columns by what they hold


# --- text --------------------------------------------------------------------------------------


def text_rows(source: Source, errors: str = "strict") -> Iterator[tuple[int, list[str]]]:
    """The rows of a text file with their line numbers; a quote in a CSV file that is never closed is an error."""
    delimiter = TEXT_SUFFIXES.get(source.suffix, "\t")
    with source.plain() as stream, io.TextIOWrapper(stream, "utf-8-sig", errors, newline="") as text:
        if delimiter != ",":
            lines = ((number, line.rstrip("\r\n")) for number, line in enumerate(text, start=1))
            yield from ((number, line.split(delimiter)) for number, line in lines if line.strip(" "))
            return
        reader, number, end = csv.reader(itertools.chain(text, [END])), 0, 0
        with suppress(csv.Error):  # a field longer than the csv module accepts
            for cells in reader:
                number, end = end + 1, reader.line_num
                if cells == [END]:
                    return
                if len(cells) > 1 or "".join(cells).strip():
                    yield number, cells
            end = number - 1
        raise DihedralError(f"{source.where}, line {end + 1}: a quote is opened and never closed; close or remove it")


def text_blocks(source: Source, num_columns: int, skip_header: bool, what: str) -> Iterator[pa.Table]:
    """The rows of a text file in tables of strings, named by their places. what: the columns of a row, for errors."""
    delimiter = TEXT_SUFFIXES[source.suffix]
    names, is_csv = [str(i) for i in range(num_columns)], delimiter == ","  # a header may repeat a name
    try:
        reader = pacsv.open_csv(
            source.native(),
            # a header is skipped after the names: only then may it contain quoted line breaks
            read_options=pacsv.ReadOptions(
                block_size=PIECE_BYTES, column_names=names, skip_rows_after_names=int(skip_header)
            ),
            parse_options=pacsv.ParseOptions(
                delimiter=delimiter, quote_char='"' if is_csv else False, newlines_in_values=is_csv
            ),
            convert_options=pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
        while pieces := list(itertools.islice(reader, BLOCK_PIECES)):
            yield pa.Table.from_batches(pieces)
    except pa.ArrowInvalid as error:
        _check_quotes(source)
        _explain_bad_line(source, num_columns, what)
        raise DihedralError(f"{source.where} cannot be read: {str(error).splitlines()[0]}") from None
    _check_quotes(source)


def _check_quotes(source: Source) -> None:
    if TEXT_SUFFIXES[source.suffix] == ",":
        with source.plain() as stream:
            has_quotes = any(b'"' in block for block in iter(partial(stream.read, PIECE_BYTES), b""))
        if has_quotes:
            deque(text_rows(source, errors="replace"), maxlen=0)


def _explain_bad_line(source: Source, expected: int, what: str) -> None:
    """Raise an error that names the line that the reader stopped at."""
    with source.plain() as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                raw.decode("utf-8")
            except UnicodeDecodeError:
                raise DihedralError(f"{source.where}, line {number}: not UTF-8 text; save the file as UTF-8") from None
    delimiter = TEXT_SUFFIXES[source.suffix]
    for number, cells in text_rows(source):
        if len(cells) != expected:
            line = delimiter.join(cells)
            raise DihedralError(
                f"{source.where}, line {number}: {len(cells)} columns; expected {expected} separated by "
                f"{SEPARATORS[delimiter]} ({what}): {line.strip()[:80]!r}{_hint(line, number, cells)}"
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


# --- JSON lines --------------------------------------------------------------------------------


def json_rows(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with the number of its line."""
    number = 0
    try:
        with source.plain() as stream:
            while line := stream.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE:
                    raise DihedralError(f"{source.where}, line {number}: it has more than {MAX_LINE >> 20} MiB")
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if text:
                    row = parse_json(text, half_characters=True)
                    if not isinstance(row, dict):
                        raise DihedralError(f"{source.where}, line {number}: {text[:80]!r} is not an object")
                    yield number, {json_text(name).strip(): value for name, value in row.items()}
    except UnicodeDecodeError:
        raise DihedralError(f"{source.where}, line {number}: not UTF-8 text; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, DihedralError):
            raise
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error).split(";")[0]
        raise DihedralError(f"{source.where}, line {number}: not JSON ({reason}); expected an object") from None


def is_name(value: Any) -> bool:
    """Whether a value of JSON can be a name: a string, or a number other than NaN."""
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and value == value


def json_text(value: Any) -> str:
    """A value as text; half a character, which JSON can escape and UTF-8 cannot hold, becomes a question mark."""
    return str(value).encode("utf-8", "replace").decode()


# --- small tables ------------------------------------------------------------------------------


def read_table(
    source: Source,
    by_name: Callable[[Sequence[str]], Columns | None],
    in_order: Sequence[str],
    *,
    required: int,
    expected: str,
) -> pa.Table:
    """Columns of a TSV, CSV or Parquet file as a table of large strings, with blanks around them left out.

    by_name: the columns by their names; None if these are not names, so that the first row is not a header.
    in_order: the columns of a file without a header.
    required: how many of the columns every row must have; the others may be missing in text. expected: for the error.
    """
    if source.suffix == ".parquet":
        with decoding_parquet(source) as file:
            columns = by_name(file.names) or dict(zip(in_order, range(len(file.names)), strict=False))
            if len(columns) < required:
                raise DihedralError(f"file {source.where!r} has {len(file.names)} columns; {expected}")
            blocks = list(file.read(list(columns.values())))
        if not blocks:
            return string_table(columns, [])
        table = pa.concat_tables(blocks)
        return pa.table({role: as_strings(table[str(place)], role, source.where) for role, place in columns.items()})
    columns, rows = {}, []
    try:
        for number, cells in text_rows(source):
            if not columns:
                header = by_name(cells)
                columns = header or dict(zip(in_order, range(len(cells)), strict=False))
                if header:
                    continue
            if len(columns) < required or len(cells) <= max(list(columns.values())[:required]):
                raise DihedralError(f"{source.where}, line {number}: {len(cells)} columns; {expected}")
            rows.append([cells[place].strip(BLANKS) if place < len(cells) else "" for place in columns.values()])
    except UnicodeDecodeError:
        raise DihedralError(f"{source.where} is not UTF-8 text; save the file as UTF-8") from None
    except OSError as error:
        raise DihedralError(f"{source.where} cannot be read: {error.strerror}") from None
    return string_table(columns or in_order, [row for row in rows if any(row)])


def as_strings(column: pa.ChunkedArray, role: str, where: str) -> pa.ChunkedArray:
    """A column as large strings; numbers become text."""
    try:
        return column.cast(pa.large_string())
    except pa.ArrowException:
        raise DihedralError(f"{where}: the column of {role}s has type {column.type}; expected text") from None


def string_table(names: Iterable[str], rows: Sequence[Sequence[str | None]]) -> pa.Table:
    """Rows as a table of large strings."""
    names = list(names)
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return pa.table({name: pa.array(column, pa.large_string()) for name, column in zip(names, columns, strict=True)})


# --- writing -----------------------------------------------------------------------------------


def write_table(table: pa.Table, path: Path, *, spreadsheet_safe: bool = False) -> None:
    """Write Parquet, CSV or TSV, by the suffix; spreadsheet_safe: an apostrophe before what looks like a formula."""
    import pyarrow.parquet as papq

    check_suffix("out", path, TABLE_SUFFIXES)
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


def _without_formulas(table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        if field.type in (pa.string(), pa.large_string()):
            safe = pc.replace_substring_regex(table.column(place), r'^("*[=+\-@\t\r])', r"'\1")
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
