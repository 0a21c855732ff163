"""Tables that fit the terminal: the least important text is cut first, and no word is broken."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from dihedral.cli import output
from dihedral.cli.output import cut, fit

HEADER = ["rank", "head", "relation", "tail", "score"]
ROWS = [["1", "a short head", "/people/person/place_of_birth" * 2, "a very long name of a tail entity (Q42)", "0.1234"]]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_every_line_fits_and_every_row_is_one_line(width):
    lines, dropped = fit(HEADER, ROWS * 3, width, ("relation",))
    assert len(lines) == 4 and all(cell_len(line) <= width for line in lines) and not dropped


def test_the_least_important_column_is_cut_first():
    (_, line), _ = fit(HEADER, ROWS, 90, ("relation",))
    assert "a very long name of a tail entity (Q42)" in line and "place_of_birth" in line and "…" in line


def test_nothing_is_cut_without_a_width_or_where_it_fits():
    for width in (None, 200):
        lines, dropped = fit(HEADER, ROWS, width, ("relation", "score"))
        assert ROWS[0][2] in lines[1] and not dropped


def test_numbers_are_left_out_before_text_becomes_too_short():
    header = ["rule", *(f"number{i}" for i in range(9))]
    rows = [["first relation · second relation ⇒ third relation", *["0.5000"] * 9]]
    lines, dropped = fit(header, rows, 80, ("number8", "number7", "number6", "number5", "number4"))
    assert dropped and "number0" in lines[0] and dropped[0] not in lines[0] and cell_len(lines[1]) <= 80
    assert "first relation · second relation" in lines[1]


def test_a_label_is_cut_before_its_id():
    assert cut("Douglas Noel Adams (Q42)", 14) == "Douglas… (Q42)"
    assert cut("日本語の長い名前", 7) == "日本語…"


def test_wide_shows_everything(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(output.console, "width", 30)
    output.print_table("", HEADER, ROWS)
    assert ROWS[0][2] not in capsys.readouterr().out
    monkeypatch.setitem(output.settings, "wide", True)
    output.print_table("", HEADER, ROWS)
    assert ROWS[0][2] in capsys.readouterr().out


def test_a_table_in_a_file_or_pipe_is_whole(capsys, monkeypatch):
    monkeypatch.setattr(output.console, "width", 30)
    long = "a long name " * 200
    output.print_table("", ["name", "a", "b"], [[long, 0.5, 1234567890123]], least=("b",))
    out, err = capsys.readouterr()
    assert long in out and "1234567890123" in out and err == ""


def test_left_out_columns_are_named(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(output.console, "width", 40)
    output.print_table("", ["rule", "a", "b"], [["a long rule " * 9, 0.12345678, 1234567890123]], least=("b",))
    out, err = capsys.readouterr()
    assert "1234567890123" not in out and err == "not shown: b; --wide shows all\n"
