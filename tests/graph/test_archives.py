"""Files of splits, compressed files, and malicious archives: refused with a one-sentence error, or read safely."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile

import pyarrow as pa
import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.graph import archives as graph_archives
from dihedral.io import sources
from soak import archives
from soak.archives import SECRET, TRIPLES


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Small bombs and small limits."""
    monkeypatch.setattr(sources, "MIN_DECODED", 1 << 20)
    monkeypatch.setattr(graph_archives, "MAX_MEMBERS", 100)
    monkeypatch.setattr(archives, "BOMB_MIB", 8)


def tar(path, *members):
    """members: (name, content), or (name, type, target of the link)."""
    with tarfile.open(path, "w:gz") as archive:
        for name, *what in members:
            info = tarfile.TarInfo(name)
            if len(what) == 1:
                info.size = len(what[0])
                archive.addfile(info, io.BytesIO(what[0]))
            else:
                info.type, info.linkname = what
                archive.addfile(info)
    return path


@pytest.mark.parametrize(
    "make", [archives.zip_bomb, archives.tar_bomb, lambda folder: archives.tar_bomb(folder, "bomb.tar.xz")]
)
def test_an_archive_bomb_is_refused_by_its_unpacked_size(tmp_path, make):
    with pytest.raises(DihedralError, match=r"unpacks to more than 1 MiB, .*; if you trust it, unpack"):
        dh.load_graph(tmp_path / make(tmp_path))


def test_a_bomb_next_to_the_triples_is_not_unpacked_either(tmp_path):
    path = tar(tmp_path / "graph.tar.gz", ("other.bin", bytes(8 << 20)), ("train.txt", TRIPLES))
    with pytest.raises(DihedralError, match="unpacks to more than 1 MiB"):
        dh.load_graph(path)


def test_a_huge_extended_header_is_refused(tmp_path):
    with pytest.raises(DihedralError, match="unpacks to more than 1 MiB"):
        dh.load_graph(tmp_path / archives.huge_pax_header(tmp_path))


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_an_archive_with_too_many_files_is_refused(tmp_path, ending):
    path = tmp_path / f"many.{ending}"
    if ending == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(101):
                archive.writestr(f"{number}", b"")
    else:
        tar(path, *((f"{number}", b"") for number in range(101)))
    with pytest.raises(DihedralError, match="holds more than 100 files; expected train, valid and test"):
        dh.load_graph(path)


def test_highly_compressed_text_within_the_ratio_is_read(tmp_path):
    text = "".join(f"entity {i}\trelation\tentity {i * 7 % 90_000}\n" for i in range(90_000)).encode()
    path = tar(tmp_path / "graph.tar.gz", ("train.txt", text))
    assert len(text) > 1 << 20
    assert len(dh.load_graph(path).train) == 90_000


@pytest.mark.parametrize("make", [archives.zip_escape, archives.tar_escape])
def test_member_names_with_other_paths_write_nothing(tmp_path, make):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    path = folder / make(folder)
    assert len(dh.load_graph(path).train) == 3
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def test_links_and_devices_are_not_followed(tmp_path):
    (tmp_path / "secret.txt").write_text(f"{SECRET}\tr\t{SECRET}\n")
    with pytest.raises(DihedralError, match="holds no train file"):
        dh.load_graph(tmp_path / archives.links_and_devices(tmp_path))
    path = tmp_path / archives.file_and_link_with_same_name(tmp_path)
    assert list(dh.load_graph(path).entities) == ["a", "b", "c"]


def test_sparse_files_are_not_read(tmp_path):
    with pytest.raises(DihedralError, match="holds no train file"):
        dh.load_graph(tmp_path / archives.sparse_tar(tmp_path))


def test_a_member_larger_than_any_disk_is_refused(tmp_path):
    with pytest.raises(DihedralError, match=r"archive '.*huge.tar' (cannot be read|unpacks to more than)"):
        dh.load_graph(tmp_path / archives.huge_declared_size(tmp_path))


