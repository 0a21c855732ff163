"""Lookups for the server: entity names by search text, and the facts of one entity."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from dihedral.graph import Graph
from dihedral.graph.triples import SPLITS, Split
from dihedral.graph.vocabulary import Vocabulary

MAX_NAMES_IN_MEMORY = 1_000_000  # more names are searched in their file


def index_names(names: Vocabulary) -> NameIndex | StoredNameIndex:
    """A search index in memory, or for millions of names one that reads their file."""
    return NameIndex(names) if len(names) <= MAX_NAMES_IN_MEMORY else StoredNameIndex(names)


class StoredNameIndex:
    """Searches the stored, sorted names by their beginning: as typed, capitalized, in upper case and in lower case.

    >>> StoredNameIndex(Vocabulary(["Ann", "bob", "Anton"])).search("an", 5)
    [0, 2]
    """

    def __init__(self, names: Vocabulary) -> None:
        self.names = names

    def search(self, wanted: str, limit: int) -> list[int]:
        found: list[int] = []
        for text in dict.fromkeys((wanted, wanted.capitalize(), wanted.upper(), wanted.lower())):
            for number in self.names.after(text, limit):
                if len(found) >= limit or not self.names[number].startswith(text):
                    break
                if number not in found:
                    found.append(number)
        return found

    def around(self, wanted: str, count: int) -> list[int]:
        """The ids of names that follow a text in sorted order; they include those with the longest common prefix."""
        return self.names.after(wanted, count)


class NameIndex:
    """Searches names in lower case, sorted and joined into one string: one bisection, then one scan by `str.find`.

    >>> NameIndex(Vocabulary(["Ann", "bob", "Joanna"])).search("an", 5)
    [0, 2]
    """

    def __init__(self, names: Vocabulary) -> None:
        keys = [_key(name) for name in names]
        self.order = sorted(range(len(keys)), key=keys.__getitem__)
        self.keys = [keys[i] for i in self.order]
        self.text = "\n".join(self.keys)
        lengths = np.fromiter((len(key) + 1 for key in self.keys), np.int64, len(self.keys))
        self.starts = np.cumsum(lengths) - lengths  # offset of each name in the string

    def search(self, wanted: str, limit: int) -> list[int]:
        """The ids of names that start with a text, then of those that contain it, each in alphabetical order."""
        key = _key(wanted)
        first = bisect_left(self.keys, key)
        last = first
        while last < len(self.keys) and last - first < limit and self.keys[last].startswith(key):
            last += 1
        found = list(range(first, last))
        offset = 0
        while key and len(found) < limit and (offset := self.text.find(key, offset)) >= 0:
            row = int(np.searchsorted(self.starts, offset, side="right")) - 1
            if not first <= row < last:
                found.append(row)
            offset = int(self.starts[row]) + len(self.keys[row])  # continue with the next name
        return [self.order[row] for row in found]

    def around(self, wanted: str, count: int) -> list[int]:
        """The ids of names around a text in alphabetical order; they have the longest common prefixes with it."""
        first = max(0, bisect_left(self.keys, _key(wanted)) - count // 2)
        return self.order[first : first + count]


def _key(name: str) -> str:
    return name.casefold().replace("\n", " ")


class EntityFact(NamedTuple):
    """A fact from the point of view of one of its entities."""

    direction: Literal["out", "in"]  # out: the entity is the head; in: it is the tail
    relation: int
    entity: int  # the other entity
    split: Split


def entity_facts(graph: Graph, entity: int, max_per_side: int) -> Iterator[EntityFact]:
    """Facts with the entity as head, then facts with it as tail, up to `max_per_side` of each."""
    steps, ends, splits = (part.numpy() for part in graph.index.edges_of(entity))
    for direction, here in (("out", steps < graph.num_relations), ("in", steps >= graph.num_relations)):
        columns = (part[here][:max_per_side].tolist() for part in (steps % graph.num_relations, ends, splits))
        for relation, other, split in zip(*columns, strict=True):
            yield EntityFact(direction, relation, other, SPLITS[split])  # type: ignore[arg-type]
