"""A knowledge graph: triples as integer arrays, with the names of entities and relations beside them."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import MAX_COMPARED, DihedralError, close_matches
from dihedral.graph.prefixes import expand, shorten

if TYPE_CHECKING:
    from dihedral.graph.index import GraphIndex

Triples = NDArray[np.int32]  # [n, 3]: head, relation, tail
Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
NAMES_AT_ONCE = 1 << 16  # as Python strings
NAMES_A_SEARCH = 200  # Arrow hashes so many names in the time of one bisection
NEIGHBOURS = 300  # of a misspelt name, on each side
ROWS_AT_ONCE = 1 << 19  # of triples, for temporary arrays


class Vocabulary(Sequence[str]):
    """Names numbered 0..n-1, held as an Arrow string array so that a stored one opens memory-mapped.

    A name is found by bisection in the order of the names' bytes: nothing is built that grows with their number.

    prefixes: of names that are IRIs; `id` then takes ex:ann for http://example.org/ann, `short` gives it.
    order: the ids in the order of their names, where it is stored.
    file: where the array lies, if it is not known to be whole: it is checked before all of it is used, and a single
    name when it is read.
    """

    def __init__(
        self,
        names: Sequence[str] | pa.Array,
        kind: str = "entity",
        prefixes: Mapping[str, str] | None = None,
        *,
        order: NDArray[np.int32] | None = None,
        file: str = "",
    ) -> None:
        self.kind = kind
        self.prefixes = dict(prefixes or {})
        self._array = names if isinstance(names, pa.Array) else pa.array(names, pa.string())
        self.file = file
        self._checked = not file
        if order is not None:
            self.__dict__["order"] = order

    @property
    def array(self) -> pa.Array:
        """All names."""
        if not self._checked:
            try:
                self._array.validate(full=True)
            except pa.ArrowException:
                raise self._damaged() from None
            self._checked = True
        return self._array

    @cached_property
    def order(self) -> NDArray[np.int32]:
        """The ids in the order of their names' bytes."""
        import pyarrow.compute as pc  # on first use, here and below: it takes a tenth of this package's import

        return pc.sort_indices(self.array).to_numpy().astype(np.int32)

    @cached_property
    def _bounds(self) -> tuple[NDArray[Any], memoryview]:
        """Where each name begins and ends, and the text."""
        wide = self._array.type == pa.large_string()
        first = self._array.offset
        _, ends, text = self._array.buffers()
        if ends is None:  # of an empty array
            return np.zeros(1, np.int32), memoryview(b"")
        numbers = np.frombuffer(ends, np.int64 if wide else np.int32)
        return numbers[first : first + len(self) + 1], memoryview(text or b"")

    def __getstate__(self) -> dict[str, Any]:
        """For other processes: without views of memory, which are made anew."""
        return {name: value for name, value in self.__dict__.items() if name != "_bounds"}

    def _bytes(self, number: int) -> bytes:
        ends, text = self._bounds
        if not 0 <= number < len(self) or not 0 <= ends[number] <= ends[number + 1] <= len(text):
            raise self._damaged()
        return bytes(text[ends[number] : ends[number + 1]])

    def _damaged(self) -> DihedralError:
        return DihedralError(f"{self.file!r} cannot be read: its {self.kind} names are damaged; copy the folder again")

    def _place(self, wanted: bytes) -> int:
        """How many names come before some bytes."""
        return bisect_left(self.order, wanted, key=lambda number: self._bytes(int(number)))

    def after(self, text: str, count: int) -> list[int]:
        """Ids of the first names, in order, that do not come before a text."""
        place = self._place(text.encode("utf-8", "surrogatepass"))
        return self.order[place : place + count].tolist()

    def _find(self, name: str) -> int | None:
        wanted = name.encode("utf-8", "surrogatepass")
        place = self._place(wanted)
        found = int(self.order[place]) if place < len(self) else -1
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
        for start in range(0, len(self), NAMES_AT_ONCE):
            yield from self.array[start : start + NAMES_AT_ONCE].to_pylist()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.array.equals(other.array)

    __hash__ = None  # type: ignore[assignment]

    def id(self, name: str) -> int:
        """The number of a name; an unknown one raises with close matches."""
        if not isinstance(name, str):
            raise DihedralError(f"{self.kind} {name!r} is a {type(name).__name__}; names are text")
        found = self._find(name)
        if found is None and self.prefixes:
            found = self._find(expand(name, self.prefixes))
        if found is None:
            hint = close_matches(name, self._alike(name))
            raise DihedralError(f"{self.kind} {name!r} is not among the {len(self)} known to the graph{hint}")
        return found

    def _alike(self, name: str) -> Iterable[str]:
        """The names that a misspelt one is compared with: all, or of many those that stand beside it."""
        if len(self) <= MAX_COMPARED:
            return self
        spellings = {name, name.lower(), name.upper(), name.capitalize(), name.title(), expand(name, self.prefixes)}
        places = [self._place(spelling.encode("utf-8", "surrogatepass")) for spelling in spellings]
        near = {int(i) for place in places for i in self.order[max(0, place - NEIGHBOURS) : place + NEIGHBOURS]}
        return [self._bytes(i).decode("utf-8", "replace") for i in sorted(near)]

    def short(self, text: str) -> str:
        """A name, or text with names in it, with prefixes in place of namespaces: for people."""
        return shorten(text, self.prefixes)

    def ids(self, names: Sequence[str]) -> NDArray[np.int32]:
        if len(self) > NAMES_A_SEARCH * len(names) or not all(isinstance(name, str) for name in names):
            return np.fromiter(map(self.id, names), np.int32, len(names))
        import pyarrow.compute as pc

        found = pc.index_in(pa.array(names, self.array.type), value_set=self.array).fill_null(-1).to_numpy().copy()
        for place in np.flatnonzero(found < 0):
            found[place] = self.id(names[int(place)])  # written with a prefix, or unknown
        return found

    def without(self, names: Vocabulary) -> list[str]:
        """The names here that another vocabulary does not have."""
        import pyarrow.compute as pc

        return self.array.filter(
            pc.invert(pc.is_in(self.array, value_set=names.array.cast(self.array.type)))
        ).to_pylist()


