"""Tables in files: what is written, and the numbers of lines."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as papq
import pytest

from dihedral.errors import DihedralError
from dihedral.io.sources import Source
from dihedral.io.table_files import text_rows, write_table


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


@pytest.mark.parametrize("name", ["two\nlines", "two\r\nlines", "a\ttab"])
def test_a_name_that_a_tsv_file_cannot_hold_is_refused(tmp_path, name):
    with pytest.raises(DihedralError, match=r"has a tab or a line break, which .* cannot hold; write \.csv or"):
        write_table(pa.table({"head": [name]}), tmp_path / "answers.tsv")
    assert not (tmp_path / "answers.tsv").exists()


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_names_that_are_formulas_are_made_safe_on_request(tmp_path, suffix):
    names = ["=1+1", "+a", "-b", "@c", '"=2', "plain", "a=b", ""]
    table = pa.table({"name": names, "score": [-1.5] * len(names)})
    write_table(table, tmp_path / f"a{suffix}")
    assert "'" not in (tmp_path / f"a{suffix}").read_text()
    write_table(table, tmp_path / f"a{suffix}", spreadsheet_safe=True)
    text = (tmp_path / f"a{suffix}").read_text()
    assert text.count("'") == 5 and "'=1+1" in text and "'@c" in text and "-1.5" in text and "'-1.5" not in text


def test_rows_have_the_numbers_of_their_first_lines(tmp_path):
    (tmp_path / "facts.csv").write_bytes(
        b'\xef\xbb\xbf"a\nb",r,c\r\n\nx\x0b,\xc2\x85,\xe2\x80\xa8\n"long' + b"g" * 200_000
    )
    rows = text_rows(Source("facts.csv", tmp_path / "facts.csv"))
    assert [next(rows), next(rows)] == [(1, ["a\nb", "r", "c"]), (4, ["x\x0b", "\x85", "\u2028"])]
    with pytest.raises(DihedralError, match=r"facts\.csv, line 5: a quote is opened and never closed"):
        next(rows)
