"""Fixtures of the command-line tests: a command in another process that receives Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.forks import ForkServer

MAX_SECONDS = 300  # far more than needed: a machine may be busy


@pytest.fixture
def interrupted(forks: ForkServer) -> Callable[..., subprocess.CompletedProcess[str]]:
    """interrupted(words, ready): run `dihedral`, press Ctrl-C once `ready()` is true, and return the outcome."""

    def run(words: list[object], ready: Callable[[], object]) -> subprocess.CompletedProcess[str]:
        deadline = time.monotonic() + MAX_SECONDS
        with forks.start("-m", "dihedral", *words, COLUMNS="400") as process:
            while not ready():
                assert not process.has_ended(0.02), process.wait(1)
                assert time.monotonic() < deadline, f"not ready after {MAX_SECONDS} s"
            os.kill(process.pid, signal.SIGINT)
            return process.wait(MAX_SECONDS)

    return run
