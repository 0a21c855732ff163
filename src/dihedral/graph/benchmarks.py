"""Named benchmarks: read from $DIHEDRAL_DATA or the cache, or downloaded, and verified by checksums."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dihedral.errors import DihedralError, close_matches
from dihedral.graph.readers import read_graph
from dihedral.graph.sources import ARCHIVES, find_split
from dihedral.graph.triples import SPLITS, Graph

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, total bytes

_RAW = "https://raw.githubusercontent.com"
_CONVE = f"{_RAW}/TimDettmers/ConvE/master"
_ROTATE = f"{_RAW}/DeepGraphLearning/KnowledgeGraphEmbedding/master/data"
_NEURAL_LP = f"{_RAW}/fanyangxyz/Neural-LP/master/datasets/family"


@dataclass(frozen=True)
class Benchmark:
    """The sources of a benchmark, its size (entities, relations, train, valid, test) and its checksums."""

    name: str
    size: tuple[int, int, int, int, int]
    sources: tuple[str, ...]  # URLs of one archive, or of text files
    checksums: dict[str, str]  # split -> "sha256:…" or "git:…" of its text
    joined: tuple[tuple[str, ...], ...] = ()  # for text files: those to concatenate for train, valid, test


def _sha256(train: str, valid: str, test: str) -> dict[str, str]:
    return {"train": f"sha256:{train}", "valid": f"sha256:{valid}", "test": f"sha256:{test}"}


def _texts(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}.txt" for name in names)


_ALL = [
    Benchmark("WN18", (40943, 18, 141442, 5000, 5000), (f"{_RAW}/ttrouill/complex/master/datasets/wn18.zip",), _sha256(
        "24c9b02dc57d3ae8ca8467ce355995edee7be8eddc3bd070ee34d3c6fc3c95eb",
        "13347bfb5e17d1cae003e0bfe29b4716d3ab748e8cfb6af997138d37da3a51dc",
        "d22c19d176d4ba6a6f0d0c6bfce39ab3c16e3b20e1df6f9efe0d9ed86542fa10",
    )),
    Benchmark("WN18RR", (40943, 11, 86835, 3034, 3134), (f"{_CONVE}/WN18RR.tar.gz",), _sha256(
        "038612e783c215ee5f3ca9fbfca27b8d0739be1028fe4ee7c174aecf0b83d5df",
        "453ce7202afa58094a04d2b1560ee2b02660f1c260b32ce6651c8ccedd1028ab",
        "0383bceaaa1096cf3c03ec021ed0048068e2355dbfc0239b292cefdac821cec5",
    )),
    Benchmark("FB15k", (14951, 1345, 483142, 50000, 59071), _texts(f"{_ROTATE}/FB15k", *SPLITS), _sha256(
        "f9cdfd2685f6483bd3a499d433919b15d62f0715c6cf18b2ca30c2aa5c47a704",
        "471929cde9cf74b1caa8348c2b601c8010d6b2f2a56bae49b4ebfd14c9bce855",
        "5b60b4de325482c3368e22d0b7452d465b09a610fea0ce3768d8b1e8b5a7e42a",
    ), joined=(("train.txt",), ("valid.txt",), ("test.txt",))),
    Benchmark("FB15k-237", (14541, 237, 272115, 17535, 20466), (f"{_CONVE}/FB15k-237.tar.gz",), _sha256(
        "6e4c2782169af21e9743f3b1d200886f5d595bf6bc504ec1351720949c5cdfae",
        "cf6309010852f6a8d47a45df830a426415d1ee6f7a3970a8376ff1fb81db4a5c",
        "5711cf41623ceb4eacc50eb6108a3ca6565c7492e3caaf82a3e355cc660d1574",
    )),
    Benchmark("YAGO3-10", (123182, 37, 1079040, 5000, 5000), (f"{_CONVE}/YAGO3-10.tar.gz",), {
        "train": "git:1543056ff5af6d3bf841510129529e91e9a8627c",
    }),
    Benchmark("umls", (135, 46, 5216, 652, 661), (f"{_CONVE}/umls.tar.gz",), _sha256(
        "873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35",
        "025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e",
        "a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014",
    )),
    Benchmark("family-neural-lp", (3007, 12, 23483, 2038, 2835), _texts(_NEURAL_LP, "facts", *SPLITS), _sha256(
        "768bef275a5f4c30d29ee0180dba1bd8329e7f29a981edd49a4cf40b78e7e322",
        "b27c96db987d829aeb7ab8025d8b26cb469d9a8b9881fe84beeab96f9c9c7d30",
        "42cc9b400a3bfbd8908c81a14a073fe3e0c73e51b8ed05d2587255c11d257eb8",
    ), joined=(("facts.txt", "train.txt"), ("valid.txt",), ("test.txt",))),
]  # fmt: skip
BENCHMARKS = {benchmark.name.lower(): benchmark for benchmark in _ALL}


def find_benchmark(name: str) -> Benchmark:
    try:
        return BENCHMARKS[name.lower()]
    except KeyError:
        names = [benchmark.name for benchmark in BENCHMARKS.values()]
        raise DihedralError(
            f"benchmark {name!r} is unknown; choose from {', '.join(names)}{close_matches(name, names)}"
        ) from None


def load_benchmark(name: str, *, progress: Progress | None = None) -> Graph:
    """Read a named benchmark, downloading it if necessary, and verify its checksums."""
    benchmark = find_benchmark(name)
    path = locate(benchmark) or fetch(benchmark, progress=progress)
    verify(benchmark, path)
    return read_graph(path, name=benchmark.name)


def cache_folder() -> Path:
    """The folder for downloads: $XDG_CACHE_HOME/dihedral, by default ~/.cache/dihedral."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "dihedral"


