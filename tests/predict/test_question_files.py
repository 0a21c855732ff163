"""Files of questions and of answers."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as papq
import pytest

from dihedral import DihedralError, load_graph
from dihedral.io.table_files import write_table
from dihedral.predict.question_files import read_questions


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.tsv", "man_0000\tspouse\t?\n\tparent\tman_0001\n"),
        ("q.csv", "head,relation,tail\nman_0000,spouse,\n?,parent,man_0001\n"),
        ("q.CSV", "Predicate,Subject,Object\nspouse,man_0000,\nparent,?,man_0001\n"),
    ],
)
def test_questions_are_read_from_text_with_or_without_a_header(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_questions(tmp_path / name) == [("man_0000", "spouse", None), (None, "parent", "man_0001")]


def test_questions_are_read_from_parquet_with_columns_in_any_order(tmp_path):
    table = pa.table({"tail": [None], "head": ["man_0000"], "relation": ["spouse"]})
    papq.write_table(table, tmp_path / "q.parquet")
    assert read_questions(tmp_path / "q.parquet") == [("man_0000", "spouse", None)]


def test_files_that_cannot_be_read_are_named_in_the_error(tmp_path):
    (tmp_path / "two.tsv").write_text("a\tb\n")
    with pytest.raises(DihedralError, match=r"two\.tsv, line 1: 2 columns; questions have head, relation, tail"):
        read_questions(tmp_path / "two.tsv")
    papq.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "two.parquet")
    with pytest.raises(DihedralError, match=r"two\.parquet' has 2 columns; questions have head, relation, tail"):
        read_questions(tmp_path / "two.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(DihedralError, match=r"broken\.parquet: it cannot be read"):
        read_questions(tmp_path / "broken.parquet")
    with pytest.raises(DihedralError, match="does not exist; give a TSV, CSV or Parquet file"):
        read_questions(tmp_path / "none.tsv")


STRANGE = ['"quoted"', '"a', '5" pipe', "x\x85y", "x\u2028y", "x\x0by", "x\x1cy", "é, ü", "a;b", "NA", "null"]
BROKEN = ["two\nlines", "two\r\nlines", "a\ttab"]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_names_that_are_written_are_read_back_exactly(tmp_path, suffix):
    names = STRANGE + (BROKEN if suffix != "tsv" else [])
    answers = pa.table(
        {"question": range(len(names)), "head": names, "relation": names[::-1], "tail": ["t"] * len(names)}
    )
    path = tmp_path / f"answers.{suffix}"
    write_table(answers, path)
    graph = load_graph(path, valid=0, test=0)
    expected = list(zip(names, names[::-1], ["t"] * len(names), strict=True))
    assert sorted(graph.names_of(graph.train)) == sorted(expected)
    assert read_questions(path) == expected


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_questions_have_the_names_that_a_graph_has(tmp_path, suffix):
    delimiter = "," if suffix == "csv" else "\t"
    names = ["x\x85y", "x\u2028y", "x\x0by", *(['"two\nlines"', '"a ""b"""'] if suffix == "csv" else ['"a'])]
    text = "".join(delimiter.join((f"{name} ", "r", "c")) + "\n" for name in names)
    (tmp_path / f"facts.{suffix}").write_text(text)
    (tmp_path / f"questions.{suffix}").write_text(text.replace(f"{delimiter}c\n", f"{delimiter}?\n\n"))
    graph = load_graph(tmp_path / f"facts.{suffix}", valid=0, test=0)
    questions = read_questions(tmp_path / f"questions.{suffix}")
    assert questions == [(head, "r", None) for head in dict.fromkeys(q[0] for q in questions)]
    assert {head for head, _, _ in questions} == set(graph.entities) - {"c"}


def test_a_bad_question_has_the_number_of_its_line(tmp_path):
    (tmp_path / "q.csv").write_text('"two\nlines",r,?\n\na,b\n')
    with pytest.raises(DihedralError, match=r"q\.csv, line 4: 2 columns"):
        read_questions(tmp_path / "q.csv")
