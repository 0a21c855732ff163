"""Read graphs from TSV, CSV, Parquet and RDF files, from folders and archives of them, and from Arrow tables.

To add a data format, write a reader and register it in `READERS`.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
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
from dihedral.graph.sources import ARCHIVES, RDF_SUFFIXES, TEXT_SUFFIXES, Source, find_split, stem
from dihedral.graph.split import split_triples
from dihedral.graph.triples import SPLITS, Graph, Triples, build_graph, drop_duplicates
from dihedral.io.files import atomic_path, make_folder

ROLES = (  # common names of the three columns
    ("head", "h", "subject", "source", "s"),
    ("relation", "r", "predicate", "p"),
    ("tail", "t", "object", "target", "o"),
)
PIECE_BYTES = 1 << 20  # text per piece; Arrow reads 32 pieces ahead
BLOCK_PIECES = 16  # pieces per block; ids depend on it: the heads of a block are numbered before its tails
PARQUET_ROWS = 1 << 18
NO_TRIPLES = np.empty((0, 3), np.int32)


def read_graph(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    valid: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    name: str | None = None,
) -> Graph:
    """Read a folder or archive with train/valid/test files, or a single file, which is then split.

    columns: names of the head, relation and tail columns; a text file must then start with a header.
    valid, test, seed: how to split a single file.
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
    """The table in a file that has a column `split`; None for any other file."""
    try:
        if source.suffix == ".parquet":
            return papq.read_table(source.native()) if "split" in papq.read_schema(source.native()).names else None
        delimiter = TEXT_SUFFIXES.get(source.suffix)
        if delimiter is None:
            return None
        with source.plain() as stream:
            cells = split_line(stream.readline().decode("utf-8-sig", "replace"), delimiter)
        if "split" not in cells or common_columns(cells) is None:
            return None
        return pacsv.read_csv(
            source.native(),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, quote_char='"' if delimiter == "," else False),
            convert_options=pacsv.ConvertOptions(column_types=dict.fromkeys(cells, pa.string())),
        )
    except (pa.ArrowException, OSError):
        return None  # the reader explains what is wrong


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
    """Read one table for each of train, valid and test."""
    for split in tables:
        if split not in SPLITS:
            raise DihedralError(f"split {split!r} does not exist; name the tables train, valid and test")
    numbering = Numbering()
    parts = [
        numbering.number(_pick(_as_table(tables[split]), columns, split), split) if split in tables else NO_TRIPLES
        for split in SPLITS
    ]
    return build_graph(*numbering.vocabularies(), parts, name)


def _as_table(source: Any) -> pa.Table:
    try:
        return pa.table(source)
    except (TypeError, ValueError, pa.ArrowException):
        raise DihedralError(
            f"a graph cannot be read from a {type(source).__name__}; give the name of a benchmark, a path, a table "
            "with three columns (Arrow, pandas, polars), a networkx graph or PyKEEN triples"
        ) from None


def _split_column(table: pa.Table) -> NDArray[np.int32] | None:
    """The column `split` as indices into SPLITS, if there is one."""
    if table.schema.names.count("split") != 1 or table.column("split").null_count == len(table):
        return None
    if missing := table.column("split").null_count:
        raise DihedralError(f"column split has {missing} missing values; give the split of every triple or of none")
    found = Names()
    splits = encode(table.column("split"), found, "column split")
    names = found.array().to_pylist()
    places = {name: i for i, name in enumerate(SPLITS)} | dict.fromkeys(("dev", "val", "validation"), 1)
    for name in names:
        if name.lower() not in places:
            raise DihedralError(f"column split has the value {name!r}; expected train, valid or test")
    return np.array([places[name.lower()] for name in names] or [0], np.int32)[splits]


def _split_one(triples: Triples, numbering: Numbering, name: str, valid: float, test: float, seed: int) -> Graph:
    entities, relations = numbering.vocabularies()
    notes = [f"split with seed {seed}", *numbering.notes]
    read = len(triples)
    triples = drop_duplicates(triples, len(entities), len(relations))  # frees the original array
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
            splits.append(NO_TRIPLES)
    return build_graph(*numbering.vocabularies(), splits, name, notes + numbering.notes)


