"""Atomic files, which after a crash or a full disk have either their old content or their new content; and the lock.

What is read may be hostile: links are not followed, JSON is bounded, and its values are checked against annotations.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dihedral.errors import DihedralError

Record = TypeVar("Record")
MAX_JSON_BYTES = 8 << 20  # Python takes up to thirty times as much for the objects in it
MAX_JSON_DEPTH = 100
MAX_NUMBER = 1 << 63  # no whole number in a file has this size
MAX_TEXT_BYTES = 64 << 20  # of a file that a user names
_PARTIAL = re.compile(r"\.\w{8}\.partial-dihedral")  # of `atomic_path`
_STRING = re.compile(rb'"(?:[^"\\]++|\\(?:.|\Z))*+(?:"|\Z)', re.DOTALL)  # one that is not closed goes to the end


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path, which replaces `path` when the block ends without an error."""
    working = None
    try:
        # a private folder with a name that cannot be predicted: nobody puts a link there, and what libraries write
        # next to the file is in it too
        working = Path(tempfile.mkdtemp(".partial-dihedral", ".", path.parent))
        partial = working / path.name
        yield partial
        with partial.open("rb") as done:
            os.fsync(done.fileno())
        os.umask(mask := os.umask(0))
        os.chmod(partial, 0o666 & ~mask)  # temporary files are private to their owner
        os.replace(partial, path)
        sync_folder(path.parent)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DihedralError(f"{str(path)!r} cannot be written: {reason}; nothing stored before was changed") from None
    finally:
        if working is not None:
            shutil.rmtree(working, ignore_errors=True)  # the disk may have become read-only


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable; without this, a power failure may undo them."""
    with suppress(OSError):  # some file systems cannot
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_partial_files(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder; its lock must be held."""
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            if _PARTIAL.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)  # follows no links; the next write reports a read-only folder


def remove_files(folder: Path, names: re.Pattern[str]) -> None:
    """Delete the files in a folder whose whole names match: names that nobody else would give. Links are not followed.

    This and `remove_partial_files` are all that deletes by name; everything else deletes what it has just created.
    """
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            if names.fullmatch(path.name) and (path.is_symlink() or path.is_file()):
                path.unlink()


def write_text(path: Path, text: str) -> None:
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8")


def read_text(path: Path) -> str:
    """The text of a file that the user named, which may be a link, but no device; otherwise an OSError."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    with path.open("rb") as stream:
        content = stream.read(MAX_TEXT_BYTES + 1)
    if len(content) > MAX_TEXT_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MAX_TEXT_BYTES >> 20} MiB")
    return content.decode("utf-8")


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb", opener=open_file) as stream:
            text = stream.read(MAX_JSON_BYTES + 1)
        if len(text) > MAX_JSON_BYTES:
            raise ValueError(f"it has more than {MAX_JSON_BYTES >> 20} MiB")
        content = parse_json(text)
    except (OSError, ValueError, RecursionError) as error:
        raise DihedralError(f"{str(path)!r} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise DihedralError(f"{str(path)!r} does not hold a JSON object")
    return content


def open_file(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file; links and devices are an OSError. It fits `open` as an opener."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)  # a pipe would block
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, "it is a symbolic link, which is not followed") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return descriptor


def parse_json(text: bytes | str, *, half_characters: bool = False) -> Any:
    """Parse JSON; a ValueError if it is nested too deeply, or holds half a character (`half_characters` allows it)."""
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if json_depth(content) > MAX_JSON_DEPTH:
        raise ValueError(f"lists and objects are nested more than {MAX_JSON_DEPTH} deep")
    found = json.loads(content)
    if not half_characters and b"\\ud" in content.lower():  # a surrogate, which no file can hold without its other half
        json.dumps(found, ensure_ascii=False).encode()
    return found


def json_depth(content: bytes) -> int:
    """How deep lists and objects are nested, or a bound on it if they are few."""
    count = content.count(b"[") + content.count(b"{")
    if count <= MAX_JSON_DEPTH:
        return count
    marks = np.frombuffer(_STRING.sub(b"", content), np.uint8) | 0x20  # [ and { differ by this bit, as do ] and }
    depth = np.cumsum((marks == ord("{")).astype(np.int8) - (marks == ord("}")).astype(np.int8), dtype=np.int32)
    return int(depth.max(initial=0))


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as partial:
        save_file(plain, partial)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file."""
    try:
        with open(path, "rb", opener=open_file) as stream:  # the header, which is JSON, claims its own length
            if int.from_bytes(stream.read(8), "little") > MAX_JSON_BYTES:
                raise ValueError(f"its header has more than {MAX_JSON_BYTES >> 20} MiB")
        with safe_open(path, framework="pt") as stream:
            return {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise DihedralError(f"{str(path)!r} cannot be read: {error}") from None


def path_within(folder: Path, *parts: str) -> Path:
    """A path below a folder, which may itself be a link; an error if a part is a link, which could lead out of it."""
    path = folder
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise DihedralError(f"{str(path)!r} is a symbolic link, which is not followed; remove it")
    return path


def check_suffix(what: str, path: Path, suffixes: Sequence[str]) -> None:
    """Refuse a path with another suffix."""
    if path.suffix not in suffixes:
        *others, last = suffixes
        raise DihedralError(f"{what} is {str(path)!r}; its name must end in {', '.join(others)} or {last}")


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DihedralError(f"folder {str(path)!r} cannot be created: {error.strerror}") from None


@contextmanager
def lock_folder(folder: Path, taken: str, *, follow: bool = True) -> Iterator[None]:
    """Lock a folder's own descriptor, also within this process, until the block or the process ends.

    File systems without locks let everyone through.

    taken: the error message if somebody else holds the lock. follow: whether the folder may be a symbolic link.
    """
    if not follow and folder.is_symlink():
        raise DihedralError(f"folder {str(folder)!r} is a symbolic link, which is not followed; remove it")
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        raise DihedralError(f"folder {str(folder)!r} cannot be opened: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DihedralError(taken) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(descriptor)


def read_record(kind: type[Record], content: Any) -> Record:
    """A dataclass from decoded JSON, without its other keys; a TypeError names the first value that does not fit."""
    if not isinstance(content, Mapping):
        raise TypeError(f"{kind.__name__} is {content!r:.80}")
    hints, values = get_type_hints(kind), {}
    for field in fields(kind):  # type: ignore[arg-type]  # any dataclass
        if field.name in content:
            values[field.name] = content[field.name]
            if not _fits(values[field.name], hints[field.name]):
                raise TypeError(f"{field.name} is {values[field.name]!r:.80}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise TypeError(f"{field.name} is missing")
    return kind(**values)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value has the annotated type: a plain type, `X | None`, Literal, list[X] or dict[str, X]."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is list:
        return isinstance(value, list) and all(_fits(each, parts[0]) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(each, parts[1]) for each in value.values())
    if hint is Any:
        return True
    if hint in (int, float):
        is_number = isinstance(value, (int, hint)) and not isinstance(value, bool)
        return is_number and (isinstance(value, float) or abs(value) < MAX_NUMBER)
    return isinstance(value, hint)
