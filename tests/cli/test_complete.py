"""`dihedral complete`."""

from __future__ import annotations

import pyarrow.csv as pacsv
import pyarrow.parquet as papq
import pytest


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv"])
def test_answers_are_written_as_a_table(cli, model_folder, tmp_path, suffix):
    (tmp_path / "q.tsv").write_text("man_0000\tspouse\t?\n")
    path = tmp_path / f"a.{suffix}"
    done = cli("complete", model_folder, "--queries", tmp_path / "q.tsv", "--top", 3, "--out", path)
    assert done.code == 0, done.err
    delimiter = pacsv.ParseOptions(delimiter="," if suffix == "csv" else "\t")
    table = papq.read_table(path) if suffix == "parquet" else pacsv.read_csv(path, parse_options=delimiter)
    assert table["rank"].to_pylist() == [1, 2, 3] and set(table["head"].to_pylist()) == {"man_0000"}


def test_missing_facts_are_printed(cli, model_folder):
    done = cli("complete", model_folder, "--relation", "spouse", "--top", 3)
    assert done.code == 0 and done.out.count("spouse") == 3
