"""Output: valid JSON, and tables that show names literally."""

from __future__ import annotations

import json

import pytest

from dihedral.cli import output


def test_json_replaces_nan_and_infinity_by_null(capsys):
    output.print_json({"mrr": float("nan"), "list": [float("inf"), 1.5, (float("-inf"),)], "é": None})
    text = capsys.readouterr().out
    assert json.loads(text, parse_constant=pytest.fail) == {"mrr": None, "list": [None, 1.5, [None]], "é": None}
    assert "é" in text


def test_tables_round_numbers_and_align_columns(capsys):
    output.print_table("title", ["name", "share"], [["a", 0.123456], ["bb", 7]])
    assert capsys.readouterr().out.splitlines() == ["title", "name   share", "a     0.1235", "bb         7"]


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_the_label_of_a_split_names_the_splits_that_its_ranks_leave_out(family, split):
    assert ("all splits" in output.filtered(split)) == (len(family.filtered(split)) == 3)
    assert ("train and valid" in output.filtered(split)) == (len(family.filtered(split)) == 2)


@pytest.mark.parametrize("name", ["list[int]", "[bold]", "a[/b]", "[link=x]", ":smile:"])
def test_tables_show_names_literally(capsys, name):
    output.print_table("", ["name", "n"], [[name, 1]])
    assert name in capsys.readouterr().out


def test_reading_data_prints_the_notes_of_the_reader(tmp_path, capsys):
    (tmp_path / "facts.tsv").write_text("a\tr\tb\na\tr\tb\n")
    output.read_data(str(tmp_path / "facts.tsv"), seed=3)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["note: split with seed 3", "note: 1 duplicate triples left out"]


def test_columns_are_separated_by_commas(tmp_path):
    (tmp_path / "facts.csv").write_text("o,s,p\nb,a,r\n")
    graph = output.read_data(str(tmp_path / "facts.csv"), "s, p,o")
    assert list(graph.names_of(graph.train)) == [("a", "r", "b")]


HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\ud800\r\nb"


def test_control_characters_are_shown_escaped_in_every_kind_of_output(capsys):
    output.print_table(HOSTILE, ["name", "n"], [[HOSTILE, 1]])
    output.say(HOSTILE)
    output.remark(HOSTILE)
    output.print_json({HOSTILE: HOSTILE})
    shown = "".join(capsys.readouterr())
    assert not set("\x1b\x07\x9b\r\u202e\ud800") & set(shown)
    assert r"a\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\ud800\r\nb" in shown.replace(" ", "")


def test_a_very_long_name_is_cut_in_a_table(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.print_table("", ["name", "n"], [["x" * 10**7, 1]])
    shown = capsys.readouterr().out
    assert 0 < shown.count("x") <= output.console.width and "…" in shown


def test_escaped_json_is_the_same_value(capsys):
    output.print_json({"name": HOSTILE, "é": "日本"})
    text = capsys.readouterr().out
    assert json.loads(text) == {"name": HOSTILE, "é": "日本"} and "日本" in text


def test_an_error_shows_control_characters_escaped(cli, tmp_path):
    (tmp_path / "facts.tsv").write_text("a\t" + HOSTILE.split("\ud800")[0] + "\n")
    shown = cli("data", "info", tmp_path / "facts.tsv")
    assert shown.code == 2 and "\x1b" not in shown.err and r"\x1b" in shown.err
