"""Malicious archives: bombs, huge declared sizes, path traversal, links and devices.

Each is refused in one sentence or read safely, within limits on time and memory, and writes nothing.
"""

from __future__ import annotations

import functools
import gzip
import io
import lzma
import resource
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dihedral as dh
from soak.children import GIB, is_clear, run_child
from soak.tally import Tally

MAX_SECONDS = 300.0  # a process that hangs, not a busy machine
MAX_MEMORY = 192 << 20
BOMB_MIB = 256
TRIPLES = b"a\tr\tb\nb\tr\tc\nc\tr\ta\n"
SECRET = "secret-of-another-file"


def run(tally: Tally, amount: int, seed: int, folder: Path) -> None:
    """Open every archive; none may expose the content of a file outside it."""
    for name, make, refused in CASES:
        place = folder / name
        place.mkdir()
        (place / "secret.txt").write_text(f"{SECRET}\tr\t{SECRET}\n")
        ending = run_child(functools.partial(make, place), seconds=MAX_SECONDS)
        if tally.check(ending.how == "done", f"{name} could not be created: {ending}"):
            before = sorted(folder.rglob("*"))
            work = functools.partial(open_archive, place / ending.value)
            ending = run_child(work, seconds=MAX_SECONDS, memory=2 * GIB)
            tally.count(ending.how)
            expected = "refused" if refused else "done"
            if tally.check(ending.how == expected, f"{name} should be {expected}, but {ending}"):
                peak, names = ending.value if not refused else (0, "")
                tally.check(not refused or is_clear(ending.value), f"{name}: unclear message: {ending.value}")
                tally.check(peak < MAX_MEMORY, f"{name} used {peak >> 20} MiB")
                tally.check(SECRET not in names, f"{name} read a file outside itself")
            tally.check(sorted(folder.rglob("*")) == before, f"{name} wrote files")
        tally.advance()


def open_archive(path: Path) -> tuple[int, str]:
    """Read a graph; returns the memory used and the names."""
    before = _peak()
    try:
        graph = dh.load_graph(path)
        return _peak() - before, " ".join(graph.entities)
    finally:
        if _peak() - before > MAX_MEMORY:  # also if it was refused, but too late
            raise RuntimeError(f"{(_peak() - before) >> 20} MiB were used")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- zip ------------------------------------------------------------------------------------------------


def zip_bomb(folder: Path) -> str:
    """One member that is a thousand times larger than its compressed size."""
    (folder / "train.txt").write_bytes(b"".join(_repeated(BOMB_MIB)))
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "train.txt", "train.txt")
    (folder / "train.txt").unlink()
    return "bomb.zip"


def zip_with_false_size(folder: Path) -> str:
    """A member whose header declares a small size."""
    zip_bomb(folder)
    path = folder / "bomb.zip"
    content = bytearray(path.read_bytes())
    size = (BOMB_MIB << 20).to_bytes(4, "little")
    while (at := content.find(size)) >= 0:
        content[at : at + 4] = (100).to_bytes(4, "little")
    path.write_bytes(content)
    return path.name


def nested_zip(folder: Path) -> str:
    """Nested zip files, which are never opened."""
    content = b"0" * (1 << 20)
    for level in range(6):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(16):
                archive.writestr(f"train{number if level else ''}.zip", content)
        content = packed.getvalue()
    (folder / "nested.zip").write_bytes(content)
    return "nested.zip"


def many_members(folder: Path) -> str:
    with zipfile.ZipFile(folder / "many.zip", "w") as archive:
        for number in range(60_000):
            archive.writestr(f"{number}", b"")
    return "many.zip"


def overlapping_members(folder: Path) -> str:
    """Many members that share the same compressed bytes, as in advanced zip bombs; only train.txt is read."""
    with zipfile.ZipFile(folder / "overlap.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.txt", TRIPLES * 100_000)
        first = archive.infolist()[0]
        for number in range(1000):
            copy = zipfile.ZipInfo(f"{number}.txt")
            copy.header_offset, copy.compress_type = first.header_offset, first.compress_type
            copy.CRC, copy.compress_size, copy.file_size = first.CRC, first.compress_size, first.file_size
            archive.filelist.append(copy)
    return "overlap.zip"


def zip_escape(folder: Path) -> str:
    """Members that extraction would write outside the target folder."""
    with zipfile.ZipFile(folder / "escape.zip", "w") as archive:
        for name in ("../train.txt", "/tmp/valid.txt", "..\\..\\test.txt"):
            archive.writestr(name, TRIPLES)
    return "escape.zip"


def zip_link(folder: Path) -> str:
    """A symbolic link in the format of zip files: the content of the member is the target."""
    with zipfile.ZipFile(folder / "link.zip", "w") as archive:
        member = zipfile.ZipInfo("train.txt")
        member.create_system, member.external_attr = 3, 0o120777 << 16
        archive.writestr(member, str(folder / "secret.txt"))
    return "link.zip"


