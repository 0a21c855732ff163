"""Writing files so that a crash, a full disk or a kill leaves either the old content or the new one."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dihedral.errors import DihedralError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; it takes its place when the block ends well."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb") as done:
            os.fsync(done.fileno())
        os.chmod(partial, 0o666 & ~_umask())  # safetensors writes files that only their owner reads
        os.replace(partial, path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DihedralError(f"{str(path)!r} cannot be written: {reason}; nothing stored before was changed") from None
    finally:
        with suppress(OSError):  # it is not there, or the disk turned read-only
            partial.unlink()


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Refuse a folder that another process writes to, and remove what one that was killed had half written."""
    try:
        held = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise DihedralError(f"folder {str(folder)!r} cannot be opened: {error.strerror}") from None
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DihedralError(
                f"folder {str(folder)!r} is being written by another process; wait for it or choose another folder"
            ) from None
        except OSError:
            pass  # a file system without locks
        for path in (*folder.glob(".*.partial"), *folder.glob(".tmp??????")):  # the latter are safetensors' own
            with suppress(OSError):  # a folder that cannot be written is refused with the first file
                path.unlink()
        yield
    finally:
        os.close(held)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, content: Any) -> None:
    with atomic_path(path) as partial:
        partial.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DihedralError(f"{str(path)!r} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise DihedralError(f"{str(path)!r} does not hold a JSON object")
    return content


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: Any = None) -> None:
    """A safetensors file, with `metadata` as JSON in its header."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as partial:
        save_file(plain, partial, {"dihedral": json.dumps(metadata)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """All tensors of a safetensors file, and the metadata that `write_tensors` put there."""
    try:
        with safe_open(path, framework="pt") as stream:
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
            metadata = stream.metadata() or {}
        return tensors, json.loads(metadata.get("dihedral", "null"))
    except (SafetensorError, OSError, ValueError) as error:
        raise DihedralError(f"{str(path)!r} cannot be read: {error}") from None


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DihedralError(f"folder {str(path)!r} cannot be made: {error.strerror}") from None