def locate(benchmark: Benchmark) -> Path | None:
    """The folder or archive of a benchmark in $DIHEDRAL_DATA, or else in the cache; None if it is in neither."""
    folders = [Path(data)] if (data := os.environ.get("DIHEDRAL_DATA")) else []
    for folder in [*folders, cache_folder()]:
        for name in (benchmark.name, benchmark.name.lower()):
            for candidate in (folder / name, *(folder / f"{name}{suffix}" for suffix in ARCHIVES)):
                if candidate.exists():
                    return candidate
    return None


def fetch(benchmark: Benchmark, *, progress: Progress | None = None) -> Path:
    """Download a benchmark into the cache; a failed or wrong download leaves nothing behind."""
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        working = Path(tempfile.mkdtemp(prefix=f".{benchmark.name}-", dir=cache))
    except OSError as error:
        raise DihedralError(
            f"cache folder {str(cache)!r} cannot be written: {error.strerror}; set XDG_CACHE_HOME to another folder"
        ) from None
    try:
        for url in benchmark.sources:
            _download(url, working / url.rsplit("/", 1)[1], progress)
        if benchmark.joined:
            result, target = working / "joined", cache / benchmark.name
            result.mkdir()
            for split, parts in zip(SPLITS, benchmark.joined, strict=True):
                with (result / f"{split}.txt").open("wb") as out:
                    for part in parts:
                        out.write((working / part).read_bytes())
        else:
            downloaded = benchmark.sources[0].rsplit("/", 1)[1]
            suffix = ".zip" if downloaded.endswith(".zip") else ".tar.gz"
            result, target = working / downloaded, cache / f"{benchmark.name}{suffix}"
        verify(benchmark, result)
        os.replace(result, target)
        return target
    finally:
        shutil.rmtree(working, ignore_errors=True)


def verify(benchmark: Benchmark, path: Path) -> None:
    """Compare the text of each split with its published checksum."""
    for split, expected in benchmark.checksums.items():
        method, wanted = expected.split(":")
        found = checksum(path, split, method)
        if found != wanted:
            raise DihedralError(
                f"{split} of {benchmark.name} in {str(path)!r} has the {method} checksum {found[:12]}…, "
                f"expected {wanted[:12]}…: it is not the published file"
            )


def checksum(path: Path, split: str, method: str) -> str:
    source = find_split(path, split)
    if source is None:
        raise DihedralError(f"{str(path)!r} holds no {split} file")
    with source.plain() as stream:
        text = stream.read()
    if method == "git":  # the id of the file in git
        return hashlib.sha1(b"blob %d\0" % len(text) + text, usedforsecurity=False).hexdigest()
    return hashlib.sha256(text).hexdigest()


def _download(url: str, target: Path, progress: Progress | None) -> None:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, target.open("wb") as out:
            length: Any = answer.headers.get("Content-Length")
            total = int(length) if length else None
            done = 0
            while block := answer.read(1 << 16):
                out.write(block)
                done += len(block)
                if progress:
                    progress(target.name, done, total)
            if total is not None and done != total:
                raise DihedralError(f"{url} ended after {done} of {total} bytes; try again")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise DihedralError(
            f"{url} cannot be downloaded: {reason}; put the files into a folder and set DIHEDRAL_DATA to it"
        ) from None
