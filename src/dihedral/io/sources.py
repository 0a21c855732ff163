"""A file that is read: on disk or taken from an archive, possibly compressed, of a known format."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.io.limits import max_decoded, too_large

TEXT_SUFFIXES = {".tsv": "\t", ".txt": "\t", ".csv": ","}
RDF_SUFFIXES = {  # with pyoxigraph's name of each format
    ".nt": "N_TRIPLES", ".nq": "N_QUADS", ".ttl": "TURTLE", ".trig": "TRIG", ".jsonld": "JSON_LD",
    ".rdf": "RDF_XML", ".owl": "RDF_XML", ".xml": "RDF_XML",
}  # fmt: skip
JSON_SUFFIXES = (".jsonl", ".ndjson")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet", *RDF_SUFFIXES, *JSON_SUFFIXES)  # each has a reader in `graph.triple_files`
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # with Arrow's name of each


@dataclass(frozen=True)
class Source:
    """One file, on disk or read from an archive."""

    where: str  # the path, for error messages
    content: Path | bytes
    others: tuple[str, ...] = ()  # the names of files of the same split that are not used

    @property
    def name(self) -> str:
        return PurePosixPath(self.where).name

    @property
    def suffix(self) -> str:
        """The suffix of the format, without that of a compression."""
        return split_name(self.name)[1]

    @property
    def compression(self) -> str:
        """Arrow's name of the compression; empty if there is none."""
        return COMPRESSIONS.get(split_name(self.name)[2], "")

    @property
    def size(self) -> int:
        """Size in bytes, as stored."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    @property
    def is_empty(self) -> bool:
        with self.plain() as stream:
            return not stream.read(1)

    def native(self) -> pa.NativeFile:
        """A stream for Arrow, whose threads read without Python unless the file is compressed."""
        if self.compression:
            return pa.PythonFile(self.plain(), "r")
        return pa.BufferReader(self.content) if isinstance(self.content, bytes) else pa.OSFile(str(self.content))

    def plain(self) -> IO[bytes]:
        """A stream for Python."""
        if self.compression:
            return io.BufferedReader(_Inflated(self))
        return io.BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")


class _Inflated(io.RawIOBase):
    """The content of a compressed file; reading far beyond its size is an error."""

    def __init__(self, source: Source) -> None:
        self.where = source.where
        self.max_bytes = max_decoded(source.size)
        self.done = 0
        if not pa.Codec.is_available(source.compression):
            raise DihedralError(f"{self.where} is compressed with {source.compression}, which this pyarrow cannot read")
        packed = pa.BufferReader(source.content) if isinstance(source.content, bytes) else str(source.content)
        self.stream = pa.CompressedInputStream(packed, source.compression)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            block = self.stream.read(len(buffer))
        except (pa.ArrowException, OSError) as error:
            raise DihedralError(f"{self.where} cannot be read: {str(error).splitlines()[0]}") from None
        buffer[: len(block)] = block
        self.done += len(block)
        if self.done > self.max_bytes:
            raise too_large(self.where, self.max_bytes)
        return len(block)

    def close(self) -> None:
        self.stream.close()
        super().close()


def split_name(name: str) -> tuple[str, str, str]:
    """A file's name without suffixes, the suffix of its format and that of its compression."""
    path = PurePosixPath(name)
    compression = path.suffix.lower()
    if compression not in COMPRESSIONS:
        return path.stem, compression, ""
    path = PurePosixPath(path.stem)
    return path.stem, path.suffix.lower(), compression