# --- tar ------------------------------------------------------------------------------------------------


def tar_bomb(folder: Path, name: str = "bomb.tar.gz", member: str = "train.txt") -> str:
    """One line, repeated."""
    info = tarfile.TarInfo(member)
    info.size = BOMB_MIB << 20
    packer: Any = lzma if name.endswith("xz") else gzip
    options: dict[str, Any] = {"preset": 0} if packer is lzma else {}
    with packer.open(folder / name, "wb", **options) as stream:
        stream.write(info.tobuf())
        for block in _repeated(BOMB_MIB):
            stream.write(block)
        stream.write(bytes(1024))
    return name


def tar_of_headers(folder: Path) -> str:
    """Millions of empty members, which compress to almost nothing."""
    header = tarfile.TarInfo("x").tobuf()
    with gzip.open(folder / "headers.tar.gz", "wb") as stream:
        for _ in range(1000):
            stream.write(header * 2000)
    return "headers.tar.gz"


def huge_pax_header(folder: Path) -> str:
    """An extended header, which tar readers load completely into memory."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, BOMB_MIB << 20
    with gzip.open(folder / "pax.tar.gz", "wb") as stream:
        stream.write(info.tobuf())
        for block in _repeated(BOMB_MIB):
            stream.write(block)
    return "pax.tar.gz"


def huge_declared_size(folder: Path) -> str:
    """A member with a declared size of 8 EiB."""
    info = tarfile.TarInfo("train.txt")
    info.size = 8 << 60
    (folder / "huge.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + TRIPLES)
    return "huge.tar"


def sparse_tar(folder: Path) -> str:
    """A sparse file of 1 TiB without data."""
    info = tarfile.TarInfo("train.txt")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 0
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"\x80" + (1 << 40).to_bytes(11, "big")  # the real size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (folder / "sparse.tar").write_bytes(bytes(header) + bytes(1024))
    return "sparse.tar"


def tar_of(folder: Path, **kinds: tuple[bytes, str]) -> None:
    with tarfile.open(folder / "links.tar", "w") as archive:
        for name, (kind, target) in kinds.items():
            info = tarfile.TarInfo(f"{name}.txt")
            info.type, info.linkname = kind, target
            archive.addfile(info)


def links_and_devices(folder: Path) -> str:
    """A symbolic link, a hard link, a device and a pipe; none is a regular file."""
    secret = str(folder / "secret.txt")
    tar_of(folder, train=(tarfile.SYMTYPE, secret), valid=(tarfile.LNKTYPE, secret), test=(tarfile.CHRTYPE, ""),
           pipe=(tarfile.FIFOTYPE, ""))  # fmt: skip
    return "links.tar"


def file_and_link_with_same_name(folder: Path) -> str:
    """A regular file, followed by a link with the same name to a file outside the archive."""
    with tarfile.open(folder / "links.tar", "w") as archive:
        info = tarfile.TarInfo("train.txt")
        info.size = len(TRIPLES)
        archive.addfile(info, io.BytesIO(TRIPLES))
        info = tarfile.TarInfo("train.txt")
        info.type, info.linkname = tarfile.SYMTYPE, str(folder / "secret.txt")
        archive.addfile(info)
    return "links.tar"


def tar_escape(folder: Path) -> str:
    with tarfile.open(folder / "escape.tar", "w") as archive:
        for name in ("../../train.txt", "/etc/valid.txt"):
            info = tarfile.TarInfo(name)
            info.size = len(TRIPLES)
            archive.addfile(info, io.BytesIO(TRIPLES))
    return "escape.tar"


def _repeated(mib: int) -> Iterator[bytes]:
    line = b"a\tr\tb\n"
    block = line * ((1 << 20) // len(line) + 1)
    for _ in range(mib):
        yield block[: 1 << 20]


CASES: list[tuple[str, Callable[[Path], str], bool]] = [  # name, function that creates it, and whether it is refused
    ("a zip bomb", zip_bomb, True),
    ("a zip with a false size", zip_with_false_size, True),
    ("nested zips", nested_zip, True),
    ("a zip of 60,000 files", many_members, True),
    ("a zip of overlapping members", overlapping_members, False),
    ("a zip with path traversal", zip_escape, False),
    ("a zip with a link", zip_link, True),
    ("a tar.gz bomb", tar_bomb, True),
    ("a tar.xz bomb", functools.partial(tar_bomb, name="bomb.tar.xz"), True),
    ("a tar.gz bomb in an unused member", functools.partial(tar_bomb, member="other.bin"), True),
    ("a tar.gz of two million headers", tar_of_headers, True),
    ("a tar.gz with a huge extended header", huge_pax_header, True),
    ("a tar with a member of 8 EiB", huge_declared_size, True),
    ("a sparse tar of 1 TiB", sparse_tar, True),
    ("a tar of links and devices", links_and_devices, True),
    ("a tar with a file and a link of the same name", file_and_link_with_same_name, False),
    ("a tar with path traversal", tar_escape, False),
]
