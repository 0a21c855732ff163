"""Read labels from TSV, CSV, JSON, JSON lines, Parquet and RDF files, and from data in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.graph.rdf import read_rdf_labels
from dihedral.io.files import parse_json
from dihedral.io.sources import JSON_SUFFIXES, RDF_SUFFIXES, TEXT_SUFFIXES, Source
from dihedral.io.table_files import Columns, as_strings, json_rows, json_text, read_table, string_table

ROLES = {  # common names of the columns
    "id": ("id", "entity", "iri", "uri", "qid", "key"),
    "label": ("label", "name", "title"),
    "description": ("description", "comment"),
    "type": ("type", "class", "kind"),
    "language": ("language", "lang"),
}
IN_ORDER = tuple(ROLES)  # the columns of a file without a header
MAX_JSON_BYTES = 256 << 20  # a single JSON document; JSON lines may be longer


def read_labels(source: Any, languages: Sequence[str]) -> pa.Table:
    """Labels as a table with id, label and, if given, description, type and language; languages: of RDF."""
    if isinstance(source, (str, Path)):
        return _read_file(Path(source), languages)
    if isinstance(source, Mapping):
        are_columns = [isinstance(value, Sequence) and not isinstance(value, str) for value in source.values()]
        if not are_columns or not all(are_columns):
            return _from_mapping(source, "labels")
    try:
        table = pa.table(source)
    except (TypeError, ValueError, pa.ArrowException):
        kind = type(source).__name__
        raise DihedralError(f"labels are a {kind}; give a file, a table, or a dict from names to labels") from None
    columns = _by_name(table.column_names, "the table of labels", must=True) or {}
    return pa.table({role: as_strings(table.column(place), role, "labels") for role, place in columns.items()})


def _read_file(path: Path, languages: Sequence[str]) -> pa.Table:
    if not path.is_file():
        raise DihedralError(f"file {str(path)!r} does not exist; give a TSV, CSV, JSON, Parquet or RDF file of labels")
    source = Source(str(path), path)
    suffix = source.suffix
    if suffix in RDF_SUFFIXES:
        table = read_rdf_labels(source, languages)
    elif suffix == ".json":
        table = _read_json(source)
    elif suffix in JSON_SUFFIXES:
        table = _from_objects((row for _, row in json_rows(source)), source.where)
    elif suffix in (*TEXT_SUFFIXES, ".parquet"):
        by_name = partial(_by_name, where=source.where, must=suffix == ".parquet")
        table = read_table(source, by_name, IN_ORDER, required=2, expected="expected an id and a label")
    else:
        expected = ", ".join((*TEXT_SUFFIXES, ".json", *JSON_SUFFIXES, ".parquet", *RDF_SUFFIXES))
        raise DihedralError(f"{source.where} has the suffix {suffix!r}; labels are read from {expected}")
    if not len(table):
        raise DihedralError(f"{source.where} holds no labels; expected an id and a label per row")
    return table


def _by_name(names: Iterable[str], where: str, must: bool) -> Columns | None:
    """The places of the columns, by their common names; None if those of id and label are not there and need not be."""
    lower = [str(name).strip().lower() for name in names]
    found = {role: lower.index(name) for role, common in ROLES.items() for name in reversed(common) if name in lower}
    for role in ("id", "label"):
        if role not in found and must:
            raise DihedralError(f"{where} has no column {role!r}; its columns are {', '.join(lower)[:200]}")
    return found if "id" in found and "label" in found else None


def _read_json(source: Source) -> pa.Table:
    """A document {id: label}, {id: {"label": ..., ...}}, or a list of objects."""
    try:
        with source.plain() as stream:
            text = stream.read(MAX_JSON_BYTES + 1)
        if len(text) > MAX_JSON_BYTES:
            raise ValueError(f"it has more than {MAX_JSON_BYTES >> 20} MiB")
        content = parse_json(text, half_characters=True)
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
    rows: list[list[str | None]] = []
    for number, content in enumerate(objects, start=1):
        lower = {str(name).strip().lower(): value for name, value in content.items()}
        row = [next((lower[name] for name in ROLES[role] if name in lower), None) for role in IN_ORDER]
        for role, value in zip(IN_ORDER, row, strict=True):
            if not isinstance(value, (str, int, float, type(None))) or isinstance(value, bool):
                raise DihedralError(f"{where}, row {number}: {role} is {value!r:.80}; it must be text")
        if row[0] is None or row[1] is row[3] is None:
            raise DihedralError(f"{where}, row {number}: {content!r:.80} has no id, or neither a label nor a type")
        rows.append([None if value is None else json_text(value) for value in row])
    return string_table(IN_ORDER, rows)
