"""The one lock: an advisory lock on a folder, which the operating system releases when the process ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dihedral.errors import DihedralError


@contextmanager
def lock_folder(folder: Path, taken: str = "", *, shared: bool = False, follow: bool = True) -> Iterator[bool]:
    """Lock a folder; yields whether this process is known to be its only user.

    The lock is on the folder's own descriptor: no lock file is written, and nothing is left behind. A second lock
    within the same process conflicts too. File systems without locks let everyone through and yield False.

    taken: the error message if somebody else holds the lock.
    shared: never fail; several processes hold the lock, and the first of them is alone.
    follow: whether the folder may be a symbolic link.
    """
    if not follow and folder.is_symlink():
        raise DihedralError(f"folder {str(folder)!r} is a symbolic link, which is not followed; remove it")
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        raise DihedralError(f"folder {str(folder)!r} cannot be opened: {error.strerror}") from None
    try:
        yield _acquire(descriptor, taken, shared)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, taken: str, shared: bool) -> bool:
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            if not shared:
                raise DihedralError(taken) from None
            alone = False
        if shared:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        return alone
    except OSError:  # a file system without locks
        return False
