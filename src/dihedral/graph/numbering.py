"""Number names while a graph is read, block by block and in little memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.labels import LANGUAGES, choose_labels, count_labels
from dihedral.graph.triples import Triples
from dihedral.graph.vocabulary import Vocabulary
from dihedral.io.table_files import BLANKS

MAX_NAMES = 2**31 - 1  # ids are 32-bit numbers
REHASH_CHUNK = 1 << 20


class NameTable:
    """Distinct names in order of first appearance: their concatenated text, and a hash table with open addressing.

    It takes about 35 bytes per name besides the text; a dict of Python strings takes 150.
    """

    def __init__(self, hash_of: Callable[[str], int] = hash) -> None:
        self.hash_of = hash_of  # ids do not depend on it: names with equal hashes are compared as text
        self.count = 0
        self._text = np.empty(0, np.uint8)
        self._ends = np.zeros(1, np.int64)  # [count + 1]: the start of each name, then the end of the last
        self._hashes = np.empty(0, np.int64)
        self._slots = np.full(1 << 10, -1, np.int32)  # ids; a name is at the slot of its hash or at a later one

    def __len__(self) -> int:
        return self.count

    def number(self, names: pa.Array) -> NDArray[np.int32]:
        """The ids of distinct names; new names get the next ids in their order."""
        import pyarrow.compute as pc  # on first use: it takes a tenth of this package's import

        self._make_slots(self.count + len(names))
        hashes = np.fromiter(map(self.hash_of, names.to_numpy(zero_copy_only=False)), np.int64, len(names))
        ids = np.full(len(names), -1, np.int32)
        slot, last = hashes & (len(self._slots) - 1), len(self._slots) - 1
        searched = np.arange(len(names))
        while len(searched):
            there = self._slots[slot[searched]]
            searched, there = searched[there >= 0], there[there >= 0]  # an empty slot ends the search
            same = np.flatnonzero(self._hashes[there] == hashes[searched])
            equal = pc.equal(names.take(searched[same]), self._array().take(there[same]))
            same = same[equal.to_numpy(zero_copy_only=False)]
            ids[searched[same]] = there[same]
            searched = np.delete(searched, same)
            slot[searched] = slot[searched] + 1 & last
        new = np.flatnonzero(ids < 0)
        ids[new] = np.arange(self.count, self.count + len(new))
        self._append(names.take(new), hashes[new])
        self._occupy(slot[new], ids[new])
        return ids

    def array(self) -> pa.Array:
        """All names, as a copy."""
        size = int(self._ends[self.count])
        wide = size > 2**31 - 1  # pa.string has 32-bit offsets
        ends = self._ends[: self.count + 1].astype(np.int64 if wide else np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(self._text[:size].copy())]
        return pa.Array.from_buffers(pa.large_string() if wide else pa.string(), self.count, buffers)

    def _array(self) -> pa.Array:
        """All names, as a view that is valid until a name is added."""
        buffers = [None, pa.py_buffer(self._ends), pa.py_buffer(self._text)]
        return pa.Array.from_buffers(pa.large_string(), self.count, buffers)

    def _append(self, names: pa.Array, hashes: NDArray[np.int64]) -> None:
        count = self.count + len(names)
        if count > MAX_NAMES:
            raise DihedralError(f"the graph has more than {MAX_NAMES} different names; ids are 32-bit numbers")
        if not len(names):
            return
        stop = names.offset + len(names) + 1
        ends = np.frombuffer(names.buffers()[1], np.int32)[names.offset : stop].astype(np.int64)
        text = np.frombuffer(names.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
        used = int(self._ends[self.count])
        self._ends = grown(self._ends, self.count + 1, count + 1)
        self._hashes = grown(self._hashes, self.count, count)
        self._text = grown(self._text, used, used + len(text))
        self._ends[self.count + 1 : count + 1] = ends[1:] - ends[0] + used
        self._hashes[self.count : count] = hashes
        self._text[used : used + len(text)] = text
        self.count = count

    def _make_slots(self, names: int) -> None:
        """Grow the table so that it is at most half full."""
        size = len(self._slots)
        while size < 2 * names:
            size *= 2
        if size == len(self._slots):
            return
        self._slots = np.full(size, -1, np.int32)
        for start in range(0, self.count, REHASH_CHUNK):
            ids = np.arange(start, min(start + REHASH_CHUNK, self.count), dtype=np.int32)
            self._occupy(self._hashes[ids] & size - 1, ids)

    def _occupy(self, slot: NDArray[np.int64], ids: NDArray[np.int32]) -> None:
        """Put each id into the first free slot at or after its own."""
        while len(ids):
            free = self._slots[slot] < 0
            self._slots[slot[free]] = ids[free]  # if several ids want one slot, the last gets it
            left = self._slots[slot] != ids
            slot, ids = slot[left] + 1 & len(self._slots) - 1, ids[left]


def grown(array: NDArray[Any], used: int, wanted: int) -> NDArray[Any]:
    """The array, or a larger copy with space for `wanted` rows; the system allocates only pages that are written."""
    if wanted <= len(array):
        return array
    bigger = np.empty((max(wanted, len(array) * 3 // 2), *array.shape[1:]), array.dtype)
    bigger[:used] = array[:used]
    return bigger


class Numbering:
    """The entities and relations read so far, with prefixes, labels and notes for the user.

    languages: of labels, the preferred one first.
    """

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

    def number(self, table: pa.RecordBatch | pa.Table, where: str, first: int = 0) -> Triples:
        """Three string columns to [n, 3] ids. first: the number of rows before these, for errors."""
        triples = np.empty((len(table), 3), np.int32)
        for i in range(3):
            self.number_column(triples, i, table.column(i), where, first)
        return triples

    def number_column(
        self, triples: Triples, index: int, column: pa.Array | pa.ChunkedArray, where: str, first: int = 0
    ) -> None:
        """Write the ids of one column: heads (index 0), relations or tails."""
        names = self.relations if index == 1 else self.entities
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            ids, stripped, broken = encode(chunk, names, where, first)
            first += len(chunk)
            triples[: len(ids), index] = ids
            triples = triples[len(ids) :]
            self.stripped, self.broken = self.stripped + stripped, self.broken + broken

    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        """The vocabularies of entities and relations; ends the numbering and frees its memory."""
        entities, relations = self.entities.array(), self.relations.array()
        self.entities, self.relations = NameTable(), NameTable()
        pa.default_memory_pool().release_unused()
        names = Vocabulary(entities, prefixes=self.prefixes), Vocabulary(relations, "relation", self.prefixes)
        if self.labels:
            table, self.labels = pa.concat_tables(self.labels), []
            names[0].labels, names[1].labels = (choose_labels(each, table, self.languages) for each in names)
            self.labelled = count_labels(*names)
        return names


def encode(column: pa.Array, names: NameTable, where: str, first: int = 0) -> tuple[NDArray[np.int32], int, int]:
    """Number a column without the blanks around its names; count the names that had some, and those with line breaks.

    Only the distinct names become Python strings. first: the number of rows before these, for errors.
    """
    import pyarrow.compute as pc

    missing = column.is_null(nan_is_null=True)
    if count := pc.sum(missing).as_py():
        row = first + pc.index(missing, True).as_py()
        raise DihedralError(
            f"{where} has {count} missing values, the first in row {row} (from 0); every triple needs three names"
        )
    try:
        codes, distinct = distinct_names(column)
    except pa.ArrowException:
        raise DihedralError(f"{where} has a column of {column.type}; names are strings or numbers") from None
    if distinct.null_count:
        raise DihedralError(f"{where} has missing values; every triple needs three names")
    try:
        bare = pc.utf8_trim(distinct, BLANKS)
        if pc.any(pc.equal(pc.binary_length(bare), 0)).as_py():
            row = first + int(np.argmax(pc.equal(pc.binary_length(bare), 0).to_numpy(zero_copy_only=False)[codes]))
            raise DihedralError(f"{where} has an empty name in row {row} (from 0); every triple needs three names")
        changed = pc.not_equal(bare, distinct).to_numpy(zero_copy_only=False)
        broken = pc.match_substring(bare, "\n").to_numpy(zero_copy_only=False)
        once = bare.unique() if changed.any() else distinct  # two names may differ only by blanks
        ids = names.number(once)
    except (UnicodeDecodeError, pa.ArrowException):  # Arrow raises its own errors for some invalid text
        raise DihedralError(f"{where} has names that are not UTF-8 text; save them as UTF-8") from None
    rows = codes.to_numpy()
    counts = [int(marked[rows].sum()) if marked.any() else 0 for marked in (changed, broken)]
    if changed.any():
        ids = ids[pc.index_in(bare, once).to_numpy()]
    return ids[rows], counts[0], counts[1]


def distinct_names(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """A column as indices into its distinct names, and these names."""
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        encoded = column.dictionary_encode()
        return encoded.indices, encoded.dictionary.cast(pa.string())
    codes = column.indices.dictionary_encode()  # without the names that no row uses
    distinct = column.dictionary.cast(pa.string()).take(codes.dictionary)
    once = distinct.unique()
    if len(once) == len(distinct):
        return codes.indices, distinct
    return pc.index_in(distinct, once).take(codes.indices), once  # a dictionary may repeat a name
