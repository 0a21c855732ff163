"""Number names while a graph is read, block by block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.labels import LANGUAGES, choose_labels, count_labels, narrow
from dihedral.graph.triples import Triples
from dihedral.graph.vocabulary import Vocabulary
from dihedral.io.table_files import BLANKS

MAX_NAMES = 2**31 - 1  # ids are 32-bit numbers
MAX_WAITING = 1 << 20  # names that wait for their ids, besides as many as have one


class NameTable:
    """Distinct names in order of first appearance. Arrow finds those that are equal, of many blocks at once."""

    def __init__(self) -> None:
        self._names = pa.array([], pa.large_string())
        self._waiting: list[pa.Array] = []
        self._numbers: list[NDArray[np.int32]] = []  # those of the waiting names, to be replaced by ids
        self._count = 0  # names with an id, and those that wait

    def number(self, names: pa.Array, numbers: NDArray[np.int32]) -> None:
        """Replace numbers of names, an array of any shape, by ids: in place, at the latest when `settle` is called."""
        if self._count + len(names) > MAX_NAMES:
            raise DihedralError(f"the graph has more than {MAX_NAMES} names; ids are 32-bit numbers")
        numbers += self._count
        self._numbers.append(numbers)
        self._waiting.append(names.cast(pa.large_string()))
        self._count += len(names)
        if self._count > 2 * len(self._names) + MAX_WAITING:
            self.settle()

    def settle(self) -> pa.Array:
        """All names by id; from now on, the numbers given so far are ids."""
        if self._count > len(self._names):
            encoded = pa.chunked_array([self._names, *self._waiting]).dictionary_encode()
            ids = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
            for numbers in self._numbers:
                numbers[...] = ids[numbers]
            self._names = encoded.chunk(0).dictionary
            self._waiting, self._numbers, self._count = [], [], len(self._names)
        return self._names

    def __len__(self) -> int:
        return len(self.settle())


class Numbering:
    """The entities and relations read so far, with prefixes, notes, and labels, whose languages come by preference."""

    def __init__(self, languages: Sequence[str] = LANGUAGES) -> None:
        self.languages = languages
        self.entities = NameTable()
        self.relations = NameTable()
        self.prefixes: dict[str, str] = {}
        self.labels: list[pa.Table] = []  # id, label and language
        self.labelled = ""  # how many have a label, for a note
        self.stripped = 0  # names with blanks around them
        self.broken = 0  # names with a line break
        self._notes: dict[str, list[str]] = {}  # text -> the files that it is about

    def note(self, file: str, text: str) -> None:
        """Tell the user something about a file."""
        self._notes.setdefault(text, []).append(file)

    @property
    def notes(self) -> list[str]:
        """What reading changed or noticed; a note about several files is one line."""
        notes = [f"{', '.join(files)}: {text}" for text, files in self._notes.items()]
        if self.broken:
            notes.append(
                f"{self.broken} names contain a line break; in a CSV file, a quote that is not closed joins lines"
            )
        notes += [f"blanks around {self.stripped} names stripped"] if self.stripped else []
        return notes + ([f"labels: {self.labelled}"] if self.labelled else [])

    def number(self, columns: Sequence[pa.ChunkedArray], where: str, first: int = 0) -> Triples:
        """Columns of heads, relations and tails to [n, 3] ids, valid after `settle`; first: of the rows, for errors."""
        triples = np.empty((len(columns[0]), 3), np.int32)
        for place, column in enumerate(columns):
            table, done = self.relations if place == 1 else self.entities, 0
            for chunk in column.chunks:
                numbers = triples[done : done + len(chunk), place]
                names, numbers[:] = self._clean_names(chunk, where, first + done)
                table.number(names, numbers)
                done += len(chunk)
        return triples

    def _clean_names(self, column: pa.Array, where: str, first: int) -> tuple[pa.Array, NDArray[np.int32]]:
        """The names in a column without blanks around them, and the number of each row's name among them."""
        import pyarrow.compute as pc  # on first use: it takes a tenth of this package's import

        missing = column.is_null(nan_is_null=True)
        if count := pc.sum(missing).as_py():
            row = first + pc.index(missing, True).as_py()
            raise DihedralError(
                f"{where} has {count} missing values, the first in row {row} (from 0); every triple needs three names"
            )
        try:
            rows, distinct = distinct_names(column)
            if distinct.null_count:
                raise DihedralError(f"{where} has missing values; every triple needs three names")
        except pa.ArrowException:
            raise DihedralError(f"{where} has a column of {column.type}; names are strings or numbers") from None
        try:
            names = pc.utf8_trim(distinct, BLANKS)
            empty, stripped, broken = (
                marks.to_numpy(zero_copy_only=False)
                for marks in (pc.equal(names, ""), pc.not_equal(names, distinct), pc.match_substring(names, "\n"))
            )
        except (UnicodeDecodeError, pa.ArrowException):  # Arrow raises its own errors for some invalid text
            raise DihedralError(f"{where} has names that are not UTF-8 text; save them as UTF-8") from None
        if empty.any():
            row = first + int(np.argmax(empty[rows]))
            raise DihedralError(f"{where} has an empty name in row {row} (from 0); every triple needs three names")
        self.stripped += int(stripped[rows].sum())
        self.broken += int(broken[rows].sum())
        return names, rows

    def settle(self) -> None:
        """Make the numbers given so far ids."""
        self.entities.settle()
        self.relations.settle()

    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        """The vocabularies of entities and relations; ends the numbering and frees its memory."""
        entities, relations = narrow(self.entities.settle()), narrow(self.relations.settle())
        self.entities, self.relations = NameTable(), NameTable()
        pa.default_memory_pool().release_unused()
        names = Vocabulary(entities, prefixes=self.prefixes), Vocabulary(relations, "relation", self.prefixes)
        if self.labels:
            table, self.labels = pa.concat_tables(self.labels), []
            names[0].labels, names[1].labels = (choose_labels(each, table, self.languages) for each in names)
            self.labelled = count_labels(*names)
        return names


def distinct_names(column: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    """The number of each row's name, -1 if it is missing, and the names in use as text."""
    if pa.types.is_dictionary(column.type):
        used = column.indices.dictionary_encode()  # without the names that no row uses
        names = column.dictionary.cast(pa.string()).take(used.dictionary)
    else:
        used = column.dictionary_encode()
        names = used.dictionary.cast(pa.string())
    return used.indices.fill_null(-1).to_numpy(), names
