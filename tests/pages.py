"""Runs the examples of a documentation page and compares the output that the page shows.

Blocks run in order in one empty folder. A Python block keeps the names of the blocks before it; a `text` block right
after it is its output. In a console block, lines with a `$ ` prompt are commands and the others their output; without
any prompt, every line is a command. A block with `title="NAME"` is that file. `dihedral serve` starts a server, which
answers the curl commands after it. A comment `<!-- not run: REASON -->` above a block leaves it out.

In shown output, a line `...` stands for any lines and `...` within a line for any text. A decimal number may differ by
one in its last digit, or from its 12th digit on, because processors round differently. With DIHEDRAL_UPDATE_DOCS=1 the
real output is written into the page.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).parent.parent
UPDATE = os.environ.get("DIHEDRAL_UPDATE_DOCS") == "1"
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: ([^>]+) -->\s*\Z")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
PROMPT = "$ "
ANY = "..."
ADDRESS = "127.0.0.1:8000"  # what pages show; the server listens at a free port
START_SECONDS = 600


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    text: str
    start: int  # of the text, in the page
    end: int
    line: int
    run: bool
    alone: bool  # whether prose stands between it and the block before


def read_blocks(text: str) -> list[Block]:
    blocks, end = [], 0
    for found in FENCE.finditer(text):
        between = text[end : found.start()]
        title = re.search(r'title="([^"]+)"', found[2])
        blocks.append(
            Block(
                language=found[1],
                title=title[1] if title else None,
                text=found[3],
                start=found.start(3),
                end=found.end(3),
                line=text.count("\n", 0, found.start()) + 1,
                run=NOT_RUN.search(between) is None,
                alone=bool(between.strip()) or not blocks,
            )
        )
        end = found.end()
    return blocks


def read_console(text: str) -> Iterator[tuple[str, list[str] | None]]:
    """Commands with the output shown after each; None where a block has no prompts and shows no output."""
    lines = text.splitlines()
    prompted = any(line.startswith(PROMPT) for line in lines)
    command: str | None = None
    shown: list[str] = []
    for line in lines:
        if command is not None and is_open(command):
            command += "\n" + line
        elif line.startswith(PROMPT) or not prompted:
            if command is not None:
                yield command, shown if prompted else None
            command, shown = line.removeprefix(PROMPT), []
        else:
            shown.append(line)
    if command is not None:
        yield command, shown if prompted else None


def is_open(command: str) -> bool:
    """Whether a command continues on the next line: it ends with a backslash or within quotes."""
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return command.endswith("\\")


# --- comparing output -----------------------------------------------------------------------------


def same_output(shown: list[str], real: list[str]) -> bool:
    if not shown:
        return not real
    if shown[0].strip() == ANY:
        return any(same_output(shown[1:], real[i:]) for i in range(len(real) + 1))
    return bool(real) and same_line(shown[0], real[0]) and same_output(shown[1:], real[1:])


def same_line(shown: str, real: str) -> bool:
    """Whether a line is the one shown: `...` is any text, and decimal numbers may differ in their last digit."""
    shown, real = " ".join(shown.split()), " ".join(real.split())
    pieces = [NUMBER.split(piece) for piece in shown.split(ANY)]
    pattern = ".*".join(f"({NUMBER.pattern})".join(map(re.escape, piece)) for piece in pieces)
    found = re.fullmatch(pattern, real)
    numbers = [number for piece in shown.split(ANY) for number in NUMBER.findall(piece)]
    return found is not None and all(map(close, numbers, found.groups()))


def close(shown: str, real: str) -> bool:
    """Whether a number is the one shown, or a decimal number that may differ by rounding."""
    a, b = Decimal(shown), Decimal(real)
    digits = a.as_tuple().exponent
    same_digits = digits == b.as_tuple().exponent and digits < 0
    return a == b or same_to_12_digits(a, b) or (same_digits and abs(a - b) == Decimal(1).scaleb(digits))


def same_to_12_digits(a: Decimal, b: Decimal) -> bool:
    """Whether both numbers are printed with more digits than that, and these are the same."""
    printed = min(len(number.as_tuple().digits) for number in (a, b))
    return printed > 12 and abs(a - b) < abs(a).scaleb(-12)


def refreshed(shown: list[str], real: list[str]) -> list[str]:
    """The real output, without what the page leaves out."""
    marks = [i for i, line in enumerate(shown) if line.strip() == ANY]
    if len(marks) == 1 and len(real) >= len(shown) - 1:
        after = len(shown) - 1 - marks[0]
        real = [*real[: marks[0]], shown[marks[0]], *real[len(real) - after :]]
    if len(shown) != len(real):
        return real
    return [masked(a, b) if ANY in a else b for a, b in zip(shown, real, strict=True)]


def masked(shown: str, real: str) -> str:
    """A real line with `...` for the words that the shown line leaves out."""
    if same_line(shown, real):
        return shown
    old, words = shown.split(), re.split(r"(\s+)", real)
    if len(old) == len(real.split()):
        places = [i for i, word in enumerate(words) if word.strip()]
        for place, word in zip(places, old, strict=True):
            words[place] = ANY if word == ANY else words[place]
    return "".join(words)


# --- running a page -------------------------------------------------------------------------------


class PageRun:
    """One run of a page in a folder of its own; the current folder must be that one."""

    def __init__(self, page: str, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.text = (ROOT / page).read_text(encoding="utf-8")
        self.names: dict[str, object] = {}
        self.edits: list[tuple[int, int, str]] = []
        self.server: subprocess.Popen[bytes] | None = None
        self.log = folder.parent / "server.log"
        self.logged = 0
        self.address = ADDRESS
        self.bin = folder.parent / "bin"
        self.bin.mkdir()
        for name, words in (("dihedral", "-m dihedral"), ("python", "")):
            script = self.bin / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
            script.chmod(0o755)

    def run(self) -> None:
        try:
            for block, following in self._pairs():
                if block.title is not None:
                    Path(block.title).write_text(block.text, encoding="utf-8")
                elif not block.run:
                    continue
                elif block.language == "python":
                    real = self._python(block)
                    if following is not None and following.language == "text" and not following.alone:
                        self._compare(following, following.text.splitlines(), real, "the Python block")
                elif block.language == "console":
                    self._console(block)
        finally:
            self._stop()
        if self.edits:
            self._write()

    def _pairs(self) -> Iterator[tuple[Block, Block | None]]:
        blocks = read_blocks(self.text)
        yield from zip(blocks, [*blocks[1:], None], strict=True)

    def _python(self, block: Block) -> list[str]:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * block.line + block.text, self.page, "exec"), self.names)
        return printed.getvalue().rstrip("\n").splitlines()

    def _console(self, block: Block) -> None:
        lines: list[str] = []
        for command, shown in read_console(block.text):
            if not command.strip() or command.lstrip().startswith("#"):
                continue
            real = self._command(command, block)
            if not shown:
                lines.append(PROMPT + command)
            elif UPDATE:
                lines += [PROMPT + command, *refreshed(shown, real)]
            else:
                self._compare(block, shown, real, command)
        if UPDATE and any(line.startswith(PROMPT) for line in block.text.splitlines()):
            self._edit(block, "\n".join(lines) + "\n")

    def _compare(self, block: Block, shown: list[str], real: list[str], what: str) -> None:
        if UPDATE:
            self._edit(block, "\n".join(refreshed(shown, real)) + "\n")
        elif not same_output(shown, real):
            changes = "\n".join(difflib.unified_diff(shown, real, "shown", "real", lineterm=""))
            raise AssertionError(
                f"{self.page}, line {block.line}: {what} prints something else; "
                f"DIHEDRAL_UPDATE_DOCS=1 pytest tests/test_docs.py writes it into the page\n{changes}"
            )

    def _edit(self, block: Block, text: str) -> None:
        if text != block.text:
            self.edits.append((block.start, block.end, text))

    def _write(self) -> None:
        for start, end, text in sorted(self.edits, reverse=True):
            self.text = self.text[:start] + text + self.text[end:]
        (ROOT / self.page).write_text(self.text, encoding="utf-8")

    # --- commands ---------------------------------------------------------------------------------

    def _command(self, command: str, block: Block) -> list[str]:
        words = shlex.split(command, comments=True)
        if words[:2] == ["dihedral", "serve"]:
            return self._serve(words[2:], block)
        if words[:2] == ["pip", "install"]:
            check_extras(words[2:], f"{self.page}, line {block.line}")
            return []
        if words[0] == "dihedral" and not {"|", ">", "&&"} & set(words):
            printed, code = run_cli(words[1:])
        elif words[0] == "kill":
            return self._signal(command)
        else:
            printed, code = self._shell(command)
        if code and words[0] != "curl" and not self._shows_error(block):
            raise AssertionError(f"{self.page}, line {block.line}: {command} ended with {code}\n{printed}")
        return [line.rstrip() for line in printed.strip("\n").splitlines()]  # tables are padded

    @staticmethod
    def _shows_error(block: Block) -> bool:
        return "\nerror: " in block.text

    def _shell(self, command: str) -> tuple[str, int]:
        done = subprocess.run(
            ["bash", "-c", command.replace(ADDRESS, self.address)],
            env={**os.environ, "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        errors = done.stderr if done.returncode else ""
        return (done.stdout + errors).replace(self.address, ADDRESS), done.returncode

    # --- a server ---------------------------------------------------------------------------------

    def _serve(self, words: list[str], block: Block) -> list[str]:
        self._stop()
        with self.log.open("wb") as log:
            self.server = subprocess.Popen(
                [sys.executable, "-m", "dihedral", "serve", *(word for word in words if word != "&"), "--port", "0"],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.logged = 0
        printed = self._wait_for_log("/docs")
        found = re.search(r"http://(127\.0\.0\.1:\d+)", printed)
        if found is None:
            raise AssertionError(f"{self.page}, line {block.line}: the server did not start\n{printed}")
        self.address = found[1]
        return printed.replace(self.address, ADDRESS).splitlines()

    def _wait_for_log(self, awaited: str) -> str:
        """What the server printed since the last look, up to a line with the awaited text."""
        assert self.server is not None
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            printed = self.log.read_text(encoding="utf-8")[self.logged :]
            if (awaited in printed and printed.endswith("\n")) or self.server.poll() is not None:
                break
            time.sleep(0.05)
        self.logged += len(printed)
        return printed

    def _signal(self, command: str) -> list[str]:
        """`kill -HUP $!`, to the server of the page."""
        assert self.server is not None and command == "kill -HUP $!", f"{self.page}: {command}"
        self.server.send_signal(1)
        return self._wait_for_log("\n").splitlines()

    def _stop(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait(timeout=600)
            self.server = None


def run_cli(words: list[str]) -> tuple[str, int]:
    """Run `dihedral WORDS` in this process: what it prints on stdout and stderr, and its exit code."""
    from dihedral.cli.main import main
    from dihedral.cli.output import console, notes

    printed, before = io.StringIO(), sys.argv
    sys.argv = ["dihedral", *words]
    console.width = notes.width = int(os.environ["COLUMNS"])  # they were perhaps created with another width
    try:
        with redirect_stdout(printed), redirect_stderr(printed), without_progress():
            main()
    except SystemExit as stopped:
        return printed.getvalue(), int(stopped.code or 0)
    finally:
        sys.argv = before
    return printed.getvalue(), 0


@contextmanager
def without_progress() -> Iterator[None]:
    """In a terminal, a bar takes the place of the lines that training prints elsewhere."""
    from dihedral.learn import loggers

    shown = loggers.show_progress
    loggers.show_progress = lambda: nullcontext(lambda event: None)
    try:
        yield
    finally:
        loggers.show_progress = shown


def check_extras(words: list[str], where: str) -> None:
    """`pip install 'dihedral[serve]'` is not run; the extras that it names must exist."""
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for names in re.findall(r"\[([\w,]+)\]", " ".join(words)):
        for name in names.split(","):
            assert name in extras, f"{where}: pyproject.toml has no extra {name!r}"
