"""A file that is read, on disk or from an archive, possibly compressed; what it decodes to is limited."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import pyarrow as pa

from dihedral.errors import DihedralError

TEXT_SUFFIXES = {".tsv": "\t", ".txt": "\t", ".csv": ","}
RDF_SUFFIXES = {  # with pyoxigraph's name of each format
    ".nt": "N_TRIPLES", ".nq": "N_QUADS", ".ttl": "TURTLE", ".trig": "TRIG", ".jsonld": "JSON_LD",
    ".rdf": "RDF_XML", ".owl": "RDF_XML", ".xml": "RDF_XML",
}  # fmt: skip
JSON_SUFFIXES = (".jsonl", ".ndjson")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet", *RDF_SUFFIXES, *JSON_SUFFIXES)  # each has a reader in `graph.triple_files`
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # with Arrow's name of each
SETTING = "DIHEDRAL_MAX_DECODED_MB"
MAX_RATIO = 100  # decoded to stored size; triples usually compress ten times
MIN_DECODED = 64 << 20  # bytes that any file may decode to, however small it is


def max_decoded(size: int) -> int:
    """The bytes that a file of this size may decode to: 100 times its size, at least 64 MiB, or the setting.

    >>> max_decoded(1000) >> 20, max_decoded(10**9) // 10**9
    (64, 100)
    """
    given = os.environ.get(SETTING)
    if not given:
        return max(MIN_DECODED, MAX_RATIO * size)
    if not given.isascii() or not given.isdigit() or not 0 < int(given) < 1 << 32:
        raise DihedralError(f"{SETTING} is {given!r:.80}; it must be a whole number of MiB")
    return int(given) << 20


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
            packed = pa.BufferReader(self.content) if isinstance(self.content, bytes) else str(self.content)
            stream = pa.CompressedInputStream(packed, self.compression)
            return io.BufferedReader(Bounded(stream, self.where, max_decoded(self.size)))
        return io.BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")


class Bounded(io.RawIOBase):
    """A stream of unpacked bytes; reading more than `max_bytes` of them is an error."""

    def __init__(self, stream: Any, where: str, max_bytes: int, kind: str = "file") -> None:
        self.stream, self.where, self.max_bytes, self.kind = stream, where, max_bytes, kind
        self.done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            block = self.stream.read(len(buffer))
        except (pa.ArrowException, OSError) as error:
            raise DihedralError(f"{self.where} cannot be read: {str(error).splitlines()[0]}") from None
        buffer[: len(block)] = block
        self.done += len(block)
        self.check(self.done)
        return len(block)

    def check(self, size: int) -> None:
        if size > self.max_bytes:
            raise DihedralError(
                f"{self.kind} {self.where!r} unpacks to more than {self.max_bytes >> 20} MiB, far beyond its size; if "
                f"you trust it, unpack it and give what it holds, or set {SETTING}"
            )

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
