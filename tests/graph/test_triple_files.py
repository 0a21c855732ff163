"""Files of triples: text with quoted line breaks, blanks around names and other separators, and JSON lines."""

from __future__ import annotations

import json

import pytest

from dihedral import DihedralError, load_graph
from dihedral.graph import triple_files


def load(folder, name, content, **options):
    (folder / name).write_bytes(content.encode())
    return load_graph(folder / name, valid=0, test=0, **options)


def triples_of(graph):
    return list(graph.names_of(graph.known))


@pytest.mark.parametrize("header", ["", "head,relation,tail\n", '"head","rel\nation","tail"\n'])
def test_a_csv_file_of_several_pieces_may_have_quoted_line_breaks(tmp_path, header):
    triples = {(f"a\n{'x' * 200}{i}", "r", f"b\n\n{i % 7}") for i in range(10_000)}
    content = header + "".join(f'"{h}",{r},"{t}"\n' for h, r, t in sorted(triples))
    columns = ["head", "rel\nation", "tail"] if "rel\n" in header else None
    assert len(content) > 2 << 20
    assert set(triples_of(load(tmp_path, "facts.csv", content, columns=columns))) == triples


def test_a_bad_line_after_quoted_line_breaks_has_its_own_number(tmp_path):
    with pytest.raises(DihedralError, match=r"facts\.csv, line 4: 2 columns; expected 3 separated by commas"):
        load(tmp_path, "facts.csv", '"a\n\nb",r,c\nd,r\n')


def test_blanks_around_names_are_stripped_and_counted(tmp_path):
    graph = load(tmp_path, "facts.csv", "ann , knows,bob\nann,knows, eve\nbob,knows,ann\nbob,knows,a b\n")
    assert set(graph.entities) == {"ann", "bob", "eve", "a b"} and list(graph.relations) == ["knows"]
    assert graph.notes == ("split with seed 0", "blanks around names stripped: 3")


def test_blanks_around_names_of_a_list_are_stripped():
    graph = load_graph([("ann ", "knows", "bob"), ("bob", "knows", "\u00a0ann")], valid=0, test=0)
    assert set(graph.entities) == {"ann", "bob"} and "blanks around names stripped: 2" in graph.notes


def test_a_name_of_blanks_is_refused(tmp_path):
    with pytest.raises(DihedralError, match="has blank cells in 1 lines: 1;"):
        load(tmp_path, "facts.tsv", "ann\tknows\t \n")


@pytest.mark.parametrize(
    ("name", "line", "separator"),
    [
        ("facts.csv", "ann;knows;bob", "semicolons"),
        ("facts.tsv", "ann;knows;bob", "semicolons"),
        ("facts.csv", "ann\tknows\tbob", "tabs"),
        ("facts.txt", "ann,knows,bob", "commas"),
        ("facts.tsv", "ann knows bob", "blanks"),
    ],
)
def test_another_separator_is_named_in_the_error(tmp_path, name, line, separator):
    with pytest.raises(DihedralError, match=f"line 1: 1 columns; .*; it seems to be separated by {separator}: save it"):
        load(tmp_path, name, f"{line}\n" * 3)


def test_semicolons_are_named_in_the_error_about_a_missing_column(tmp_path):
    with pytest.raises(
        DihedralError, match="has no column 'a'; its columns are a;b;c; it seems to be separated by sem"
    ):
        load(tmp_path, "facts.csv", "a;b;c\nx;y;z\n", columns=["a", "b", "c"])


def test_lines_may_end_with_a_carriage_return_alone(tmp_path):
    graph = load(tmp_path, "facts.tsv", "head\trelation\ttail\rann\tknows\tbob\rbob\tknows\tann\r")
    assert sorted(triples_of(graph)) == [("ann", "knows", "bob"), ("bob", "knows", "ann")]


