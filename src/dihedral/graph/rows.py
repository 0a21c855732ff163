"""Number the rows of one file or table, given in blocks: ids of the triples, and their splits if there are any."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dihedral.graph.columns import Layout, LeftOver, Splits, split_codes
from dihedral.graph.numbering import Numbering, grown
from dihedral.graph.triples import Triples

NO_TRIPLES = np.empty((0, 3), np.int32)
MIN_ROWS = 3  # of a file whose first line may be a header that was not recognised


class Rows(NamedTuple):
    """The triples of one file or table, and the split of each if a column gives it."""

    triples: Triples
    splits: Splits | None = None


class RowCollector:
    """Collects the numbered rows of one source, with notes about its columns."""

    def __init__(self, layout: Layout, numbering: Numbering, where: str) -> None:
        self.layout, self.numbering, self.where = layout, numbering, where
        self.left_over = LeftOver(layout)
        self.sizes = len(numbering.entities), len(numbering.relations)  # before this source
        self._triples = NO_TRIPLES
        self._splits = np.empty(0, np.int8)
        self._used = 0

    def add(self, table: pa.Table, share: float = 1.0) -> None:
        """Number the rows of a table, which are approximately this share of the source."""
        layout, stop = self.layout, self._used + len(table)
        part = self.numbering.number(table.select(list(layout.triple)), self.where, self._used)
        if not self._used and share < 1:  # allocate for the complete source, from the size of its first block
            self._triples = np.empty((int(1.02 * len(part) / share) + 1, 3), np.int32)
        if not self._used and share >= 1:
            self._triples = part
        else:
            self._triples = grown(self._triples, self._used, stop)
            self._triples[self._used : stop] = part
        if layout.split is not None:
            self._splits = grown(self._splits, self._used, stop)
            self._splits[self._used : stop] = split_codes(table.column(layout.split), self.where)
        for place in list(self.left_over.values):
            self.left_over.add(place, table.column(place))
        self._used = stop

    def finish(self, name: str, start: str = "") -> Rows:
        """All rows. name: of the source, for notes. start: text before the note about the columns."""
        if start or not self.layout.is_plain:
            self.numbering.note(name, f"{start}{self.layout}")
        for remark in self.left_over.remarks(self.where):
            self.numbering.note(name, remark)
        triples, splits = self._triples[: self._used], self._splits[: self._used]
        return Rows(triples, splits if self.layout.split is not None else None)

    def may_start_with_header(self, triples: Triples) -> bool:
        """Whether the names of the first triple occur nowhere else, so that it may be a header."""
        if len(triples) < MIN_ROWS:
            return False
        head, relation, tail = triples[0].tolist()
        if min(head, tail) < self.sizes[0] or relation < self.sizes[1] or head == tail:
            return False
        rest = triples[1:]
        pairs = ((1, relation), (0, head), (2, tail), (0, tail), (2, head))  # a relation usually occurs again
        return not any((rest[:, column] == number).any() for column, number in pairs)
