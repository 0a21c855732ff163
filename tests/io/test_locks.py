"""The lock on a folder: one user at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from dihedral import DihedralError
from dihedral.io.files import lock_folder


def test_a_locked_folder_is_refused_with_the_given_message(tmp_path):
    with (
        lock_folder(tmp_path, "in use"),
        pytest.raises(DihedralError, match=r"^in use$"),
        lock_folder(tmp_path, "in use"),
    ):
        pass
    with lock_folder(tmp_path, "in use"):
        pass
    assert os.listdir(tmp_path) == []


def test_an_error_in_the_block_releases_the_lock(tmp_path):
    with pytest.raises(ZeroDivisionError), lock_folder(tmp_path, "in use"):
        raise ZeroDivisionError
    with lock_folder(tmp_path, "in use"):
        pass


HOLD = """
import signal, sys
from pathlib import Path
from dihedral.io.files import lock_folder

with lock_folder(Path(sys.argv[1]), "in use"):
    print("locked", flush=True)
    signal.pause()
"""


def test_the_lock_of_a_killed_process_is_released(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(DihedralError, match="in use"), lock_folder(tmp_path, "in use"):
            pass
        process.send_signal(signal.SIGKILL)
    with lock_folder(tmp_path, "in use"):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF])
def test_a_file_system_without_locks_lets_everyone_through(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with lock_folder(tmp_path, "in use"), lock_folder(tmp_path, "in use"):
        pass


def test_a_missing_folder_and_a_file_are_errors(tmp_path):
    (tmp_path / "file").write_text("")
    for name, reason in (("nowhere", "No such file or directory"), ("file", "Not a directory")):
        with (
            pytest.raises(DihedralError, match=f"{name}' cannot be opened: {reason}"),
            lock_folder(tmp_path / name, "in use"),
        ):
            pass
