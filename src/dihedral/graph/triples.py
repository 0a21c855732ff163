"""A knowledge graph: triples as integer arrays, with vocabularies of entities and relations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError, optional_module
from dihedral.graph.labels import LANGUAGES, choose_labels, labels_in, parse_languages
from dihedral.graph.vocabulary import Show, Vocabulary
from dihedral.io.display import Markup, table

if TYPE_CHECKING:
    from dihedral.graph.index import GraphIndex

Triples = NDArray[np.int32]  # [n, 3]: head, relation, tail
Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
SPLIT_NAMES: dict[str, Split] = {  # names of files and tables, and values of a split column; the first is preferred
    "train": "train", "training": "train", "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid",
    "test": "test",
}  # fmt: skip
ENTITY_COLUMNS = ("head", "tail", "entity", "answer", "through")  # columns of tables of results; so are ?x, ?y, …
RELATION_COLUMNS = ("relation",)
ROWS_PER_CHUNK = 1 << 19  # triples in a temporary array
DIVIDED = "split with seed"  # how the note of a graph begins whose splits the reader drew


class Graph:
    """Train, valid and test triples over one vocabulary of entities and one of relations.

    notes: what the reader changed or noticed, for the user.
    file: the file that the triples are memory-mapped from. Their ids are checked when they are first used; those of
    other graphs are checked here.

    >>> graph = Graph.from_names([("ann", "parent", "bob"), ("bob", "child", "ann")])
    >>> graph
    Graph('unnamed': 2 entities, 2 relations, 2 train / 0 valid / 0 test)
    >>> list(graph.names_of(graph.train))
    [('ann', 'parent', 'bob'), ('bob', 'child', 'ann')]
    """

    def __init__(
        self,
        entities: Vocabulary,
        relations: Vocabulary,
        train: Triples,
        valid: Triples,
        test: Triples,
        name: str = "unnamed",
        notes: tuple[str, ...] = (),
        file: str = "",
    ) -> None:
        self.entities, self.relations = entities, relations
        self.name, self.notes, self.file = name, notes, file
        self._splits: dict[str, Triples] = {"train": train, "valid": valid, "test": test}
        self._checked = False
        if not file:
            self.check()

    def __reduce__(self) -> tuple[Any, ...]:
        vocabularies, splits = (self.entities, self.relations), self._splits.values()
        return Graph, (*vocabularies, *splits, self.name, self.notes, self.file)  # without cached properties

    def replace(self, **changes: Any) -> Graph:
        """A copy with other entities, relations, train, valid, test, name or notes."""
        fields = {"entities": self.entities, "relations": self.relations, "name": self.name, "notes": self.notes}
        return Graph(**{**fields, **self._splits, **changes})

    def check(self) -> None:
        """Raise an error if a triple has an id outside the vocabularies; triples are checked only once."""
        if self._checked:
            return
        columns = (("entity", self.num_entities), ("relation", self.num_relations), ("entity", self.num_entities))
        for split, triples in self._splits.items():
            for ids, (kind, count) in zip(triples.T, columns, strict=True) if len(triples) else ():
                lowest, highest = ids.min(), ids.max()
                if lowest < 0 or highest >= count:
                    where = f"file {self.file!r}" if self.file else f"graph {self.name!r}"
                    bad = lowest if lowest < 0 else highest
                    raise DihedralError(f"{where} has {kind} id {bad} in {split}; valid ids are 0 <= id < {count}")
        self._checked = True

    @classmethod
    def from_names(
        cls,
        train: Sequence[tuple[str, str, str]],
        valid: Sequence[tuple[str, str, str]] = (),
        test: Sequence[tuple[str, str, str]] = (),
        *,
        name: str = "unnamed",
    ) -> Graph:
        """Build a graph from triples of names."""
        entities: dict[str, int] = {}
        relations: dict[str, int] = {}

        def number(triple: tuple[str, str, str]) -> list[int]:
            pairs = zip((entities, relations, entities), triple, strict=True)
            return [ids.setdefault(name, len(ids)) for ids, name in pairs]

        splits = [np.array(list(map(number, part)), np.int32).reshape(-1, 3) for part in (train, valid, test)]
        return build_graph(Vocabulary(list(entities)), Vocabulary(list(relations), "relation"), splits, name)

    @property
    def is_divided(self) -> bool:
        """Whether the reader divided the triples at random, because they came without splits."""
        return any(note.startswith(DIVIDED) for note in self.notes)

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    @property
    def num_triples(self) -> int:
        return sum(map(len, self._splits.values()))

    @property
    def train(self) -> Triples:
        return self.split("train")

    @property
    def valid(self) -> Triples:
        return self.split("valid")

    @property
    def test(self) -> Triples:
        return self.split("test")

    def split(self, name: str) -> Triples:
        """The triples of one split: [n, 3]."""
        if name not in self._splits:
            raise DihedralError(f"split {name!r} does not exist; choose train, valid or test")
        self.check()
        return self._splits[name]

    @property
    def known(self) -> Triples:
        """train ∪ valid ∪ test."""
        return np.concatenate([self.train, self.valid, self.test])

    def filtered(self, split: str) -> list[Triples]:
        """The parts whose facts filtered ranking of a split leaves out; only ranks of test depend on test."""
        return [self.split(name) for name in (SPLITS[:2] if split in SPLITS[:2] else SPLITS)]

    def filter_index(self, split: str) -> GraphIndex:
        """The facts that filtered ranking of a split leaves out, by entity and signed step."""
        return self.index if len(self.filtered(split)) == len(SPLITS) else self.evidence_index

    @cached_property
    def index(self) -> GraphIndex:
        """All known facts by entity and signed step."""
        from dihedral.graph.index import GraphIndex

        return GraphIndex.build([self.split(name) for name in SPLITS], self.num_entities, self.num_relations)

    @property
    def has_index(self) -> bool:
        """Whether the index has been built."""
        return "index" in self.__dict__

    @cached_property
    def train_index(self) -> GraphIndex:
        """The facts of training by entity and signed step."""
        return self.index.select(self.index.splits == 0)

    @cached_property
    def evidence_index(self) -> GraphIndex:
        """The facts of train and valid, on which probabilities and choices rest: test must not influence them."""
        return self.index.select(self.index.splits <= 1)

    @cached_property
    def by_degree(self) -> NDArray[np.int32]:
        """The entities with the most facts in train and valid first."""
        degrees = np.zeros(self.num_entities, np.int64)
        for name in SPLITS[:2]:
            for column in (0, 2):
                degrees += np.bincount(self.split(name)[:, column], minlength=self.num_entities)
        return np.argsort(-degrees, kind="stable").astype(np.int32)

    @cached_property
    def _by_relation(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = np.argsort(self.train[:, 1], kind="stable")
        return order, np.searchsorted(self.train[order, 1], np.arange(self.num_relations + 1))

    def facts_of(self, relation: int) -> Triples:
        """The training facts of a relation, in their order."""
        order, starts = self._by_relation
        return self.train[order[starts[relation] : starts[relation + 1]]]

    def names_of(self, triples: Triples) -> Iterator[tuple[str, str, str]]:
        """Triples of ids as triples of names."""
        for head, relation, tail in triples.tolist():
            yield self.entities[head], self.relations[relation], self.entities[tail]

    def with_labels(self, source: Any, *, language: str | Sequence[str] = LANGUAGES) -> Graph:
        """The same graph with labels for its entities and relations; its fingerprint does not change.

        source: a TSV, CSV, JSON, Parquet or RDF file, a table, or a dict from names to labels. Tables have the columns
        id and label, and may have description, type and language.
        language: such as "en,de"; of several labels, that of the first of these languages is taken.

        >>> graph = Graph.from_names([("Q42", "P106", "Q36180")])
        >>> labelled = graph.with_labels({"Q42": "Douglas Adams", "P106": "occupation"})
        >>> labelled.entities.shown("Q42"), labelled.relations.id("occupation")
        ('Douglas Adams (Q42)', 0)
        """
        from dihedral.graph.label_files import read_labels

        languages = parse_languages(language)
        table = read_labels(source, languages)
        entities, relations = (
            names.with_labels(choose_labels(names, table, languages)) for names in (self.entities, self.relations)
        )
        if entities.labels is None and relations.labels is None:
            first = table["id"][0].as_py() if len(table) else ""
            raise DihedralError(
                f"no id in the labels is a name of graph {self.name!r}: the first is {first!r:.80}, and a name of the "
                f"graph is {self.entities[0]!r:.80}"
            )
        return Graph(*(entities, relations, *self.__reduce__()[1][2:]))

    def names_in(self, column: str) -> Vocabulary | None:
        """The vocabulary whose names a column of this name holds, in tables of results."""
        if column in RELATION_COLUMNS:
            return self.relations
        return self.entities if column in ENTITY_COLUMNS or column.startswith("?") else None

    def show(self, column: str) -> Show:
        """How the values of a column are shown: names with their labels, and other text with prefixes."""
        names = self.names_in(column)
        return self.entities.short if names is None else names.shown

    def labels_in(self, content: Any) -> dict[str, str]:
        """The labels of all names in a value made of dicts and lists, by name."""
        return labels_in(content, (self.entities, self.relations))

    def to_arrow(self) -> pa.Table:
        """All triples as a table with the columns head, relation, tail and split, which `load_graph` reads back."""
        known = self.known.astype(np.int32)
        sizes = [len(self.split(name)) for name in SPLITS]
        columns = {
            "head": (known[:, 0], self.entities.array),
            "relation": (known[:, 1], self.relations.array),
            "tail": (known[:, 2], self.entities.array),
            "split": (np.repeat(np.arange(3, dtype=np.int32), sizes), pa.array(SPLITS)),
        }  # dictionary-encoded: each name is stored once
        return pa.table({name: pa.DictionaryArray.from_arrays(*column) for name, column in columns.items()})

    def to_networkx(self) -> Any:
        """A networkx MultiDiGraph: each triple is an edge with its relation as key and its split as attribute."""
        networkx = optional_module("networkx", "to_networkx needs networkx: pip install networkx")
        result = networkx.MultiDiGraph(name=self.name)
        entities, relations = list(self.entities), list(self.relations)
        result.add_nodes_from(entities)  # in the order of their ids
        for split in SPLITS:
            for head, relation, tail in self.split(split).tolist():
                edge = entities[head], entities[tail], relations[relation]
                if not result.has_edge(*edge):  # a fact in two splits keeps the first
                    result.add_edge(*edge, split=split)
        return result

    def to_pykeen(self) -> dict[Split, Any]:
        """A PyKEEN TriplesFactory per split, with the ids of this graph."""
        pykeen = optional_module("pykeen.triples", "to_pykeen needs PyKEEN: pip install 'dihedral[pykeen]'")
        import torch

        numbers = [{name: i for i, name in enumerate(names)} for names in (self.entities, self.relations)]
        triples = {split: torch.from_numpy(self.split(split)).long() for split in SPLITS}
        return {split: pykeen.TriplesFactory(part, *numbers) for split, part in triples.items()}

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 digest of names and triples: graphs with equal fingerprints give the same results."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update(f"{len(vocabulary)}\n".encode())
            for i, names in enumerate(vocabulary.chunks()):
                digest.update(("\n" * bool(i) + "\n".join(names)).encode())
        for name in SPLITS:
            triples = self.split(name)
            digest.update(f"\n{name} {len(triples)}\n".encode())
            for start in range(0, len(triples), ROWS_PER_CHUNK):
                digest.update(np.ascontiguousarray(triples[start : start + ROWS_PER_CHUNK], dtype="<i4").tobytes())
        return digest.hexdigest()

    def _repr_html_(self) -> str:
        sizes = [["entities", self.num_entities], ["relations", self.num_relations]]
        sizes += [[f"{name} facts", len(self.split(name))] for name in SPLITS]
        named = ([self.entities.shown(h), self.relations.shown(r), self.entities.shown(t)]
                 for h, r, t in self.names_of(self.train[:5]))  # fmt: skip
        facts = table(("head", "relation", "tail"), named, "the first training facts")
        return Markup(table(("", ""), sizes, self.name) + facts)

    def __repr__(self) -> str:
        return (
            f"Graph({self.name!r}: {self.num_entities} entities, {self.num_relations} relations, "
            f"{len(self.train)} train / {len(self.valid)} valid / {len(self.test)} test)"
        )


def build_graph(
    entities: Vocabulary, relations: Vocabulary, splits: Sequence[Triples], name: str, notes: Sequence[str] = ()
) -> Graph:
    """Build a graph from splits of ids; duplicates within a split are removed and counted in the notes."""
    if len(splits[0]) == 0:
        raise DihedralError(f"graph {name!r} has no training triples; it needs at least one")
    notes = list(notes)
    again, leaked = find_repeats(splits)
    for label, repeated in zip(SPLITS, again, strict=True):
        if repeated.any():
            notes.append(f"{label}: {repeated.sum()} duplicate triples left out")
    for label, count in zip(SPLITS, leaked, strict=True):
        if count:
            notes.append(f"{label}: {count} triples also occur in an earlier split")
    train, valid, test = (
        take_rows(part, ~repeated) if repeated.any() else part for part, repeated in zip(splits, again, strict=True)
    )
    return Graph(entities, relations, train, valid, test, name=name, notes=tuple(notes))


def find_repeats(splits: Sequence[Triples]) -> tuple[list[NDArray[np.bool_]], list[int]]:
    """Which triples of each split repeat an earlier one, and how many others are in an earlier split."""
    classes = 1
    while classes < 256 and classes * ROWS_PER_CHUNK < sum(map(len, splits)):
        classes *= 2
    class_of = [((part[:, 0] ^ part[:, 2]) & classes - 1).astype(np.uint8) for part in splits]
    again = [np.zeros(len(part), bool) for part in splits]
    leaked = [0] * len(splits)
    for number in range(classes):
        rows = [np.flatnonzero(its_class == number) for its_class in class_of]
        chosen = np.concatenate([part[its_rows] for part, its_rows in zip(splits, rows, strict=True)])
        order = np.lexsort(chosen.T)  # stable, so equal triples stay in the order of the splits
        split = np.repeat(np.arange(len(splits)), [len(its_rows) for its_rows in rows])[order]
        same = (chosen[order[1:]] == chosen[order[:-1]]).all(axis=1)  # as the previous one, whose split is not later
        within = np.append(False, same & (split[1:] == split[:-1]))
        across = np.append(False, same & (split[1:] != split[:-1]))
        row = np.concatenate(rows)[order]
        for i, repeated in enumerate(again):
            repeated[row[within & (split == i)]] = True
            leaked[i] += int((across & (split == i)).sum())
    return again, leaked


def drop_duplicates(triples: Triples) -> Triples:
    """The triples in their order, without repetitions."""
    (again,), _ = find_repeats([triples])
    return take_rows(triples, ~again) if again.any() else triples


def take_rows(triples: Triples, kept: NDArray[np.bool_]) -> Triples:
    """triples[kept], without the array of indices that takes more memory than the triples."""
    result = np.empty((int(kept.sum()), 3), triples.dtype)
    done = 0
    for start in range(0, len(triples), ROWS_PER_CHUNK):
        part = triples[start : start + ROWS_PER_CHUNK][kept[start : start + ROWS_PER_CHUNK]]
        result[done : done + len(part)] = part
        done += len(part)
    return result
