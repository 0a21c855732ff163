"""Numbering names, with little memory."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as papq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dihedral as dh
from dihedral.graph.numbering import NameTable
from dihedral.graph.triples import build_graph, drop_duplicates, find_repeats

blocks = st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4)), max_size=6)


@given(blocks, st.sampled_from([0, 3, 1 << 20]))
def test_names_get_numbers_in_order_of_appearance(parts, max_waiting):
    names, expected, found = NameTable(), {}, []
    with pytest.MonkeyPatch.context() as small:
        small.setattr("dihedral.graph.numbering.MAX_WAITING", max_waiting)
        for part in parts:
            found.append(np.arange(len(part), dtype=np.int32))
            names.number(pa.array(part, pa.string()), found[-1])
            for name in part:
                expected.setdefault(name, len(expected))
    assert names.settle().to_pylist() == list(expected) and len(names) == len(expected)
    assert [numbers.tolist() for numbers in found] == [[expected[name] for name in part] for part in parts]


def test_slices_of_arrays_are_numbered_like_other_arrays():
    names, found = NameTable(), [np.array([0, 1], np.int32), np.array([[1], [0]], np.int32)]
    names.number(pa.array(["x", "a", "b", "y"])[1:3], found[0])
    names.number(pa.array(["b", "c", "a"])[1:], found[1])
    assert names.settle().to_pylist() == ["a", "b", "c"]
    assert [numbers.tolist() for numbers in found] == [[0, 1], [[0], [2]]]


def test_a_name_that_a_dictionary_repeats_gets_one_id():
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1]), pa.array(["a", "b", "a"]))
    relation = pa.array(["r", "r", "s", "t"])
    graph = dh.load_graph({"train": pa.table({"head": twice, "relation": relation, "tail": twice})})
    assert list(graph.entities) == ["a", "b"]
    assert list(graph.names_of(graph.train)) == [("a", "r", "a"), ("b", "r", "b"), ("a", "s", "a"), ("b", "t", "b")]


def test_a_parquet_file_of_many_row_groups_is_numbered_like_a_table(tmp_path):
    rng = np.random.default_rng(0)
    columns = {
        "head": rng.integers(90, size=600),
        "relation": rng.integers(5, size=600),
        "tail": rng.integers(90, size=600),
    }
    table = pa.table({name: pa.array(map(str, column)) for name, column in columns.items()})
    papq.write_table(table, tmp_path / "facts.parquet", row_group_size=70)
    assert dh.load_graph(tmp_path / "facts.parquet").fingerprint == dh.load_graph(table).fingerprint


# --- repeats ----------------------------------------------------------------------------------------

triples = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 5)), max_size=40)


@given(triples, triples, triples)
def test_repeats_are_found_within_and_across_splits(train, valid, test):
    splits = [np.array(part, np.int32).reshape(-1, 3) for part in (train, valid, test)]
    with pytest.MonkeyPatch.context() as small:
        small.setattr("dihedral.graph.triples.ROWS_PER_CHUNK", 8)
        again, leaked = find_repeats(splits)
    for part, repeated in zip((train, valid, test), again, strict=True):
        assert repeated.tolist() == [triple in part[:i] for i, triple in enumerate(part)]
    assert leaked == [0, len(set(valid) & set(train)), len(set(test) & {*train, *valid})]


@given(triples)
def test_duplicates_are_left_out_and_the_order_stays(rows):
    found = drop_duplicates(np.array(rows, np.int32).reshape(-1, 3))
    assert found.tolist() == [list(triple) for triple in dict.fromkeys(rows)]


def test_a_graph_can_have_two_billion_entities():
    class Many(list):  # a vocabulary with a size and no names
        def __len__(self):
            return 2**31 - 1

    rows = np.array([(2**31 - 2, 2**20, 2**31 - 2)] * 2, np.int32)
    graph = build_graph(Many(), Many(), [rows, rows[:1], rows[:0]], "huge")
    assert graph.notes == ("train: 1 duplicate triples left out", "valid: 1 triples also occur in an earlier split")


# --- memory -----------------------------------------------------------------------------------------

READ = """
import json, sys, tracemalloc
import pyarrow as pa
from dihedral.graph import load_graph, numbering, split, triples
from dihedral.io import table_files

