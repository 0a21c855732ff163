"""Reading graphs from text, Parquet, folders, archives and tables, without guesses or losses."""

from __future__ import annotations

import io
import os
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError, load_graph, make_family
from dihedral.graph.readers import write_folder
from dihedral.io.table_files import BLANKS

FACTS = [("ann", "parent", "bob"), ("bob", "spouse", "eve"), ("eve", "parent", "dan")]
SPLITS = {"train": FACTS, "valid": [("dan", "parent", "bob")], "test": [("ann", "spouse", "dan")]}


def tsv(triples):
    return "".join("\t".join(triple) + "\n" for triple in triples).encode()


@pytest.fixture
def read(tmp_path):
    """read("a.tsv", b"..."): the sorted triples of a file with that content."""

    def load(name, content, **options):
        path = tmp_path / name
        path.write_bytes(content)
        return triples_of(load_graph(str(path), valid=0, test=0, **options))

    return load


def triples_of(graph):
    return sorted(graph.names_of(graph.known))


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["tsv", "txt"])
def test_tab_separated_text(read, suffix):
    assert read(f"facts.{suffix}", tsv(FACTS)) == sorted(FACTS)


def test_csv_with_quotes(read):
    content = b'"Smith, Ann",parent,"Bob ""Bo"""\nbob,"lives in\nsince",x\n'
    assert read("facts.csv", content) == [("Smith, Ann", "parent", 'Bob "Bo"'), ("bob", "lives in\nsince", "x")]


def test_quotes_are_part_of_a_name_in_tab_separated_text(read):
    assert read("facts.tsv", b'"a\tr\tb"\n') == [('"a', "r", 'b"')]


@pytest.mark.parametrize(
    "header", ["head\trelation\ttail", "Head\tRelation\tTail", "h\tr\tt", "subject\tpredicate\tobject"]
)
def test_a_common_header_is_not_a_triple(read, header):
    assert read("facts.tsv", header.encode() + b"\n" + tsv(FACTS)) == sorted(FACTS)


def test_a_first_line_that_is_not_a_header_is_a_triple(read):
    assert read("facts.tsv", b"person\tknows\tperson\n") == [("person", "knows", "person")]


def test_columns_are_selected_by_name_in_the_given_order(read):
    content = b"object,id,subject,since\nbob,1,ann,2001\neve,2,bob,2002\n"
    assert read("facts.csv", content, columns=["subject", "since", "object"]) == [
        ("ann", "2001", "bob"),
        ("bob", "2002", "eve"),
    ]


@pytest.mark.parametrize(
    "ending", [pytest.param(b"\r\n", id="CRLF"), pytest.param(b"\n", id="LF"), pytest.param(b"\n\n", id="blank lines")]
)
@pytest.mark.parametrize("bom", [pytest.param(b"", id="no BOM"), pytest.param(b"\xef\xbb\xbf", id="BOM")])
@pytest.mark.parametrize("header", [b"", b"head\trelation\ttail\n"])
def test_line_ends_and_byte_order_marks_are_not_part_of_a_name(read, ending, bom, header):
    assert read("facts.tsv", bom + (header + tsv(FACTS)).replace(b"\n", ending)) == sorted(FACTS)


def test_the_last_line_may_lack_a_line_break(read):
    assert read("facts.tsv", tsv(FACTS).rstrip()) == sorted(FACTS)


SPECIAL = [
    "NA",
    "N/A",
    "null",
    "NULL",
    "NaN",
    "nan",
    "None",
    "#N/A",
    "true",
    "007",
    "1e3",
    "1.0",
    "2020-01-01",
    "é日本🙂",
]


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize(("suffix", "delimiter"), [("tsv", "\t"), ("csv", ",")])
def test_every_name_stays_a_string(read, suffix, delimiter, header):
    triples = [fact for name in SPECIAL for fact in ((name, "r", "a"), ("a", name, "b"), ("b", "r", name))]
    lines = [("head", "relation", "tail")] * header + triples
    content = "".join(delimiter.join(line) + "\n" for line in lines).encode()
    assert read(f"facts.{suffix}", content) == sorted(triples)


