"""The graph of a model folder as uncompressed, memory-mapped Arrow files, checked at the latest when first used."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.labels import COLUMNS, Labels
from dihedral.graph.name_search import WordIndex
from dihedral.graph.triples import SPLITS, Graph, Triples
from dihedral.graph.vocabulary import Vocabulary
from dihedral.io.files import atomic_path, open_file
from dihedral.store.manifest import Manifest, read_current

MAX_CHECKED_ON_OPEN = 2_000_000  # names or triples; more of them are checked when they are first used
NewFile = Callable[[str, str], Path]  # where to write a file, by its usual name and its role
_MAGIC = b"ARROW1\0\0"
_COMPRESSION = 3  # the number of this field in the metadata of a record batch
_HEADER = 2  # the number of the field of a message that holds that metadata


def write_graph(graph: Graph, new_file: NewFile) -> None:
    """Write the names, labels, words and triples, which are sorted by split."""
    for names, file in ((graph.entities, "entities.arrow"), (graph.relations, "relations.arrow")):
        columns = {"name": names.array, "order": pa.array(names.order)}
        write_table(new_file(file, f"{names.kind}_names"), columns)
    write_labels(graph, new_file)
    parts = [graph.split(split) for split in SPLITS]
    columns = {
        name: pa.array(np.concatenate([part[:, i] for part in parts]).astype(np.int32))
        for i, name in enumerate(("head", "relation", "tail"))
    }
    columns["split"] = pa.array(np.repeat(np.arange(3, dtype=np.uint8), [len(part) for part in parts]))
    write_table(new_file("known.arrow", "known"), columns)


def write_labels(graph: Graph, new_file: NewFile) -> None:
    """Write the labels, if there are any, and the words of names and labels for the search."""
    for names, plural in ((graph.entities, "entities"), (graph.relations, "relations")):
        if names.labels is not None:
            texts = {name: each.array for name, each in names.labels.texts.items()}
            file = new_file(f"{plural}.labels.arrow", f"{names.kind}_labels")
            write_table(file, texts | {"order": pa.array(names.labels.order)})
    write_table(new_file("words.arrow", "words"), WordIndex.build(graph.entities, graph.by_degree).to_arrow())


def load_graph(folder: Path, manifest: Manifest) -> Graph:
    """The graph of a model folder."""
    files, prefixes = manifest.files, manifest.prefixes
    entities = _load_names(folder / files["entity_names"], "entity", prefixes)
    relations = _load_names(folder / files["relation_names"], "relation", prefixes)
    if (len(entities), len(relations)) != (manifest.entities, manifest.relations):
        raise DihedralError(f"vocabularies in {str(folder)!r} do not fit its model; copy the folder again")
    for names in (entities, relations):
        if f"{names.kind}_labels" in files:
            names.labels = _load_labels(folder / files[f"{names.kind}_labels"], len(names))
    known = folder / files["known"]
    train, valid, test = _load_triples(known)
    graph = Graph(entities, relations, train, valid, test, manifest.graph, tuple(manifest.notes), file=str(known))
    for vocabulary in (entities, relations):
        if len(vocabulary) <= MAX_CHECKED_ON_OPEN:
            vocabulary.check()
    if graph.num_triples <= MAX_CHECKED_ON_OPEN:
        graph.check()
    return graph


def load_words(folder: Path) -> WordIndex | None:
    """The words of entity names and labels; None in the folder of an older version."""
    return read_current(folder, partial(_load_words, folder))


def _load_words(folder: Path, manifest: Manifest) -> WordIndex | None:
    if "words" not in manifest.files:
        return None
    path = folder / manifest.files["words"]
    table = read_table(path, {"word": (pa.string(), pa.large_string()), "ranks": (pa.list_(pa.int32()),)})
    if table.column_names != ["word", "ranks"]:
        raise DihedralError(f"{str(path)!r} cannot be read: it has no words; copy the folder again")
    return WordIndex.from_arrow(table, manifest.entities, str(path))


def _load_names(path: Path, kind: str, prefixes: dict[str, str]) -> Vocabulary:
    """A memory-mapped vocabulary, with its sorted order if that is stored."""
    table = read_table(path, {"name": (pa.string(), pa.large_string()), "order": (pa.int32(),)})
    names = _column(table, "name")
    if names.null_count:
        raise DihedralError(f"{str(path)!r} has {names.null_count} missing names; copy the folder again")
    order = _numbers(table, "order", np.int32) if "order" in table.column_names else None
    return Vocabulary(names, kind, prefixes, order=order, file=str(path))


def _load_labels(path: Path, count: int) -> Labels:
    """Memory-mapped labels of a vocabulary with `count` names."""
    types: dict[str, tuple[pa.DataType, ...]] = dict.fromkeys(COLUMNS, (pa.string(), pa.large_string()))
    table = read_table(path, types | {"order": (pa.int32(),)})
    texts = {name: _column(table, name) for name in COLUMNS if name in table.column_names}
    if "label" not in texts or any(each.null_count or len(each) != count for each in texts.values()):
        raise DihedralError(f"{str(path)!r} cannot be read: it does not hold {count} labels; copy the folder again")
    labels = Labels(texts, _numbers(table, "order", np.int32), str(path))
    if count <= MAX_CHECKED_ON_OPEN:
        labels.check()
    return labels


def _load_triples(path: Path) -> list[Triples]:
    """Train, valid and test, as views of the memory-mapped file if its columns allow that."""
    mapped = np.memmap(path, np.uint8, mode="c")  # torch requires writable memory; the file is not written
    types = {name: (pa.int32(),) for name in ("head", "relation", "tail")} | {"split": (pa.uint8(),)}
    table = read_table(path, types, pa.py_buffer(mapped))
    columns = [_numbers(table, name, np.int32) for name in ("head", "relation", "tail")]
    split = _numbers(table, "split", np.uint8)
    if split.max(initial=0) > 2:
        raise ValueError(f"splits in {path.name} are not train, valid and test")
    first, second, third = (column.ctypes.data - mapped.ctypes.data for column in columns)
    if len(table) and 0 <= first < second < len(mapped) and second - first == third - second:
        triples = np.ndarray((len(table), 3), np.int32, mapped, first, (4, second - first))
    else:
        triples = np.stack(columns, axis=1)
    if (split[:-1] > split[1:]).any():
        return [triples[split == number] for number in range(3)]
    return np.split(triples, np.searchsorted(split, np.array([1, 2], np.uint8)))


def _column(table: pa.Table, name: str) -> pa.Array:
    """A column as one array, without a copy if it has one chunk."""
    column = table.column(name)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    array.validate()
    return array


def _numbers(table: pa.Table, name: str, kind: type[np.generic]) -> NDArray[Any]:
    """A column of numbers without a copy; Arrow's own method imports pandas, which is slower than opening a model."""
    array = _column(table, name)
    if array.type != pa.from_numpy_dtype(kind) or array.null_count:
        raise ValueError(f"column {name} has type {array.type} and {array.null_count} missing values")
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * np.dtype(kind).itemsize)


