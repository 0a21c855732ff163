"""Choose the columns of a table that hold head, relation, tail and split, and check those that are left over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.numbering import distinct_names
from dihedral.graph.triples import SPLIT_NAMES, SPLITS

PARTS = ("head", "relation", "tail")
ROLES = (  # common names of the three columns
    ("head", "h", "subject", "source", "s"),
    ("relation", "r", "predicate", "p", "property", "type"),
    ("tail", "t", "object", "target", "o"),
)
LABELS = ("label", "labels", "truth", "y")  # names of columns that say whether a triple is true
FALSE, TRUE = {"0", "0.0", "-1", "-1.0", "false"}, {"1", "1.0", "true"}
MAX_VALUES = 8  # distinct values of a column that may be a split or a label
Splits = NDArray[np.int8]  # [n]: indices into SPLITS
NO_SPLIT, NO_SPLITS = -1, np.empty(0, np.int8)


@dataclass(frozen=True)
class Layout:
    """Which columns are used: the indices of head, relation and tail, and of the split, if there is one."""

    names: Sequence[str]
    triple: Sequence[int]
    split: int | None = None
    chosen: Literal["given", "found", "ordered"] = "found"  # by the user, by common names, or by their order

    @property
    def used(self) -> list[int]:
        return [*self.triple, *([] if self.split is None else [self.split])]

    @property
    def unused(self) -> list[int]:
        return [i for i in range(len(self.names)) if i not in self.used]

    @property
    def is_plain(self) -> bool:
        """Whether the columns are head, relation, tail and possibly split, and no others."""
        return not self.unused and [self.names[i].lower() for i in self.triple] == list(PARTS)

    def __str__(self) -> str:
        names = [self.names[i] for i in self.triple]
        text = f"columns {', '.join(names)} are read"
        if [name.lower() for name in names] != list(PARTS):
            text += " as head, relation, tail"
        if self.chosen == "ordered":
            text += ", in their order"
        if self.split is not None:
            text += f", and {self.names[self.split]} as the split"
        left = [self.names[i] for i in self.unused]
        more = f" and {len(left) - MAX_VALUES} more" if len(left) > MAX_VALUES else ""
        return text + (f"; not used: {', '.join(left[:MAX_VALUES])}{more}" if left else "")


def choose_columns(names: Sequence[str], columns: Sequence[str] | None, where: str) -> Layout:
    """The head, relation and tail columns by the given names, by common names, or the only three; and the split."""
    names = [name.strip() for name in names]
    splits = [i for i, name in enumerate(names) if name.lower() == "split"]
    common = common_columns(names)
    if columns is not None:
        layout = Layout(names, _named(names, columns, where), chosen="given")
    elif common is not None:
        layout = Layout(names, common)
    elif len(names) - len(splits) == 3:
        layout = Layout(names, [i for i in range(len(names)) if i not in splits], chosen="ordered")
    else:
        raise DihedralError(f"{where} has {len(names)} columns; expected 3, or name them with `columns`")
    splits = [i for i in splits if i not in layout.triple]
    if len(splits) > 1:
        raise DihedralError(f"{where} has {len(splits)} columns named split; names must be unique")
    return Layout(names, layout.triple, splits[0] if splits else None, layout.chosen)


def common_columns(names: Sequence[str]) -> list[int] | None:
    """The indices of the head, relation and tail columns, if they have common names.

    Of three columns, the one that is neither head nor tail is the relation, if those two have names of a whole word.
    """
    lower = [name.strip().lower() for name in names]
    places = [[lower.index(name) for name in role if name in lower] for role in ROLES]
    if all(places):
        return [place[0] for place in places]
    others = [i for i, name in enumerate(lower) if name != "split"]
    if len(others) == 3 and places[0] and places[2]:
        head, tail = places[0][0], places[2][0]
        if len(lower[head]) > 1 and len(lower[tail]) > 1:
            return [head, next(i for i in others if i not in (head, tail)), tail]
    return None


def _named(names: Sequence[str], columns: Sequence[str], where: str) -> list[int]:
    wanted = [name.strip() for name in columns]
    if len(set(wanted)) != 3:
        raise DihedralError(f"columns are {list(columns)!r}; name three different ones: head, relation, tail")
    for name in wanted:
        if name not in names:
            hint = "; it seems to be separated by semicolons" if len(names) == 1 and ";" in names[0] else ""
            raise DihedralError(f"{where} has no column {name!r}; its columns are {', '.join(names)}{hint}")
        if names.count(name) > 1:
            raise DihedralError(f"{where} has {names.count(name)} columns named {name!r}; names must be unique")
    return [list(names).index(name) for name in wanted]


def split_codes(column: pa.ChunkedArray, where: str) -> Splits:
    """The values of a split column as indices into SPLITS, and NO_SPLIT where there is none."""
    codes = [NO_SPLITS]
    for chunk in column.chunks:
        try:
            rows, names = distinct_names(chunk)
        except pa.ArrowException:
            raise DihedralError(f"{where}: column split is a column of {column.type}; expected names") from None
        values = [_cleaned(name) for name in names.to_pylist()]
        for value in values:
            if value and value not in SPLIT_NAMES:
                raise DihedralError(
                    f"{where}: column split has the value {value!r}; expected train, valid or test, or another column "
                    "name"
                )
        known = [SPLITS.index(SPLIT_NAMES[value]) if value else NO_SPLIT for value in values]
        codes.append(np.array([*known, NO_SPLIT], np.int8)[rows])
    return np.concatenate(codes)


def _cleaned(value: str | None) -> str:
    return (value or "").strip().lower()


class LeftOver:
    """The values of the columns that are not used, as long as they are few: they may be splits or labels."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        watched = {i: set[str]() for i in layout.unused}
        if layout.chosen != "given":  # a column `label` that was taken as the relation
            watched |= {i: set() for i in layout.triple if layout.names[i].lower() in LABELS}
        self.values = watched

    def add(self, place: int, column: pa.ChunkedArray) -> None:
        """Take note of the values of a column."""
        try:
            found = column.unique().slice(0, 8 * MAX_VALUES).cast(pa.string()).to_pylist()
        except pa.ArrowException:  # a type that is neither
            del self.values[place]
            return
        self.values[place] |= {_cleaned(value) for value in found} - {""}
        if len(self.values[place]) > MAX_VALUES:
            del self.values[place]

    def remarks(self, where: str) -> list[str]:
        """What the user should know about these columns; a column of true and false labels is an error."""
        remarks = []
        for place, values in self.values.items():
            name = self.layout.names[place]
            if name.lower() in LABELS and values & FALSE and values <= FALSE | TRUE:
                raise DihedralError(
                    f"{where} has a column {name!r} with the values {' and '.join(sorted(values))}, and a graph holds "
                    f"only true triples; keep those with {name} 1 and remove the column"
                )
            if values and values <= SPLIT_NAMES.keys():
                remarks.append(f"column {name} looks like a split but is not used; to use it, name it split")
        return remarks