def test_every_name_stays_a_string_under_a_header_with_spaces(read):
    assert read("facts.csv", b"head, relation, tail\n007,01,007\n") == [("007", "01", "007")]


characters = st.characters(codec="utf-8", exclude_characters="\t\r\n\x00\ufeff")
text = st.text(characters, min_size=1, max_size=8).map(lambda name: name.strip(BLANKS)).filter(bool)


@given(st.lists(st.tuples(text, text, text), min_size=1, max_size=30))
def test_reading_what_was_written_changes_nothing(tmp_path_factory, triples):
    path = tmp_path_factory.mktemp("text") / "facts.tsv"
    path.write_bytes(tsv([("head", "relation", "tail"), *triples]))
    graph = load_graph(path, valid=0, test=0)
    assert triples_of(graph) == sorted(set(triples))
    path.unlink()


def test_a_family_written_as_a_folder_reads_as_the_same_family(tmp_path):
    family = make_family(40)
    write_folder(family, tmp_path / "family")
    again = load_graph(tmp_path / "family")
    for split in ("train", "valid", "test"):
        assert list(again.names_of(again.split(split))) == list(family.names_of(family.split(split)))
    assert again.name == "family"


def test_a_very_long_name_is_read(read):
    assert read("facts.tsv", tsv([("a" * 200_000, "r", "b")])) == [("a" * 200_000, "r", "b")]


def test_names_are_numbered_in_order_of_appearance_over_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("dihedral.io.table_files.PIECE_BYTES", 64)
    triples = [(f"e{i % 7}", f"r{i % 3}", f"e{i % 11}") for i in range(200)]
    (tmp_path / "train.txt").write_bytes(tsv(triples))
    graph = load_graph(tmp_path)
    assert list(graph.names_of(graph.train)) == list(dict.fromkeys(triples))
    assert graph.num_entities == 11 and graph.num_relations == 3


# --- Parquet and tables ---------------------------------------------------------------------------


def columns_of(triples, names=("head", "relation", "tail")):
    return dict(zip(names, map(list, zip(*triples, strict=True)), strict=True))


def test_parquet(tmp_path):
    pq.write_table(pa.table(columns_of(FACTS)), tmp_path / "facts.parquet")
    graph = load_graph(tmp_path / "facts.parquet", valid=0, test=0)
    assert triples_of(graph) == sorted(FACTS) and graph.name == "facts"


def test_parquet_with_additional_columns(tmp_path):
    table = pa.table({"id": [1, 2, 3], **columns_of(FACTS, ("Subject", "Predicate", "Object"))})
    pq.write_table(table, tmp_path / "facts.parquet")
    assert triples_of(load_graph(tmp_path / "facts.parquet")) == sorted(FACTS)


TABLES = {
    "Arrow table": lambda columns: pa.table(columns),
    "Arrow record batch": lambda columns: pa.record_batch(columns),
    "Arrow dictionaries": lambda columns: pa.table({k: pa.array(v).dictionary_encode() for k, v in columns.items()}),
    "Arrow chunks": lambda columns: pa.concat_tables([pa.table(columns).slice(0, 1), pa.table(columns).slice(1)]),
    "pandas frame": lambda columns: pd.DataFrame(columns),
    "pandas categories": lambda columns: pd.DataFrame(columns).astype("category"),
    "pandas rows picked": lambda columns: pd.DataFrame(columns).sample(frac=1, random_state=0),
    "pandas objects": lambda columns: pd.DataFrame(columns).astype(object),
    "Arrow large strings": lambda columns: pa.table({k: pa.array(v, pa.large_string()) for k, v in columns.items()}),
    "Arrow string views": lambda columns: pa.table({k: pa.array(v, pa.string_view()) for k, v in columns.items()}),
    "polars frame": lambda columns: pl.DataFrame(columns),
    "polars categories": lambda columns: pl.DataFrame(columns).cast(pl.Categorical),
    "polars enumeration": lambda columns: pl.DataFrame(columns).cast(pl.Enum(["unused", *sorted(ALL_NAMES)])),
    "polars rows picked": lambda columns: pl.DataFrame(columns).reverse()[::-1],
    "the Arrow interface alone": lambda columns: Stream(pa.table(columns)),
}
ALL_NAMES = {name for triple in FACTS for name in triple}


