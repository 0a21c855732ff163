"""`dihedral complete`."""

from __future__ import annotations

from collections import Counter

import pyarrow.csv as pacsv
import pyarrow.parquet as papq
import pytest

from dihedral import load_graph


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
    done = cli("missing", model_folder, "--relation", "spouse", "--top", 3)
    assert done.code == 0 and done.out.count("spouse") == 3 and "precision" in done.out


def test_an_interval_that_is_wide_because_few_facts_are_valid_is_explained(cli, model_folder):
    note = "the intervals are wide, because the graph has only 11 valid facts to fit probabilities on\n"
    assert cli("missing", model_folder, "--top", 10).err == note
    assert cli("missing", model_folder, "--top", 2).err == ""  # a short list has a wide interval anyway


def test_missing_facts_may_be_limited_per_relation(cli, model_folder):
    done = cli("missing", model_folder, "--per-relation", 2, "--json")
    counts = Counter(row["relation"] for row in done.rows)
    assert done.code == 0 and len(counts) > 3 and set(counts.values()) <= {1, 2} and max(counts.values()) == 2


def test_queries_with_unknown_names_are_left_out_on_request(cli, model_folder, tmp_path):
    (tmp_path / "q.tsv").write_text("head\trelation\ttail\nman_0000\tspouse\t?\nnobody\tspouse\t?\n\tlikes\tman_0000\n")
    words = ("complete", model_folder, "--queries", tmp_path / "q.tsv", "--json")
    done = cli(*words)
    listed = "entity 'nobody' (question 2), relation 'likes' (question 3)"
    assert done.code == 2 and done.err.startswith(f"error: 2 names are unknown: {listed}; correct them")
    done = cli(*words, "--skip-unknown")
    assert done.code == 0 and done.err == f"left out 2 of 3 queries with unknown names: {listed}\n"
    assert {row["question"] for row in done.rows} == {1}


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_answers_are_read_back_as_a_graph_with_the_same_names(cli, tmp_path, suffix):
    names = ['"quoted"', '"a', "x\x85y", "x\u2028y", "x\x0by", "plain"]
    (tmp_path / "train.txt").write_text("".join(f"{a}\tr\t{b}\n" for a in names for b in names if a != b))
    cli("train", tmp_path, "--out", tmp_path / "model", "--set", "epochs=1", "--set", "dimension=8")
    (tmp_path / "q.tsv").write_text("".join(f"{name}\tr\t?\n" for name in names))
    out = tmp_path / f"answers.{suffix}"
    done = cli("complete", tmp_path / "model", "--queries", tmp_path / "q.tsv", "--out", out)
    assert done.code == 0, done.err
    assert set(load_graph(out).entities) == set(names)