def test_names_with_line_breaks_are_counted_because_an_open_quote_joins_lines(tmp_path):
    graph = load(tmp_path, "facts.csv", 'ann,knows,bob\nbob,knows,"eve\neve,knows,ann\nann,knows,"eve\n')
    assert graph.num_triples == 2
    assert graph.notes[1:] == ("names with a line break: 1; in a CSV file, a quote that is not closed joins lines",)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('a,r,b\nc,r,"d\n', 2),
        ('a,r,b\nc,r,"d', 2),
        ('a,r,b\n"c,r,d\ne,r,f\n', 2),
        ('a,"r ""s""",b\n"x\n\ny",r,"d\ne",r\ng,r,"h\n', 6),
        ('\ufeff"a,r,b\n', 1),
        ('a,r,b\nc,r,"d""\n', 2),
    ],
)
def test_a_quote_that_is_never_closed_is_an_error_with_its_line(tmp_path, content, line):
    with pytest.raises(DihedralError, match=rf"facts\.csv, line {line}: a quote is opened and never closed"):
        load(tmp_path, "facts.csv", content)


def test_quotes_within_names_are_text(tmp_path):
    graph = load(tmp_path, "facts.csv", '5" disk,r,b "c"\n"say ""hi""",r,"b,c"\n')
    assert set(graph.entities) == {'5" disk', 'b "c"', 'say "hi"', "b,c"}


def test_a_graph_too_sparse_to_hold_out_triples_says_so(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"a{i}\tr\tb{i}\n" for i in range(59)))
    graph = load_graph(path)
    assert len(graph.valid) == 0
    assert "valid has 0 triples instead of 6, because every entity and relation needs one in train" in graph.notes


# --- JSON lines --------------------------------------------------------------------------------

FACTS = [("ann", "parent", "bob"), ("bob", "spouse", "eve\n\u2028"), ("eve", "parent", "7")]


def load_lines(folder, rows, **options):
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    (folder / "facts.jsonl").write_text(text, encoding="utf-8")
    return load_graph(folder / "facts.jsonl", valid=0, test=0, **options)


@pytest.mark.parametrize("names", [("head", "relation", "tail"), ("Subject", "Property", "Object")])
def test_json_lines_are_read_by_the_names_of_members(tmp_path, monkeypatch, names):
    monkeypatch.setattr(triple_files, "ROWS_PER_BLOCK", 2)
    graph = load_lines(tmp_path, [dict(zip(names, triple, strict=True)) | {"since": 2001} for triple in FACTS])
    expected = [tuple(name.strip("\n") for name in triple) for triple in FACTS]
    assert sorted(graph.names_of(graph.train)) == sorted(expected) and graph.name == "facts"
    assert any(note.endswith("; not used: since") for note in graph.notes)


def test_numbers_become_strings_and_empty_lines_are_left_out(tmp_path):
    graph = load_lines(tmp_path, [{"h": 1, "r": "r", "t": 2}, "", {"t": 3, "h": 2, "r": "r"}])
    assert sorted(graph.names_of(graph.train)) == [("1", "r", "2"), ("2", "r", "3")]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"head": "a", "relation": "r"}, "1 lines: 2;"),
        ({"head": "a", "relation": "r", "tail": ["b"]}, r"line 2: 'tail' is \[\"b\"\]; names are strings or numbers"),
        ("[1, 2, 3]", "line 2: .* is not an object"),
        ("{", "line 2: not JSON"),
        ({"head": "a", "relation": "r", "tail": "b", "Split": "test"}, "line 2: it has a split, but line 1 has none"),
    ],
)
def test_a_bad_line_of_json_is_named_in_the_error(tmp_path, second, message):
    with pytest.raises(DihedralError, match=rf"facts\.jsonl.* {message}"):
        load_lines(tmp_path, [{"head": "a", "relation": "r", "tail": "b"}, second])


def test_an_empty_file_of_json_lines_is_refused(tmp_path):
    with pytest.raises(DihedralError, match=r"facts\.jsonl is empty; expected one triple per line"):
        load_lines(tmp_path, [])


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
