"""Readers: TSV, CSV, Parquet and RDF files, folders and archives with train/valid/test, Arrow tables."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as papq
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.numbering import Names, Numbering, encode, grown
from dihedral.graph.rdf import read_rdf
from dihedral.graph.sources import ARCHIVES, RDF_SUFFIXES, SUFFIXES, TEXT_SUFFIXES, Source, find_split, stem
from dihedral.graph.split import split_triples
from dihedral.graph.triples import SPLITS, Graph, Triples, build_graph, drop_duplicates
from dihedral.io.files import atomic_path, make_folder

ROLES = (  # usual names of the three columns
    ("head", "h", "subject", "source", "s"),
    ("relation", "r", "predicate", "p"),
    ("tail", "t", "object", "target", "o"),
)
PIECE_BYTES = 1 << 20  # of text; Arrow reads 32 ahead
BLOCK_PIECES = 16  # numbered at a time; ids depend on it: the heads of a block come before its tails
PARQUET_ROWS = 1 << 18


def read_graph(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    valid: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    name: str | None = None,
) -> Graph:
    """Read a folder or archive with train/valid/test files, or one file that is then split.

    columns: names of the head, relation and tail columns; a text file then starts with a header.
    valid, test, seed: how a single file is split.
    """
    path = Path(path)
    name = name or stem(path)
    numbering = Numbering()
    if path.is_dir() or (path.is_file() and path.name.lower().endswith(ARCHIVES)):
        return _read_splits(path, columns, numbering, name)
    if not path.exists():
        raise DihedralError(f"file {str(path)!r} does not exist; give a folder, a file or a benchmark's name")
    source = Source(str(path), path)
    table = _table_with_splits(source)
    if table is not None:
        return read_arrow(table, columns=columns, name=name)
    return _split_one(_read_source(source, columns, numbering), numbering, name, valid, test, seed)


def _table_with_splits(source: Source) -> pa.Table | None:
    """A file that names the split of each triple in a column of its header, whole; any other is nothing here."""
    try:
        if source.suffix == ".parquet":
            return papq.read_table(source.native()) if "split" in papq.read_schema(source.native()).names else None
        delimiter = TEXT_SUFFIXES.get(source.suffix)
        if delimiter is None:
            return None
        with source.plain() as stream:
            cells = split_line(stream.readline().decode("utf-8-sig", "replace"), delimiter)
        if "split" not in cells or usual_columns(cells) is None:
            return None
        return pacsv.read_csv(
            source.native(),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, quote_char='"' if delimiter == "," else False),
            convert_options=pacsv.ConvertOptions(column_types=dict.fromkeys(cells, pa.string())),
        )
    except (pa.ArrowException, OSError):
        return None  # the reader of triples says what is wrong


def read_arrow(
    table: Any,
    *,
    columns: Sequence[str] | None = None,
    valid: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    name: str = "table",
) -> Graph:
    """A graph from anything with the Arrow interface (Arrow, pandas, polars), split like one file.

    A column `split` of train, valid and test, as `Graph.to_arrow` gives, is kept to.
    """
    table = _as_table(table)
    numbering = Numbering()
    triples = numbering.number(_pick(table, columns, "table"), "table")
    splits = _split_column(table)
    if splits is not None:
        return build_graph(*numbering.vocabularies(), [triples[splits == i] for i in range(3)], name)
    del table
    return _split_one(triples, numbering, name, valid, test, seed)


def read_arrow_splits(
    tables: Mapping[str, Any], *, columns: Sequence[str] | None = None, name: str = "tables"
) -> Graph:
    """A graph from one table for each of train, valid and test."""
    for split in tables:
        if split not in SPLITS:
            raise DihedralError(f"split {split!r} does not exist; name the tables train, valid and test")
    numbering = Numbering()
    parts = [
        numbering.number(_pick(_as_table(tables[split]), columns, split), split)
        if split in tables
        else np.empty((0, 3), np.int32)
        for split in SPLITS
    ]
    return build_graph(*numbering.vocabularies(), parts, name)


def _as_table(source: Any) -> pa.Table:
    try:
        return pa.table(source)
    except (TypeError, ValueError, pa.ArrowException):
        raise DihedralError(
            f"a graph cannot be read from a {type(source).__name__}; give a benchmark's name, a path, a table of "
            "three columns (Arrow, pandas, polars), a networkx graph or PyKEEN triples"
        ) from None


def _split_column(table: pa.Table) -> NDArray[np.int32] | None:
    """The column `split` as places in SPLITS, if there is one."""
    if table.schema.names.count("split") != 1 or table.column("split").null_count == len(table):
        return None
    if missing := table.column("split").null_count:
        raise DihedralError(f"column split has {missing} missing values; name the split of each triple, or of none")
    found = Names()
    splits = encode(table.column("split"), found, "column split")
    names = found.array().to_pylist()
    places = {name: i for i, name in enumerate(SPLITS)} | dict.fromkeys(("dev", "val", "validation"), 1)
    for name in names:
        if name.lower() not in places:
            raise DihedralError(f"column split says {name!r}; it names train, valid or test")
    return np.array([places[name.lower()] for name in names] or [0], np.int32)[splits]


def _split_one(triples: Triples, numbering: Numbering, name: str, valid: float, test: float, seed: int) -> Graph:
    entities, relations = numbering.vocabularies()
    notes = [f"split with seed {seed}", *numbering.notes]
    read = len(triples)
    triples = drop_duplicates(triples, len(entities), len(relations))  # the others are let go
    if len(triples) < read:
        notes.append(f"{read - len(triples)} duplicate triples left out")
    if not len(triples):
        raise DihedralError(f"graph {name!r} has no training triples; it needs at least one")
    parts = split_triples(triples, valid=valid, test=test, seed=seed, in_place=True)
    return Graph(entities, relations, *parts, name=name, notes=tuple(notes))


def _read_splits(path: Path, columns: Sequence[str] | None, numbering: Numbering, name: str) -> Graph:
    splits, notes = [], []
    for split in SPLITS:
        source = find_split(path, split)
        if source is not None and (split == "train" or source.size):
            splits.append(_read_source(source, columns, numbering))
        elif split == "train":
            raise DihedralError(
                f"{path} holds no train file; expected train.txt, train.tsv, train.csv, train.parquet or train.nt"
            )
        else:
            notes.append(f"no {split} file" if source is None else f"the {split} file is empty")
            splits.append(np.empty((0, 3), np.int32))
    return build_graph(*numbering.vocabularies(), splits, name, notes + numbering.notes)


def _read_source(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Triples:
    where, suffix = source.where, source.suffix
    if suffix not in SUFFIXES:
        raise DihedralError(f"{where} has the ending {suffix!r}; expected one of {', '.join(SUFFIXES + ARCHIVES)}")
    if columns is not None and len(columns) != 3:
        raise DihedralError(f"columns are {list(columns)!r}; name three: head, relation, tail")
    if suffix in RDF_SUFFIXES:
        if columns is not None:
            raise DihedralError(f"{where} is RDF, whose triples need no columns named; leave `columns` out")
        return read_rdf(source, numbering)
    if suffix == ".parquet":
        triples = _read_parquet(source, columns, numbering)
    else:
        triples, used = np.empty((0, 3), np.int32), 0
        for part, share in _read_text(source, columns, numbering):
            if not used:  # room for all at once, if the file goes on as it begins
                triples = np.empty((int(1.02 * len(part) / share) + 1, 3), np.int32)
            triples = grown(triples, used, used + len(part))
            triples[used : used + len(part)] = part
            used += len(part)
        triples = triples[:used]
    if len(triples) == 0:
        raise DihedralError(f"{where} is empty; expected one triple a line")
    return triples


def _read_parquet(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Triples:
    """Number a Parquet file column by column, some rows at a time."""
    try:
        with papq.ParquetFile(source.native()) as file:
            names = _pick(file.schema_arrow.empty_table(), columns, source.where).column_names
            triples = np.empty((file.metadata.num_rows, 3), np.int32)
            for place, name in enumerate(names):
                done = 0
                for batch in file.iter_batches(PARQUET_ROWS, columns=[name]):
                    part = triples[done : done + len(batch)]
                    numbering.number_column(part, place, batch.column(0), source.where)
                    done += len(batch)
        return triples
    except (pa.ArrowException, OSError) as error:
        raise DihedralError(f"{source.where} cannot be read: {str(error).splitlines()[0]}") from None


def _read_text(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Iterator[tuple[Triples, float]]:
    """Number a text file block by block: the triples, and the share of the file that they are, roughly."""
    where, delimiter = source.where, TEXT_SUFFIXES[source.suffix]
    with source.plain() as stream:
        first = stream.readline().decode("utf-8-sig", "replace")
    if not first.strip():
        raise DihedralError(f"{where} is empty or starts with an empty line; expected one triple a line")
    cells = split_line(first, delimiter)
    header = columns is not None or usual_columns(cells) is not None
    names = cells if header else ["head", "relation", "tail"]
    try:
        reader = pacsv.open_csv(
            source.native(),
            read_options=pacsv.ReadOptions(block_size=PIECE_BYTES, column_names=names, skip_rows=1 if header else 0),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, quote_char='"' if delimiter == "," else False),
            convert_options=pacsv.ConvertOptions(column_types={name: pa.string() for name in names}),
        )
        share = min(1.0, BLOCK_PIECES * PIECE_BYTES / source.size)
        while pieces := list(itertools.islice(reader, BLOCK_PIECES)):
            yield numbering.number(_pick(pa.Table.from_batches(pieces), columns, where), where), share
    except pa.ArrowInvalid as error:
        _explain_bad_line(source, delimiter, len(names))
        raise DihedralError(f"{where} cannot be read: {str(error).splitlines()[0]}") from None


def split_line(line: str, delimiter: str) -> list[str]:
    if '"' not in line or delimiter != ",":
        return line.rstrip("\r\n").split(delimiter)
    try:
        return next(csv.reader([line]))
    except csv.Error:  # a field longer than that module takes
        return line.rstrip("\r\n").split(delimiter)


def _pick(table: Any, columns: Sequence[str] | None, where: str) -> Any:
    """The three columns of the triples, by the names given or a usual set of them, else the first three."""
    names = [name.strip() for name in table.schema.names]
    if columns is not None:
        if len(set(columns)) != 3:
            raise DihedralError(f"columns are {list(columns)!r}; name three different ones: head, relation, tail")
        for name in columns:
            if name not in names:
                raise DihedralError(f"{where} has no column {name!r}; its columns are {', '.join(names)}")
            if names.count(name) > 1:
                raise DihedralError(f"{where} has {names.count(name)} columns named {name!r}; a name must be unique")
        return table.select([names.index(name) for name in columns])
    usual = usual_columns(names)
    if usual is not None:
        return table.select(usual)
    if len(names) != 3:
        raise DihedralError(f"{where} has {len(names)} columns; expected 3, or name them with `columns`")
    return table


def usual_columns(names: Sequence[str]) -> list[int] | None:
    """Where head, relation and tail stand among column names, if each has one of its usual names."""
    lower = [name.strip().lower() for name in names]
    places = [[lower.index(name) for name in role if name in lower] for role in ROLES]
    return [place[0] for place in places] if all(places) else None


def _explain_bad_line(source: Source, delimiter: str, expected: int) -> None:
    """Find the line that stopped the reader, for an error that names it."""
    with source.plain() as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                raw.decode("utf-8")
            except UnicodeDecodeError:
                raise DihedralError(f"{source.where}, line {number}: not UTF-8 text; save the file as UTF-8") from None
    with source.plain() as stream, io.TextIOWrapper(stream, "utf-8-sig", newline="") as text:
        for number, line in enumerate(text, start=1):
            cells = split_line(line, delimiter)
            if len(cells) != expected and line.strip():
                kind = "tab" if delimiter == "\t" else "comma"
                raise DihedralError(
                    f"{source.where}, line {number}: {len(cells)} columns; expected {expected} separated by {kind}s "
                    f"(head, relation, tail): {line.strip()[:80]!r}"
                )


def write_folder(graph: Graph, folder: Path) -> None:
    """Write train.txt, valid.txt and test.txt, one tab-separated triple a line."""
    make_folder(folder)
    for split in SPLITS:
        with atomic_path(folder / f"{split}.txt") as file, file.open("w", encoding="utf-8") as out:
            out.writelines("\t".join(triple) + "\n" for triple in graph.labels(graph.split(split)))
