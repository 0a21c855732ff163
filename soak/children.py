"""Run work in forked processes, which start in milliseconds with everything imported and may be killed or crash.

The parent must not run threads; it only forks, waits and compares. A child writes its result as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dihedral.errors import DihedralError

GIB = 1 << 30
POLL_SECONDS = 0.002
MAX_SECONDS = 600.0  # for a child that hangs; a busy machine may be slow


@dataclass(frozen=True)
class Ending:
    """How a child ended.

    done: returned `value`; refused: by a DihedralError or a command's error, with its message as `value`; raised: by
    another exception, with its traceback; killed: by the campaign; crashed: by a signal; hung: past its time limit.
    """

    how: Literal["done", "refused", "raised", "killed", "crashed", "hung"]
    value: Any = None

    def __str__(self) -> str:
        return f"{self.how}: {str(self.value).strip()[-600:]}"


class Child:
    """A forked process."""

    def __init__(self, work: Callable[[], Any], *, memory: int | None = None) -> None:
        """memory: bytes that it may map in addition to what is mapped at the start."""
        self.folder = tempfile.TemporaryDirectory(prefix="soak-")
        self.result = Path(self.folder.name) / "result.json"
        self.printed = Path(self.folder.name) / "printed.txt"
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(work, memory)

    def _run(self, work: Callable[[], Any], memory: int | None) -> None:
        try:
            found: dict[str, Any] = {}
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            printed = os.open(self.printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(printed, 1)
            os.dup2(printed, 2)
            if memory is not None:
                limit = _mapped_bytes() + memory
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            try:
                found["done"] = work()
                json.dumps(found)
            except DihedralError as error:
                found["refused"] = str(error)
            except SystemExit as end:  # raised by commands
                sys.stdout.flush()
                sys.stderr.flush()
                found["refused" if end.code else "done"] = self._error_line()
            except BaseException:  # noqa: BLE001  any other exception is a finding
                found = {"raised": traceback.format_exc()}
            partial = self.result.with_suffix(".partial")
            partial.write_text(json.dumps(found), encoding="utf-8")
            partial.rename(self.result)
        finally:
            os._exit(0)

    def _error_line(self) -> str:
        """The complete error message of a command, which should be one line."""
        text = self.printed.read_text(encoding="utf-8", errors="replace")
        return text[start:].strip() if (start := ("\n" + text).rfind("\nerror: ")) >= 0 else text.strip()

    def wait(self, seconds: float = MAX_SECONDS) -> Ending:
        """Wait until it ends; a child that takes longer is killed and counts as hung."""
        status = self._reap(seconds)
        if status is None:
            self._kill()
            return self._close(Ending("hung", "did not end in time"))
        return self._close(self._ending(status))

    def poll(self, seconds: float) -> Ending | None:
        """How it ended, if it has; a child with no seconds left is killed and counts as hung."""
        status = self._reap(0.0)
        if status is not None:
            return self._close(self._ending(status))
        return self.wait(0.0) if seconds <= 0 else None

    def kill_after(self, seconds: float) -> Ending:
        """Send SIGKILL after some time, unless it has already ended."""
        status = self._reap(seconds)
        if status is None:
            self._kill()
            return self._close(Ending("killed"))
        return self._close(self._ending(status))

    def _kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def _reap(self, seconds: float) -> int | None:
        deadline = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return status
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(POLL_SECONDS, left))

    def _ending(self, status: int) -> Ending:
        if os.WIFSIGNALED(status) or not self.result.exists():
            output = self.printed.read_text(encoding="utf-8", errors="replace") if self.printed.exists() else ""
            return Ending("crashed", f"signal {os.WTERMSIG(status)} {output}")
        (how, value), *_ = json.loads(self.result.read_text(encoding="utf-8")).items()
        return Ending(how, value)

    def _close(self, ending: Ending) -> Ending:
        self.folder.cleanup()
        return ending


def run_child(work: Callable[[], Any], *, seconds: float = MAX_SECONDS, memory: int | None = None) -> Ending:
    """Run work in a child and wait until it ends."""
    return Child(work, memory=memory).wait(seconds)


def command(*words: object) -> Callable[[], Any]:
    """A `dihedral` command as work for a child."""

    def work() -> None:
        from dihedral.cli.main import main

        os.environ |= {"COLUMNS": "400", "NO_COLOR": "1"}
        sys.argv = ["dihedral", *map(str, words)]
        main()

    return work


def is_clear(sentence: str) -> bool:
    """Whether a message is one line and not a traceback."""
    return bool(sentence.strip()) and len(sentence.strip().splitlines()) == 1 and "Traceback" not in sentence


def _mapped_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")
