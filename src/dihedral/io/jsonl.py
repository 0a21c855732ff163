"""JSON lines: logs with one JSON object per line, readable even if a process died while it wrote the last one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dihedral.errors import DihedralError
from dihedral.io.files import MAX_JSON_BYTES, atomic_path, open_file, parse_json, read_bounded


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a log, without lines that are incomplete or not JSON objects; a missing file is an empty log."""
    rows = []
    try:
        content = read_bounded(path, MAX_JSON_BYTES) if path.exists() or path.is_symlink() else b""
    except (OSError, ValueError) as error:
        raise DihedralError(f"{str(path)!r} cannot be read: {error}") from None
    for line in content.split(b"\n"):
        with suppress(ValueError, RecursionError):
            rows.append(parse_json(line.decode("utf-8", "replace")))
    return [row for row in rows if isinstance(row, dict)]


def append_line(path: Path, row: dict[str, Any]) -> None:
    """Append an object to a log; it starts on a new line even if the last line is incomplete."""
    text = json.dumps(row) + "\n"
    try:
        with open(path, "a+b", opener=open_file) as stream:
            if stream.seek(0, os.SEEK_END):
                stream.seek(-1, os.SEEK_END)
                text = text if stream.read() == b"\n" else "\n" + text
            stream.write(text.encode())
    except OSError as error:
        raise DihedralError(f"{str(path)!r} cannot be written: {error.strerror}") from None


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Replace a log."""
    with atomic_path(path) as partial:
        partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
