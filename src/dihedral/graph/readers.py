"""Read graphs from text, JSON lines, Parquet and RDF files, from folders and archives of them, and from Arrow tables.

To add a data format, write a reader and register it in `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.graph.columns import MAX_VALUES, Layout, LeftOver, Splits, choose_columns, split_codes
from dihedral.graph.decoding import Decoding, decoding_parquet
from dihedral.graph.json_lines import read_json_lines
from dihedral.graph.labels import LANGUAGES
from dihedral.graph.numbering import Numbering, grown
from dihedral.graph.rdf import read_rdf
from dihedral.graph.rows import NO_TRIPLES, RowCollector, Rows
from dihedral.graph.sources import ARCHIVES, JSON_SUFFIXES, RDF_SUFFIXES, TEXT_SUFFIXES, Source, find_split, stem
from dihedral.graph.split import split_triples
from dihedral.graph.text import read_text
from dihedral.graph.triples import SPLIT_NAMES, SPLITS, Graph, Triples, build_graph, drop_duplicates
from dihedral.io.files import atomic_path, make_folder


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
    return _graph(_read_source(Source(str(path), path), columns, numbering), numbering, name, valid, test, seed)


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
    return _graph(_read_table(_as_table(table), columns, numbering, "table"), numbering, name, valid, test, seed)


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
        _one_split(_read_table(_as_table(given[split]), columns, numbering, split), split, f"table {split!r}")
        if split in given
        else NO_TRIPLES
        for split in SPLITS
    ]
    return build_graph(*numbering.vocabularies(), parts, name, numbering.notes)


def _read_table(table: pa.Table, columns: Sequence[str] | None, numbering: Numbering, where: str) -> Rows:
    layout = choose_columns(table.schema.names, columns, where)
    if layout.split is not None and table.column(layout.split).null_count == len(table):
        layout = replace(layout, split=None)
    collector = RowCollector(layout, numbering, where)
    collector.add(table)
    return collector.finish(where)


def _one_split(rows: Rows, split: str, where: str) -> Triples:
    """The triples of a file or table that is one split; a split column must agree."""
    if rows.splits is not None and (other := rows.splits[rows.splits != SPLITS.index(split)]).size:
        raise DihedralError(
            f"{where} is the {split} split, but its column split says {SPLITS[other[0]]} in {other.size} rows; "
            "remove the column, or give all triples as one file or table"
        )
    return rows.triples


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


def _graph(rows: Rows, numbering: Numbering, name: str, valid: float, test: float, seed: int) -> Graph:
    """The graph of one file or table: split by its split column, or at random."""
    triples, splits = rows
    del rows
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
            splits.append(_one_split(_read_source(source, columns, numbering), split, source.where))
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


def _read_source(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Rows:
    """Number the triples of one file."""
    if source.suffix not in READERS:
        expected = ", ".join((*READERS, *ARCHIVES))
        raise DihedralError(f"{source.where} has the suffix {source.suffix!r}; expected one of {expected}")
    if columns is not None and len(columns) != 3:
        raise DihedralError(f"columns are {list(columns)!r}; name three: head, relation, tail")
    rows = READERS[source.suffix](source, columns, numbering)
    if len(rows.triples) == 0:
        raise DihedralError(f"{source.where} is empty; expected one triple per line")
    return rows


def _read_parquet(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Rows:
    """Number the triples of a Parquet file, one column and some rows at a time."""
    if source.compression:
        raise DihedralError(f"{source.where} is a compressed Parquet file; unpack it: Parquet compresses its columns")
    with decoding_parquet(source) as work:
        about = work.line()
        layout = choose_columns(about["columns"], columns, source.where)
        left_over = LeftOver(layout)
        used = [*layout.triple, *([] if layout.split is None else [layout.split])]
        work.ask({"used": used, "watched": list(left_over.values), "max_values": 8 * MAX_VALUES})
        triples = NO_TRIPLES
        for part, place in enumerate(layout.triple):
            done = 0
            for column in work.column():
                triples = grown(triples, done if part == 0 else len(triples), done + len(column))
                numbering.number_column(triples[done : done + len(column)], part, column, source.where, done)
                done += len(column)
            if done != about["rows"]:
                raise work.failure(f"it claims {about['rows']} rows, but its column {layout.names[place]!r} has {done}")
        splits, layout = _parquet_splits(work, layout, source.where)
        for place in list(left_over.values):
            for column in work.column():
                left_over.add(place, column)
        work.finish()
    if not layout.is_plain:
        numbering.note(source.name, str(layout))
    for remark in left_over.remarks(source.where):
        numbering.note(source.name, remark)
    return Rows(triples[: about["rows"]], splits)


def _parquet_splits(work: Decoding, layout: Layout, where: str) -> tuple[Splits | None, Layout]:
    """The splits of the rows; a split column without values counts as none."""
    if layout.split is None:
        return None, layout
    chunks = list(work.column())
    if all(chunk.null_count == len(chunk) for chunk in chunks):
        return None, replace(layout, split=None)
    return np.concatenate([split_codes(chunk, where) for chunk in chunks]), layout


def _read_rdf(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Rows:
    return Rows(read_rdf(source, columns, numbering))


Reader = Callable[[Source, Sequence[str] | None, Numbering], Rows]
READERS: dict[str, Reader] = {  # a new data format: add its suffix to `sources.SUFFIXES` and its reader here
    **dict.fromkeys(TEXT_SUFFIXES, read_text),
    ".parquet": _read_parquet,
    **dict.fromkeys(RDF_SUFFIXES, _read_rdf),
    **dict.fromkeys(JSON_SUFFIXES, read_json_lines),
}


def write_folder(graph: Graph, folder: Path) -> None:
    """Write train.txt, valid.txt and test.txt, with one tab-separated triple per line."""
    make_folder(folder)
    for split in SPLITS:
        with atomic_path(folder / f"{split}.txt") as file, file.open("w", encoding="utf-8") as out:
            out.writelines("\t".join(triple) + "\n" for triple in graph.names_of(graph.split(split)))
