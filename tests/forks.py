"""Python processes that start at once: forks of a process that has imported torch.

A fork behaves like `python ARGUMENTS` in a new process: it imports dihedral itself and ends as any Python process does.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


class Fork:
    """A running process and its output."""

    def __init__(self, server: socket.socket, request: dict[str, Any]) -> None:
        self._server, self._request, self._code = server, request, None
        pipes = os.pipe(), os.pipe()
        socket.send_fds(server, [json.dumps(request).encode() + b"\n"], [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        self._pool = ThreadPoolExecutor(len(pipes))
        self._printed = [self._pool.submit(_read, read) for read, _ in pipes]
        self.pid = int(_line(server))

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Whether it ends within that time."""
        return self._code is not None or bool(select.select([self._server], [], [], seconds)[0])

    def wait(self, seconds: float) -> subprocess.CompletedProcess[str]:
        """Wait until it ends; a process that takes longer is killed."""
        words = self._request["arguments"]
        if not self.has_ended(seconds):
            self.kill()
            printed = "\n".join(each.result() for each in self._printed)
            raise TimeoutError(f"{words} took longer than {seconds} s and printed:\n{printed}")
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(int(_line(self._server)))
            self._pool.shutdown()
        return subprocess.CompletedProcess(words, self._code, *(each.result() for each in self._printed))

    def kill(self) -> None:
        """End it, if it still runs."""
        if not self.has_ended():
            os.kill(self.pid, signal.SIGKILL)
        self.wait(600)


class ForkServer:
    """Starts one fork at a time."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])

    @contextmanager
    def start(self, *arguments: object, **environment: str) -> Iterator[Fork]:
        """`python ARGUMENTS` with -c or -m, in the current folder; killed at the end of the block."""
        variables = {**os.environ, **environment}
        words = [str(each) for each in arguments]
        fork = Fork(self._socket, {"arguments": words, "folder": os.getcwd(), "environment": variables})
        try:
            yield fork
        finally:
            fork.kill()

    def close(self) -> None:
        self._socket.close()
        self._process.wait(600)


def _read(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as stream:
        return stream.read()


def _line(stream: socket.socket) -> bytes:
    """The next line; nothing is read beyond it."""
    line = b""
    while not line.endswith(b"\n"):
        byte = stream.recv(1)
        if not byte:
            raise EOFError("the other process has ended")
        line += byte
    return line


# --- the server, run as a script ----------------------------------------------------------------------


def serve(client: socket.socket) -> dict[str, Any] | None:
    """Fork for every request; returns the request in the fork, and None once the client is gone."""
    while True:
        first, outputs, _, _ = socket.recv_fds(client, 1, 2)
        if not first:
            return None
        request = first + _line(client)
        pid = os.fork()
        if pid == 0:
            for target, output in enumerate(outputs, start=1):
                os.dup2(output, target)
                os.close(output)
            return json.loads(request)
        for output in outputs:
            os.close(output)
        client.sendall(b"%d\n" % pid)
        client.sendall(b"%d\n" % os.waitpid(pid, 0)[1])


def become(request: dict[str, Any]) -> tuple[str, str]:
    """Take over folder, environment, sys.argv and sys.path; returns the option, -c or -m, and its value."""
    earlier = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    option, value, *rest = request["arguments"]
    sys.argv = [option, *rest]
    own = [os.getcwd() if option == "-m" else "", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.path[:] = own + [path for path in sys.path[1:] if path not in earlier]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    return option, value


if __name__ == "__main__":
    import runpy

    import pandas  # noqa: F401  (which pyarrow imports)
    import pyarrow.parquet  # noqa: F401
    import torch.distributed.checkpoint  # noqa: F401  (loads torch and what takes longest after it)

    with socket.socket(fileno=int(sys.argv[1])) as connection:
        wanted = serve(connection)
    if wanted is not None:
        how, what = become(wanted)
        if how == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), main.__dict__)
