"""Atomic files: after a crash, a full disk or a kill a file has either its old content or its new content."""

from __future__ import annotations

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
    """A temporary path next to `path`, which replaces it when the block ends without an error."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb") as done:
            os.fsync(done.fileno())
        os.chmod(partial, 0o666 & ~_umask())  # safetensors makes files private to their owner
        os.replace(partial, path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DihedralError(f"{str(path)!r} cannot be written: {reason}; nothing stored before was changed") from None
    finally:
        with suppress(OSError):  # it does not exist, or the disk became read-only
            partial.unlink()


def remove_partial_files(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder; its lock must be held."""
    for path in (*folder.glob(".*.partial"), *folder.glob(".tmp??????")):  # safetensors writes the latter
        with suppress(OSError):  # in a read-only folder the first write reports the error
            path.unlink()


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
    """Write a safetensors file with `metadata` as JSON in its header."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as partial:
        save_file(plain, partial, {"dihedral": json.dumps(metadata)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Read all tensors of a safetensors file and the metadata that `write_tensors` stored."""
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
        raise DihedralError(f"folder {str(path)!r} cannot be created: {error.strerror}") from None