@dataclass(frozen=True, eq=False)
class Graph:
    """Train, valid and test triples over one vocabulary of entities and one of relations.

    >>> graph = Graph.from_labels([("ann", "parent", "bob"), ("bob", "child", "ann")])
    >>> graph
    Graph('unnamed': 2 entities, 2 relations, 2 train / 0 valid / 0 test)
    >>> list(graph.labels(graph.train))
    [('ann', 'parent', 'bob'), ('bob', 'child', 'ann')]
    """

    entities: Vocabulary
    relations: Vocabulary
    train: Triples
    valid: Triples
    test: Triples
    name: str = "unnamed"
    notes: tuple[str, ...] = field(default=())  # what reading changed or noticed, for the user

    @classmethod
    def from_labels(
        cls,
        train: Sequence[tuple[str, str, str]],
        valid: Sequence[tuple[str, str, str]] = (),
        test: Sequence[tuple[str, str, str]] = (),
        *,
        name: str = "unnamed",
    ) -> Graph:
        """A graph from named triples held in memory."""
        entities: dict[str, int] = {}
        relations: dict[str, int] = {}

        def number(triples: Sequence[tuple[str, str, str]]) -> Triples:
            rows = [
                (
                    entities.setdefault(head, len(entities)),
                    relations.setdefault(relation, len(relations)),
                    entities.setdefault(tail, len(entities)),
                )
                for head, relation, tail in triples
            ]
            return np.array(rows, dtype=np.int32).reshape(-1, 3)

        splits = [number(train), number(valid), number(test)]
        return build_graph(Vocabulary(list(entities)), Vocabulary(list(relations), "relation"), splits, name)

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    def replace(self, **changes: Any) -> Graph:
        """A copy with other parts."""
        return replace(self, **changes)

    def split(self, name: str) -> Triples:
        if name not in SPLITS:
            raise DihedralError(f"split {name!r} does not exist; choose train, valid or test")
        return {"train": self.train, "valid": self.valid, "test": self.test}[name]

    @property
    def num_triples(self) -> int:
        return len(self.train) + len(self.valid) + len(self.test)

    @property
    def known(self) -> Triples:
        """train ∪ valid ∪ test: what filtered ranking leaves out."""
        return np.concatenate([self.train, self.valid, self.test])

    @cached_property
    def index(self) -> GraphIndex:
        """All known facts by entity and signed step."""
        from dihedral.graph.index import GraphIndex

        return GraphIndex.build([self.split(name) for name in SPLITS], self.num_entities, self.num_relations)

    @cached_property
    def train_index(self) -> GraphIndex:
        """The facts of training by entity and signed step."""
        return self.index.select(self.index.splits == 0)

    @cached_property
    def _by_relation(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = np.argsort(self.train[:, 1], kind="stable")
        return order, np.searchsorted(self.train[order, 1], np.arange(self.num_relations + 1))

    def facts_of(self, relation: int) -> Triples:
        """The training facts of a relation, in their order."""
        order, starts = self._by_relation
        return self.train[order[starts[relation] : starts[relation + 1]]]

    def labels(self, triples: Triples) -> Iterator[tuple[str, str, str]]:
        for head, relation, tail in triples.tolist():
            yield self.entities[head], self.relations[relation], self.entities[tail]

    def to_arrow(self) -> pa.Table:
        """All triples as a table of head, relation, tail and split, which `load_graph` reads back."""
        known = self.known.astype(np.int32)
        sizes = [len(self.split(name)) for name in SPLITS]
        columns = {
            "head": (known[:, 0], self.entities.array),
            "relation": (known[:, 1], self.relations.array),
            "tail": (known[:, 2], self.entities.array),
            "split": (np.repeat(np.arange(3, dtype=np.int32), sizes), pa.array(SPLITS)),
        }  # names stand once, rows are numbers
        return pa.table({name: pa.DictionaryArray.from_arrays(*column) for name, column in columns.items()})

    def to_networkx(self) -> Any:
        """A networkx MultiDiGraph: a triple is an edge with its relation as key and its split as attribute."""
        from dihedral.graph.exchange import to_networkx

        return to_networkx(self)

    def to_pykeen(self) -> dict[Split, Any]:
        """PyKEEN's TriplesFactory of each split, with this graph's ids in all of them."""
        from dihedral.graph.exchange import to_pykeen

        return to_pykeen(self)

    @cached_property
    def fingerprint(self) -> str:
        """A sum over names and triples: two graphs with one fingerprint give the same numbers."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update(f"{len(vocabulary)}\n".encode())
            for start in range(0, len(vocabulary), NAMES_AT_ONCE):
                digest.update(("\n" * bool(start) + "\n".join(vocabulary[start : start + NAMES_AT_ONCE])).encode())
        for name in SPLITS:
            triples = self.split(name)
            digest.update(f"\n{name} {len(triples)}\n".encode())
            for start in range(0, len(triples), ROWS_AT_ONCE):
                digest.update(np.ascontiguousarray(triples[start : start + ROWS_AT_ONCE], dtype="<i4").tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return (
            f"Graph({self.name!r}: {self.num_entities} entities, {self.num_relations} relations, "
            f"{len(self.train)} train / {len(self.valid)} valid / {len(self.test)} test)"
        )


def build_graph(
    entities: Vocabulary,
    relations: Vocabulary,
    splits: Sequence[Triples],
    name: str,
    notes: Sequence[str] = (),
) -> Graph:
    """A graph from numbered splits, duplicates within a split dropped and counted."""
    if len(splits[0]) == 0:
        raise DihedralError(f"graph {name!r} has no training triples; it needs at least one")
    notes = list(notes)
    again, leaked = find_repeats(splits, len(entities), len(relations))
    for label, repeated in zip(SPLITS, again, strict=True):
        if repeated.any():
            notes.append(f"{label}: {repeated.sum()} duplicate triples left out")
    for label, count in zip(SPLITS, leaked, strict=True):
        if count:
            notes.append(f"{label}: {count} triples also stand in an earlier split")
    train, valid, test = (
        take_rows(part, ~repeated) if repeated.any() else part for part, repeated in zip(splits, again, strict=True)
    )
    return Graph(entities, relations, train, valid, test, name=name, notes=tuple(notes))


def find_repeats(
    splits: Sequence[Triples], num_entities: int, num_relations: int
) -> tuple[list[NDArray[np.bool_]], list[int]]:
    """Of each split: which triples stood in it before, and how many of the others stand in an earlier split.

    Triples are compared in classes that hold all copies of a triple, so that sorting takes little memory.
    """
    classes = 1
    while classes < 256 and classes * ROWS_AT_ONCE < sum(map(len, splits)):
        classes *= 2
    class_of = [((part[:, 0] ^ part[:, 2]) & classes - 1).astype(np.uint8) for part in splits]
    again = [np.zeros(len(part), bool) for part in splits]
    leaked = [0] * len(splits)
    for number in range(classes):
        rows = [np.flatnonzero(its_class == number) for its_class in class_of]
        chosen = np.concatenate([part[its_rows] for part, its_rows in zip(splits, rows, strict=True)])
        order = sort_triples(chosen, num_entities, num_relations)
        split = np.repeat(np.arange(len(splits)), [len(its_rows) for its_rows in rows])[order]
        same = (chosen[order[1:]] == chosen[order[:-1]]).all(axis=1)  # as the one before, whose split is not later
        within = np.append(False, same & (split[1:] == split[:-1]))
        across = np.append(False, same & (split[1:] != split[:-1]))
        row = np.concatenate(rows)[order]
        for i, repeated in enumerate(again):
            repeated[row[within & (split == i)]] = True
            leaked[i] += int((across & (split == i)).sum())
    return again, leaked


def sort_triples(triples: Triples, num_entities: int, num_relations: int) -> NDArray[np.int64]:
    """Where the triples stand when ordered by head, relation, tail; equal ones stay in their order."""
    if keys_fit(num_entities, num_relations):
        return np.argsort(triple_keys(triples, num_entities, num_relations), kind="stable")
    return np.lexsort(triples.T[::-1])


def keys_fit(num_entities: int, num_relations: int) -> bool:
    """Whether every possible triple has a 64-bit number of its own."""
    return num_entities * num_relations * num_entities < 2**63


def triple_keys(triples: Triples, num_entities: int, num_relations: int) -> NDArray[np.int64]:
    """One 64-bit number a triple, ordered by head, relation, tail."""
    if not keys_fit(num_entities, num_relations):
        raise DihedralError(
            f"{num_entities} entities and {num_relations} relations make more than 2^63 possible triples"
        )
    head, relation, tail = triples.astype(np.int64).T
    return (head * num_relations + relation) * num_entities + tail


def members_of(triples: Triples, column: int, num_relations: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct heads (column 0) or tails (column 2), relation by relation, and where each relation's begin: [R + 1]."""
    most = int(triples[:, column].max(initial=0)) + 1
    pairs = triples[:, 1].astype(np.int64)
    pairs *= most
    pairs += triples[:, column]
    pairs.sort()  # np.unique takes several times as long
    relation, members = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], most)
    return members, np.searchsorted(relation, np.arange(num_relations + 1))


def drop_duplicates(triples: Triples, num_entities: int, num_relations: int) -> Triples:
    """The triples in their order, each kept the first time only."""
    (again,), _ = find_repeats([triples], num_entities, num_relations)
    return take_rows(triples, ~again) if again.any() else triples


def take_rows(triples: Triples, kept: NDArray[np.bool_]) -> Triples:
    """triples[kept] without the list of their places, which takes more memory than the triples."""
    result = np.empty((int(kept.sum()), 3), triples.dtype)
    done = 0
    for start in range(0, len(triples), ROWS_AT_ONCE):
        part = triples[start : start + ROWS_AT_ONCE][kept[start : start + ROWS_AT_ONCE]]
        result[done : done + len(part)] = part
        done += len(part)
    return result
