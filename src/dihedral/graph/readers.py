"""Read graphs from files, from folders and archives of them, and from Arrow tables; write them to folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.graph.archives import ARCHIVES, find_split, stem
from dihedral.graph.labels import LANGUAGES
from dihedral.graph.numbering import Numbering
from dihedral.graph.split import split_triples
from dihedral.graph.triple_files import NO_TRIPLES, NumberedTriples, number_table, read_triples
from dihedral.graph.triples import SPLIT_NAMES, SPLITS, Graph, Triples, build_graph, drop_duplicates
from dihedral.io.files import atomic_path, make_folder
from dihedral.io.sources import Source


def read_graph(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    valid: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    name: str | None = None,
    languages: Sequence[str] = LANGUAGES,
) -> Graph:
    """Read a folder or archive with train/valid/test files, or a single file, which is then split.

    columns: names of the head, relation and tail columns; a text file must then start with a header.
    valid, test, seed: how to split a single file.
    languages: of labels in RDF, the preferred one first.
    """
    path = Path(path)
    name = name or stem(path)
    numbering = Numbering(languages)
    if path.is_dir() or (path.is_file() and path.name.lower().endswith(ARCHIVES)):
        return _read_splits(path, columns, numbering, name)
    if not path.exists():
        raise DihedralError(f"file {str(path)!r} does not exist; give a folder, a file or a benchmark's name")
    return _graph(read_triples(Source(str(path), path), columns, numbering), numbering, name, valid, test, seed)


def read_arrow(
    table: Any,
    *,
    columns: Sequence[str] | None = None,
    valid: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    name: str = "table",
) -> Graph:
    """Read a table with the Arrow interface (Arrow, pandas, polars); it is split like a single file.

    If there is a column `split` with train, valid and test, as in `Graph.to_arrow`, the table is split by it.
    """
    numbering = Numbering()
    return _graph(number_table(_as_table(table), columns, numbering, "table"), numbering, name, valid, test, seed)


def read_arrow_splits(
    tables: Mapping[str, Any], *, columns: Sequence[str] | None = None, name: str = "tables"
) -> Graph:
    """Read one table for each of train, valid and test."""
    given: dict[str, Any] = {}
    for label, table in tables.items():
        split = SPLIT_NAMES.get(str(label).strip().lower())
        if split is None or split in given:
            wrong = "does not exist" if split is None else "is given twice"
            raise DihedralError(f"split {label!r} {wrong}; name the tables train, valid and test")
        given[split] = table
    numbering = Numbering()
    parts = [
        _one_split(number_table(_as_table(given[split]), columns, numbering, split), split, f"table {split!r}")
        if split in given
        else NO_TRIPLES
        for split in SPLITS
    ]
    return build_graph(*numbering.vocabularies(), parts, name, numbering.notes)


def _one_split(found: NumberedTriples, split: str, where: str) -> Triples:
    """The triples of a file or table that is one split; a split column must agree."""
    if found.splits is not None and (other := found.splits[found.splits != SPLITS.index(split)]).size:
        raise DihedralError(
            f"{where} is the {split} split, but its column split says {SPLITS[other[0]]} in {other.size} rows; "
            "remove the column, or give all triples as one file or table"
        )
    return found.triples


def _as_table(source: Any) -> pa.Table:
    try:
        return pa.table(source)
    except (TypeError, ValueError, pa.ArrowException):
        _check_cells(source)
        raise DihedralError(
            f"a graph cannot be read from a {type(source).__name__}; give the name of a benchmark, a path, a table "
            "with three columns (Arrow, pandas, polars), a networkx graph or PyKEEN triples"
        ) from None


def _check_cells(source: Any) -> None:
    """Raise an error for the first cell of a pandas frame that is not a string among strings."""
    if not (hasattr(source, "iloc") and hasattr(source, "items")):
        return
    for name, column in source.items():
        texts = any(isinstance(value, str) for value in column)
        for row, value in enumerate(column):
            if texts and not isinstance(value, str) and value is not None and value == value:
                raise DihedralError(
                    f"column {name!r} has {value!r:.80} in row {row} (from 0); its names must be strings"
                )


def _graph(found: NumberedTriples, numbering: Numbering, name: str, valid: float, test: float, seed: int) -> Graph:
    """The graph of one file or table: split by its split column, or at random."""
    triples, splits = found
    del found
    entities, relations = numbering.vocabularies()
    if splits is not None:
        parts = [triples[splits == i] for i in range(len(SPLITS))]
        return build_graph(entities, relations, parts, name, numbering.notes)
    notes = [f"split with seed {seed}", *numbering.notes]
    read = len(triples)
    triples = drop_duplicates(triples, len(entities), len(relations))  # frees the original array
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
    return build_graph(*numbering.vocabularies(), splits, name, notes + numbering.notes)


def write_folder(graph: Graph, folder: Path) -> None:
    """Write train.txt, valid.txt and test.txt, with one tab-separated triple per line."""
    make_folder(folder)
    for split in SPLITS:
        with atomic_path(folder / f"{split}.txt") as file, file.open("w", encoding="utf-8") as out:
            out.writelines("\t".join(triple) + "\n" for triple in graph.names_of(graph.split(split)))
