"""Strings by number in an Arrow array, which may be memory-mapped from a file that is not trusted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError


class StringArray:
    """Strings with numbers 0..n-1.

    what: what the strings are, for errors.
    file: the file that the array is memory-mapped from. The array is checked when it is first used as a whole, a single
    text when it is read.
    """

    def __init__(self, array: pa.Array, what: str, file: str = "") -> None:
        self.what, self.file = what, file
        self._array = array
        self._checked = not file

    def __reduce__(self) -> tuple[Any, ...]:
        return StringArray, (self._array, self.what, self.file)  # without buffers

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

    def rank(self, wanted: str | bytes, order: Sequence[int] | NDArray[np.int32]) -> int:
        """How many texts sort before `wanted`. order: the numbers sorted by the UTF-8 bytes of their texts."""
        key = wanted.encode("utf-8", "surrogatepass") if isinstance(wanted, str) else wanted
        return bisect_left(order, key, key=lambda number: self.bytes_of(int(number)))

    def damaged(self, how: str = "are damaged") -> DihedralError:
        return DihedralError(f"{self.file!r} cannot be read: its {self.what} {how}; copy the folder again")


def sorted_order(array: pa.Array) -> NDArray[np.int32]:
    """The numbers of texts sorted by their UTF-8 bytes; equal texts keep their order."""
    import pyarrow.compute as pc  # on first use: it takes a tenth of this package's import

    order: NDArray[np.int32] = pc.sort_indices(array).to_numpy().astype(np.int32)
    return order
