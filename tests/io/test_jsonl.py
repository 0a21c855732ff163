"""JSON lines: logs survive a process that died while it wrote."""

from __future__ import annotations

import pytest

from dihedral import DihedralError
from dihedral.io.jsonl import append_line, read_lines, write_lines

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


def test_a_log_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(DihedralError, match=r"nowhere/log\.jsonl' cannot be written: No such file"):
        append_line(tmp_path / "nowhere" / "log.jsonl", {})
