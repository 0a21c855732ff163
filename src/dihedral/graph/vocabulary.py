"""Vocabularies: the names of entities or relations, numbered from 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import lt
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import MAX_COMPARED, DihedralError, close_matches
from dihedral.graph.labels import Labels
from dihedral.graph.string_array import StringArray
from dihedral.io.iris import expand, shorten

NAMES_PER_CHUNK = 1 << 16  # held as Python strings at a time
NAMES_COMPARED = 1 << 12  # with the next in their order at a time: opening a model takes little memory
NAMES_PER_SEARCH = 200  # Arrow hashes this many names in the time of one bisection
MAX_COMPARED_IN_ORDER = 1 << 20  # names that are compared with the next in their order
NUM_NEIGHBOURS = 600  # names around a misspelled one that it is compared with
Show = Callable[[str], str]  # how a name is shown
MAX_LISTED = 10  # names with the same label in a message


class AmbiguousNameError(DihedralError):
    """A label that several entities or relations have."""

    def __init__(self, message: str, names: list[str]) -> None:
        super().__init__(message)
        self.names = names


class Vocabulary(StringArray, Sequence[str]):
    """Names with ids 0..n-1 in an Arrow string array, which can be memory-mapped.

    A name is found by bisection in the sorted order, so no lookup table is built.

    prefixes: namespaces of names that are IRIs; `id` then accepts ex:ann for http://example.org/ann, and `short`
    returns it.
    order: the ids sorted by name, if stored.
    labels: what people call them; `id` then accepts a label that only one has, and `shown` returns it with the name.
    """

    def __init__(
        self,
        names: Sequence[str] | pa.Array,
        kind: str = "entity",
        prefixes: Mapping[str, str] | None = None,
        order: NDArray[np.int32] | None = None,
        file: str = "",
        labels: Labels | None = None,
    ) -> None:
        array = names if isinstance(names, pa.Array) else pa.array(names, pa.string())
        super().__init__(array, f"{kind} names", file, order)
        self.kind = kind
        self.prefixes = dict(prefixes or {})
        self.labels = labels

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocabulary, (self._array, self.kind, self.prefixes, self._order, self.file, self.labels)

    def with_labels(self, labels: Labels | None) -> Vocabulary:
        """The same names with these labels."""
        return Vocabulary(self._array, self.kind, self.prefixes, self._order, self.file, labels)

    def extended(self, names: Sequence[str]) -> Vocabulary:
        """The vocabulary with further names; the others keep their ids and labels."""
        labels = None if self.labels is None else self.labels.extended(len(names))
        return Vocabulary([*self, *names], self.kind, self.prefixes, labels=labels)

    def check(self) -> None:
        """Raise an error if the array is damaged, names repeat, or the order is wrong; it is checked only once."""
        if not self._checked:
            super().check()
            if not self._is_ordered():
                self._checked = False
                raise self.damaged("repeat or are not in their order")

    def _is_ordered(self) -> bool:
        """Whether each name is before the next in the order; of many names, whether the order is a permutation."""
        if not self.has_order:
            return False
        if len(self) > MAX_COMPARED_IN_ORDER:
            return bool((np.bincount(self.order, minlength=len(self)) == 1).all())
        offsets, text = self.buffers
        for start in range(0, len(self) - 1, NAMES_COMPARED):
            ids = self.order[start : start + NAMES_COMPARED + 1]
            names = [bytes(text[i:j]) for i, j in zip(offsets[ids].tolist(), offsets[ids + 1].tolist(), strict=True)]
            if not all(map(lt, names, names[1:])):
                return False
        return True

    def after(self, text: str, count: int) -> list[int]:
        """The ids of the next `count` names in sorted order, from `text` on."""
        rank = self.rank(text)
        return self.order[rank : rank + count].tolist()

    def _find(self, name: str) -> int | None:
        return next(self.places(name), None)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return self.array[index].to_pylist()
        number = int(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"{self.kind} {number} of {len(self)}")
        return self.text(number % len(self))

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
        """The id of a name or of a label; the error for an unknown name suggests close matches."""
        if not isinstance(name, str):
            raise DihedralError(f"{self.kind} {name!r} is a {type(name).__name__}; names are strings")
        found = self.find(name)
        if found is None:
            raise self.unknown_name(name)
        return found

    def unknown_name(self, name: str) -> DihedralError:
        """The error for an unknown name. The server replaces this by an error that takes less time."""
        hint = close_matches(name, self.similar(name))
        return DihedralError(f"{self.kind} {name!r} is not among the {len(self)} known to the graph{hint}")

    def find(self, name: str) -> int | None:
        """The id of a name, with or without a prefix, or of a label; None if there is none."""
        found = self._find(name)
        if found is None and self.prefixes:
            found = self._find(expand(name, self.prefixes))
        if found is not None or self.labels is None:
            return found
        labelled = self.labels.find(name)
        if len(labelled) > 1:
            raise self._ambiguous(name, labelled)
        return labelled[0] if labelled else None

    def _ambiguous(self, label: str, ids: list[int]) -> AmbiguousNameError:
        assert self.labels is not None
        names = [self[i] for i in ids[:MAX_LISTED]]
        about = [self.labels.about(i) for i in ids[:MAX_LISTED]]
        listed = [
            f"{self.short(name)}{f' ({more:.60})' if more else ''}" for name, more in zip(names, about, strict=True)
        ]
        more = f" and {len(ids) - MAX_LISTED} more" if len(ids) > MAX_LISTED else ""
        kinds = "entities" if self.kind == "entity" else f"{self.kind}s"
        return AmbiguousNameError(
            f"{self.kind} {label!r:.200} is the label of {len(ids)} {kinds}: {', '.join(listed)}{more}; give the id",
            names,
        )

    def similar(self, name: str, limit: int = MAX_COMPARED) -> Iterable[str]:
        """The names and labels that a misspelled one is compared with: all, or its neighbours if there are too many."""
        if len(self) <= limit:
            return self if self.labels is None else chain(self, self.labels.distinct())
        spellings = {name, name.lower(), name.upper(), name.capitalize(), name.title(), expand(name, self.prefixes)}
        texts: list[StringArray] = [self] if self.labels is None else [self, self.labels.texts["label"]]
        found = [(each, {i for spelling in spellings for i in each.around(spelling, NUM_NEIGHBOURS)}) for each in texts]
        return [each.bytes_of(i).decode("utf-8", "replace") for each, ids in found for i in sorted(ids)]

    def short(self, text: str) -> str:
        """A name, or text that contains names, with prefixes in place of namespaces, for display."""
        return shorten(text, self.prefixes)

    def label(self, name: str) -> str:
        """The label of a name; empty if there is none."""
        number = None if self.labels is None else self._find(name)
        return "" if number is None or self.labels is None else self.labels.label(number)

    def shown(self, name: str) -> str:
        """A name for people to read: its label with the name, or only the name. `~` marks an inverse relation.

        >>> from dihedral.graph.labels import Labels
        >>> labels = Labels({"label": pa.array(["Douglas Adams", ""])})
        >>> names = Vocabulary(["Q42", "Q1"], labels=labels)
        >>> names.shown("Q42"), names.shown("Q1"), names.id("Douglas Adams")
        ('Douglas Adams (Q42)', 'Q1', 0)
        """
        if self.labels is not None and name.startswith("~") and name not in self:
            return f"~{self.shown(name[1:])}"
        label, short = self.label(name), self.short(name)
        return f"{label} ({short})" if label and label != short else short

    def ids(self, names: Sequence[str]) -> NDArray[np.int32]:
        """The ids of several names."""
        if not all(isinstance(name, str) for name in names):
            return np.fromiter(map(self.id, names), np.int32, len(names))
        found = self._find_all(names)
        for i in np.flatnonzero(found < 0):
            found[i] = self.id(names[int(i)])  # written with a prefix, or unknown
        return found

    def unknown(self, names: Iterable[str]) -> list[str]:
        """The distinct names that have no id, in their order."""
        distinct = list(dict.fromkeys(names))
        left = [distinct[i] for i in np.flatnonzero(self._find_all(distinct) < 0)]
        return [name for name in left if not self._is_other_form(name)]

    def _find_all(self, names: Sequence[str]) -> NDArray[np.int32]:
        """The ids of names without prefixes, and -1 for others."""
        if len(self) > NAMES_PER_SEARCH * len(names):
            found = (self._find(name) for name in names)
            return np.fromiter((-1 if number is None else number for number in found), np.int32, len(names))
        import pyarrow.compute as pc

        return pc.index_in(pa.array(names, self.array.type), value_set=self.array).fill_null(-1).to_numpy().copy()

    def _is_other_form(self, name: str) -> bool:
        """Whether this is a name with a prefix, or a label, which may be that of several."""
        if self.prefixes and expand(name, self.prefixes) in self:
            return True
        return self.labels is not None and bool(self.labels.find(name))

    def check_new(self, names: Sequence[str]) -> None:
        """Raise an error if a name is empty, or another one but for case, white space and the encoding of accents.

        >>> Vocabulary(["Ann"]).check_new(["ann "])
        Traceback (most recent call last):
        dihedral.errors.DihedralError: entity 'ann ' differs from 'Ann' only in case, space or encoding; use one name
        """
        import pyarrow.compute as pc

        for name in names:
            if not name.strip():
                raise DihedralError(f"the new {self.kind} {name!r} has no name; give one")
            if name in self:
                raise DihedralError(f"{self.kind} {name!r} is in the graph already; a new one needs another name")
        known, new = plain(self.array), plain(pa.array(names, self.array.type))
        first = pc.index_in(new, value_set=new).to_pylist()
        for name, in_graph, among in zip(names, pc.index_in(new, value_set=known).to_pylist(), first, strict=True):
            other = names[among] if in_graph is None else self[in_graph]
            if other != name:
                raise DihedralError(
                    f"{self.kind} {name!r} differs from {other!r} only in case, space or encoding; use one name"
                )


def plain(names: pa.Array) -> pa.Array:
    """Names without what is easily overlooked: case, white space and the encoding of accents.

    >>> plain(pa.array(["Zoe\u0308  B", "zo\u00eb b"])).to_pylist()
    ['zoë b', 'zoë b']
    """
    import pyarrow.compute as pc

    names = pc.utf8_trim_whitespace(pc.utf8_lower(pc.utf8_normalize(names, form="NFC")))
    return pc.binary_join(pc.utf8_split_whitespace(names), pa.scalar(" ", names.type))
