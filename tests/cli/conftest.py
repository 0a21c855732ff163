"""Fixtures of the command-line tests: a command in another process that receives Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

MAX_SECONDS = 300  # far more than needed: a machine may be busy


@pytest.fixture
def interrupted() -> Callable[..., subprocess.CompletedProcess[str]]:
    """interrupted(words, ready): run `dihedral`, press Ctrl-C once `ready()` is true, and return the outcome."""

    def run(words: list[object], ready: Callable[[], object]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dihedral", *map(str, words)]
        environment = {**os.environ, "COLUMNS": "400"}
        deadline = time.monotonic() + MAX_SECONDS
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            try:
                while not ready():
                    assert process.poll() is None, process.communicate()
                    assert time.monotonic() < deadline, f"not ready after {MAX_SECONDS} s"
                    time.sleep(0.02)
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=MAX_SECONDS)
            finally:
                process.kill()  # no effect on a process that has exited
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    return run
