"""Names to numbers while a graph is read, a block at a time and in little memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.triples import Triples, Vocabulary

MAX_NAMES = 2**31 - 1  # ids are 32-bit numbers
REHASHED_AT_ONCE = 1 << 20


class Names:
    """Distinct names in order of first appearance: their text end to end, and a table of slots to find them by hash.

    Some 35 bytes a name beside its text, where a dict of Python strings takes 150.
    """

    def __init__(self, hash_of: Callable[[str], int] = hash) -> None:
        self.hash_of = hash_of  # ids do not depend on it: names with equal hashes are compared
        self.count = 0
        self._text = np.empty(0, np.uint8)
        self._ends = np.zeros(1, np.int64)  # [count + 1]: where each name begins, then where the last one ends
        self._hashes = np.empty(0, np.int64)
        self._slots = np.full(1 << 10, -1, np.int32)  # a name's slot is at its hash, or the next ones: open addressing

    def __len__(self) -> int:
        return self.count

    def number(self, names: pa.Array) -> NDArray[np.int32]:
        """The ids of different names; those not seen before get the next ones in their order."""
        import pyarrow.compute as pc  # on first use: it takes a tenth of this package's import

        self._make_slots(self.count + len(names))
        hashes = np.fromiter(map(self.hash_of, names.to_numpy(zero_copy_only=False)), np.int64, len(names))
        ids = np.full(len(names), -1, np.int32)
        slot, last = hashes & (len(self._slots) - 1), len(self._slots) - 1
        searched = np.arange(len(names))
        while len(searched):
            there = self._slots[slot[searched]]
            searched, there = searched[there >= 0], there[there >= 0]  # an empty slot ends the search
            alike = np.flatnonzero(self._hashes[there] == hashes[searched])
            equal = pc.equal(names.take(searched[alike]), self._array().take(there[alike]))
            alike = alike[equal.to_numpy(zero_copy_only=False)]
            ids[searched[alike]] = there[alike]
            searched = np.delete(searched, alike)
            slot[searched] = slot[searched] + 1 & last
        new = np.flatnonzero(ids < 0)
        ids[new] = np.arange(self.count, self.count + len(new))
        self._append(names.take(new), hashes[new])
        self._occupy(slot[new], ids[new])
        return ids

    def array(self) -> pa.Array:
        """All names, in memory of their own."""
        size = int(self._ends[self.count])
        wide = size > 2**31 - 1  # pa.string counts bytes with 32 bits
        ends = self._ends[: self.count + 1].astype(np.int64 if wide else np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(self._text[:size].copy())]
        return pa.Array.from_buffers(pa.large_string() if wide else pa.string(), self.count, buffers)

    def _array(self) -> pa.Array:
        """The same as a view, only good until the next name comes."""
        buffers = [None, pa.py_buffer(self._ends), pa.py_buffer(self._text)]
        return pa.Array.from_buffers(pa.large_string(), self.count, buffers)

    def _append(self, names: pa.Array, hashes: NDArray[np.int64]) -> None:
        count = self.count + len(names)
        if count > MAX_NAMES:
            raise DihedralError(f"the graph has more than {MAX_NAMES} different names; ids are 32-bit numbers")
        if not len(names):
            return
        ends = np.frombuffer(names.buffers()[1], np.int32)[names.offset : names.offset + len(names) + 1].astype(
            np.int64
        )
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
        """Keep the table at most half full."""
        size = len(self._slots)
        while size < 2 * names:
            size *= 2
        if size == len(self._slots):
            return
        self._slots = np.full(size, -1, np.int32)
        for start in range(0, self.count, REHASHED_AT_ONCE):
            ids = np.arange(start, min(start + REHASHED_AT_ONCE, self.count), dtype=np.int32)
            self._occupy(self._hashes[ids] & size - 1, ids)

    def _occupy(self, slot: NDArray[np.int64], ids: NDArray[np.int32]) -> None:
        """Put each id into the first free slot from its own on."""
        while len(ids):
            free = self._slots[slot] < 0
            self._slots[slot[free]] = ids[free]  # of several that want one slot, the last gets it
            left = self._slots[slot] != ids
            slot, ids = slot[left] + 1 & len(self._slots) - 1, ids[left]


def grown(array: NDArray[Any], used: int, wanted: int) -> NDArray[Any]:
    """The array, or one with room for `wanted` rows and more; memory that is not written to is not taken."""
    if wanted <= len(array):
        return array
    bigger = np.empty((max(wanted, len(array) * 3 // 2), *array.shape[1:]), array.dtype)
    bigger[:used] = array[:used]
    return bigger


class Numbering:
    """Names in order of first appearance, and what reading them brought along."""

    def __init__(self) -> None:
        self.entities = Names()
        self.relations = Names()
        self.prefixes: dict[str, str] = {}  # of IRIs
        self.notes: list[str] = []

    def number(self, table: pa.RecordBatch | pa.Table, where: str) -> Triples:
        """Three string columns to [n, 3] ids."""
        triples = np.empty((len(table), 3), np.int32)
        for i in range(3):
            self.number_column(triples, i, table.column(i), where)
        return triples

    def number_column(self, triples: Triples, place: int, column: pa.Array | pa.ChunkedArray, where: str) -> None:
        """Write the ids of one column: heads (place 0), relations or tails."""
        triples[:, place] = encode(column, self.relations if place == 1 else self.entities, where)

    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        """What was read; the numbering is over, and its memory is given back."""
        entities, relations = self.entities.array(), self.relations.array()
        self.entities, self.relations = Names(), Names()
        pa.default_memory_pool().release_unused()
        return Vocabulary(entities, prefixes=self.prefixes), Vocabulary(relations, "relation", self.prefixes)


def encode(column: pa.Array | pa.ChunkedArray, names: Names, where: str) -> NDArray[np.int32]:
    """A column to numbers; only its distinct names are looked at one by one."""
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        parts = [encode(chunk, names, where) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)
    if column.null_count:
        raise DihedralError(f"{where} has {column.null_count} missing values; every triple needs three names")
    try:
        if pa.types.is_dictionary(column.type):
            codes = column.indices.dictionary_encode()  # leaves out the names that no row uses
            distinct = column.dictionary.cast(pa.string()).take(codes.dictionary)
            if len(names_once := distinct.unique()) < len(distinct):  # a dictionary may hold a name twice
                codes = pa.DictionaryArray.from_arrays(
                    pc.index_in(distinct, names_once).take(codes.indices), names_once
                )
                distinct = names_once
        else:
            codes = column.dictionary_encode()
            distinct = codes.dictionary.cast(pa.string())
    except pa.ArrowException:
        raise DihedralError(f"{where} has a column of {column.type}; names are text or numbers") from None
    if distinct.null_count:
        raise DihedralError(f"{where} has missing values; every triple needs three names")
    if pc.any(pc.equal(pc.binary_length(distinct), 0)).as_py():
        raise DihedralError(f"{where} has an empty name; every triple needs three names")
    try:
        ids = names.number(distinct)
    except (UnicodeDecodeError, pa.ArrowException):  # Arrow has errors of its own for some broken text
        raise DihedralError(f"{where} has names that are not UTF-8 text; save them as UTF-8") from None
    return ids[codes.indices.to_numpy()]
