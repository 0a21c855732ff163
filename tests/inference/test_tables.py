"""Files of questions and of answers."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as papq
import pytest

from dihedral import DihedralError
from dihedral.inference.tables import read_questions, write_table


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
    with pytest.raises(DihedralError, match=r"broken\.parquet' cannot be read"):
        read_questions(tmp_path / "broken.parquet")
    with pytest.raises(DihedralError, match="does not exist; give a TSV, CSV or Parquet file"):
        read_questions(tmp_path / "none.tsv")


def read_table(path) -> pa.Table:
    if path.suffix == ".parquet":
        return papq.read_table(path)
    return pacsv.read_csv(path, parse_options=pacsv.ParseOptions(delimiter="," if path.suffix == ".csv" else "\t"))


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv"])
def test_tables_are_written_in_the_format_of_the_suffix(tmp_path, suffix):
    rows = {"head": ["a", 'quoted "b", and more'], "rank": [1, 2], "known": [True, False]}
    path = tmp_path / "new" / f"answers.{suffix}"
    write_table(pa.table(rows), path)
    assert read_table(path).to_pydict() == rows
    assert [file.name for file in path.parent.iterdir()] == [path.name], "no temporary files stay"


def test_other_suffixes_raise_an_error(tmp_path):
    with pytest.raises(DihedralError, match=r"must end in \.parquet, \.csv or \.tsv"):
        write_table(pa.table({"a": [1]}), tmp_path / "a.json")
