"""JSON lines: logs of one process, and journals that several processes append to and that are never rewritten.

A line that a killed process left incomplete is skipped by readers, and the next object starts on a new line. What is
appended to a journal is on the disk before the call returns.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from dihedral.errors import DihedralError
from dihedral.io.files import MAX_JSON_BYTES, open_file, parse_json, sync_folder, write_text

MAX_LINE_BYTES = 64 << 10
MAX_BYTES = 256 << 20
MAX_WAIT_SECONDS = 10.0  # for the lock, which is held for milliseconds
POLL_SECONDS = 0.002

TAIL = 1024  # bytes before the place, by which a file that was rewritten is noticed

Append = Callable[[Sequence[dict[str, Any]]], None]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a log, without lines that are incomplete or not JSON objects; a missing file is an empty log."""
    return Journal(path, MAX_JSON_BYTES).read()[0]


def append_line(path: Path, row: dict[str, Any]) -> None:
    """Append an object to a log; it starts on a new line even if the last line is incomplete."""
    with Journal(path).locked() as append:
        append([row])


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Replace a log."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


class LockedError(DihedralError):
    """Another process keeps the lock."""


class Journal:
    """A journal, and how far it has been read."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path, self.max_bytes = path, max_bytes
        self._file: tuple[int, int] | None = None  # device and inode of what was read
        self._place, self._tail = 0, b""

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The objects appended since the last call, without damaged lines, and whether the file is another one."""
        try:
            with open(self.path, "rb", opener=open_file) as stream:
                return self._read(stream)
        except FileNotFoundError:
            replaced, self._file, self._place, self._tail = self._file is not None, None, 0, b""
            return [], replaced
        except OSError as error:
            raise DihedralError(f"{str(self.path)!r} cannot be read: {error.strerror}") from None

    def _read(self, stream: BinaryIO) -> tuple[list[dict[str, Any]], bool]:
        status = os.fstat(stream.fileno())
        if status.st_size > self.max_bytes:
            raise DihedralError(f"{str(self.path)!r} cannot be read: it has more than {self.max_bytes >> 20} MiB")
        file = status.st_dev, status.st_ino
        stream.seek(self._place - len(self._tail))
        same = file == self._file and status.st_size >= self._place and stream.read(len(self._tail)) == self._tail
        replaced = self._file is not None and not same
        if not same:
            self._file, self._place, self._tail = file, 0, b""
            stream.seek(0)
        content = stream.read(self.max_bytes)
        complete = content[: content.rfind(b"\n") + 1]  # the rest is being written, or was never finished
        self._place, self._tail = self._place + len(complete), (self._tail + complete)[-TAIL:]
        rows = []
        for line in complete.split(b"\n"):
            if len(line) <= MAX_LINE_BYTES:
                with suppress(ValueError, RecursionError):
                    rows.append(parse_json(line.decode("utf-8", "replace")))
        return [row for row in rows if isinstance(row, dict)], replaced

    @contextmanager
    def locked(self) -> Iterator[Append]:
        """Keep other processes and threads from appending; yields the function that appends objects."""
        try:
            descriptor = open_file(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            raise DihedralError(f"{str(self.path)!r} cannot be written: {error.strerror}") from None
        try:
            self._wait(descriptor)
            yield lambda rows: self._append(descriptor, rows)
        finally:
            os.close(descriptor)  # which also releases the lock

    def _wait(self, descriptor: int) -> None:
        end = time.monotonic() + MAX_WAIT_SECONDS
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise LockedError(f"{str(self.path)!r} is locked by another process; try again later") from None
                time.sleep(POLL_SECONDS)
            except OSError:  # a file system without locks: appending is still atomic
                return None

    def _append(self, descriptor: int, rows: Sequence[dict[str, Any]]) -> None:
        lines = [json.dumps(row).encode() + b"\n" for row in rows]
        if (longest := max(map(len, lines))) > MAX_LINE_BYTES:
            raise DihedralError(f"a line of {str(self.path)!r} would have {longest:,} bytes, of {MAX_LINE_BYTES:,}")
        text, size = b"".join(lines), os.fstat(descriptor).st_size
        if size + len(text) > self.max_bytes:
            raise DihedralError(f"{str(self.path)!r} is full: it has {self.max_bytes >> 20} MiB; move it away")
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            text = b"\n" + text
        try:
            written = 0
            while written < len(text):
                written += os.write(descriptor, text[written:])
            os.fsync(descriptor)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise DihedralError(f"{str(self.path)!r} cannot be written: {error.strerror}; nothing was kept") from None
        if not size:
            sync_folder(self.path.parent)
