"""Loading triples from memory, and split columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as papq
import pytest

import dihedral as dh
from dihedral import DihedralError

FACTS = [("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a")]


@pytest.mark.parametrize("source", [FACTS, FACTS[:2], tuple(map(list, FACTS)), np.array(FACTS)])
def test_a_list_of_triples_is_a_graph(source):
    graph = dh.load_graph(source, valid=0.0, test=0.0)
    assert set(graph.labels(graph.train)) == set(map(tuple, np.array(source).tolist()))


@pytest.mark.parametrize("files", [["model.json"], ["training/log.jsonl"], []], ids=["model", "run", "empty"])
def test_a_folder_without_triples_does_not_hide_a_benchmark(benchmark_path, tmp_path, monkeypatch, files):
    benchmark_path("umls")
    monkeypatch.chdir(tmp_path)
    for name in ("umls", "family"):
        (tmp_path / name / "training").mkdir(parents=True)
        for file in files:
            (tmp_path / name / file).write_text("{}")
    assert dh.load_graph("umls").num_entities == 135 and dh.load_graph("family").num_entities == 1200
    for name in ("umls", "family"):
        (tmp_path / name / "train.txt").write_text("a\tr\tb\n")
        assert dh.load_graph(name).num_entities == 2, "a folder with triples is read"


def test_the_error_for_the_folder_of_a_model_says_so(tmp_path):
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(DihedralError, match="holds a model, not triples"):
        dh.load_graph(tmp_path)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv"])
def test_a_file_with_a_split_column_keeps_its_splits(tmp_path, family, suffix):
    table = family.to_arrow()
    path = tmp_path / f"family.{suffix}"
    if suffix == "parquet":
        papq.write_table(table, path)
    elif suffix == "tsv":
        rows = [table.column_names, *(row.values() for row in table.to_pylist())]
        path.write_text("".join("\t".join(row) + "\n" for row in rows))
    else:
        pacsv.write_csv(table, path)
    again = dh.load_graph(path)
    for split in ("train", "valid", "test"):
        assert set(again.labels(again.split(split))) == set(family.labels(family.split(split)))


def test_common_synonyms_of_valid_are_accepted_and_other_splits_refused():
    table = pa.table({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["b", "a"], "split": ["train", "dev"]})
    assert len(dh.load_graph(table).valid) == 1
    with pytest.raises(DihedralError, match="column split has the value 'holdout'; expected train, valid or test"):
        dh.load_graph(table.set_column(3, "split", pa.array(["train", "holdout"])))
