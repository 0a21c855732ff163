"""The one lock: an advisory lock on a folder, which the operating system releases when the process ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dihedral.errors import DihedralError


@contextmanager
def lock_folder(folder: Path, taken: str, *, follow: bool = True) -> Iterator[None]:
    """Lock a folder's own descriptor, also within this process; file systems without locks let everyone through.

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
