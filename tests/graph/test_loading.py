"""Loading triples from memory, and split columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as papq
import pytest

import dihedral as dh
from dihedral import DihedralError, load_graph

FACTS = [("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a")]


@pytest.mark.parametrize("source", [FACTS, FACTS[:2], tuple(map(list, FACTS)), np.array(FACTS)])
def test_a_list_of_triples_is_a_graph(source):
    graph = dh.load_graph(source, valid=0.0, test=0.0)
    assert set(graph.names_of(graph.train)) == set(map(tuple, np.array(source).tolist()))


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
        assert set(again.names_of(again.split(split))) == set(family.names_of(family.split(split)))


def test_common_synonyms_of_valid_are_accepted_and_other_splits_refused():
    table = pa.table({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["b", "a"], "split": ["train", "dev"]})
    assert len(dh.load_graph(table).valid) == 1
    with pytest.raises(DihedralError, match="column split has the value 'holdout'; expected train, valid or test"):
        dh.load_graph(table.set_column(3, "split", pa.array(["train", "holdout"])))


NAN = float("nan")
FRAMES = {
    "NaN": ({"head": ["a", NAN]}, r"table has 1 missing values, the first in row 1 \(from 0\)"),
    "None": ({"relation": ["r", None]}, r"table has 1 missing values, the first in row 1 \(from 0\)"),
    "empty": ({"tail": ["b", " "]}, r"table has an empty name in row 1 \(from 0\)"),
    "a number among strings": ({"head": ["a", 3]}, r"column 'head' has 3 in row 1 \(from 0\); its names must be"),
    "a list": ({"head": ["a", ["x"]]}, r"column 'head' has \['x'\] in row 1 \(from 0\)"),
    "NaN among numbers": ({"head": [1.0, NAN]}, r"table has 1 missing values, the first in row 1 \(from 0\)"),
}


@pytest.mark.parametrize(("change", "message"), FRAMES.values(), ids=FRAMES)
def test_a_frame_with_something_that_is_no_name_is_refused_with_the_row(change, message):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["b", "c"]} | change)
    with pytest.raises(DihedralError, match=message):
        load_graph(frame)


def test_nan_in_a_polars_frame_is_refused_with_the_row():
    polars = pytest.importorskip("polars")
    with pytest.raises(DihedralError, match=r"the first in row 1 \(from 0\)"):
        load_graph(polars.DataFrame({"head": [1.0, NAN], "relation": ["r", "r"], "tail": ["b", "c"]}))


@pytest.mark.parametrize("part", [None, NAN, True, object(), ["x"]])
def test_a_triple_with_something_that_is_no_name_is_refused_with_its_row(part):
    with pytest.raises(DihedralError, match=r"row 1 \(from 0\) has .* as a name; names are strings or numbers"):
        load_graph([("a", "r", "b"), ("a", part, "b")])


def test_lazy_frames_and_generators_are_read():
    polars = pytest.importorskip("polars")
    facts = [("a", "r", "b"), ("b", "r", "c")]
    lazy = polars.LazyFrame(facts, schema=["head", "relation", "tail"], orient="row")
    for make in (
        lambda: lazy, lambda: iter(facts), lambda: {"train": iter(facts)}, lambda: {"train": lazy, "valid": facts},
    ):  # fmt: skip
        graph = load_graph(make(), valid=0, test=0)
        assert set(graph.names_of(graph.train)) == set(facts)
    with pytest.raises(DihedralError, match="table has 0 columns; expected 3"):
        load_graph(iter(()))
    with pytest.raises(DihedralError, match="a graph cannot be read from a int"):
        load_graph(iter([1, 2, 3]))