def test_a_damaged_header_gives_a_one_sentence_error(tmp_path):
    info = tarfile.TarInfo("pax")
    body = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n30 GNU.sparse.realsize=9999999\n"
    info.type, info.size = tarfile.XHDTYPE, len(body)
    train = tarfile.TarInfo("train.txt")
    train.size = 512
    content = info.tobuf() + body.ljust(512, b"\0") + train.tobuf() + b"999999\n1".ljust(512, b"x")
    (tmp_path / "graph.tar.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DihedralError, match=r"archive '.*' cannot be read: .+"):
        dh.load_graph(tmp_path / "graph.tar.gz")


# --- names of splits --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dev.txt", "Dev.txt", "validation.txt", "val.txt"])
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_the_validation_file_may_have_another_name(tmp_path, name, packed):
    files = {"train.txt": TRIPLES, name: b"a\tr\ta\n", "test.txt": b"b\tr\tb\n"}
    if packed:
        graph = dh.load_graph(tar(tmp_path / "graph.tar.gz", *files.items()))
    else:
        for file, content in files.items():
            (tmp_path / file).write_bytes(content)
        graph = dh.load_graph(tmp_path)
    assert (len(graph.valid), len(graph.test)) == (1, 1) and graph.notes == ()


def test_a_second_file_of_a_split_is_noted(tmp_path):
    for name in ("train.txt", "valid.txt", "dev.txt", "test.txt"):
        (tmp_path / name).write_bytes(f"a\tr\t{name}\n".encode())
    graph = dh.load_graph(tmp_path)
    assert list(graph.names_of(graph.valid)) == [("a", "r", "valid.txt")]
    assert graph.notes == ("dev.txt is not used: valid.txt holds the valid triples",)


def test_tables_may_be_named_dev_and_not_twice():
    parts = {name: pa.table({"h": ["a"], "r": ["r"], "t": [name]}) for name in ("train", "dev", "test")}
    assert len(dh.load_graph(parts).valid) == 1
    with pytest.raises(DihedralError, match="split 'valid' is given twice"):
        dh.load_graph(parts | {"valid": parts["dev"]})


# --- compressed files -------------------------------------------------------------------------------


def compressed(content, suffix):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, {"gz": "gzip", "zst": "zstd"}[suffix]) as out:
        out.write(content)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("suffix", ["gz", "zst"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("facts.tsv", b"a\tr\tb\nb\tr\tc\n"),
        ("facts.csv", b'head,relation,tail\n"a",r,b\nb,r,c\n'),
        ("facts.jsonl", b'{"head": "a", "relation": "r", "tail": "b"}\n{"head": "b", "relation": "r", "tail": "c"}\n'),
        ("facts.nt", b"<x:a> <x:r> <x:b> .\n<x:b> <x:r> <x:c> .\n"),
    ],
)
def test_a_compressed_file_is_read_like_the_file(tmp_path, name, content, suffix):
    (tmp_path / name).write_bytes(content)
    (tmp_path / f"{name}.{suffix}").write_bytes(compressed(content, suffix))
    graph = dh.load_graph(tmp_path / f"{name}.{suffix}")
    assert graph.fingerprint == dh.load_graph(tmp_path / name).fingerprint and graph.name == "facts"


def test_a_folder_may_hold_compressed_files(tmp_path):
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(TRIPLES))
    (tmp_path / "dev.txt.gz").write_bytes(gzip.compress(b""))
    graph = dh.load_graph(tmp_path)
    assert len(graph.train) == 3 and graph.notes == ("the valid file is empty", "no test file")


def test_a_large_compressed_file_is_read_in_pieces(tmp_path):
    text = "".join(f"entity {i}\trelation\tentity {i * 7 % 90_000}\n" for i in range(90_000)).encode()
    (tmp_path / "facts.tsv.gz").write_bytes(gzip.compress(text))
    assert dh.load_graph(tmp_path / "facts.tsv.gz").num_triples == 90_000


@pytest.mark.parametrize("content", [b"\n", b"a\tr\tb\n", b"a"], ids=["empty lines", "triples", "one line"])
def test_a_compressed_bomb_is_refused_by_its_unpacked_size(tmp_path, content):
    (tmp_path / "facts.tsv.gz").write_bytes(gzip.compress(content * (8 << 20)))
    with pytest.raises(DihedralError, match=r"facts\.tsv\.gz' unpacks to more than [16] MiB"):
        dh.load_graph(tmp_path / "facts.tsv.gz")


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_damaged_compressed_file_is_refused(tmp_path, suffix):
    content = compressed(b"".join(b"e%d\tr\te%d\n" % (i, i * 7919 % 10007) for i in range(20_000)), suffix)
    (tmp_path / f"facts.tsv.{suffix}").write_bytes(content[: len(content) // 2])
    with pytest.raises(DihedralError, match=rf"facts\.tsv\.{suffix} cannot be read"):
        dh.load_graph(tmp_path / f"facts.tsv.{suffix}")
    (tmp_path / f"facts.tsv.{suffix}").write_bytes(b"not compressed")
    with pytest.raises(DihedralError, match=rf"facts\.tsv\.{suffix} cannot be read"):
        dh.load_graph(tmp_path / f"facts.tsv.{suffix}")


def test_a_compressed_parquet_file_is_refused(tmp_path):
    (tmp_path / "facts.parquet.gz").write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(DihedralError, match="is a compressed Parquet file; unpack it"):
        dh.load_graph(tmp_path / "facts.parquet.gz")
