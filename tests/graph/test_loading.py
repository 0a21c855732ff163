"""Loading triples from memory, and split columns."""

from __future__ import annotations

import json
import re

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
    "NaN": ({"head": ["a", NAN]}, r"table has blank cells in 1 rows \(from 1\): 2;"),
    "None": ({"relation": ["r", None]}, r"table has blank cells in 1 rows \(from 1\): 2;"),
    "empty": ({"tail": ["b", " "]}, r"table has blank cells in 1 rows \(from 1\): 2;"),
    "a number among strings": ({"head": ["a", 3]}, r"column 'head' has 3 in row 1 \(from 0\); its names must be"),
    "a list": ({"head": ["a", ["x"]]}, r"column 'head' has \['x'\] in row 1 \(from 0\)"),
    "NaN among numbers": ({"head": [1.0, NAN]}, r"table has blank cells in 1 rows \(from 1\): 2;"),
}


@pytest.mark.parametrize(("change", "message"), FRAMES.values(), ids=FRAMES)
def test_a_frame_with_something_that_is_no_name_is_refused_with_the_row(change, message):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["b", "c"]} | change)
    with pytest.raises(DihedralError, match=message):
        load_graph(frame)


def test_nan_in_a_polars_frame_is_refused_with_the_row():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"head": [1.0, NAN], "relation": ["r", "r"], "tail": ["b", "c"]})
    with pytest.raises(DihedralError, match=r"blank cells in 1 rows \(from 1\): 2;"):
        load_graph(frame)
    assert list(load_graph(frame, skip_blank=True).entities) == ["1", "b"]


@pytest.mark.parametrize("part", [True, object(), ["x"]])
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


BLANK_CSV = 'head,relation,tail\n\nann,knows,bob\n,knows,eve\n"dan\nd",knows,\nbob, ,eve\neve,knows,ann\n,,\n'


def blank_file(folder, suffix):
    """A file of two facts among four rows with a blank cell, and the lines of these rows as an editor shows them."""
    path = folder / f"facts.{suffix}"
    rows = [("ann", "knows", "bob"), ("", "knows", "eve"), ("dan", "knows", None), ("eve", "knows", "ann")]
    if suffix == "csv":
        path.write_text(BLANK_CSV)
        return path, "lines: 4, 5, 7, 9"
    if suffix == "tsv":
        path.write_text("".join("\t".join(part or "" for part in row) + "\n" for row in [*rows, ("", "", "")]))
        return path, "lines: 2, 3, 5"
    names = ("head", "relation", "tail")
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    if suffix == "jsonl":
        path.write_text("\n".join(json.dumps(each) for each in [*objects, {"head": "eve", "tail": "bob"}]))
        return path, "lines: 2, 3, 5"
    papq.write_table(pa.Table.from_pylist(objects), path)
    return path, r"rows \(from 1\): 2, 3"


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_all_rows_with_a_blank_cell_are_named_at_once_and_can_be_left_out(tmp_path, suffix):
    path, where = blank_file(tmp_path, suffix)
    with pytest.raises(
        DihedralError, match=rf"blank cells in \d {where}; fill them in or remove them; .*skip_blank=True"
    ):
        load_graph(path)
    graph = load_graph(path, valid=0, test=0, skip_blank=True)
    assert set(graph.names_of(graph.train)) == {("ann", "knows", "bob"), ("eve", "knows", "ann")}
    assert set(graph.entities) == {"ann", "bob", "eve"} and list(graph.relations) == ["knows"]
    assert [note for note in graph.notes if re.search(rf"left out: blank cells in \d {where}$", note)]


def test_every_row_of_a_spreadsheet_with_many_blank_cells_is_named(tmp_path):
    (tmp_path / "facts.csv").write_text("head,relation,tail\n" + "ann,knows,\n" * 63 + "ann,knows,bob\n")
    with pytest.raises(DihedralError, match=f"blank cells in 63 lines: {', '.join(map(str, range(2, 65)))};"):
        load_graph(tmp_path / "facts.csv")


def test_of_very_many_rows_with_a_blank_cell_some_are_named_in_any_block(monkeypatch):
    monkeypatch.setattr("dihedral.graph.triple_files.MAX_ROWS", 3)
    chunks = [["a", None], [None], ["a", "b"], ["", None, "c"]]
    heads = pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks])
    table = pa.table({"head": heads, "relation": ["r"] * 8, "tail": ["x"] * 8, "split": [*["train"] * 7, None]})
    with pytest.raises(DihedralError, match=r"blank cells in 4 rows \(from 1\): 2, 3, 6 and 1 more;"):
        load_graph(table)
    with pytest.raises(DihedralError, match="column split has 1 missing values"):  # of the rows that are left
        load_graph(table, skip_blank=True)


def test_none_in_a_list_of_triples_is_a_blank_cell():
    facts = [("a", "r", "b"), ("a", None, "b"), ("a", "r", NAN)]
    with pytest.raises(DihedralError, match=r"blank cells in 2 rows \(from 1\): 2, 3;"):
        load_graph(facts)
    assert len(load_graph(facts, skip_blank=True, valid=0, test=0).train) == 1


SIMILAR = [
    ("Ann", "knows", "bob"), ("ann", "Knows", "Bob"), ("ANN", "knows", "bob"), ("Ann", "knows", "Jos\u00e9"),
    ("Jose\u0301", "knows", "ann  b"), ("ann\u00a0b", "knows", "dan"), ("dan", "knows", "Ann"),
    ("Jos\u00e9", "knows", "dan"), ("dan", "knows", "ann  b"),
]  # fmt: skip


def test_names_that_differ_in_little_are_counted_in_one_note():
    graph = load_graph(SIMILAR, valid=0, test=0)
    (note,) = [note for note in graph.notes if "differ" in note]
    assert note == (
        "names of entities (5) and relations (1) differ from others only in case, white space or Unicode form, such as "
        "'ann' and 'Ann', 'ANN' and 'Ann', 'Jose\u0301' and 'Jos\u00e9'; --merge-similar makes them one"
    )
    assert graph.num_entities == 10 and graph.num_relations == 2


def test_similar_names_are_merged_into_the_most_frequent_spelling(tmp_path):
    graph = load_graph(SIMILAR, valid=0, test=0, merge_similar=True)
    assert set(graph.entities) == {"Ann", "bob", "Jos\u00e9", "ann  b", "dan"} and list(graph.relations) == ["knows"]
    assert "2 duplicate triples left out" in graph.notes and "merged into the most frequent one" in " ".join(
        graph.notes
    )
    splits = {"train": SIMILAR[:2], "valid": SIMILAR[2:4], "test": SIMILAR[4:]}
    graph = load_graph(splits, merge_similar=True)
    assert list(graph.names_of(graph.train)) == [("Ann", "knows", "bob")] and len(graph.valid) == 2
    assert "valid: 1 triples also occur in an earlier split" in graph.notes
    assert not [note for note in load_graph("family", merge_similar=True).notes if "differ" in note]


def test_every_split_of_a_folder_is_merged(tmp_path):
    for name, rows in (("train", SIMILAR[:3]), ("test", SIMILAR[3:])):
        (tmp_path / f"{name}.txt").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    graph = load_graph(tmp_path, merge_similar=True)
    assert set(graph.names_of(graph.known)) == {
        ("Ann", "knows", "bob"), ("Ann", "knows", "Jos\u00e9"), ("Jos\u00e9", "knows", "ann  b"),
        ("ann  b", "knows", "dan"), ("dan", "knows", "Ann"), ("Jos\u00e9", "knows", "dan"), ("dan", "knows", "ann  b"),
    }  # fmt: skip
