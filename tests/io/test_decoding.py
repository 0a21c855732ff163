"""Hostile RDF and Parquet files end a process of their own, and are refused in one sentence."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dihedral import DihedralError, load_graph
from dihedral.io import decoding, sources

EX = "http://example.org/"
RDF = f'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:ex="{EX}">%s</rdf:RDF>'
LAUGHS = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "http://e/"}">' for i in range(10))
FACT = f'<rdf:Description rdf:about="{EX}a"><ex:p rdf:resource="{EX}%s"/></rdf:Description>'
MANY = " ".join(f"ex:p{i}='x'" for i in range(2000))


@pytest.fixture
def refused(tmp_path):
    """refused("a.ttl", "..."): the sentence that a file is refused with; this process must take little memory."""

    def refuse(name, content):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(DihedralError) as error:
            load_graph(path)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
        assert "\n" not in str(error.value)
        return str(error.value)

    return refuse


@pytest.mark.parametrize("archived", [False, True], ids=["plain", "in a zip"])
def test_rdf_xml_with_nested_entities_is_refused_by_its_document_type(refused, tmp_path, archived):
    text = f"<!DOCTYPE rdf:RDF [{LAUGHS}]>\n" + RDF % (FACT % "&e9;")
    assert len(text) < 1000
    if not archived:
        assert "laughs.rdf, line 1: a document type with entities is not read" in refused("laughs.rdf", text)
        return
    with zipfile.ZipFile(tmp_path / "laughs.zip", "w") as archive:
        archive.writestr("train.rdf", text)
    assert "train.rdf, line 1: a document type with entities" in refused("laughs.zip", None)


def test_a_document_type_after_the_root_is_refused_too(refused):
    refused("late.rdf", (RDF % f"<!DOCTYPE x [{LAUGHS}]>") + RDF % (FACT % "&e9;"))


def test_the_words_doctype_in_a_literal_are_text(tmp_path):
    literal = "<rdf:Description rdf:about='http://a/b'><ex:p><![CDATA[<!DOCTYPE html>]]></ex:p></rdf:Description>"
    (tmp_path / "a.rdf").write_text(RDF % (literal + FACT % "b"))
    assert load_graph(tmp_path / "a.rdf", valid=0, test=0).num_triples == 1


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.rdf", RDF % ("<rdf:Description><ex:p>" * 100_000), "nested more than 200 deep"),
        ("a.jsonld", '{"@id":"http://a","http://b":' * 5000 + "{}" + "}" * 5000, "nested more than 200 deep"),
        ("a.jsonld", '{"@context": ' + "[" * 5000, "nested more than 200 deep"),
        ("a.nt", "<http://a> <http://b> " + "<<( <http://a> <http://b> " * 100_000 + "<http://c>" + " )>>" * 100_000
         + " .\n", "nested too deeply"),
        ("a.rdf", RDF % f"<ex:T {MANY}/>", "more than 1000 attributes"),
    ],
    ids=["XML", "JSON-LD", "a context", "quoted triples", "attributes"],
)  # fmt: skip
def test_deep_nesting_is_refused(refused, name, text, reason):
    assert reason in refused(name, text)


def test_brackets_within_strings_are_not_nesting(tmp_path):
    text = '{"@id": "http://a/b", "http://a/n": "%s", "http://a/p": {"@id": "http://a/c"}}' % (r"[\"{\\" * 500)
    (tmp_path / "a.jsonld").write_text(text)
    assert load_graph(tmp_path / "a.jsonld", valid=0, test=0).num_triples == 1


def test_a_short_prefix_for_a_long_namespace_is_bounded(refused):
    text = f"@prefix : <http://e/{'x' * 20_000}> .\n" + "".join(f":a{i} :b :c .\n" for i in range(60_000))
    assert re.search("more than 64 MiB of text|MiB of memory to decode", refused("long.ttl", text))


def test_a_decoder_that_takes_too_long_is_ended(refused, monkeypatch):
    monkeypatch.setattr(decoding, "DECODER_SECONDS", 1)
    monkeypatch.setattr(decoding, "SECONDS_PER_BYTE", 0)
    text = "".join(f"<http://a/{i}> <http://b> <http://c/{i}> .\n" for i in range(600_000))
    assert "takes more than 1 s to decode; if you trust the file, set DIHEDRAL_MAX_DECODED_MB" in refused("a.nt", text)


def test_the_decoder_is_ended_with_the_reader(tmp_path, monkeypatch):
    (tmp_path / "a.nt").write_text("<http://a> <http://b> <http://c> .\n")
    started = []
    real = subprocess.Popen
    monkeypatch.setattr(decoding.subprocess, "Popen", lambda *a, **k: started.append(real(*a, **k)) or started[-1])
    load_graph(tmp_path / "a.nt", valid=0, test=0)
    assert len(started) == 1 and started[0].returncode is not None


# --- Parquet --------------------------------------------------------------------------------------------


def varint(number):
    """A number as Parquet's footer holds it: zigzag, seven bits to a byte."""
    number, found = number << 1, b""
    while number >= 0x80:
        found, number = found + bytes([number & 0x7F | 0x80]), number >> 7
    return found + bytes([number])


