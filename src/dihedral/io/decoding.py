"""Run the decoder of RDF and Parquet files, `decoder.py`, as a process within limits, and report how it failed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.io.decoder import MAX_DEPTH, NO_MEMORY, REFUSED
from dihedral.io.files import json_depth
from dihedral.io.sources import SETTING, Source, max_decoded

BLOCK_BATCHES = 16  # of at most 65,536 rows; the heads of a block are numbered before its tails
DECODER_MEMORY = 256 << 20  # bytes that a decoding process may take besides what it decodes
DECODER_SECONDS = 8  # processor time, and one more for every 64 MiB of decoded data
SECONDS_PER_BYTE = 1 / (64 << 20)
_PROGRAM = Path(__file__).with_name("decoder.py")


class Decoding:
    """A decoder at work: `output` is what it writes, `ask` sends it a line."""

    def __init__(self, process: subprocess.Popen[bytes], where: str, limits: tuple[int, int]) -> None:
        self.process, self.where, self.limits = process, where, limits
        assert process.stdout is not None
        self.output: IO[bytes] = process.stdout

    def line(self) -> dict[str, Any]:
        """The next line of the output, which is a JSON object."""
        text = self.output.readline()
        if not text.endswith(b"\n"):
            raise self.failure()
        return dict(json.loads(text))

    def ask(self, content: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(content).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.failure() from None

    def feed(self, source: Source) -> None:
        """Send the content of a file; a decoder that has ended is found when its output is read."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError), source.plain() as stream:
            shutil.copyfileobj(stream, self.process.stdin, 1 << 16)
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    @contextmanager
    def stream(self) -> Iterator[pa.RecordBatchReader]:
        """The next Arrow stream of the output."""
        try:
            with pa.ipc.open_stream(self.output) as stream:
                yield stream
        except (pa.ArrowException, OSError) as error:
            raise self.failure(str(error).splitlines()[0]) from None

    def finish(self) -> None:
        """Raise an error unless the decoder has written all that it wanted to."""
        if self.output.read(1) or self.process.wait():
            raise self.failure("its decoder wrote too much")

    def failure(self, reason: str = "") -> DihedralError:
        """Why the decoder ended before its work was done. reason: what is wrong with its output, if it did not end."""
        assert self.process.stderr is not None
        self.output.close()  # a decoder that still writes ends too
        text, code = self.process.stderr.read().decode(errors="replace"), self.process.wait()
        memory, seconds = self.limits
        trust = f"if you trust the file, set {SETTING}"
        if code == REFUSED:
            return DihedralError(f"{self.where}{text}")
        if code == -signal.SIGXCPU:
            return DihedralError(f"{self.where} takes more than {seconds} s to decode; {trust}")
        if code == -signal.SIGSEGV:
            return DihedralError(f"{self.where} cannot be read: it is nested too deeply for its parser")
        if code in (NO_MEMORY, -signal.SIGABRT):
            return DihedralError(f"{self.where} takes more than {memory >> 20} MiB of memory to decode; {trust}")
        reason = reason or f"its decoder ended with status {code}"
        return DihedralError(f"{self.where} cannot be read: {reason}")


@contextmanager
def decoding_rdf(source: Source, request: dict[str, Any]) -> Iterator[Decoding]:
    """Decode a file, or a stream if it is compressed or in an archive. request: what `decoder.decode_rdf` needs."""
    request = {"kind": "rdf", "path": None} | request
    if request["format"] == "JSON_LD":
        with source.plain() as stream:
            depth = json_depth(stream.read())
        if depth > MAX_DEPTH:
            raise DihedralError(f"{source.where}: objects and lists are nested more than {MAX_DEPTH} deep")
    if isinstance(source.content, Path) and not source.compression:
        with _opened(source) as file, _started(source, request | {"path": file.name}, stdin=file) as work:
            yield work
        return
    with _started(source, request, stdin=subprocess.PIPE) as work:
        work.feed(source)
        yield work


@dataclass(frozen=True)
class ParquetColumns:
    """The columns of a Parquet file, which a decoder writes once."""

    work: Decoding
    names: list[str]
    num_rows: int  # that the file claims to have

    def read(self, used: Sequence[int], watched: Sequence[int] = ()) -> Iterator[pa.Table]:
        """Blocks of rows, whose columns are named by their places; of those that are watched, only flat ones."""
        self.work.ask({"used": list(used), "watched": list(watched)})
        rows = 0
        with self.work.stream() as stream:
            while batches := list(islice(stream, BLOCK_BATCHES)):
                table = pa.Table.from_batches(batches)
                rows += len(table)
                yield table
        if rows != self.num_rows:
            name = self.names[used[0]]
            raise self.work.failure(f"it claims {self.num_rows} rows, but its column {name!r} has {rows}")
        self.work.finish()


@contextmanager
def decoding_parquet(source: Source) -> Iterator[ParquetColumns]:
    if source.compression:
        raise DihedralError(f"{source.where} is a compressed Parquet file; unpack it: Parquet compresses its columns")
    with _opened(source) as file:
        request = {"kind": "parquet", "descriptor": file.fileno()}
        with _started(source, request, stdin=subprocess.PIPE, pass_fds=(file.fileno(),)) as work:
            about = work.line()
            yield ParquetColumns(work, about["columns"], about["rows"])


def _opened(source: Source) -> IO[bytes]:
    """The stored bytes as a file with a descriptor; those from an archive stay in memory where the system can."""
    if isinstance(source.content, Path):
        try:
            return source.content.absolute().open("rb")
        except OSError as error:
            raise DihedralError(f"{source.where} cannot be read: {error.strerror}") from None
    file = os.fdopen(os.memfd_create("archive"), "w+b") if hasattr(os, "memfd_create") else tempfile.TemporaryFile()  # noqa: SIM115
    file.write(source.content)
    file.seek(0)
    return file


@contextmanager
def _started(source: Source, request: dict[str, Any], **options: Any) -> Iterator[Decoding]:
    decoded = max_decoded(source.size)
    memory, seconds = DECODER_MEMORY + decoded, DECODER_SECONDS + int(decoded * SECONDS_PER_BYTE)
    request |= {"memory": memory, "seconds": seconds, "max_decoded": decoded}
    settings = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "ARROW_DEFAULT_MEMORY_POOL": "system",  # the others reserve more addresses than the limit allows
        "MALLOC_ARENA_MAX": "1",
    }
    command = [sys.executable, "-P", str(_PROGRAM), json.dumps(request)]
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": os.environ | settings}
    try:
        process = subprocess.Popen(command, **options)
    except OSError as error:
        raise DihedralError(f"{source.where} cannot be read: its decoder does not start: {error.strerror}") from None
    try:
        yield Decoding(process, source.where, (memory, seconds))
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
