"""Read graphs: benchmarks by name, files, folders, archives, and data in memory; write them to folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dihedral.errors import DihedralError, close_matches
from dihedral.graph.archives import ARCHIVES, find_split, holds_data, stem
from dihedral.graph.benchmarks import BENCHMARKS, Progress, obtain
from dihedral.graph.exchange import as_table, columns_of
from dihedral.graph.family import make_family
from dihedral.graph.labels import LANGUAGES, parse_languages
from dihedral.graph.numbering import Numbering
from dihedral.graph.split import split_triples
from dihedral.graph.triple_files import NO_TRIPLES, NumberedTriples, number_table, read_triples
from dihedral.graph.triples import DIVIDED, SPLIT_NAMES, SPLITS, Graph, Triples, build_graph, drop_duplicates
from dihedral.io.files import atomic_path, make_folder
from dihedral.io.sources import Source


def load_graph(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    valid: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    labels: Any = None,
    language: str | Sequence[str] = LANGUAGES,
    merge_similar: bool = False,
    skip_blank: bool = False,
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
    merge_similar: give names that differ only in case, white space or Unicode form the most frequent spelling.
    skip_blank: leave rows with a blank cell out.
    progress: called with the file name, the bytes so far and the total during a download.

    >>> load_graph("family").num_entities
    1200
    """
    numbering = Numbering(parse_languages(language), merge_similar, skip_blank)
    split: dict[str, Any] = {"valid": valid, "test": test, "seed": seed}
    if isinstance(source, Graph):
        graph = source
    elif isinstance(source, (str, Path)):
        graph = _load_path(source, columns, numbering, split, progress)
    else:
        graph = _load_memory(source, columns, numbering, split)
    return graph if labels is None else graph.with_labels(labels, language=language)


def _load_path(
    source: str | Path,
    columns: Sequence[str] | None,
    numbering: Numbering,
    split: dict[str, Any],
    progress: Progress | None,
) -> Graph:
    path = Path(source)
    name = stem(path)
    if isinstance(source, str) and not holds_data(path):  # a model's folder may have a benchmark's name
        if source.lower() in BENCHMARKS:
            name, path = obtain(source, progress=progress)
        elif source.lower() == "family":
            return make_family(seed=split["seed"])
    if path.is_dir() or (path.is_file() and path.name.lower().endswith(ARCHIVES)):
        return _read_splits(path, columns, numbering, name)
    if not path.exists():
        names = [*(benchmark.name for benchmark in BENCHMARKS.values()), "family"]
        hint = close_matches(str(source), names) if isinstance(source, str) else ""
        raise DihedralError(f"file {str(path)!r} does not exist; give a folder, a file or a benchmark's name{hint}")
    return _graph(read_triples(Source(str(path), path), columns, numbering), numbering, name, **split)


def _load_memory(source: Any, columns: Sequence[str] | None, numbering: Numbering, split: dict[str, Any]) -> Graph:
    """Read a table or triples, which are split like a single file, or one of these per split."""
    source = columns_of(source)
    if isinstance(source, (tuple, list)) and 1 < len(source) <= 3:
        source = dict(zip(SPLITS, source, strict=False))
    if not isinstance(source, Mapping) or "train" not in map(_split_named, source):
        return _graph(number_table(as_table(source), columns, numbering, "table"), numbering, "table", **split)
    given: dict[str, Any] = {}
    for label, table in source.items():
        name = _split_named(label)
        if name is None or name in given:
            wrong = "does not exist" if name is None else "is given twice"
            raise DihedralError(f"split {label!r} {wrong}; name the tables train, valid and test")
        given[name] = as_table(columns_of(table))
    parts = [
        _one_split(number_table(given[name], columns, numbering, name), name, f"table {name!r}")
        if name in given
        else NO_TRIPLES
        for name in SPLITS
    ]
    return build_graph(*numbering.vocabularies(parts), parts, "tables", numbering.notes)


def _split_named(label: Any) -> str | None:
    return SPLIT_NAMES.get(str(label).strip().lower())


def _one_split(found: NumberedTriples, split: str, where: str) -> Triples:
    """The triples of a file or table that is one split; a split column must agree."""
    if found.splits is not None and (other := found.splits[found.splits != SPLITS.index(split)]).size:
        raise DihedralError(
            f"{where} is the {split} split, but its column split says {SPLITS[other[0]]} in {other.size} rows; "
            "remove the column, or give all triples as one file or table"
        )
    return found.triples


def _graph(found: NumberedTriples, numbering: Numbering, name: str, valid: float, test: float, seed: int) -> Graph:
    """The graph of one file or table: split by its split column, or at random."""
    triples, splits = found
    del found
    if splits is not None:
        parts = [triples[splits == i] for i in range(len(SPLITS))]
        return build_graph(*numbering.vocabularies(parts, mixed=True), parts, name, numbering.notes)
    entities, relations = numbering.vocabularies([triples])
    notes = [f"{DIVIDED} {seed}", *numbering.notes]
    read = len(triples)
    triples = drop_duplicates(triples)  # frees the original array
    if len(triples) < read:
        notes.append(f"{read - len(triples)} duplicate triples left out")
    if not len(triples):
        raise DihedralError(f"graph {name!r} has no training triples; it needs at least one")
    wanted = round(len(triples) * valid)
    train, held_out, tested = split_triples(triples, valid=valid, test=test, seed=seed, in_place=True)
    if len(held_out) < wanted // 2:
        few = f"valid has {len(held_out)} triples instead of {wanted}"
        notes.append(f"{few}, because every entity and relation needs one in train")
    return Graph(entities, relations, train, held_out, tested, name=name, notes=tuple(notes))


def _read_splits(path: Path, columns: Sequence[str] | None, numbering: Numbering, name: str) -> Graph:
    splits, notes = [], []
    for split in SPLITS:
        source = find_split(path, split)
        if source is not None and (split == "train" or not source.is_empty):
            splits.append(_one_split(read_triples(source, columns, numbering), split, source.where))
            notes += [f"{other} is not used: {source.name} holds the {split} triples" for other in source.others]
        elif split == "train":
            what = "a model, not triples" if (path / "model.json").is_file() else "no train file"
            raise DihedralError(
                f"{path} holds {what}; expected train.txt, train.tsv, train.csv, train.parquet or train.nt"
            )
        else:
            notes.append(f"no {split} file" if source is None else f"the {split} file is empty")
            splits.append(NO_TRIPLES)
    return build_graph(*numbering.vocabularies(splits), splits, name, notes + numbering.notes)


def write_folder(graph: Graph, folder: Path) -> None:
    """Write train.txt, valid.txt and test.txt, with one tab-separated triple per line."""
    make_folder(folder)
    for split in SPLITS:
        with atomic_path(folder / f"{split}.txt") as file, file.open("w", encoding="utf-8") as out:
            out.writelines("\t".join(triple) + "\n" for triple in graph.names_of(graph.split(split)))
