"""Number names while a graph is read, block by block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.labels import choose_labels, count_labels, narrow
from dihedral.graph.triples import Triples
from dihedral.graph.vocabulary import Vocabulary, plain
from dihedral.io.table_files import BLANKS

MAX_NAMES = 2**31 - 1  # ids are 32-bit numbers
MAX_EXAMPLES = 3  # of names in a note
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

    def __init__(self, languages: Sequence[str], merge_similar: bool = False, skip_blank: bool = False) -> None:
        self.languages, self.merge_similar, self.skip_blank = languages, merge_similar, skip_blank
        self.entities = NameTable()
        self.relations = NameTable()
        self.prefixes: dict[str, str] = {}
        self.labels: list[pa.Table] = []  # id, label and language
        self.labelled = ""  # how many have a label, for a note
        self.stripped = 0  # names with blanks around them
        self.broken = 0  # names with a line break
        self._similar: list[str] = []  # how many entities and relations differ from others in little
        self._examples: list[str] = []  # of these
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
                f"names with a line break: {self.broken}; in a CSV file, a quote that is not closed joins lines"
            )
        notes += [f"blanks around names stripped: {self.stripped}"] if self.stripped else []
        if self._similar:
            done = "merged into the most frequent one" if self.merge_similar else "--merge-similar makes them one"
            notes.append(
                f"names of {' and '.join(self._similar)} differ from others only in case, white space or Unicode form, "
                f"such as {', '.join(self._examples[:MAX_EXAMPLES])}; {done}"
            )
        return notes + ([f"labels: {self.labelled}"] if self.labelled else [])

    def number(self, columns: Sequence[pa.ChunkedArray], where: str) -> tuple[Triples, NDArray[np.bool_]]:
        """Columns to [n, 3] ids, valid after `settle`, and marks of rows with a blank cell: then no ids."""
        triples, blank = np.empty((len(columns[0]), 3), np.int32), np.zeros(len(columns[0]), bool)
        counts, found = (self.stripped, self.broken), []
        for place, column in enumerate(columns):
            done = 0
            for chunk in column.chunks:
                numbers = triples[done : done + len(chunk), place]
                names, numbers[:], empty = self._clean_names(chunk, where)
                blank[done : done + len(chunk)] |= empty
                found.append((self.relations if place == 1 else self.entities, names, numbers))
                done += len(chunk)
        if blank.any():
            (self.stripped, self.broken), found = counts, []
        for table, names, numbers in found:
            table.number(names, numbers)
        return triples, blank

    def _clean_names(self, column: pa.Array, where: str) -> tuple[pa.Array, NDArray[np.int32], NDArray[np.bool_]]:
        """The names in a column without blanks around them, each row's number among them, and the rows without one."""
        import pyarrow.compute as pc  # on first use: it takes a tenth of this package's import

        missing = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        try:
            rows, distinct = distinct_names(column)
        except pa.ArrowException:
            raise DihedralError(f"{where} has a column of {column.type}; names are strings or numbers") from None
        try:
            names = pc.utf8_trim(distinct, BLANKS)
            empty, stripped, broken = (
                np.append(marks.to_numpy(zero_copy_only=False), False)[rows]
                for marks in (pc.equal(names, ""), pc.not_equal(names, distinct), pc.match_substring(names, "\n"))
            )
        except (UnicodeDecodeError, pa.ArrowException):  # Arrow raises its own errors for some invalid text
            raise DihedralError(f"{where} has names that are not UTF-8 text; save them as UTF-8") from None
        self.stripped += int(stripped.sum())
        self.broken += int(broken.sum())
        return names, rows, missing | empty

    def settle(self) -> None:
        """Make the numbers given so far ids."""
        self.entities.settle()
        self.relations.settle()

    def vocabularies(self, parts: Sequence[Triples], mixed: bool = False) -> tuple[Vocabulary, Vocabulary]:
        """The vocabularies of entities and relations of these triples; ends the numbering and frees its memory.

        mixed: the splits were read together. They are numbered in their order, so that no id depends on a later split.
        """
        found = []
        for table, places, kind in ((self.entities, (0, 2), "entities"), (self.relations, (1,), "relations")):
            columns, texts = [part[:, place] for part in parts for place in places], narrow(table.settle())
            found.append(self._compare(_in_order(texts, columns) if mixed else texts, columns, kind))
        entities, relations = found
        self.entities, self.relations = NameTable(), NameTable()
        pa.default_memory_pool().release_unused()
        names = Vocabulary(entities, prefixes=self.prefixes), Vocabulary(relations, "relation", self.prefixes)
        if self.labels:
            table, self.labels = pa.concat_tables(self.labels), []
            names[0].labels, names[1].labels = (choose_labels(each, table, self.languages) for each in names)
            self.labelled = count_labels(*names)
        return names

    def _compare(self, names: pa.Array, columns: Sequence[NDArray[np.int32]], kind: str) -> pa.Array:
        """Look for names that differ in little. Merged ones get the most frequent spelling, and ids change in place."""
        group = plain(names).dictionary_encode().indices.to_numpy()
        if not len(group) or group.max() + 1 == len(group):
            return names
        counts = [np.bincount(column, minlength=len(names)) for column in columns]
        end = len(columns) - len(columns) // 3  # without those of test, which count for its own names only
        seen, tested = np.sum(counts[:end], axis=0), np.sum(counts[end:], axis=0)
        order = np.lexsort(
            (-np.where(seen > 0, seen + np.sum(tested), tested), group)
        )  # of equal counts, the first name
        best = order[np.append(True, np.diff(group[order]) > 0)][group]
        is_best = best == np.arange(len(best))
        self._similar.append(f"{kind} ({np.sum(~is_best):,})")
        for i in np.flatnonzero(~is_best)[:MAX_EXAMPLES].tolist():
            self._examples.append(f"{names[i].as_py()!r:.80} and {names[int(best[i])].as_py()!r:.80}")
        if not self.merge_similar:
            return names
        ids = (np.cumsum(is_best, dtype=np.int32) - 1)[best]
        for column in columns:
            column[...] = ids[column]
        return names.filter(pa.array(is_best))


def _in_order(names: pa.Array, columns: Sequence[NDArray[np.int32]]) -> pa.Array:
    """The names in the order in which columns of ids, which change in place, use them."""
    first, end = np.empty(len(names), np.int64), sum(map(len, columns))
    for column in reversed(columns):  # the last write wins
        end -= len(column)
        first[column[::-1]] = np.arange(end, end + len(column))[::-1]
    order = np.argsort(first)
    ids = np.argsort(order).astype(np.int32)
    for column in columns:
        column[...] = ids[column]
    return names.take(pa.array(order))


def distinct_names(column: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    """The number of each row's name, -1 if it is missing, and the names in use as text."""
    if pa.types.is_dictionary(column.type):
        used = column.indices.dictionary_encode()  # without the names that no row uses
        names = column.dictionary.cast(pa.string()).fill_null("").take(used.dictionary)
    else:
        used = column.dictionary_encode()
        names = used.dictionary.cast(pa.string())
    return used.indices.fill_null(-1).to_numpy(), names
