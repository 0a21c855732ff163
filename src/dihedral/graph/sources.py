"""Where triples lie: files in folders, and members of archives, which are never unpacked to disk."""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import pyarrow as pa

from dihedral.errors import DihedralError

TEXT_SUFFIXES = {".tsv": "\t", ".txt": "\t", ".csv": ","}
RDF_SUFFIXES = {  # with pyoxigraph's names of the formats
    ".nt": "N_TRIPLES", ".nq": "N_QUADS", ".ttl": "TURTLE", ".trig": "TRIG", ".jsonld": "JSON_LD",
    ".rdf": "RDF_XML", ".owl": "RDF_XML", ".xml": "RDF_XML",
}  # fmt: skip
SUFFIXES = (*TEXT_SUFFIXES, ".parquet", *RDF_SUFFIXES)
ARCHIVES = (".tar.gz", ".tgz", ".tar.xz", ".tar", ".zip")
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError, RuntimeError)


@dataclass(frozen=True)
class Source:
    """One file of triples: on disk, or read from an archive."""

    where: str  # for messages
    content: Path | bytes

    @property
    def name(self) -> str:
        return PurePosixPath(self.where).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.where).suffix.lower()

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    def native(self) -> pa.NativeFile:
        """For Arrow, whose threads read without Python."""
        return pa.BufferReader(self.content) if isinstance(self.content, bytes) else pa.OSFile(str(self.content))

    def plain(self) -> IO[bytes]:
        """For Python."""
        return io.BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")


def find_split(path: Path, split: str) -> Source | None:
    """The file of one split in a folder or an archive."""
    if path.is_dir():
        for suffix in SUFFIXES:
            file = path / f"{split}{suffix}"
            if file.is_file():
                return Source(str(file), file)
        return None
    with _open_archive(path) as (names, read):
        for name in sorted(names, key=lambda member: (member.count("/"), member)):
            member = PurePosixPath(name)
            if member.stem == split and member.suffix in SUFFIXES:
                return Source(f"{path}/{member.name}", read(name))
    return None


@contextmanager
def _open_archive(path: Path) -> Iterator[tuple[list[str], Callable[[str], bytes]]]:
    """The names of an archive's regular files, and a function that reads one."""
    with ExitStack() as stack:
        try:
            if path.suffix == ".zip":
                archive = stack.enter_context(zipfile.ZipFile(path))
                yield [info.filename for info in archive.infolist() if not info.is_dir()], archive.read
            else:
                tar = stack.enter_context(tarfile.open(path))

                def read(name: str) -> bytes:
                    stream = tar.extractfile(name)
                    assert stream is not None  # only regular files are named
                    return stream.read()

                yield [member.name for member in tar.getmembers() if member.isfile()], read
        except _DAMAGE as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise DihedralError(f"archive {str(path)!r} cannot be read: {reason}") from None


def stem(path: Path) -> str:
    """A file's name without the endings we know."""
    for suffix in (*ARCHIVES, *SUFFIXES):
        if path.name.endswith(suffix):
            return path.name[: -len(suffix)]
    return path.name
