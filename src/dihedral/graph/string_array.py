"""Strings by number in an Arrow array, which may be memory-mapped from a file that is not trusted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError

Order = NDArray[np.int32]


class StringArray:
    """Strings with numbers 0..n-1; those of a memory-mapped `file` are checked when they are first used.

    what: what the strings are, for errors. order: the numbers sorted by the UTF-8 bytes of their texts, if stored.
    """

    def __init__(self, array: pa.Array, what: str, file: str = "", order: Order | range | None = None) -> None:
        self.what, self.file = what, file
        self._array = array
        self._order: Any = order
        self._checked = not file

    def __reduce__(self) -> tuple[Any, ...]:
        return StringArray, (self._array, self.what, self.file, self._order)  # without buffers

    def __len__(self) -> int:
        return len(self._array)

    @property
    def array(self) -> pa.Array:
        """All texts."""
        self.check()
        return self._array

    def check(self) -> None:
        """Raise an error if the array is damaged; it is checked only once."""
        if not self._checked:
            try:
                self._array.validate(full=True)
            except pa.ArrowException:
                raise self.damaged() from None
            self._checked = True

    @cached_property
    def buffers(self) -> tuple[NDArray[Any], memoryview]:
        """The offsets of the texts, and all of them as one."""
        wide = self._array.type == pa.large_string()
        first = self._array.offset
        _, offsets, text = self._array.buffers()
        if offsets is None:  # the array is empty
            return np.zeros(1, np.int32), memoryview(b"")
        numbers = np.frombuffer(offsets, np.int64 if wide else np.int32)
        return numbers[first : first + len(self) + 1], memoryview(text or b"")

    def bytes_of(self, number: int) -> bytes:
        """A text in UTF-8."""
        offsets, text = self.buffers
        if not 0 <= number < len(self) or not 0 <= offsets[number] <= offsets[number + 1] <= len(text):
            raise self.damaged()
        return bytes(text[offsets[number] : offsets[number + 1]])

    def text(self, number: int) -> str:
        try:
            return self.bytes_of(number).decode()
        except UnicodeDecodeError:
            raise self.damaged() from None

    @property
    def order(self) -> Order:
        """The numbers sorted by the UTF-8 bytes of their texts; equal texts keep their order."""
        if self._order is None:
            import pyarrow.compute as pc  # on first use: it takes a tenth of this package's import

            self._order = pc.sort_indices(self.array).to_numpy().astype(np.int32)
        return self._order

    @property
    def has_order(self) -> bool:
        """Whether a stored order has as many numbers as there are texts, and no others."""
        order = self.order
        return len(order) == len(self) and (not len(order) or 0 <= order.min() <= order.max() < len(self))

    def rank(self, wanted: str | bytes) -> int:
        """How many texts sort before `wanted`."""
        key = wanted.encode("utf-8", "surrogatepass") if isinstance(wanted, str) else wanted
        return bisect_left(self.order, key, key=lambda number: self.bytes_of(int(number)))

    def places(self, text: str) -> Iterator[int]:
        """The numbers of a text."""
        wanted = text.encode("utf-8", "surrogatepass")
        for number in self.order[self.rank(wanted) :]:
            if self.bytes_of(int(number)) != wanted:
                return
            yield int(number)

    def around(self, text: str, count: int) -> list[int]:
        """The numbers of texts around one in sorted order: those with the longest common beginnings are among them."""
        first = max(0, self.rank(text) - count // 2)
        return self.order[first : first + count].tolist()

    def damaged(self, how: str = "are damaged") -> DihedralError:
        return DihedralError(f"{self.file!r} cannot be read: its {self.what} {how}; copy the folder again")
