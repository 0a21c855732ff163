"""Find the files of triples in folders and archives, which are not trusted and never unpacked to disk."""

from __future__ import annotations

import gzip
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from dihedral.errors import DihedralError
from dihedral.graph.triples import SPLIT_NAMES
from dihedral.io.sources import SUFFIXES, Bounded, Source, max_decoded, split_name

ARCHIVES = (".tar.gz", ".tgz", ".tar.xz", ".tar", ".zip")
COMPRESSIONS: dict[bytes, Any] = {b"\x1f\x8b": gzip, b"\xfd7zXZ\0": lzma}  # of tar files, by their first bytes
MAX_MEMBERS = 10_000
_DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, struct.error, EOFError, OSError, MemoryError,
    ArithmeticError, LookupError, RuntimeError, ValueError,
)  # fmt: skip


def find_split(path: Path, split: str) -> Source | None:
    """The file of one split in a folder or an archive, if there is one."""
    if path.is_dir():
        try:
            names = {file.name: file for file in path.iterdir() if file.is_file()}
        except OSError as error:
            raise DihedralError(f"folder {str(path)!r} cannot be read: {error.strerror}") from None
        found = _split_files(names, split)
        return Source(str(names[found[0]]), names[found[0]], tuple(found[1:])) if found else None
    found = _split_files(_unpack(path)[0], split)
    if not found:
        return None
    depth = found[0].count("/")
    others = tuple(PurePosixPath(name).name for name in found[1:] if name.count("/") == depth)
    return Source(f"{path}/{PurePosixPath(found[0]).name}", _unpack(path, found[0])[1], others)


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


def _unpack(path: Path, wanted: str = "") -> tuple[list[str], bytes]:
    """The names of the regular files in an archive, and the content of the first with a given name."""
    names, content = [], b""
    try:
        with ExitStack() as stack:
            max_bytes = max_decoded(path.stat().st_size)
            for number, (name, is_file, open_member) in enumerate(_members(path, max_bytes, stack)):
                if number >= MAX_MEMBERS:
                    raise DihedralError(
                        f"archive {str(path)!r} holds more than {MAX_MEMBERS} files; expected train, valid and test"
                    )
                if is_file and name not in names:
                    names.append(name)
                    if name == wanted:
                        content = Bounded(open_member(), str(path), max_bytes, "archive").read()
    except DihedralError:
        raise
    except _DAMAGE as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DihedralError(f"archive {str(path)!r} cannot be read: {reason[:300]}") from None
    return names, content


def _members(path: Path, max_bytes: int, stack: ExitStack) -> Iterator[tuple[str, bool, Callable[[], Any]]]:
    """The name of each member, whether it is a regular file, and how to open it before the next is asked for."""
    if path.suffix.lower() == ".zip":
        archive = stack.enter_context(zipfile.ZipFile(path))
        for entry in archive.infolist():
            yield entry.filename, not entry.is_dir(), partial(archive.open, entry)
        return
    packed = stack.enter_context(path.open("rb"))
    magic = packed.peek(6)
    module = next((module for start, module in COMPRESSIONS.items() if magic.startswith(start)), None)
    unpacked = Bounded(module.open(packed) if module else packed, str(path), max_bytes, "archive")
    with tarfile.open(fileobj=unpacked, mode="r|") as tar:
        for member in tar:
            unpacked.check(tar.offset)  # where the next member starts
            # the holes of a sparse file take no space in the archive
            yield member.name, member.isfile() and not member.issparse(), partial(tar.extractfile, member)


def stem(path: Path) -> str:
    """A file's name without known suffixes."""
    for suffix in ARCHIVES:
        if path.name.endswith(suffix):
            return path.name[: -len(suffix)]
    name, suffix, _ = split_name(path.name)
    return name if suffix in SUFFIXES else path.name
