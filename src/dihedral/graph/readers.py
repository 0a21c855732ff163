"""Readers: TSV, CSV and Parquet files, folders and archives with train/valid/test, Arrow tables."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as papq
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.files import atomic_path, make_folder
from dihedral.graph.split import split_triples
from dihedral.graph.triples import SPLITS, Graph, Triples, Vocabulary, build_graph, drop_duplicates

TEXT_SUFFIXES = {".tsv": "\t", ".txt": "\t", ".csv": ","}
SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
ARCHIVES = (".tar.gz", ".tgz", ".tar.xz", ".tar", ".zip")
HEADERS = (
    ("head", "relation", "tail"),
    ("h", "r", "t"),
    ("subject", "predicate", "object"),
    ("source", "relation", "target"),
)
BLOCK_BYTES = 16 << 20  # text is read and numbered block by block


class _Numbering:
    """Names to numbers in order of first appearance, a block at a time."""

    def __init__(self) -> None:
        self.entities: dict[str, int] = {}
        self.relations: dict[str, int] = {}

    def number(self, table: pa.RecordBatch | pa.Table, where: str) -> Triples:
        """Three string columns to [n, 3] ids."""
        columns = [
            _encode(table.column(0), self.entities, where),
            _encode(table.column(1), self.relations, where),
            _encode(table.column(2), self.entities, where),
        ]
        return np.stack(columns, axis=1)

    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        return Vocabulary(list(self.entities)), Vocabulary(list(self.relations), "relation")


def _encode(column: pa.Array | pa.ChunkedArray, numbers: dict[str, int], where: str) -> NDArray[np.int32]:
    if isinstance(column, pa.ChunkedArray):
        parts = [_encode(chunk, numbers, where) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)
    if column.null_count:
        raise DihedralError(f"{where} has {column.null_count} missing values; every triple needs three names")
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    local = column.dictionary.cast(pa.string()).to_pylist()
    ids = np.fromiter((numbers.setdefault(name, len(numbers)) for name in local), np.int32, len(local))
    return ids[column.indices.to_numpy()]


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
    label = name or _stem(path)
    if path.is_dir():
        files = {split: _in_folder(path, split) for split in SPLITS}
        return _read_splits(files, str(path), columns, label)
    if not path.exists():
        raise DihedralError(f"file {str(path)!r} does not exist; give a folder, a file or a benchmark's name")
    if path.name.endswith(ARCHIVES):
        return read_archive(path, columns=columns, name=label)
    numbering = _Numbering()
    with path.open("rb") as stream:
        triples = _read_stream(stream, path.name, str(path), columns, numbering)
    return _split_one(triples, numbering, label, valid, test, seed)


def read_arrow(
    table: Any,
    *,
    columns: Sequence[str] | None = None,
    valid: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    name: str = "table",
) -> Graph:
    """A graph from anything with the Arrow interface (Arrow, pandas, polars), split like one file."""
    table = pa.table(table)
    numbering = _Numbering()
    triples = numbering.number(_pick(table, columns, "table"), "table")
    return _split_one(triples, numbering, name, valid, test, seed)


def read_archive(path: Path, *, columns: Sequence[str] | None = None, name: str | None = None) -> Graph:
    """Read train/valid/test from inside an archive; nothing is unpacked to disk."""
    with _open_archive(path) as members:
        files = {split: _in_archive(members, split) for split in SPLITS}
        return _read_splits(files, str(path), columns, name or _stem(path))


def _split_one(triples: Triples, numbering: _Numbering, name: str, valid: float, test: float, seed: int) -> Graph:
    entities, relations = numbering.vocabularies()
    kept = drop_duplicates(triples, len(entities), len(relations))
    notes = [f"split with seed {seed}"]
    if len(kept) < len(triples):
        notes.append(f"{len(triples) - len(kept)} duplicate triples left out")
    parts = split_triples(kept, valid=valid, test=test, seed=seed)
    return build_graph(entities, relations, parts, name, notes)


def _read_splits(
    files: dict[Any, tuple[str, Any] | None], where: str, columns: Sequence[str] | None, name: str
) -> Graph:
    if files["train"] is None:
        raise DihedralError(f"{where} holds no train file; expected train.txt, train.tsv, train.csv or train.parquet")
    numbering = _Numbering()
    splits, missing = [], []
    for split, found in files.items():
        if found is None:
            missing.append(split)
            splits.append(np.empty((0, 3), np.int32))
            continue
        file_name, opener = found
        with opener() as stream:
            splits.append(_read_stream(stream, file_name, f"{where}/{file_name}", columns, numbering))
    notes = [f"no {split} file" for split in missing]
    return build_graph(*numbering.vocabularies(), splits, name, notes)


def _read_stream(
    stream: IO[bytes], file_name: str, where: str, columns: Sequence[str] | None, numbering: _Numbering
) -> Triples:
    suffix = PurePosixPath(file_name).suffix.lower()
    if suffix not in SUFFIXES:
        raise DihedralError(f"{where} has the ending {suffix!r}; expected one of {', '.join(SUFFIXES + ARCHIVES)}")
    if columns is not None and len(columns) != 3:
        raise DihedralError(f"columns are {list(columns)!r}; name three: head, relation, tail")
    try:
        if suffix == ".parquet":
            table = papq.read_table(stream)
            parts = [numbering.number(_pick(table, columns, where), where)]
        else:
            parts = list(_read_text(stream, TEXT_SUFFIXES[suffix], where, columns, numbering))
    except pa.ArrowInvalid as error:
        if suffix != ".parquet":
            _explain_bad_line(stream, TEXT_SUFFIXES[suffix], where)
        raise DihedralError(f"{where} cannot be read: {str(error).splitlines()[0]}") from None
    triples = np.concatenate(parts) if parts else np.empty((0, 3), np.int32)
    if len(triples) == 0:
        raise DihedralError(f"{where} is empty; expected one triple a line")
    return triples


def _read_text(
    stream: IO[bytes], delimiter: str, where: str, columns: Sequence[str] | None, numbering: _Numbering
) -> Iterator[Triples]:
    first = stream.readline()
    stream.seek(0)
    if not first.strip():
        raise DihedralError(f"{where} is empty or starts with an empty line; expected one triple a line")
    cells = [cell.strip().strip('"') for cell in first.decode("utf-8-sig", "replace").split(delimiter)]
    header = columns is not None or tuple(cell.lower() for cell in cells) in HEADERS
    read_options = pacsv.ReadOptions(block_size=BLOCK_BYTES)
    if not header:
        read_options.column_names = ["head", "relation", "tail"]
    raw = first.decode("utf-8-sig", "replace").rstrip("\r\n").split(delimiter)
    names = {*cells, *raw, *(cell.strip('"') for cell in raw)} if header else ["head", "relation", "tail"]
    reader = pacsv.open_csv(
        stream,
        read_options=read_options,
        parse_options=pacsv.ParseOptions(delimiter=delimiter, quote_char='"' if delimiter == "," else False),
        convert_options=pacsv.ConvertOptions(column_types={name: pa.string() for name in names}),
    )
    for batch in reader:
        yield numbering.number(_pick(batch, columns, where), where)


def _pick(table: Any, columns: Sequence[str] | None, where: str) -> Any:
    """The three columns of the triples, by the names given or a usual set of them, else the first three."""
    names = table.schema.names
    if columns is not None:
        stripped = {name.strip(): name for name in names}
        missing = [name for name in columns if name not in stripped]
        if missing:
            raise DihedralError(f"{where} has no column {missing[0]!r}; its columns are {', '.join(stripped)}")
        return table.select([stripped[name] for name in columns])
    lower = {name.strip().lower(): name for name in names}
    for header in HEADERS:
        if all(name in lower for name in header):
            return table.select([lower[name] for name in header])
    if len(names) != 3:
        raise DihedralError(f"{where} has {len(names)} columns; expected 3, or name them with `columns`")
    return table


def _explain_bad_line(stream: IO[bytes], delimiter: str, where: str) -> None:
    """Find the line that stopped the reader, for an error that names it."""
    stream.seek(0)
    expected: int | None = None
    for number, raw in enumerate(stream, start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise DihedralError(f"{where}, line {number}: not UTF-8 text; save the file as UTF-8") from None
        if not line.strip():
            continue
        cells = line.rstrip("\r\n").split(delimiter)
        expected = expected or max(3, len(cells))
        if len(cells) != expected:
            kind = "tab" if delimiter == "\t" else "comma"
            raise DihedralError(
                f"{where}, line {number}: {len(cells)} columns; expected {expected} separated by {kind}s "
                f"(head, relation, tail): {line.strip()[:80]!r}"
            )


# --- where the files are ------------------------------------------------------------------------


@contextmanager
def open_split(path: Path, split: str) -> Iterator[IO[bytes]]:
    """The raw bytes of one split inside a folder or archive."""
    with ExitStack() as stack:
        if path.is_dir():
            found = _in_folder(path, split)
        else:
            found = _in_archive(stack.enter_context(_open_archive(path)), split)
        if found is None:
            raise DihedralError(f"{str(path)!r} holds no {split} file")
        yield stack.enter_context(found[1]())


def _in_folder(folder: Path, split: str) -> tuple[str, Any] | None:
    for suffix in SUFFIXES:
        path = folder / f"{split}{suffix}"
        if path.is_file():
            return path.name, partial(path.open, "rb")
    return None


def _in_archive(members: dict[str, Any], split: str) -> tuple[str, Any] | None:
    for name in sorted(members, key=lambda member: (member.count("/"), member)):
        path = PurePosixPath(name)
        if path.stem == split and path.suffix in SUFFIXES:
            return path.name, members[name]
    return None


@contextmanager
def _open_archive(path: Path) -> Iterator[dict[str, Any]]:
    """Names of the regular files in an archive, with a function that opens each.

    Members are read as streams and never written to disk, so no name can point outside a folder.
    """
    with ExitStack() as stack:
        try:
            if path.suffix == ".zip":
                archive = stack.enter_context(zipfile.ZipFile(path))
                names = [info.filename for info in archive.infolist() if not info.is_dir()]
                opener: Any = archive.open
            else:
                tar = stack.enter_context(tarfile.open(path))
                names = [member.name for member in tar.getmembers() if member.isfile()]
                opener = tar.extractfile
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
            raise DihedralError(f"archive {str(path)!r} cannot be read: {error}") from None
        yield {name: partial(opener, name) for name in names}


def _stem(path: Path) -> str:
    name = path.name
    for suffix in (*ARCHIVES, *SUFFIXES):
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def write_folder(graph: Graph, folder: Path) -> None:
    """Write train.txt, valid.txt and test.txt, one tab-separated triple a line."""
    make_folder(folder)
    for split in SPLITS:
        with atomic_path(folder / f"{split}.txt") as file, file.open("w", encoding="utf-8") as out:
            out.writelines("\t".join(triple) + "\n" for triple in graph.labels(graph.split(split)))
