"""Read labels from TSV, CSV, JSON, JSON lines, Parquet and RDF files, and from data in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.graph.decoding import decoding_parquet
from dihedral.graph.json_lines import read_objects
from dihedral.graph.labels import COLUMNS
from dihedral.graph.numbering import BLANKS
from dihedral.graph.rdf import read_rdf_labels
from dihedral.graph.sources import JSON_SUFFIXES, RDF_SUFFIXES, TEXT_SUFFIXES, Source
from dihedral.graph.text import check_quotes, text_rows
from dihedral.io.files import parse_json

ROLES = {  # common names of the columns
    "id": ("id", "entity", "iri", "uri", "qid", "key"),
    "label": ("label", "name", "title"),
    "description": ("description", "comment"),
    "type": ("type", "class", "kind"),
    "language": ("language", "lang"),
}
MAX_JSON_BYTES = 256 << 20  # of a single JSON document
Row = Sequence[Any]


def read_labels(source: Any, languages: Sequence[str]) -> pa.Table:
    """Labels as a table with the columns id, label and, if they are given, description, type and language.

    languages: of RDF, the preferred one first.
    """
    if isinstance(source, (str, Path)):
        return _read_file(Path(source), languages)
    if isinstance(source, Mapping) and not _is_table(source):
        return _from_mapping(source, "labels")
    try:
        table = pa.table(source)
    except (TypeError, ValueError, pa.ArrowException):
        kind = type(source).__name__
        raise DihedralError(f"labels are a {kind}; give a file, a table, or a dict from names to labels") from None
    return _select(table, _choose(table.column_names, "the table of labels"))


def _is_table(source: Mapping[Any, Any]) -> bool:
    """Whether a dict holds columns."""
    return all(isinstance(value, Sequence) and not isinstance(value, str) for value in source.values()) and bool(source)


def _read_file(path: Path, languages: Sequence[str]) -> pa.Table:
    if not path.is_file():
        raise DihedralError(f"file {str(path)!r} does not exist; give a TSV, CSV, JSON, Parquet or RDF file of labels")
    source = Source(str(path), path)
    suffix = source.suffix
    if suffix in RDF_SUFFIXES:
        table = read_rdf_labels(source, languages)
    elif suffix == ".parquet":
        table = _read_parquet(source)
    elif suffix == ".json":
        table = _read_json(source)
    elif suffix in JSON_SUFFIXES:
        table = _from_objects((row for _, row in read_objects(source)), source.where)
    elif suffix in TEXT_SUFFIXES:
        table = _read_text(source)
    else:
        expected = ", ".join((*TEXT_SUFFIXES, ".json", *JSON_SUFFIXES, ".parquet", *RDF_SUFFIXES))
        raise DihedralError(f"{source.where} has the suffix {suffix!r}; labels are read from {expected}")
    if not len(table):
        raise DihedralError(f"{source.where} holds no labels; expected an id and a label per row")
    return table


def _choose(names: Iterable[str], where: str) -> dict[str, int]:
    """The places of the columns, by their common names."""
    lower = [str(name).strip().lower() for name in names]
    found = {role: lower.index(name) for role, common in ROLES.items() for name in reversed(common) if name in lower}
    for role in ("id", "label"):
        if role not in found:
            raise DihedralError(f"{where} has no column {role!r}; its columns are {', '.join(lower)[:200]}")
    return found


def _is_header(cells: Sequence[str]) -> bool:
    lower = [cell.strip().lower() for cell in cells]
    return all(any(name in lower for name in ROLES[role]) for role in ("id", "label"))


def _select(table: pa.Table, places: Mapping[str, int]) -> pa.Table:
    columns = {}
    for role, place in places.items():
        column = table.column(place)
        try:
            columns[role] = column.cast(pa.large_string()) if len(column) else pa.array([], pa.large_string())
        except pa.ArrowException:
            raise DihedralError(f"the column of {role}s has type {column.type}; labels are text") from None
    return pa.table(columns)


def _from_rows(rows: Sequence[Row], roles: Sequence[str]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(roles)
    return pa.table({role: pa.array(column, pa.large_string()) for role, column in zip(roles, columns, strict=True)})


def _read_text(source: Source) -> pa.Table:
    delimiter = TEXT_SUFFIXES[source.suffix]
    check_quotes(source, delimiter)
    rows: list[Row] = []
    places: list[int] = []
    roles: list[str] = []
    try:
        for number, cells in text_rows(source, delimiter):
            header = not places and _is_header(cells)
            if not places:
                chosen = _choose(cells, source.where) if header else _in_order(cells, source.where)
                roles, places = list(chosen), list(chosen.values())
            if header:
                continue
            if len(cells) <= max(places[:2]):
                raise DihedralError(f"{source.where}, line {number}: {len(cells)} columns; expected an id and a label")
            rows.append([cells[place].strip(BLANKS) if place < len(cells) else "" for place in places])
    except UnicodeDecodeError:
        raise DihedralError(f"{source.where} is not UTF-8 text; save the file as UTF-8") from None
    return _from_rows(rows, roles)


def _in_order(cells: Sequence[str], where: str) -> dict[str, int]:
    """The columns of a file without a header: id, label, description, type, language."""
    if len(cells) < 2:
        raise DihedralError(
            f"{where} has {len(cells)} columns; expected an id and a label, separated by tabs or commas"
        )
    return {role: place for place, role in enumerate(("id", *COLUMNS)) if place < len(cells)}


def _read_parquet(source: Source) -> pa.Table:
    with decoding_parquet(source) as work:
        about = work.line()
        places = _choose(about["columns"], source.where)
        work.ask({"used": list(places.values()), "watched": [], "max_values": 0})
        columns = {role: list(work.column()) for role in places}
        if any(sum(map(len, chunks)) != about["rows"] for chunks in columns.values()):
            raise work.failure(f"it claims {about['rows']} rows, which its columns do not have")
        work.finish()
    empty = pa.array([], pa.large_string())
    table = pa.table({role: pa.chunked_array(chunks or [empty]) for role, chunks in columns.items()})
    return _select(table, {role: place for place, role in enumerate(columns)})


def _read_json(source: Source) -> pa.Table:
    """A document {id: label}, {id: {"label": ..., ...}}, or a list of objects."""
    try:
        with source.plain() as stream:
            text = stream.read(MAX_JSON_BYTES + 1)
        if len(text) > MAX_JSON_BYTES:
            raise ValueError(f"it has more than {MAX_JSON_BYTES >> 20} MiB")
        content = parse_json(text)
    except (OSError, ValueError, RecursionError) as error:
        raise DihedralError(f"{source.where} cannot be read: {error}; for large files, write JSON lines") from None
    if isinstance(content, dict):
        return _from_mapping(content, source.where)
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise DihedralError(f"{source.where} holds neither an object nor a list of objects; write {{id: label}}")
    return _from_objects(content, source.where)


def _from_mapping(content: Mapping[str, Any], where: str) -> pa.Table:
    rows = ({"id": name, **(value if isinstance(value, dict) else {"label": value})} for name, value in content.items())
    return _from_objects(rows, where)


def _from_objects(objects: Iterable[Mapping[str, Any]], where: str) -> pa.Table:
    roles = ("id", *COLUMNS)
    rows: list[Row] = []
    for number, content in enumerate(objects, start=1):
        lower = {str(name).strip().lower(): value for name, value in content.items()}
        row = [next((lower[name] for name in ROLES[role] if name in lower), None) for role in roles]
        for role, value in zip(roles, row, strict=True):
            if not isinstance(value, (str, int, float, type(None))) or isinstance(value, bool):
                raise DihedralError(f"{where}, row {number}: {role} is {value!r:.80}; it must be text")
        if row[0] is None or row[1] is None:
            raise DihedralError(f"{where}, row {number}: {content!r:.80} has no id or no label")
        rows.append([None if value is None else _text(value) for value in row])
    return _from_rows(rows, roles)


def _text(value: str | float) -> str:
    """A value as text; half a character, which JSON can escape and UTF-8 cannot hold, becomes a question mark."""
    return str(value).encode("utf-8", "replace").decode()
