"""Names to numbers while a graph is read, a block at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.triples import Triples, Vocabulary


class Numbering:
    """Names in order of first appearance, and what reading them brought along."""

    def __init__(self) -> None:
        self.entities: dict[str, int] = {}
        self.relations: dict[str, int] = {}
        self.prefixes: dict[str, str] = {}  # of IRIs
        self.notes: list[str] = []

    def number(self, table: pa.RecordBatch | pa.Table, where: str) -> Triples:
        """Three string columns to [n, 3] ids."""
        columns = [
            encode(table.column(0), self.entities, where),
            encode(table.column(1), self.relations, where),
            encode(table.column(2), self.entities, where),
        ]
        return np.stack(columns, axis=1)

    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        return (
            Vocabulary(list(self.entities), prefixes=self.prefixes),
            Vocabulary(list(self.relations), "relation", self.prefixes),
        )


def encode(column: pa.Array | pa.ChunkedArray, numbers: dict[str, int], where: str) -> NDArray[np.int32]:
    """A column to numbers; only its distinct names become Python strings."""
    if isinstance(column, pa.ChunkedArray):
        parts = [encode(chunk, numbers, where) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)
    if column.null_count:
        raise DihedralError(f"{where} has {column.null_count} missing values; every triple needs three names")
    try:
        if pa.types.is_dictionary(column.type):
            codes = column.indices.dictionary_encode()  # leaves out the names that no row uses
            distinct = column.dictionary.cast(pa.string()).take(codes.dictionary)
        else:
            codes = column.dictionary_encode()
            distinct = codes.dictionary.cast(pa.string())
    except pa.ArrowException:
        raise DihedralError(f"{where} has a column of {column.type}; names are text or numbers") from None
    if distinct.null_count:
        raise DihedralError(f"{where} has missing values; every triple needs three names")
    try:
        local = distinct.to_pylist()
    except UnicodeDecodeError:
        raise DihedralError(f"{where} has a name that is not UTF-8 text") from None
    if "" in local:
        raise DihedralError(f"{where} has an empty name; every triple needs three names")
    ids = np.fromiter((numbers.setdefault(name, len(numbers)) for name in local), np.int32, len(local))
    return ids[codes.indices.to_numpy()]
