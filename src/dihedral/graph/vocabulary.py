"""Vocabularies: the names of entities or relations, numbered from 0."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import MAX_COMPARED, DihedralError, close_matches
from dihedral.graph.prefixes import expand, shorten

NAMES_PER_CHUNK = 1 << 16  # held as Python strings at a time
NAMES_PER_SEARCH = 200  # Arrow hashes this many names in the time of one bisection
MAX_COMPARED_IN_ORDER = 1 << 20  # names that are compared with the next in their order; a million take a second
NUM_NEIGHBOURS = 300  # names on each side of a misspelled one that it is compared with


class Vocabulary(Sequence[str]):
    """Names with ids 0..n-1 in an Arrow string array, which can be memory-mapped.

    A name is found by bisection in the sorted order, so no lookup table is built.

    prefixes: namespaces of names that are IRIs; `id` then accepts ex:ann for http://example.org/ann, and `short`
    returns it.
    order: the ids sorted by name, if stored.
    file: the file that the array is memory-mapped from. The array is checked when it is first used as a whole, a single
    name when it is read.
    """

    def __init__(
        self,
        names: Sequence[str] | pa.Array,
        kind: str = "entity",
        prefixes: Mapping[str, str] | None = None,
        order: NDArray[np.int32] | None = None,
        file: str = "",
    ) -> None:
        self.kind = kind
        self.prefixes = dict(prefixes or {})
        self.file = file
        self._array = names if isinstance(names, pa.Array) else pa.array(names, pa.string())
        self._order = order
        self._checked = not file

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocabulary, (self._array, self.kind, self.prefixes, self._order, self.file)  # without buffers

    @property
    def array(self) -> pa.Array:
        """All names."""
        self.check()
        return self._array

    def check(self) -> None:
        """Raise an error if the array is damaged, names repeat, or the order is wrong; it is checked only once."""
        if not self._checked:
            try:
                self._array.validate(full=True)
            except pa.ArrowException:
                raise self._damaged() from None
            self._checked = True
            if not self._is_ordered():
                self._checked = False
                raise self._damaged("repeat or are not in their order")

    def _is_ordered(self) -> bool:
        """Whether each name in the order is before the next: then none repeats, and the order is a permutation.

        Only the latter is checked if there are many names.
        """
        order = self.order
        if len(order) != len(self) or (len(order) and not 0 <= order.min() <= order.max() < len(self)):
            return False
        if len(order) > MAX_COMPARED_IN_ORDER:
            return bool((np.bincount(order, minlength=len(self)) == 1).all())
        pairs = range(0, len(order) - 1, NAMES_PER_CHUNK)
        return all(self._ascends(order[start : start + NAMES_PER_CHUNK + 1]) for start in pairs)

    def _ascends(self, ids: NDArray[np.int32]) -> bool:
        """Whether each of these names is before the next; eight bytes are compared at a time, without a copy of all."""
        offsets, buffer = self._buffers
        text = np.frombuffer(buffer, np.uint8)
        starts, stops = offsets[ids].astype(np.int64), offsets[ids + 1].astype(np.int64)
        tied = np.arange(len(ids) - 1)  # names that equal the next so far
        done = 0
        while len(tied):
            one, two = (_word(text, starts[which] + done, stops[which]) for which in (tied, tied + 1))
            if (one > two).any():
                return False
            tied = tied[one == two]
            done += 8
            ended = starts[tied + 1] + done >= stops[tied + 1]
            shorter = stops[tied] - starts[tied] < stops[tied + 1] - starts[tied + 1]  # only zeros follow
            if (ended & ~shorter).any():
                return False
            tied = tied[~ended]
        return True

    @property
    def order(self) -> NDArray[np.int32]:
        """The ids sorted by the UTF-8 bytes of their names."""
        if self._order is None:
            import pyarrow.compute as pc  # on first use, here and below: it takes a tenth of this package's import

            self._order = pc.sort_indices(self.array).to_numpy().astype(np.int32)
        return self._order

    @cached_property
    def _buffers(self) -> tuple[NDArray[Any], memoryview]:
        """The offsets of the names, and their text."""
        wide = self._array.type == pa.large_string()
        first = self._array.offset
        _, offsets, text = self._array.buffers()
        if offsets is None:  # of an empty array
            return np.zeros(1, np.int32), memoryview(b"")
        numbers = np.frombuffer(offsets, np.int64 if wide else np.int32)
        return numbers[first : first + len(self) + 1], memoryview(text or b"")

    def _bytes(self, number: int) -> bytes:
        offsets, text = self._buffers
        if not 0 <= number < len(self) or not 0 <= offsets[number] <= offsets[number + 1] <= len(text):
            raise self._damaged()
        return bytes(text[offsets[number] : offsets[number + 1]])

    def _damaged(self, how: str = "are damaged") -> DihedralError:
        return DihedralError(f"{self.file!r} cannot be read: its {self.kind} names {how}; copy the folder again")

    def _rank(self, wanted: bytes) -> int:
        """The number of names that sort before `wanted`."""
        return bisect_left(self.order, wanted, key=lambda number: self._bytes(int(number)))

    def after(self, text: str, count: int) -> list[int]:
        """The ids of the next `count` names in sorted order, from `text` on."""
        rank = self._rank(text.encode("utf-8", "surrogatepass"))
        return self.order[rank : rank + count].tolist()

    def _find(self, name: str) -> int | None:
        wanted = name.encode("utf-8", "surrogatepass")
        rank = self._rank(wanted)
        found = int(self.order[rank]) if rank < len(self) else -1
        return found if found >= 0 and self._bytes(found) == wanted else None

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return self.array[index].to_pylist()
        number = int(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"{self.kind} {number} of {len(self)}")
        try:
            return self._bytes(number % len(self)).decode()
        except UnicodeDecodeError:
            raise self._damaged() from None

    def __iter__(self) -> Iterator[str]:
        for chunk in self.chunks():
            yield from chunk

    def chunks(self) -> Iterator[list[str]]:
        """All names as Python strings, some at a time."""
        for start in range(0, len(self), NAMES_PER_CHUNK):
            yield self.array[start : start + NAMES_PER_CHUNK].to_pylist()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.array.equals(other.array)

    __hash__ = None  # type: ignore[assignment]

    def id(self, name: str) -> int:
        """The id of a name; the error for an unknown name suggests close matches."""
        if not isinstance(name, str):
            raise DihedralError(f"{self.kind} {name!r} is a {type(name).__name__}; names are strings")
        found = self._find(name)
        if found is None and self.prefixes:
            found = self._find(expand(name, self.prefixes))
        if found is None:
            hint = close_matches(name, self._similar(name))
            raise DihedralError(f"{self.kind} {name!r} is not among the {len(self)} known to the graph{hint}")
        return found

    def _similar(self, name: str) -> Iterable[str]:
        """The names that a misspelled one is compared with: all of them, or its neighbours in a large vocabulary."""
        if len(self) <= MAX_COMPARED:
            return self
        spellings = {name, name.lower(), name.upper(), name.capitalize(), name.title(), expand(name, self.prefixes)}
        ranks = [self._rank(spelling.encode("utf-8", "surrogatepass")) for spelling in spellings]
        near = {int(i) for rank in ranks for i in self.order[max(0, rank - NUM_NEIGHBOURS) : rank + NUM_NEIGHBOURS]}
        return [self._bytes(i).decode("utf-8", "replace") for i in sorted(near)]

    def short(self, text: str) -> str:
        """A name, or text that contains names, with prefixes in place of namespaces, for display."""
        return shorten(text, self.prefixes)

    def ids(self, names: Sequence[str]) -> NDArray[np.int32]:
        """The ids of several names."""
        if len(self) > NAMES_PER_SEARCH * len(names) or not all(isinstance(name, str) for name in names):
            return np.fromiter(map(self.id, names), np.int32, len(names))
        import pyarrow.compute as pc

        found = pc.index_in(pa.array(names, self.array.type), value_set=self.array).fill_null(-1).to_numpy().copy()
        for i in np.flatnonzero(found < 0):
            found[i] = self.id(names[int(i)])  # written with a prefix, or unknown
        return found

    def unknown(self, names: Iterable[str]) -> list[str]:
        """The distinct names that have no id, in their order."""
        distinct = list(dict.fromkeys(names))
        if len(self) > NAMES_PER_SEARCH * len(distinct):
            left = [name for name in distinct if name not in self]
        else:
            import pyarrow.compute as pc

            known = pc.is_in(pa.array(distinct, self.array.type), value_set=self.array).to_pylist()
            left = [name for name, found in zip(distinct, known, strict=True) if not found]
        return [name for name in left if not self.prefixes or expand(name, self.prefixes) not in self]

    def without(self, names: Vocabulary) -> list[str]:
        """The names that are not in another vocabulary."""
        import pyarrow.compute as pc

        others = names.array.cast(self.array.type)
        return self.array.filter(pc.invert(pc.is_in(self.array, value_set=others))).to_pylist()


def _word(text: NDArray[np.uint8], start: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Eight bytes from each start as a number that sorts like them, with zeros beyond each stop."""
    place = start[:, None] + np.arange(8)
    inside = place < stop[:, None]
    words = np.zeros(place.shape, np.uint8)
    words[inside] = text[place[inside]]
    return words.view(">u8")[:, 0]
