"""Named benchmarks: the real ones as published, and downloads from a local server."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dihedral import DihedralError, load_graph
from dihedral.graph.archives import find_split
from dihedral.graph.benchmarks import (
    BENCHMARKS,
    Benchmark,
    cache_folder,
    checksum,
    fetch,
    find_benchmark,
    locate,
    verify,
)
from dihedral.graph.triples import SPLITS

# --- the real ones ----------------------------------------------------------------------------------

PUBLISHED = {  # entities, relations, train, valid, test
    "umls": (135, 46, 5216, 652, 661),
    "family-neural-lp": (3007, 12, 23483, 2038, 2835),
    "WN18": (40943, 18, 141442, 5000, 5000),
    "WN18RR": (40943, 11, 86835, 3034, 3134),
    "FB15k-237": (14541, 237, 272115, 17535, 20466),
    "FB15k": (14951, 1345, 483142, 50000, 59071),
}
SMALL = ("umls", "family-neural-lp", "WN18RR")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(name, size, marks=[] if name in SMALL else pytest.mark.thorough, id=name)
        for name, size in PUBLISHED.items()
    ],
)
def test_a_benchmark_has_its_published_size(benchmark_graph, name, size):
    graph = benchmark_graph(name)  # an error if a checksum differs
    assert (graph.num_entities, graph.num_relations, len(graph.train), len(graph.valid), len(graph.test)) == size
    assert tuple(find_benchmark(name).size) == size
    assert graph.name == name
    assert graph.notes == ()


@pytest.mark.parametrize(
    ("name", "unseen"), [("WN18RR", 210), pytest.param("FB15k-237", 28, marks=pytest.mark.thorough)]
)
def test_the_number_of_test_triples_with_unseen_entities_is_as_published(benchmark_graph, name, unseen):
    graph = benchmark_graph(name)
    trained = set(graph.train[:, [0, 2]].ravel().tolist())
    assert sum(head not in trained or tail not in trained for head, _, tail in graph.test.tolist()) == unseen


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_checksums(name):
    benchmark = BENCHMARKS[name]
    assert benchmark.checksums["train"].startswith(("sha256:", "git:"))
    assert all(source.startswith("https://") for source in benchmark.sources)
    assert bool(benchmark.joined) == (len(benchmark.sources) > 1)


@pytest.mark.parametrize("name", ["UMLS", "umls", "Umls"])
def test_names_do_not_depend_on_case(benchmark_path, name):
    benchmark_path("umls")
    assert load_graph(name).name == "umls"


def test_an_unknown_benchmark_is_refused_with_close_names():
    with pytest.raises(DihedralError, match=r"benchmark 'wn18r' is unknown; choose from WN18, .*did you mean 'WN18RR'"):
        find_benchmark("wn18r")


# --- small test benchmarks --------------------------------------------------------------------------

TEXT = {"train": b"a\tr\tb\nb\tr\tc\n", "valid": b"c\tr\ta\n", "test": b"a\tr\tc\n"}


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def tar_gz(prefix=""):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for split, content in TEXT.items():
            info = tarfile.TarInfo(f"{prefix}{split}.txt")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def zipped():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for split, content in TEXT.items():
            archive.writestr(f"tiny/{split}.txt", content)
    return stream.getvalue()


class Server:
    """A local HTTP server; a path may end early or be sent in chunks."""

    def __init__(self):
        self.files, self.requests = {}, []
        self.broken, self.chunked = set(), set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                server.requests.append(self.path)
                content = server.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                half = len(content) // 2
                if self.path in server.chunked:
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    self.wfile.write(b"%x\r\n%s\r\n" % (half, content[:half]))
                    if self.path not in server.broken:
                        self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(content) - half, content[half:]))
                else:
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content[:half] if self.path in server.broken else content)
                self.close_connection = True

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=[0.01], daemon=True).start()

    def url(self, path):
        return f"http://127.0.0.1:{self.http.server_port}{path}"


@pytest.fixture
def server():
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache and no local data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DIHEDRAL_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "dihedral"


@pytest.fixture
def tiny(server, cache, monkeypatch):
    """tiny("/tiny.tar.gz", content): a benchmark named Tiny on the local server."""

    def offer(path="/tiny.tar.gz", content=None, **changes):
        server.files[path] = tar_gz() if content is None else content
        benchmark = Benchmark("Tiny", (3, 1, 2, 1, 1), (server.url(path),), {k: sha256(v) for k, v in TEXT.items()})
        benchmark = replace(benchmark, **changes)
        monkeypatch.setitem(BENCHMARKS, "tiny", benchmark)
        return benchmark

    return offer


def stored(cache):
    return sorted(path.relative_to(cache).as_posix() for path in cache.rglob("*")) if cache.exists() else []


def refusal(call, *arguments):
    with pytest.raises(DihedralError) as refused:
        call(*arguments)
    return str(refused.value)


# --- success ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny", "Tiny"])
@pytest.mark.parametrize(
    ("path", "content", "kept"),
    [
        ("/tiny.tar.gz", tar_gz(), "Tiny.tar.gz"),
        ("/master/Tiny.tar.gz", tar_gz("Tiny/"), "Tiny.tar.gz"),
        ("/t.zip", zipped(), "Tiny.zip"),
    ],
    ids=["tar", "tar with a folder", "zip"],
)
def test_a_download_is_cached(tiny, server, cache, path, content, kept, name):
    tiny(path, content)
    graph = load_graph(name)
    assert (graph.name, len(graph.train), len(graph.valid), len(graph.test)) == ("Tiny", 2, 1, 1)
    assert stored(cache) == [kept]
    assert (cache / kept).read_bytes() == content
    load_graph(name)
    assert server.requests == [path]


def test_text_files_are_joined_into_splits(tiny, server, cache):
    lines = TEXT["train"].splitlines(keepends=True)
    server.files |= {
        "/facts.txt": lines[0],
        "/train.txt": lines[1],
        "/valid.txt": TEXT["valid"],
        "/test.txt": TEXT["test"],
    }
    names = ("facts.txt", "train.txt", "valid.txt", "test.txt")
    tiny(
        sources=tuple(server.url(f"/{name}") for name in names),
        joined=(("facts.txt", "train.txt"), ("valid.txt",), ("test.txt",)),
    )
    assert len(load_graph("tiny").train) == 2
    assert stored(cache) == ["Tiny", "Tiny/test.txt", "Tiny/train.txt", "Tiny/valid.txt"]
    assert (cache / "Tiny" / "train.txt").read_bytes() == TEXT["train"]


def test_a_chunked_download_without_a_length(tiny, server, cache):
    server.chunked.add("/tiny.tar.gz")
    tiny()
    assert len(load_graph("tiny").train) == 2
    assert stored(cache) == ["Tiny.tar.gz"]


def test_progress_is_reported_in_bytes(tiny):
    reports = []
    fetch(tiny(), progress=lambda *report: reports.append(report))
    size = len(tar_gz())
    assert reports[-1] == ("tiny.tar.gz", size, size)


def test_local_data_takes_precedence_over_the_cache_and_the_network(tiny, server, cache, tmp_path, monkeypatch):
    benchmark = tiny()
    fetch(benchmark)
    assert locate(benchmark) == cache / "Tiny.tar.gz"
    local = tmp_path / "data"
    local.mkdir()
    monkeypatch.setenv("DIHEDRAL_DATA", str(local))
    assert locate(benchmark) == cache / "Tiny.tar.gz"
    (local / "tiny").mkdir()
    for split, content in TEXT.items():
        (local / "tiny" / f"{split}.txt").write_bytes(content)
    assert locate(benchmark) == local / "tiny"
    assert len(load_graph("tiny").train) == 2
    assert len(server.requests) == 1


def test_the_cache_is_in_the_home_folder_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "dihedral"


# --- failure ----------------------------------------------------------------------------------------


def test_an_interrupted_download_leaves_nothing(tiny, server, cache):
    server.broken.add("/tiny.tar.gz")
    tiny()
    message = refusal(load_graph, "tiny")
    assert "/tiny.tar.gz ended after" in message or "/tiny.tar.gz cannot be downloaded" in message
    assert stored(cache) == []
    server.broken.clear()
    assert len(load_graph("tiny").train) == 2


def test_an_interrupted_chunked_download_leaves_nothing(tiny, server, cache):
    server.chunked.add("/tiny.tar.gz")
    server.broken.add("/tiny.tar.gz")
    tiny()
    try:
        assert "/tiny.tar.gz" in refusal(load_graph, "tiny")
    finally:
        assert stored(cache) == []


def test_a_download_with_a_wrong_checksum_leaves_nothing(tiny, cache):
    tiny(checksums={split: sha256(content + b"x") for split, content in TEXT.items()})
    message = refusal(load_graph, "tiny")
    wanted = hashlib.sha256(TEXT["train"] + b"x").hexdigest()[:12]
    found = hashlib.sha256(TEXT["train"]).hexdigest()[:12]
    assert "train of Tiny" in message and f"sha256 checksum {found}" in message and f"expected {wanted}" in message
    assert stored(cache) == []


def test_the_error_for_a_wrong_checksum_does_not_suggest_deleting_a_file(tiny, cache):
    tiny(checksums={split: sha256(content + b"x") for split, content in TEXT.items()})
    assert "delete" not in refusal(load_graph, "tiny")


def test_a_missing_page_leaves_nothing(tiny, server, cache):
    benchmark = tiny()
    server.files.clear()
    message = refusal(load_graph, "tiny")
    assert message == (
        f"{benchmark.sources[0]} cannot be downloaded: Not Found; "
        "put the files into a folder and set DIHEDRAL_DATA to it"
    )
    assert stored(cache) == []


def test_an_unreachable_server_leaves_nothing(tiny, cache):
    tiny(sources=("http://127.0.0.1:9/tiny.tar.gz",))
    assert "http://127.0.0.1:9/tiny.tar.gz cannot be downloaded: " in refusal(load_graph, "tiny")
    assert stored(cache) == []


def test_a_page_instead_of_an_archive_leaves_nothing(tiny, cache):
    tiny(content=b"<html>please log in</html>")
    assert "tiny.tar.gz' cannot be read" in refusal(load_graph, "tiny")
    assert stored(cache) == []


def test_an_archive_without_a_split_leaves_nothing(tiny, cache):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        info = tarfile.TarInfo("train.txt")
        info.size = len(TEXT["train"])
        archive.addfile(info, io.BytesIO(TEXT["train"]))
    tiny(content=stream.getvalue())
    assert "holds no valid file" in refusal(load_graph, "tiny")
    assert stored(cache) == []


def test_one_of_several_files_missing_leaves_nothing(tiny, server, cache):
    server.files |= {"/train.txt": TEXT["train"], "/valid.txt": TEXT["valid"]}
    tiny(
        sources=tuple(server.url(f"/{split}.txt") for split in TEXT),
        joined=(("train.txt",), ("valid.txt",), ("test.txt",)),
    )
    assert "/test.txt cannot be downloaded: Not Found" in refusal(load_graph, "tiny")
    assert stored(cache) == []


def test_a_cache_that_cannot_be_created_is_an_error(tiny, tmp_path, monkeypatch):
    benchmark = tiny()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "cannot be written: Not a directory; set XDG_CACHE_HOME to another folder" in refusal(fetch, benchmark)


def test_a_failed_download_keeps_the_cached_file(tiny, server, cache):
    benchmark = tiny()
    fetch(benchmark)
    before = (cache / "Tiny.tar.gz").read_bytes()
    server.broken.add("/tiny.tar.gz")
    refusal(fetch, benchmark)
    assert stored(cache) == ["Tiny.tar.gz"]
    assert (cache / "Tiny.tar.gz").read_bytes() == before


# --- checksums -------------------------------------------------------------------------------------------


def test_a_damaged_local_file_is_refused_by_its_checksum(tiny, tmp_path, monkeypatch):
    tiny()
    monkeypatch.setenv("DIHEDRAL_DATA", str(tmp_path))
    (tmp_path / "Tiny").mkdir()
    for split, content in TEXT.items():
        (tmp_path / "Tiny" / f"{split}.txt").write_bytes(content)
    assert len(load_graph("tiny").train) == 2
    (tmp_path / "Tiny" / "test.txt").write_bytes(TEXT["test"].replace(b"c", b"b"))
    assert f"test of Tiny in '{tmp_path / 'Tiny'}' has the sha256 checksum" in refusal(load_graph, "tiny")


def test_a_real_benchmark_with_one_letter_changed_is_refused(benchmark_path, tmp_path, monkeypatch):
    folder = tmp_path / "umls"
    folder.mkdir()
    for split in TEXT:
        with find_split(benchmark_path("umls"), split).plain() as stream:
            (folder / f"{split}.txt").write_bytes(stream.read())
    monkeypatch.setenv("DIHEDRAL_DATA", str(tmp_path))
    assert load_graph("umls").num_entities == 135
    content = bytearray((folder / "valid.txt").read_bytes())
    content[1000] ^= 1
    (folder / "valid.txt").write_bytes(content)
    assert "valid of umls in" in refusal(load_graph, "umls")


def test_a_git_checksum_is_the_id_of_the_file_in_git(tmp_path):
    (tmp_path / "train.txt").write_bytes(TEXT["train"])
    git = subprocess.run(["git", "hash-object", tmp_path / "train.txt"], capture_output=True, text=True, check=True)
    assert checksum(tmp_path, "train", "git") == git.stdout.strip()


def test_a_git_checksum_accepts_only_its_file(tiny, cache):
    blob = hashlib.sha1(b"blob %d\0%s" % (len(TEXT["train"]), TEXT["train"])).hexdigest()
    benchmark = tiny(checksums=tiny().checksums | {"train": f"git:{blob}"})
    assert fetch(benchmark) == cache / "Tiny.tar.gz"
    with pytest.raises(DihedralError, match="has the git checksum"):
        verify(replace(benchmark, checksums={"train": f"git:{'0' * 40}"}), cache / "Tiny.tar.gz")


def test_every_download_is_checked(tiny, cache, server):
    unchecked = [name for name, benchmark in BENCHMARKS.items() if set(benchmark.checksums) != set(SPLITS)]
    assert unchecked == ["yago3-10"]  # checksums of its valid and test are not known
    message = "is not downloaded, because the checksums of valid and test are not known; download https://.*YAGO3-10"
    with pytest.raises(DihedralError, match=message):
        fetch(find_benchmark("yago3-10"))
    assert stored(cache) == []


def test_yago_is_verified_by_the_git_id_of_its_training_file():
    assert find_benchmark("yago3-10").checksums == {"train": "git:1543056ff5af6d3bf841510129529e91e9a8627c"}


def test_a_folder_without_triples_among_the_data_is_not_a_benchmark(tmp_path, monkeypatch):
    (tmp_path / "umls").mkdir()
    (tmp_path / "umls" / "model.json").write_text("{}")
    monkeypatch.setenv("DIHEDRAL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert locate(find_benchmark("umls")) is None