class Stream:
    """An object with only the Arrow interface."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES.keys())
@pytest.mark.parametrize("names", [("head", "relation", "tail"), ("x", "y", "z")])
def test_tables_in_memory(make, names):
    assert triples_of(load_graph(make(columns_of(FACTS, names)), valid=0, test=0)) == sorted(FACTS)


@pytest.mark.parametrize("name", sorted(TABLES.keys() - {"pandas rows picked", "Arrow chunks"}))  # in another order
def test_the_kind_of_table_does_not_change_the_graph(name):
    expected = load_graph(pa.table(columns_of(FACTS)))
    assert load_graph(TABLES[name](columns_of(FACTS))).fingerprint == expected.fingerprint


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_only_the_distinct_names_of_a_table_become_python_strings(kind):
    names = pa.array([f"{'long name ' * 20}{i}" for i in range(100)], pa.string())
    rows = pa.concat_arrays([names] * 3000).cast(kind)
    table = pa.table({"head": rows, "relation": rows, "tail": rows})
    tracemalloc.start()
    load_graph(table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < table.nbytes / 2


def test_unused_categories_are_not_entities():
    frame = pd.DataFrame(columns_of(FACTS)).astype("category")
    graph = load_graph(frame[frame["head"] == "ann"], valid=0, test=0)
    assert triples_of(graph) == FACTS[:1] and set(graph.entities) == {"ann", "bob"} and graph.num_relations == 1


def test_a_column_without_names_is_refused():
    with pytest.raises(DihedralError, match=r"table has a column of list<.*>; names are strings or numbers"):
        load_graph(pa.table({"head": [["a"]], "relation": ["r"], "tail": ["b"]}))


def test_columns_of_a_table_by_name():
    table = pa.table({"n": [1, 2, 3], **columns_of(FACTS, ("a", "b", "c"))})
    assert triples_of(load_graph(table, columns=["c", "b", "a"])) == sorted((t, r, h) for h, r, t in FACTS)


def test_numbers_in_a_table_become_strings():
    graph = load_graph(pa.table({"h": [1, 2], "r": ["r", "r"], "t": [2, 10]}), valid=0, test=0)
    assert triples_of(graph) == [("1", "r", "2"), ("2", "r", "10")]


def test_missing_values_in_a_table_are_refused():
    table = pa.table({"head": ["a", None], "relation": ["r", "r"], "tail": ["b", "c"]})
    with pytest.raises(
        DihedralError, match=r"table has blank cells in 1 rows \(from 1\): 2; fill them in or remove them"
    ):
        load_graph(table)


def test_a_table_of_four_columns_needs_their_names():
    with pytest.raises(DihedralError, match=r"table has 4 columns; expected 3, or name them with `columns`"):
        load_graph(pa.table({name: ["a"] for name in "abcd"}))


def test_an_empty_table_is_refused():
    with pytest.raises(DihedralError, match="has no training triples"):
        load_graph(pa.table({name: pa.array([], pa.string()) for name in ("head", "relation", "tail")}))


@pytest.mark.parametrize("source", [None, 5, [("a", "b")], np.array([["a", "b"]])], ids=type)
def test_an_unsupported_object_is_refused(source):
    with pytest.raises(DihedralError, match=f"a graph cannot be read from a {type(source).__name__}; give "):
        load_graph(source)


def test_a_graph_is_returned_unchanged(family):
    assert load_graph(family) is family


# --- folders and archives -------------------------------------------------------------------------


def members(prefix="", suffix=".txt", splits=SPLITS):
    return {f"{prefix}{split}{suffix}": tsv(triples) for split, triples in splits.items()}


def write_tar(path, files, mode):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def write_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


WRITERS = {
    "data.tar.gz": lambda path, files: write_tar(path, files, "w:gz"),
    "data.tgz": lambda path, files: write_tar(path, files, "w:gz"),
    "data.tar.xz": lambda path, files: write_tar(path, files, "w:xz"),
    "data.tar": lambda path, files: write_tar(path, files, "w:"),
    "data.zip": write_zip,
}
every_archive = pytest.mark.parametrize(("name", "write"), WRITERS.items(), ids=WRITERS.keys())


def assert_splits(graph):
    for split, triples in SPLITS.items():
        assert list(graph.names_of(graph.split(split))) == triples


@pytest.mark.parametrize("suffix", [".txt", ".tsv"])
def test_a_folder_with_train_valid_and_test(tmp_path, suffix):
    for name, content in members(suffix=suffix).items():
        (tmp_path / name).write_bytes(content)
    graph = load_graph(tmp_path)
    assert_splits(graph)
    assert graph.name == tmp_path.name and graph.notes == ()


def test_a_folder_may_mix_formats(tmp_path):
    (tmp_path / "train.csv").write_text("head,relation,tail\n" + "".join(",".join(t) + "\n" for t in FACTS))
    pq.write_table(pa.table(columns_of(SPLITS["valid"])), tmp_path / "valid.parquet")
    (tmp_path / "test.txt").write_bytes(tsv(SPLITS["test"]))
    assert_splits(load_graph(tmp_path))


def test_valid_and_test_may_be_missing_and_that_is_noted(tmp_path):
    (tmp_path / "train.txt").write_bytes(tsv(FACTS))
    graph = load_graph(tmp_path)
    assert len(graph.valid) == len(graph.test) == 0
    assert graph.notes == ("no valid file", "no test file")


@every_archive
@pytest.mark.parametrize("prefix", ["", "data/", "a/deeper/folder/", "./"])
def test_an_archive_is_read_in_place(tmp_path, name, write, prefix):
    write(tmp_path / name, members(prefix))
    graph = load_graph(str(tmp_path / name))
    assert_splits(graph)
    assert graph.name == "data"
    assert os.listdir(tmp_path) == [name]


@every_archive
@pytest.mark.parametrize("prefix", ["../", "../../escaped/", "/escaped/"])
def test_a_member_that_points_outside_writes_nothing(tmp_path, monkeypatch, name, write, prefix):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    write(inner / name, members(prefix))
    monkeypatch.chdir(inner)
    assert_splits(load_graph(name))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [inner / name]


def test_the_member_closest_to_the_root_is_used(tmp_path):
    write_zip(
        tmp_path / "data.zip", {**members("data/original/", splits={"train": [("x", "x", "x")]}), **members("data/")}
    )
    assert_splits(load_graph(tmp_path / "data.zip"))


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    with tarfile.open(tmp_path / "data.tar", "w") as archive:
        info = tarfile.TarInfo("train.txt")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(info)
    with pytest.raises(DihedralError, match="holds no train file"):
        load_graph(tmp_path / "data.tar")


@every_archive
def test_an_error_inside_an_archive_names_the_archive_and_the_line(tmp_path, name, write):
    write(tmp_path / name, {"data/train.txt": b"a\tr\tb\na\tr\n"})
    with pytest.raises(DihedralError, match=rf"{name}/train\.txt, line 2: 2 columns; expected 3"):
        load_graph(tmp_path / name)


@pytest.mark.parametrize("name", WRITERS)
def test_an_invalid_archive_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"not an archive")
    with pytest.raises(DihedralError, match=f"archive '.*{name}' cannot be read"):
        load_graph(tmp_path / name)


def test_the_error_for_an_invalid_archive_is_one_line(tmp_path):
    (tmp_path / "data.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(DihedralError) as refused:
        load_graph(tmp_path / "data.tar.gz")
    assert "\n" not in str(refused.value)


MANY = [(f"e{i}", "r", f"e{i * 7919 % 10007}") for i in range(20000)]


@pytest.mark.parametrize("name", ["data.tar.gz", "data.tar.xz", "data.zip"])
def test_a_truncated_archive_is_refused(tmp_path, name):
    WRITERS[name](tmp_path / name, {"train.txt": tsv(MANY)})
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(DihedralError, match=f"'.*{name}' cannot be read"):
        load_graph(tmp_path / name)


@pytest.mark.parametrize("name", ["data.tar.xz", "data.zip"])
def test_an_archive_damaged_in_the_middle_is_refused(tmp_path, name):
    WRITERS[name](tmp_path / name, {"train.txt": tsv(MANY)})
    content = bytearray((tmp_path / name).read_bytes())
    content[len(content) // 2] ^= 0xFF
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DihedralError, match=name):
        load_graph(tmp_path / name)


def test_a_folder_or_archive_without_train_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    write_zip(tmp_path / "data.zip", members(splits={"test": FACTS}))
    for source in ("folder", "data.zip"):
        with pytest.raises(DihedralError, match=rf"{source} holds no train file; expected train\.txt"):
            load_graph(tmp_path / source)


# --- errors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line", "count"),
    [
        pytest.param(b"a\tr\tb\na\tr\n", 2, 2, id="too few"),
        pytest.param(b"a\tr\tb\na\tr\tc\td\n", 2, 4, id="too many"),
        pytest.param(b"a\tr\na\tr\n", 1, 2, id="too few everywhere"),
        pytest.param(b"a r b\n", 1, 1, id="blanks instead of tabs"),
        pytest.param(tsv(FACTS) + b"\n" + b"x\ty\n", 5, 2, id="after an empty line"),
        pytest.param(tsv(MANY) + b"x\ty\n" + tsv(FACTS), len(MANY) + 1, 2, id="deep in a long file"),
        pytest.param(b"head\trelation\ttail\na\tb\n", 2, 2, id="under a header"),
        pytest.param(
            b"a\tr\tb\tc\na\tr\tb\tc\n", 1, 4, id="too many everywhere",
        ),
    ],
)  # fmt: skip
def test_a_wrong_number_of_columns_names_the_file_and_the_line(read, content, line, count):
    with pytest.raises(DihedralError, match=rf"facts\.tsv, line {line}: {count} columns; expected 3 separated by tabs"):
        read("facts.tsv", content)


def test_a_wrong_number_of_columns_in_a_file_with_quotes(read):
    with pytest.raises(DihedralError, match=r"facts\.csv, line 2: 2 columns; expected 3 separated by commas"):
        read("facts.csv", b'"Smith, Ann",parent,bob\nann,parent\n')


@pytest.mark.parametrize("content", [b"", b"\n", b"  \n\n", b"head\trelation\ttail\n"])
def test_an_empty_file_is_refused(read, content):
    with pytest.raises(DihedralError, match=r"facts\.tsv is empty.*; expected one triple per line"):
        read("facts.tsv", content)


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"a\tr\tb\ncaf\xe9\tr\tb\n", 2), (b"caf\xe9\tr\tb\n", 1), ("a\tr\tb\n".encode("utf-16"), 1)],
    ids=["Latin-1", "Latin-1 at once", "UTF-16"],
)
def test_text_that_is_not_utf8_is_refused_with_its_line(read, content, line):
    with pytest.raises(DihedralError, match=rf"facts\.tsv, line {line}: not UTF-8 text; save the file as UTF-8"):
        read("facts.tsv", content)


def test_the_error_for_a_missing_column_lists_the_columns(read):
    with pytest.raises(DihedralError, match=r"facts\.csv has no column 'verb'; its columns are id, subj, pred, obj"):
        read("facts.csv", b"id,subj,pred,obj\n1,a,r,b\n", columns=["subj", "verb", "obj"])


@pytest.mark.parametrize("columns", [["a"], ["a", "b"], ["a", "b", "c", "d"]])
def test_columns_must_be_three(read, columns):
    with pytest.raises(DihedralError, match="name three: head, relation, tail"):
        read("facts.csv", b"a,b,c,d\n1,2,3,4\n", columns=columns)


def test_a_header_that_names_a_column_twice_is_refused(read):
    with pytest.raises(DihedralError, match="head"):
        read("facts.csv", b"head,relation,tail,head\na,r,b,c\n", columns=["head", "relation", "tail"])


def test_a_file_with_an_unsupported_suffix_is_refused(read):
    with pytest.raises(
        DihedralError, match=r"facts\.json has the suffix '\.json'; expected one of \.tsv, \.txt, \.csv"
    ):
        read("facts.json", b"{}")


def test_an_invalid_parquet_file_is_refused(read):
    with pytest.raises(DihedralError, match=r"facts\.parquet: it cannot be read \(Parquet magic bytes"):
        read("facts.parquet", b"not a parquet file")


@pytest.mark.parametrize("source", ["nowhere", "nowhere/at/all.tsv", "nowhere.zip"])
def test_a_missing_file_is_refused(source):
    with pytest.raises(
        DihedralError, match=f"file '{source}' does not exist; give a folder, a file or a benchmark's name"
    ):
        load_graph(source)


def test_a_single_file_is_split_with_the_given_shares_and_seed(tmp_path):
    triples = [(f"e{i % 10}", "r", f"e{i // 10}") for i in range(100)]
    (tmp_path / "facts.tsv").write_bytes(tsv(triples))
    graph = load_graph(tmp_path / "facts.tsv", valid=0.2, test=0.1, seed=7)
    assert (len(graph.train), len(graph.valid), len(graph.test)) == (70, 20, 10)
    assert graph.notes == ("split with seed 7",)
    assert triples_of(graph) == sorted(triples)
    again = load_graph(tmp_path / "facts.tsv", valid=0.2, test=0.1, seed=7)
    other = load_graph(tmp_path / "facts.tsv", valid=0.2, test=0.1, seed=8)
    assert again.fingerprint == graph.fingerprint != other.fingerprint


def test_duplicates_are_counted_and_left_out_before_a_split(tmp_path):
    (tmp_path / "facts.tsv").write_bytes(tsv([*FACTS, *FACTS]))
    graph = load_graph(tmp_path / "facts.tsv", valid=0, test=0)
    assert triples_of(graph) == sorted(FACTS)
    assert graph.notes == ("split with seed 0", "3 duplicate triples left out")


def test_duplicates_and_leaks_in_a_folder_are_noted(tmp_path):
    (tmp_path / "train.txt").write_bytes(tsv([*FACTS, FACTS[0]]))
    (tmp_path / "valid.txt").write_bytes(tsv([FACTS[1]]))
    (tmp_path / "test.txt").write_bytes(tsv([FACTS[1], ("dan", "spouse", "ann")]))
    assert load_graph(tmp_path).notes == (
        "train: 1 duplicate triples left out",
        "valid: 1 triples also occur in an earlier split",
        "test: 1 triples also occur in an earlier split",
    )


# --- a real benchmark ------------------------------------------------------------------------------


@pytest.mark.thorough
def test_fb15k_reads_from_a_folder_as_from_its_archive(benchmark_path, benchmark_graph, tmp_path):
    archive = benchmark_path("FB15k")
    with tarfile.open(archive) as stream:
        for member in stream.getmembers():
            if member.isfile():
                (tmp_path / member.name.rsplit("/", 1)[-1]).write_bytes(stream.extractfile(member).read())
    graph = load_graph(tmp_path)
    assert len(graph.known) == 592_213 and len(graph.index.ends) == 2 * 592_213
    assert graph.fingerprint == benchmark_graph("FB15k").fingerprint
