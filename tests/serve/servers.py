"""`dihedral serve` in another process, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

MAX_STOP_SECONDS = 300  # a server that hangs, not a slow machine


@contextmanager
def serving(*models: object, **environment: str) -> Iterator[str]:
    """The address of a server of some models at a free port; at the end it must stop with 0."""
    command = [sys.executable, "-m", "dihedral", "serve", *map(str, models), "--port", "0"]
    variables = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            assert line.startswith("serving "), f"the server did not start: {line}"
            yield line.split()[-1]
            server.send_signal(signal.SIGTERM)
            assert server.wait(MAX_STOP_SECONDS) == 0
        finally:
            server.kill()