def write_table(path: Path, columns: dict[str, pa.Array]) -> None:
    table = pa.table(columns)
    with atomic_path(path) as partial, pa.ipc.new_file(str(partial), table.schema) as writer:
        writer.write_table(table)


def read_table(path: Path, types: dict[str, tuple[pa.DataType, ...]], content: pa.Buffer | None = None) -> pa.Table:
    """Read a memory-mapped table, message by message, whose columns have one of the given types each.

    content: the mapped file, if the caller needs memory of its own.
    """
    try:
        with open(path, "rb", opener=open_file) as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("it is not an Arrow file")
        stream = pa.BufferReader(content) if content is not None else pa.memory_map(str(path))
        stream.seek(len(_MAGIC))
        schema = pa.ipc.read_schema(pa.ipc.read_message(stream))
        for field in schema:
            if field.type not in types.get(field.name, ()):
                raise ValueError(f"its column {field.name!r:.80} has type {field.type!s:.80}")
        batches = []
        while (message := _next_message(stream)) is not None:
            if message.type != "record batch" or _field(message.metadata, _HEADER, _COMPRESSION):
                raise ValueError("it is compressed or holds more than plain columns; model files are not compressed")
            batches.append(pa.ipc.read_record_batch(message, schema))
        return pa.Table.from_batches(batches, schema)
    except (pa.ArrowException, EOFError, OSError, ValueError, struct.error) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DihedralError(f"{str(path)!r} cannot be read: {reason}") from None


def _next_message(stream: pa.NativeFile) -> pa.ipc.Message | None:
    try:
        return pa.ipc.read_message(stream)
    except EOFError:  # the mark at the end of the messages
        return None


def _field(metadata: pa.Buffer, *numbers: int) -> int:
    """The place of a field in a FlatBuffer, from table to table by the numbers of fields; 0 if it is not there."""
    place = 0
    for number in numbers:
        table = place + struct.unpack_from("<I", metadata, place)[0]
        fields = table - struct.unpack_from("<i", metadata, table)[0]
        size = struct.unpack_from("<H", metadata, fields)[0]
        if fields < 0 or size <= 4 + 2 * number:
            return 0
        offset = struct.unpack_from("<H", metadata, fields + 4 + 2 * number)[0]
        if not offset:
            return 0
        place = table + offset
    return place
