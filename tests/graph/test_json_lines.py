"""JSON lines."""

from __future__ import annotations

import json

import pytest

from dihedral import DihedralError, load_graph
from dihedral.graph import json_lines

FACTS = [("ann", "parent", "bob"), ("bob", "spouse", "eve\n\u2028"), ("eve", "parent", "7")]


def load(folder, rows, **options):
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    (folder / "facts.jsonl").write_text(text, encoding="utf-8")
    return load_graph(folder / "facts.jsonl", valid=0, test=0, **options)


@pytest.mark.parametrize("names", [("head", "relation", "tail"), ("Subject", "Property", "Object")])
def test_json_lines_are_read_by_the_names_of_members(tmp_path, monkeypatch, names):
    monkeypatch.setattr(json_lines, "ROWS_PER_BLOCK", 2)
    graph = load(tmp_path, [dict(zip(names, triple, strict=True)) | {"since": 2001} for triple in FACTS])
    expected = [tuple(name.strip("\n") for name in triple) for triple in FACTS]
    assert sorted(graph.names_of(graph.train)) == sorted(expected) and graph.name == "facts"
    assert any(note.endswith("; not used: since") for note in graph.notes)


def test_numbers_become_strings_and_empty_lines_are_left_out(tmp_path):
    graph = load(tmp_path, [{"h": 1, "r": "r", "t": 2}, "", {"t": 3, "h": 2, "r": "r"}])
    assert sorted(graph.names_of(graph.train)) == [("1", "r", "2"), ("2", "r", "3")]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"head": "a", "relation": "r"}, "line 2: 'tail' is missing; names are strings or numbers"),
        ({"head": "a", "relation": "r", "tail": ["b"]}, r"line 2: 'tail' is \[\"b\"\]; names are strings or numbers"),
        ("[1, 2, 3]", "line 2: .* is not an object"),
        ("{", "line 2: not JSON"),
        ({"head": "a", "relation": "r", "tail": "b", "Split": "test"}, "line 2: it has a split, but line 1 has none"),
    ],
)
def test_a_bad_line_is_named_in_the_error(tmp_path, second, message):
    with pytest.raises(DihedralError, match=rf"facts\.jsonl, {message}"):
        load(tmp_path, [{"head": "a", "relation": "r", "tail": "b"}, second])


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(DihedralError, match=r"facts\.jsonl is empty; expected one triple per line"):
        load(tmp_path, [])


def test_text_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "facts.jsonl").write_bytes(b'{"head": "caf\xe9"}\n')
    with pytest.raises(DihedralError, match=r"facts\.jsonl, line 1: not UTF-8 text"):
        load_graph(tmp_path / "facts.jsonl")


@pytest.mark.parametrize(
    "line",
    [
        '{"head": ' + "[" * 100_000, '{"head": ' + "1" * 5000 + ', "relation": "r", "tail": "b"}',
        '{"head": NaN, "relation": "r", "tail": "b"}', '{"head": true, "relation": "r", "tail": "b"}',
        '{"head": "' + "x" * (1 << 20) + '", "relation": "r", "tail": "b"}', '{"head": {}, "relation": 1, "tail": []}',
    ],
    ids=["deep", "a long number", "NaN", "true", "a long line", "an object"],
)  # fmt: skip
def test_hostile_lines_are_refused_with_their_number(tmp_path, line):
    (tmp_path / "a.jsonl").write_text('{"head": "a", "relation": "r", "tail": "b"}\n' + line + "\n")
    with pytest.raises(DihedralError, match=r"a\.jsonl, line 2: "):
        load_graph(tmp_path / "a.jsonl")


def test_half_a_character_is_a_name(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"head": "\\ud800", "relation": "r", "tail": "b"}\n')
    assert set(load_graph(tmp_path / "a.jsonl", valid=0, test=0).entities) == {"?", "b"}
