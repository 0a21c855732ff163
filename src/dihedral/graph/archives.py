"""Find the files of triples in folders and archives; archives are never unpacked to disk.

Archives are not trusted: the unpacked size is limited by the archive's size, links and devices are ignored, and the
names of members are only compared, never opened.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from dihedral.errors import DihedralError
from dihedral.graph.triples import SPLIT_NAMES
from dihedral.io.limits import max_decoded, too_large
from dihedral.io.sources import SUFFIXES, Source, split_name

ARCHIVES = (".tar.gz", ".tgz", ".tar.xz", ".tar", ".zip")
MAX_MEMBERS = 10_000
_DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, struct.error, EOFError, OSError, MemoryError,
    ArithmeticError, LookupError, RuntimeError, ValueError,
)  # fmt: skip
Member = tuple[str, Callable[[], bytes]]  # a name and a function that reads the file


def find_split(path: Path, split: str) -> Source | None:
    """The file of one split in a folder or an archive, if there is one."""
    if path.is_dir():
        try:
            names = {file.name: file for file in path.iterdir() if file.is_file()}
        except OSError as error:
            raise DihedralError(f"folder {str(path)!r} cannot be read: {error.strerror}") from None
        found = _split_files(names, split)
        return Source(str(names[found[0]]), names[found[0]], tuple(found[1:])) if found else None
    with _open_archive(path) as members:
        files = dict(reversed(members))  # the first of members with the same name counts
        found = _split_files(files, split)
        if not found:
            return None
        depth = found[0].count("/")
        others = tuple(PurePosixPath(name).name for name in found[1:] if name.count("/") == depth)
        return Source(f"{path}/{PurePosixPath(found[0]).name}", files[found[0]](), others)


def holds_data(path: Path) -> bool:
    """Whether there is a file at this path, or a folder with training triples: the folder of a model has none."""
    return find_split(path, "train") is not None if path.is_dir() else path.exists()


def _split_files(names: Iterable[str], split: str) -> list[str]:
    """The files of a split, the preferred one first: close to the root, with a common name and format."""
    order = [name for name, meaning in SPLIT_NAMES.items() if meaning == split]
    found = []
    for name in names:
        stem, suffix, compression = split_name(PurePosixPath(name).name)
        if stem.lower() in order and suffix in SUFFIXES:
            preference = order.index(stem.lower()), SUFFIXES.index(suffix), compression
            found.append((name.count("/"), *preference, name))
    return [name for *_, name in sorted(found)]


@contextmanager
def _open_archive(path: Path) -> Iterator[list[Member]]:
    """The regular files of an archive."""
    with ExitStack() as stack:
        try:
            max_bytes = max_decoded(path.stat().st_size)
            read = _zip_members if path.suffix.lower() == ".zip" else _tar_members
            yield read(path, max_bytes, stack)
        except DihedralError:
            raise
        except _DAMAGE as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise DihedralError(f"archive {str(path)!r} cannot be read: {reason[:300]}") from None


def _zip_members(path: Path, max_bytes: int, stack: ExitStack) -> list[Member]:
    archive = stack.enter_context(zipfile.ZipFile(path))
    if len(archive.infolist()) > MAX_MEMBERS:
        raise _too_many(path)

    def read(member: zipfile.ZipInfo) -> bytes:
        with archive.open(member) as stream:
            content = stream.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise too_large(str(path), max_bytes, "archive")
        return content

    return [(member.filename, partial(read, member)) for member in archive.infolist() if not member.is_dir()]


def _tar_members(path: Path, max_bytes: int, stack: ExitStack) -> list[Member]:
    tar = stack.enter_context(tarfile.TarFile(fileobj=_Unpacked(path, max_bytes, stack)))

    def read(member: tarfile.TarInfo) -> bytes:
        stream = tar.extractfile(member)
        assert stream is not None  # only regular files are listed
        return stream.read()

    members: list[Member] = []
    for number, member in enumerate(tar):
        if number >= MAX_MEMBERS:
            raise _too_many(path)
        if member.isfile() and not member.issparse():  # the holes of a sparse file take no space in the archive
            members.append((member.name, partial(read, member)))
    return members


class _Unpacked(io.RawIOBase):
    """The content of a compressed tar file; reading beyond `max_bytes` is an error."""

    def __init__(self, path: Path, max_bytes: int, stack: ExitStack) -> None:
        self.path, self.max_bytes = path, max_bytes
        packed = stack.enter_context(path.open("rb"))
        magic = packed.read(6)
        packed.seek(0)
        self.stream: Any = packed
        for start, module in ((b"\x1f\x8b", gzip), (b"\xfd7zXZ\0", lzma), (b"BZh", bz2)):
            if magic.startswith(start):
                self.stream = stack.enter_context(module.open(packed))

    def read(self, size: int = -1) -> bytes:
        place = self.stream.tell()
        self._check(place + max(0, size))
        block: bytes = self.stream.read(size if size >= 0 else self.max_bytes + 1 - place)
        self._check(place + len(block))
        return block

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        self._check(place)
        return int(self.stream.seek(place, whence))

    def tell(self) -> int:
        return int(self.stream.tell())

    def _check(self, place: int) -> None:
        if place > self.max_bytes:
            raise too_large(str(self.path), self.max_bytes, "archive")


def _too_many(path: Path) -> DihedralError:
    return DihedralError(f"archive {str(path)!r} holds more than {MAX_MEMBERS} files; expected train, valid and test")


def stem(path: Path) -> str:
    """A file's name without known suffixes."""
    for suffix in ARCHIVES:
        if path.name.endswith(suffix):
            return path.name[: -len(suffix)]
    name, suffix, _ = split_name(path.name)
    return name if suffix in SUFFIXES else path.name
