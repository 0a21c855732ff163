"""Load a graph from any supported source: a benchmark, a file, a folder, an archive, or data in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Number
from pathlib import Path
from typing import Any

from dihedral.errors import DihedralError, close_matches
from dihedral.graph.archives import holds_data
from dihedral.graph.benchmarks import BENCHMARKS, Progress, load_benchmark
from dihedral.graph.exchange import as_table
from dihedral.graph.family import make_family
from dihedral.graph.labels import LANGUAGES, parse_languages
from dihedral.graph.readers import read_arrow, read_arrow_splits, read_graph
from dihedral.graph.triples import SPLIT_NAMES, SPLITS, Graph


def load_graph(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    valid: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    labels: Any = None,
    language: str | Sequence[str] = LANGUAGES,
    progress: Progress | None = None,
) -> Graph:
    """Load a benchmark by name, "family", a folder, a file, an archive, or a graph held in memory.

    In memory: a list or generator of triples, an array [n, 3], a table with the Arrow interface (Arrow, pandas,
    polars, also a LazyFrame, which is collected), a directed networkx graph or a PyKEEN TriplesFactory; or one of
    these per split, as {"train": …, "valid": …, "test": …} or as a tuple in that order.

    A single file or table is split with `valid`, `test` and `seed`, so that every entity and relation of valid and
    test also occurs in train. A file or table with a column `split` keeps the splits that it names. What reading
    noticed or changed is in the notes of the graph.

    columns: names of the head, relation and tail columns.
    labels: what people call the entities and relations, as for `Graph.with_labels`. Labels in RDF are read anyway.
    language: of labels, such as "en,de": the preferred one first.
    progress: called with the file name, the bytes so far and the total during a download.

    >>> load_graph("family").num_entities
    1200
    """
    options: dict[str, Any] = {"columns": columns, "valid": valid, "test": test, "seed": seed}
    graph = _load(source, options, parse_languages(language), progress)
    return graph if labels is None else graph.with_labels(labels, language=language)


def _load(source: Any, options: dict[str, Any], languages: Sequence[str], progress: Progress | None) -> Graph:
    if isinstance(source, Graph):
        return source
    if isinstance(source, str) and not holds_data(Path(source)):  # a model's folder may have a benchmark's name
        if source.lower() in BENCHMARKS:
            return load_benchmark(source, progress=progress)
        if source.lower() == "family":
            return make_family(seed=options["seed"])
    if isinstance(source, str) and not Path(source).exists():
        names = [benchmark.name for benchmark in BENCHMARKS.values()]
        hint = close_matches(source, [*names, "family"])
        if hint:
            raise DihedralError(f"file {source!r} does not exist; give a folder, a file or a benchmark's name{hint}")
    if isinstance(source, (str, Path)):
        return read_graph(source, languages=languages, **options)
    source = _triples_as_columns(source)
    if isinstance(source, (tuple, list)) and 1 < len(source) <= 3:
        source = dict(zip(SPLITS, source, strict=False))
    if isinstance(source, Mapping) and any(SPLIT_NAMES.get(str(name).strip().lower()) == "train" for name in source):
        parts = {split: as_table(_triples_as_columns(part)) for split, part in source.items()}
        return read_arrow_splits(parts, columns=options["columns"])
    return read_arrow(as_table(source), **options)


def _triples_as_columns(source: Any) -> Any:
    """A list, generator or array of triples as three columns; other objects are returned unchanged."""
    if isinstance(source, Iterator):
        source = list(source)
    if not _are_triples(source):
        return source
    rows = [[_name(part, number) for part in row] for number, row in enumerate(source)]
    return dict(zip(("head", "relation", "tail"), map(list, zip(*rows, strict=True)), strict=True))


def _are_triples(source: Any) -> bool:
    """Whether the source is a list of (head, relation, tail) strings or an array [n, 3]."""
    if hasattr(source, "shape"):
        return len(source.shape) == 2 and source.shape[1] == 3 and not hasattr(source, "__arrow_c_stream__")
    if not isinstance(source, (tuple, list)) or not source:
        return False
    if not all(isinstance(row, (tuple, list)) and len(row) == 3 for row in source):
        return False
    return any(isinstance(part, str) for row in source for part in row)  # otherwise they are tables


def _name(part: Any, row: int) -> str:
    """A part of a triple as a name; numbers are names too."""
    if isinstance(part, str):
        return part
    if part is None or isinstance(part, bool) or not isinstance(part, Number) or part != part:
        raise DihedralError(f"row {row} (from 0) has {part!r:.80} as a name; names are strings or numbers")
    return str(part)