def _read_source(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Triples:
    """Number the triples of one file."""
    if source.suffix not in READERS:
        expected = ", ".join((*READERS, *ARCHIVES))
        raise DihedralError(f"{source.where} has the suffix {source.suffix!r}; expected one of {expected}")
    if columns is not None and len(columns) != 3:
        raise DihedralError(f"columns are {list(columns)!r}; name three: head, relation, tail")
    triples = READERS[source.suffix](source, columns, numbering)
    if len(triples) == 0:
        raise DihedralError(f"{source.where} is empty; expected one triple per line")
    return triples


def _read_parquet(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Triples:
    """Number the triples of a Parquet file, one column and some rows at a time."""
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


def _read_text(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Triples:
    """Number the triples of a text file."""
    triples, used = NO_TRIPLES, 0
    for part, share in _text_blocks(source, columns, numbering):
        if not used:  # allocate for the complete file, from the size of its first block
            triples = np.empty((int(1.02 * len(part) / share) + 1, 3), np.int32)
        triples = grown(triples, used, used + len(part))
        triples[used : used + len(part)] = part
        used += len(part)
    return triples[:used]


def _text_blocks(
    source: Source, columns: Sequence[str] | None, numbering: Numbering
) -> Iterator[tuple[Triples, float]]:
    """The triples of each block of a text file, and the block's approximate share of the file."""
    where, delimiter = source.where, TEXT_SUFFIXES[source.suffix]
    with source.plain() as stream:
        first = stream.readline().decode("utf-8-sig", "replace")
    if not first.strip():
        raise DihedralError(f"{where} is empty or starts with an empty line; expected one triple per line")
    cells = split_line(first, delimiter)
    header = columns is not None or common_columns(cells) is not None
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


Reader = Callable[[Source, Sequence[str] | None, Numbering], Triples]
READERS: dict[str, Reader] = {  # a new data format: add its suffix to `sources.SUFFIXES` and its reader here
    **dict.fromkeys(TEXT_SUFFIXES, _read_text),
    ".parquet": _read_parquet,
    **dict.fromkeys(RDF_SUFFIXES, read_rdf),
}


def split_line(line: str, delimiter: str) -> list[str]:
    if '"' in line and delimiter == ",":
        with suppress(csv.Error):  # a field longer than the csv module accepts
            return next(csv.reader([line]))
    return line.rstrip("\r\n").split(delimiter)


def _pick(table: Any, columns: Sequence[str] | None, where: str) -> Any:
    """The head, relation and tail columns: by the given names, by common names, or the only three."""
    names = [name.strip() for name in table.schema.names]
    if columns is not None:
        if len(set(columns)) != 3:
            raise DihedralError(f"columns are {list(columns)!r}; name three different ones: head, relation, tail")
        for name in columns:
            if name not in names:
                raise DihedralError(f"{where} has no column {name!r}; its columns are {', '.join(names)}")
            if names.count(name) > 1:
                raise DihedralError(f"{where} has {names.count(name)} columns named {name!r}; names must be unique")
        return table.select([names.index(name) for name in columns])
    common = common_columns(names)
    if common is not None:
        return table.select(common)
    if len(names) != 3:
        raise DihedralError(f"{where} has {len(names)} columns; expected 3, or name them with `columns`")
    return table


def common_columns(names: Sequence[str]) -> list[int] | None:
    """The indices of the head, relation and tail columns, if each has a common name."""
    lower = [name.strip().lower() for name in names]
    places = [[lower.index(name) for name in role if name in lower] for role in ROLES]
    return [place[0] for place in places] if all(places) else None


def _explain_bad_line(source: Source, delimiter: str, expected: int) -> None:
    """Raise an error that names the line that the reader stopped at."""
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
    """Write train.txt, valid.txt and test.txt, with one tab-separated triple per line."""
    make_folder(folder)
    for split in SPLITS:
        with atomic_path(folder / f"{split}.txt") as file, file.open("w", encoding="utf-8") as out:
            out.writelines("\t".join(triple) + "\n" for triple in graph.labels(graph.split(split)))
