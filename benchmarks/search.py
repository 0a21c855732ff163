"""Search of names: `python -m benchmarks.search`.

Five million names (ids such as Q12345) have labels of three words, drawn from 200,000 words, some with accents, whose
frequencies follow Zipf's law. The index is stored and memory-mapped, as a server uses it. The searches are those of a
person who types: one to three words of a label, in any order, complete or only their beginnings, and parts of ids.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.record import RESULTS, save
from dihedral.graph.labels import Labels
from dihedral.graph.name_search import NameSearch, WordIndex
from dihedral.graph.vocabulary import Vocabulary
from dihedral.store.graph_files import read_table, write_table

WORDS = 200_000
SYLLABLES = ["ka", "lo", "mi", "ré", "su", "tö", "vén", "dra", "pol", "ist", "er", "an", "on", "ü", "sch", "ta", "ge"]
TOP = 12


def make_names(count: int, rng: np.random.Generator) -> Vocabulary:
    words = np.array(["".join(rng.choice(SYLLABLES, rng.integers(2, 5))).title() for _ in range(WORDS)])
    labels: list[str] = []
    for start in range(0, count, 500_000):
        chosen = words[(rng.zipf(1.2, (min(500_000, count - start), 3)) - 1) % WORDS]
        labels += [" ".join(row) for row in chosen.tolist()]
    return Vocabulary(pa.array([f"Q{7 * i + 1}" for i in range(count)]), labels=Labels({"label": pa.array(labels)}))


def make_searches(names: Vocabulary, count: int, rng: np.random.Generator) -> list[str]:
    assert names.labels is not None
    searches = []
    for number in rng.integers(len(names), size=count).tolist():
        words = list(rng.permutation(names.labels.label(number).split())[: rng.integers(1, 4)])
        words = [word[: rng.integers(1, len(word) + 1)] if rng.random() < 0.7 else word for word in words]
        searches.append(names[number][: rng.integers(1, 9)] if rng.random() < 0.1 else " ".join(words).lower())
    return searches


def measure(count: int, searches: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    names, by_frequency = make_names(count, rng), rng.permutation(count).astype(np.int32)
    started = time.perf_counter()
    index = WordIndex.build(names, by_frequency)
    built = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.arrow"
        write_table(path, index.to_arrow())
        size = path.stat().st_size
        started = time.perf_counter()
        table = read_table(path, {"word": (pa.string(), pa.large_string()), "ranks": (pa.list_(pa.int32()),)})
        search = NameSearch(names, by_frequency, WordIndex.from_arrow(table, count, str(path)))
        opened = time.perf_counter() - started
        assert names.labels is not None
        names.order, names.labels.order  # noqa: B018  stored with a model
        search.search("a", TOP)  # as a server does when it opens a model
        took, found = np.zeros((2, searches)), 0
        for number, text in enumerate(make_searches(names, searches, rng)):
            before = time.perf_counter(), time.process_time()
            found += len(search.search(text, TOP)) > 0
            after = time.perf_counter(), time.process_time()
            took[:, number] = 1000 * (np.array(after) - before)
    return {
        "names": count, "words": len(index.words), "bytes": size, "build_seconds": round(built, 1),
        "open_seconds": round(opened, 3),
        "searches": searches, "with_results": found, "milliseconds": _shares(took[0]),
        "processor_milliseconds": _shares(took[1]),
    }  # fmt: skip


def _shares(took: NDArray[np.float64]) -> dict[str, float]:
    return {f"p{share}": round(float(np.percentile(took, share)), 3) for share in (50, 90, 99, 100)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", type=int, default=5_000_000)
    parser.add_argument("--searches", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    content = measure(options.names, options.searches)
    save("name-search", content, options.out)
    print(content)


if __name__ == "__main__":
    main()
