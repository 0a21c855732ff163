"""JSON lines: logs and journals survive a process that died while it wrote, whoever else writes."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from dihedral import DihedralError
from dihedral.io import jsonl as journals
from dihedral.io.jsonl import Journal, append_line, read_lines, write_lines

ROWS = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "name": "é\u2028日本"}]


def test_lines_round_trip(tmp_path):
    for row in ROWS:
        append_line(tmp_path / "log.jsonl", row)
    write_lines(tmp_path / "copy.jsonl", ROWS)
    assert read_lines(tmp_path / "log.jsonl") == read_lines(tmp_path / "copy.jsonl") == ROWS
    assert (tmp_path / "log.jsonl").read_bytes() == (tmp_path / "copy.jsonl").read_bytes()


def test_a_missing_file_is_an_empty_log(tmp_path):
    assert read_lines(tmp_path / "log.jsonl") == []


@pytest.mark.parametrize("line", [b"", b'{"epoch": 3, "lo', b"\xff\xfe", b"3", b"[]", b"[" * 100_000])
def test_lines_that_are_not_complete_json_objects_are_skipped(tmp_path, line):
    write_lines(tmp_path / "log.jsonl", ROWS[:1])
    with (tmp_path / "log.jsonl").open("ab") as stream:
        stream.write(line)
    append_line(tmp_path / "log.jsonl", ROWS[1])
    assert read_lines(tmp_path / "log.jsonl") == ROWS


def test_a_log_is_bounded_in_size(tmp_path):
    (tmp_path / "log.jsonl").write_bytes(b"{}\n" * (3 << 20))
    with pytest.raises(DihedralError, match=r"log\.jsonl' cannot be read: it has more than 8 MiB"):
        read_lines(tmp_path / "log.jsonl")


def test_a_log_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(DihedralError, match=r"nowhere/log\.jsonl' cannot be written: No such file"):
        append_line(tmp_path / "nowhere" / "log.jsonl", {})


# --- journals ---------------------------------------------------------------------------------------

APPEND = """
import os, sys
from pathlib import Path
from dihedral.io.jsonl import Journal
journal, child = Journal(Path(sys.argv[1])), os.fork()
for number in range(200):
    with journal.locked() as append:
        append([{"writer": "a" if child else "b", "number": number}])
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""


@pytest.fixture
def journal(tmp_path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def append(journal: Journal, *rows) -> None:
    with journal.locked() as append:
        append(rows)


def test_only_what_is_new_is_read(journal):
    assert journal.read() == ([], False)
    append(journal, {"a": 1}, {"a": "é\u2028日本"})
    assert journal.read() == ([{"a": 1}, {"a": "é\u2028日本"}], False)
    append(journal, {"a": 3})
    assert journal.read() == ([{"a": 3}], False) and journal.read() == ([], False)


@pytest.mark.parametrize("torn", [b'{"a": 2, "b', b'{"a": 2}', b"\xff", b"[" * 1000])
def test_a_line_that_was_not_finished_does_not_harm_the_next(journal, torn):
    append(journal, {"a": 1})
    with journal.path.open("ab") as stream:
        stream.write(torn)
    assert journal.read() == ([{"a": 1}], False)  # the last line may still be written
    append(journal, {"a": 3})
    rows = journal.read()[0]
    assert rows[-1] == {"a": 3} and len(rows) == (2 if torn == b'{"a": 2}' else 1)


def test_another_file_in_its_place_is_read_from_the_start(journal):
    append(journal, {"a": 1})
    journal.read()
    journal.path.unlink()
    assert journal.read() == ([], True) and journal.read() == ([], False)
    append(journal, {"a": 2})
    assert journal.read() == ([{"a": 2}], False)
    journal.path.write_text("")
    assert journal.read() == ([], True)


def test_processes_and_threads_lose_nothing_of_each_other(journal, forks):
    with forks.start("-c", APPEND, journal.path) as process, ThreadPoolExecutor(4) as pool:
        here = [pool.submit(append, journal, {"writer": "c", "number": number}) for number in range(200)]
        for each in here:
            each.result()
        assert process.wait(600).returncode == 0
    rows = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert len(rows) == 600
    for writer in "ab":
        assert [row["number"] for row in rows if row["writer"] == writer] == list(range(200))
    assert {row["number"] for row in rows if row["writer"] == "c"} == set(range(200))


def test_a_full_disk_leaves_the_journal_as_it_was(journal, monkeypatch):
    append(journal, {"a": 1})
    before = journal.path.read_bytes()
    write = os.write

    def fill(descriptor: int, text: bytes) -> int:
        if len(text) > 4:
            return write(descriptor, text[:4])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dihedral.io.jsonl.os.write", fill)
    with pytest.raises(DihedralError, match="cannot be written: No space left on device; nothing was kept"):
        append(journal, {"a": "much more than four bytes"})
    assert journal.path.read_bytes() == before


def test_limits_and_links_are_refused(journal, tmp_path):
    with pytest.raises(DihedralError, match="would have 70,"):
        append(journal, {"a": "x" * 70_000})
    journal.path.write_bytes(b'{"a": "' + b"x" * 70_000 + b'"}\n{"a": 2}\n')
    assert journal.read()[0] == [{"a": 2}]
    journal.max_bytes = 1000
    with pytest.raises(DihedralError, match="has more than"):
        journal.read()
    with pytest.raises(DihedralError, match="is full"):
        append(journal, {"a": 3})
    link = tmp_path / "link.jsonl"
    link.symlink_to(journal.path)
    with pytest.raises(DihedralError, match="symbolic link"), Journal(link).locked():
        pass


def test_a_lock_that_is_never_released_ends_in_an_error(journal, monkeypatch):
    monkeypatch.setattr(journals, "MAX_WAIT_SECONDS", 0.05)
    with journal.locked(), pytest.raises(DihedralError, match="locked by another process"), journal.locked():
        pass


@pytest.mark.parametrize("more", [b"", b'{"number": 4}\n'])
def test_a_journal_that_is_rewritten_in_place_is_read_from_the_start(journal, more):
    with journal.locked() as append:
        append([{"number": 1}, {"number": 2}])
    assert journal.read() == ([{"number": 1}, {"number": 2}], False)
    with journal.path.open("r+b") as stream:
        stream.write(b'{"number": 8}\n{"number": 9}\n' + more)
    rows, replaced = journal.read()
    assert replaced and [row["number"] for row in rows] == [8, 9, 4][: len(rows)] and len(rows) == 2 + bool(more)
