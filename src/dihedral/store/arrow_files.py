"""Arrow files of a model folder: uncompressed, so that they are memory-mapped and never larger than they look."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.io.files import atomic_path, open_file

_MAGIC = b"ARROW1\0\0"
_COMPRESSION = 3  # the number of this field in the metadata of a record batch
_HEADER = 2  # the number of the field of a message that holds that metadata


def write_table(path: Path, columns: dict[str, pa.Array]) -> None:
    table = pa.table(columns)
    with atomic_path(path) as partial, pa.ipc.new_file(str(partial), table.schema) as writer:
        writer.write_table(table)


def read_table(path: Path, types: dict[str, tuple[pa.DataType, ...]], content: pa.Buffer | None = None) -> pa.Table:
    """Read a memory-mapped table whose columns have one of the given types each; a last column may be missing.

    Messages are read in their order. The index at the end of the file, which could refer to others, is not used.
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
