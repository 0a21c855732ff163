"""Which columns are read, and what the notes say about them."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as papq
import pytest

from dihedral import DihedralError, load_graph
from dihedral.graph.columns import choose_columns, common_columns

TRAIN = [(f"e{i}", "r", f"e{i + 1}") for i in range(40)]
VALID = [(f"e{i}", "r", f"e{i + 2}") for i in range(10)]
TEST = [(f"e{i}", "r", f"e{i + 3}") for i in range(10)]
ROWS = [
    (*triple, split) for split, part in (("train", TRAIN), ("valid", VALID), ("test", TEST)) for triple in part
]  # fmt: skip


def table_of(rows=ROWS, names=("head", "relation", "tail", "split")):
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def write(table, folder, kind):
    """The table as a source of this kind."""
    path = folder / f"facts.{kind}"
    if kind == "pandas":
        return table.to_pandas()
    if kind == "polars":
        return pl.from_arrow(table)
    if kind == "Arrow":
        return table
    if kind == "parquet":
        papq.write_table(table, path)
    elif kind == "csv":
        pacsv.write_csv(table, path)
    elif kind == "jsonl":
        table.to_pandas().to_json(path, orient="records", lines=True)
    else:
        lines = [table.column_names, *(row.values() for row in table.to_pylist())]
        path.write_text("".join("\t".join(line) + "\n" for line in lines))
    return path


KINDS = ["csv", "tsv", "parquet", "jsonl", "pandas", "polars", "Arrow"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def assert_splits(graph):
    for split, triples in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        assert sorted(graph.names_of(graph.split(split))) == sorted(triples), split


# --- the split column ------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("name", ["split", "Split", "SPLIT", " split "])
def test_a_split_column_is_found_in_any_case_and_with_blanks(tmp_path, kind, name):
    table = table_of(names=("head", "relation", "tail", name))
    assert_splits(load_graph(write(table, tmp_path, kind)))


@every_kind
def test_a_split_column_is_used_together_with_named_columns(tmp_path, kind):
    table = table_of(names=("from", "how", "to", "Split"))
    graph = load_graph(write(table, tmp_path, kind), columns=["from", "how", "to"])
    assert_splits(graph)
    assert any(
        "columns from, how, to are read as head, relation, tail, and Split as the split" in n for n in graph.notes
    )


@every_kind
@pytest.mark.parametrize("valid", ["dev", "Dev", "validation", " valid ", "VAL"])
def test_values_of_a_split_column_may_have_other_names_cases_and_blanks(tmp_path, kind, valid):
    rows = [(*triple, {"train": "Train ", "valid": valid, "test": "TEST"}[split]) for *triple, split in ROWS]
    assert_splits(load_graph(write(table_of(rows), tmp_path, kind)))


def test_a_split_column_of_categories_is_used():
    assert_splits(load_graph(table_of().to_pandas().astype({"split": "category"})))


@every_kind
def test_a_column_of_splits_with_another_name_is_mentioned(tmp_path, kind):
    graph = load_graph(write(table_of(names=("head", "relation", "tail", "fold")), tmp_path, kind))
    (note,) = [note for note in graph.notes if "looks like a split" in note]
    assert note.endswith("column fold looks like a split but is not used; to use it, name it split")


@every_kind
def test_a_column_with_other_values_is_only_listed_as_unused(tmp_path, kind):
    rows = [(*triple, f"v{i}") for i, (*triple, _) in enumerate(ROWS)]
    graph = load_graph(write(table_of(rows, ("head", "relation", "tail", "since")), tmp_path, kind))
    assert [note for note in graph.notes if note.endswith("; not used: since")]
    assert not [note for note in graph.notes if "looks like" in note]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["train", "holdout"], "column split has the value 'holdout'; expected train, valid or test"),
        (["train", ""], "column split has 1 missing values; give the split of every triple or of none"),
        (["train", None], "column split has 1 missing values; give the split of every triple or of none"),
    ],
)
def test_other_values_of_a_split_column_are_refused(values, message):
    table = pa.table({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["b", "a"], "Split": values})
    with pytest.raises(DihedralError, match=message):
        load_graph(table)


def test_two_split_columns_are_refused():
    with pytest.raises(DihedralError, match="has 2 columns named split; names must be unique"):
        load_graph(pa.table({"h": ["a"], "r": ["r"], "t": ["b"], "split": ["train"], "Split": ["test"]}))


def test_a_split_column_without_values_is_not_used():
    table = pa.table({"h": ["a"], "r": ["r"], "t": ["b"], "split": pa.nulls(1, pa.string())})
    assert len(load_graph(table).train) == 1


def test_a_file_of_one_split_must_agree_with_its_split_column(tmp_path):
    pacsv.write_csv(table_of(), tmp_path / "train.csv")
    with pytest.raises(
        DihedralError, match=r"train\.csv is the train split, but its column split says valid in 20 rows"
    ):
        load_graph(tmp_path)
    pacsv.write_csv(table_of(ROWS[:40]), tmp_path / "train.csv")
    assert len(load_graph(tmp_path).train) == 40
    with pytest.raises(DihedralError, match="table 'train' is the train split, but its column split says valid"):
        load_graph({"train": table_of()})


# --- headers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (["source", "target", "type"], [0, 2, 1]),
        (["Subject", " property ", "OBJECT"], [0, 1, 2]),
        (["subject", "predicate", "object", "type"], [0, 1, 2]),
        (["source", "target", "label"], [0, 2, 1]),
        (["head", "rel", "tail", "split"], [0, 1, 2]),
        (["h", "likes", "t"], None),
        (["property", "is_a", "object"], None),
        (["person", "knows", "person"], None),
    ],
)
def test_common_names_of_columns(names, places):
    assert common_columns(names) == places


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "pandas"])
def test_source_target_type_are_head_tail_and_relation(tmp_path, kind):
    table = table_of([(h, t, r) for h, r, t in TRAIN], ("source", "target", "type"))
    graph = load_graph(write(table, tmp_path, kind), valid=0, test=0)
    assert sorted(graph.names_of(graph.train)) == sorted(TRAIN)
    assert [note for note in graph.notes if "columns source, type, target are read as head, relation, tail" in note]


def notes_of(folder, content, name="facts.tsv", **options):
    (folder / name).write_text(content)
    return load_graph(folder / name, valid=0, test=0, **options).notes[1:]


def test_a_header_is_noted_with_its_columns(tmp_path):
    plain = "the first line is a header; columns head, relation, tail are read"
    assert notes_of(tmp_path, "head\trelation\ttail\na\tr\tb\n") == (f"facts.tsv: {plain}",)
    assert notes_of(tmp_path, "id,S,P,O\n1,a,r,b\n", "facts.csv") == (
        "facts.csv: the first line is a header; columns S, P, O are read as head, relation, tail; not used: id",
    )


def test_a_triple_that_looks_like_a_header_does_not_vanish_without_a_note(tmp_path):
    assert notes_of(tmp_path, "H\tR\tT\nT\tR\tH\n") == (
        "facts.tsv: the first line is a header; columns H, R, T are read as head, relation, tail",
    )


def test_the_same_header_of_several_files_is_one_note(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.tsv").write_text(f"head\trelation\ttail\na\tr\t{split}\n")
    (note,) = load_graph(tmp_path).notes
    assert note.startswith("train.tsv, valid.tsv, test.tsv: the first line is a header; ")


def test_a_header_that_is_not_recognised_is_mentioned(tmp_path):
    facts = "a\tr\tb\nb\tr\tc\nc\ts\ta\n"
    (note,) = notes_of(tmp_path, "person\trole\temployer\n" + facts)
    assert note == (
        "facts.tsv: the first line, 'person role employer', is read as a triple, but its names occur nowhere else; if "
        "it is a header, name its columns with `columns`"
    )
    assert notes_of(tmp_path, facts) == ()


def test_a_header_of_more_columns_that_is_not_recognised_is_an_error_with_a_hint(tmp_path):
    with pytest.raises(DihedralError, match=r"line 1: 4 columns.*; if it is a header, name three of its columns"):
        notes_of(tmp_path, "person\trole\temployer\tsince\na\tr\tb\t2001\n")


def test_columns_of_a_table_that_are_taken_in_their_order_are_noted():
    graph = load_graph(pd.DataFrame(TRAIN, columns=["x", "y", "z"]))
    assert "table: columns x, y, z are read as head, relation, tail, in their order" in graph.notes
    named = load_graph(pd.DataFrame(TRAIN, columns=["head", "relation", "tail"]))
    assert not any("columns" in note for note in named.notes)


# --- labels -----------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("names", [("head", "relation", "tail", "label"), ("head", "relation", "tail", "Label")])
def test_a_column_of_true_and_false_labels_is_refused(tmp_path, kind, names):
    rows = [(*triple, str(i % 2)) for i, triple in enumerate(TRAIN)]
    message = r"has a column '[Ll]abel' with the values 0 and 1, and a graph holds only true triples; keep those with"
    with pytest.raises(DihedralError, match=message):
        load_graph(write(table_of(rows, names), tmp_path, kind))


def test_labels_are_not_taken_as_relations(tmp_path):
    with pytest.raises(DihedralError, match="has a column 'label' with the values 0 and 1"):
        notes_of(tmp_path, "source,target,label\na,b,1\nb,c,0\n", "facts.csv")
    assert notes_of(tmp_path, "source,target,label\na,b,likes\nb,c,0\n", "facts.csv")


def test_labels_that_are_all_true_are_listed_as_unused(tmp_path):
    (note,) = notes_of(tmp_path, "head,relation,tail,label\na,r,b,1\nb,r,c,1\n", "facts.csv")
    assert note.endswith("; not used: label")


def test_a_long_list_of_unused_columns_is_shortened():
    layout = choose_columns(["h", "r", "t", *(f"x{i}" for i in range(20))], None, "facts")
    assert str(layout).endswith("; not used: x0, x1, x2, x3, x4, x5, x6, x7 and 12 more")
