"""Named benchmarks: read from $DIHEDRAL_DATA or the cache, or downloaded, and verified by checksums."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tempfile
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from dihedral.errors import DihedralError, close_matches
from dihedral.graph.archives import ARCHIVES, find_split, holds_data
from dihedral.graph.triples import SPLITS
from dihedral.io.files import sync_folder

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, total bytes


@dataclass(frozen=True)
class Benchmark:
    """The sources of a benchmark, its size (entities, relations, train, valid, test) and its checksums."""

    name: str
    size: Sequence[int]
    sources: Sequence[str]  # URLs of one archive, or of text files
    checksums: dict[str, str]  # split -> "sha256:…" or "git:…" of its text
    joined: Sequence[Sequence[str]] = ()  # for text files: those to concatenate for train, valid, test


_FILE = resources.files(__package__) / "benchmarks.toml"
BENCHMARKS = {
    name.lower(): Benchmark(name, **fields) for name, fields in tomllib.loads(_FILE.read_text("utf-8")).items()
}


def find_benchmark(name: str) -> Benchmark:
    try:
        return BENCHMARKS[name.lower()]
    except KeyError:
        names = [benchmark.name for benchmark in BENCHMARKS.values()]
        raise DihedralError(
            f"benchmark {name!r} is unknown; choose from {', '.join(names)}{close_matches(name, names)}"
        ) from None


def obtain(name: str, *, progress: Progress | None = None) -> tuple[str, Path]:
    """A benchmark's name as it is usually written, and its verified files, downloaded if necessary."""
    benchmark = find_benchmark(name)
    path = locate(benchmark) or fetch(benchmark, progress=progress)
    verify(benchmark, path)
    return benchmark.name, path


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
                if holds_data(candidate):
                    return candidate
    return None


def fetch(benchmark: Benchmark, *, progress: Progress | None = None) -> Path:
    """Download a benchmark into the cache; a wrong download, or one without known checksums, leaves nothing behind."""
    if unknown := [split for split in SPLITS if split not in benchmark.checksums]:
        raise DihedralError(
            f"{benchmark.name} is not downloaded, because the checksums of {' and '.join(unknown)} are not known; "
            f"download {benchmark.sources[0]} yourself and put it into a folder that DIHEDRAL_DATA names"
        )
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
        sync_folder(cache)
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