pa.set_cpu_count(1)  # how far several threads read ahead depends on the load of the machine
pa.set_io_thread_count(1)
table_files.PIECE_BYTES >>= 5  # scale the buffers down to the size of this graph
numbering.MAX_WAITING >>= 5
triples.ROWS_PER_CHUNK = split.ROWS_PER_CHUNK = 1 << 14
tracemalloc.start()  # of NumPy's arrays; what a process holds depends on when its allocators give memory back
for path in sys.argv[1:]:
    graph = load_graph(path)
    final = graph.known.nbytes + graph.entities.array.nbytes + graph.relations.array.nbytes
    peak = pa.default_memory_pool().max_memory() + tracemalloc.get_traced_memory()[1]
    print(json.dumps({"peak": peak, "final": final}))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Two folders with a graph: the first allocates the buffers that do not grow with the second."""
    rng = np.random.default_rng(0)
    ids = rng.integers(200_000, size=(800_000, 2)).tolist()
    lines = [f"Q{head}\tP{i % 500}\tQ{tail}\n" for i, (head, tail) in enumerate(ids)]
    folders = [tmp_path_factory.mktemp(name) for name in ("some", "all")]
    for folder, part in zip(folders, (lines[:50_000], lines), strict=True):
        (folder / "train.tsv").write_text("".join(part))
    return folders


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["file", "folder"])
def test_the_highest_uses_of_memory_by_arrow_and_numpy_grow_little_more_than_three_times_as_fast(python, large, form):
    paths = [folder / "train.tsv" if form == "file" else folder for folder in large]
    small, full = map(json.loads, python("-c", READ, *paths).stdout.splitlines())
    assert full["peak"] - small["peak"] < 3.3 * (full["final"] - small["final"]), (small, full)


TRAIN = [("a", "r", "b"), ("c", "s", "a")]
VALID = [("d", "r", "c")]
TEST = [("x", "t", "y"), ("d", "s", "b"), ("z", "r", "x")]


def in_one_table(rows):
    columns = [list(column) for column in zip(*rows, strict=True)]
    return dh.load_graph(pa.table(dict(zip(("head", "relation", "tail", "split"), columns, strict=True))))


def test_ids_do_not_depend_on_the_places_of_test_in_a_table_of_all_splits():
    train, valid, test = ([(*fact, split) for fact in part] for part, split in (
        (TRAIN, "train"), (VALID, "valid"), (TEST, "test"),
    ))  # fmt: skip
    known, expected = [*train, *valid], in_one_table([*train, *valid])
    assert list(expected.entities) == ["a", "c", "b", "d"] and list(expected.relations) == ["r", "s"]
    for rows in ([*test, *known], [*known, *test], [test[1], *train, test[2], *valid, test[0]]):
        found = in_one_table(rows)
        assert list(found.entities)[:4] == list(expected.entities)
        assert list(found.relations) == [*expected.relations, "t"]
        assert sorted(found.names_of(found.test)) == sorted(TEST)
        assert (found.train == expected.train).all() and (found.valid == expected.valid).all()
    assert list(in_one_table([*test, *known]).entities)[4:] == ["x", "z", "y"]  # in the order of their first use


def test_the_spelling_in_test_does_not_count_when_similar_names_are_merged():
    train, test = [("Ann", "r", "b"), ("c", "r", "b")], [("ann", "r", "b"), ("ann", "r", "c"), ("c", "r", "ann")]
    parts = {"train": pa.table(dict(zip("hrt", map(list, zip(*train, strict=True)), strict=True))),
             "test": pa.table(dict(zip("hrt", map(list, zip(*test, strict=True)), strict=True)))}  # fmt: skip
    assert list(dh.load_graph(parts, merge_similar=True).entities) == ["Ann", "c", "b"]
    rows = [*((*fact, "test") for fact in test), *((*fact, "train") for fact in train)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    table = pa.table(dict(zip(("head", "relation", "tail", "split"), columns, strict=True)))
    assert list(dh.load_graph(table, merge_similar=True).entities) == ["Ann", "c", "b"]