def write(path, rows, **options):
    columns = {name: [f"{name}{i % 20}" for i in range(rows)] for name in ("head", "relation", "tail")}
    pq.write_table(pa.table(columns), path, **options)


def test_a_parquet_footer_that_claims_more_rows_is_refused(refused, tmp_path):
    write(tmp_path / "a.parquet", 300)
    content = (tmp_path / "a.parquet").read_bytes()
    changed = content.replace(varint(300), varint(8191))  # as long in bytes; everywhere, also in row groups and pages
    assert changed != content
    assert re.search(r"claims 8191 rows, but its column 'head' has|it cannot be read", refused("a.parquet", changed))


def test_only_the_footers_count_of_rows_is_wrong(refused, tmp_path):
    """The row group is right, so that every column is read without an error of the parser."""
    write(tmp_path / "a.parquet", 300)
    content = (tmp_path / "a.parquet").read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    at = content.index(varint(300), footer)  # num_rows of the file comes before those of row groups
    changed = content[:at] + varint(8191) + content[at + 2 :]
    assert "claims 8191 rows, but its column 'head' has 300" in refused("a.parquet", changed)


@pytest.mark.thorough
def test_parquet_bombs_are_refused_or_read_in_little_memory(tmp_path):
    long = "x" * (1 << 20)
    columns = {name: [long if name == "head" else name] * 400 for name in ("head", "relation", "tail")}
    bombs = {
        "compressed": {"compression": "zstd", "use_dictionary": False},
        "dictionary": {"use_dictionary": True},
        "prefixes": {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
    }
    for name, options in bombs.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", **options)
        assert (tmp_path / f"{name}.parquet").stat().st_size < 3 << 20
    program = (
        "import resource, sys, dihedral as dh\n"
        "dh.load_graph\n"  # imports what it needs, which takes more memory than the bound
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for path in sys.argv[1:]:\n"
        "    try: print(dh.load_graph(path))\n"
        "    except dh.DihedralError as error: print('refused', error)\n"
        "used = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]\n"
        "assert used[0] - before < 200 << 10 and used[1] < 700 << 10, used\n"
    )
    command = [sys.executable, "-c", program, *tmp_path.iterdir()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(bombs)


def test_a_column_of_a_billion_rows_in_a_few_bytes_is_refused(refused, tmp_path):
    batch = pa.record_batch([pa.DictionaryArray.from_arrays(pa.array([0] * (1 << 20), pa.int32()), ["a"])] * 3,
                            ["head", "relation", "tail"])  # fmt: skip
    with pq.ParquetWriter(tmp_path / "long.parquet", batch.schema, compression="zstd") as writer:
        for _ in range(16):
            writer.write_batch(batch)
    assert (tmp_path / "long.parquet").stat().st_size < 200_000
    assert "decode to more than 64 MiB, far beyond its size" in refused("long.parquet", None)


def test_the_setting_raises_and_lowers_the_bound(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", 1000)
    monkeypatch.setattr(sources, "MIN_DECODED", 1)
    monkeypatch.setattr(sources, "MAX_RATIO", 1)
    with pytest.raises(DihedralError, match="far beyond its size"):
        load_graph(tmp_path / "a.parquet")
    monkeypatch.setenv("DIHEDRAL_MAX_DECODED_MB", "10")
    assert load_graph(tmp_path / "a.parquet").num_triples == 20
    monkeypatch.setenv("DIHEDRAL_MAX_DECODED_MB", "much")
    with pytest.raises(DihedralError, match="DIHEDRAL_MAX_DECODED_MB is 'much'; it must be a whole number of MiB"):
        load_graph(tmp_path / "a.parquet")
