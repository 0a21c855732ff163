"""Changes of a graph: facts that are added and removed, checked before anything is done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dihedral.errors import DihedralError, check_triples
from dihedral.graph.readers import load_graph
from dihedral.graph.triples import SPLITS, Graph, Triples
from dihedral.graph.vocabulary import Vocabulary
from dihedral.io.iris import expand

NamedFact = tuple[str, str, str]
NUM_LISTED = 3  # in an error


@dataclass(frozen=True, eq=False)
class Change:
    """A graph before and after a change. Known names keep their ids, so ids of before are valid after it."""

    before: Graph
    after: Graph
    added: Triples  # to train
    removed: Triples  # from train
    num_removed: int  # from all splits
    num_known: int  # facts to add that the graph held already, in any split

    @property
    def new_entities(self) -> NDArray[np.int64]:
        return np.arange(self.before.num_entities, self.after.num_entities)

    @property
    def num_new_relations(self) -> int:
        return self.after.num_relations - self.before.num_relations

    def to_dict(self) -> dict[str, Any]:
        """The counts; no fact."""
        return {
            "added": len(self.added), "removed": self.num_removed, "new_entities": len(self.new_entities),
            "new_relations": self.num_new_relations, "known_already": self.num_known,
        }  # fmt: skip


def read_facts(source: Any) -> list[NamedFact]:
    """Facts from a list of triples, or from anything that `load_graph` reads, by name."""
    if source is None:
        return []
    if isinstance(source, (list, tuple)) and source and all(isinstance(part, str) for part in source):
        raise DihedralError(f"facts are {source!r}; give a list of triples")
    if isinstance(source, (list, tuple)) and all(isinstance(row, (tuple, list)) for row in source):
        check_triples(source)
        for row in source:
            if any(part is None for part in row):
                raise DihedralError(f"fact {tuple(row)!r} has None for a name; give head, relation and tail")
        return [(str(head), str(relation), str(tail)) for head, relation, tail in source]
    graph = load_graph(source, valid=0.0, test=0.0)
    return list(graph.names_of(graph.known))


def change_graph(
    graph: Graph, add: Sequence[NamedFact], remove: Sequence[NamedFact], *, may_be_none: bool = False
) -> Change:
    """Apply a change to a graph; an error for the first thing in it that is not valid.

    may_be_none: it is no error if nothing changes.
    """
    add, remove = (_full_names(graph, facts) for facts in (add, remove))
    gone = _find_removed(graph, remove)
    entities = _extended(graph.entities, (name for head, _, tail in add for name in (head, tail)))
    relations = _extended(graph.relations, (relation for _, relation, _ in add))
    joined = {name for head, _, tail in add if head != tail for name in (head, tail)}
    for name in entities[graph.num_entities :]:
        if name not in joined:
            raise DihedralError(f"entity {name!r} has no facts with other entities; give at least one to place it by")
    heads, kinds, tails = ([fact[part] for fact in add] for part in range(3))
    wanted = np.stack([entities.ids(heads), relations.ids(kinds), entities.ids(tails)], axis=1).astype(np.int32)
    if (both := _among(wanted, gone)).any():
        raise DihedralError(f"fact {add[int(both.argmax())]!r} is given both to add and to remove; leave one out")
    wanted = _distinct(wanted)
    is_known = _among(wanted, graph.known)
    added = wanted[~is_known]
    if not (len(added) or len(gone) or may_be_none):
        known = "the graph already has the facts to add" if add else "no facts are given"
        raise DihedralError(f"nothing would change: {known}")
    is_gone = {split: _among(graph.split(split), gone) for split in SPLITS}
    kept = {split: graph.split(split)[~mask] for split, mask in is_gone.items()}
    if not len(kept["train"]):
        raise DihedralError("no training facts would be left; a graph needs at least one")
    kept["train"] = np.concatenate([kept["train"], added])
    after = graph.replace(entities=entities, relations=relations, **kept)
    return Change(graph, after, added, graph.train[is_gone["train"]], len(gone), int(is_known.sum()))


def with_relations_of(graph: Graph, relations: Vocabulary) -> Graph:
    """A graph with the ids of other relations, which must hold its own."""
    if unknown := relations.unknown(graph.relations):
        raise DihedralError(
            f"graph {graph.name!r} has relations that the model does not know: {unknown[0]!r:.80}"
            f"{', …' * (len(unknown) > 1)}; leave their facts out, or add some with `dihedral update`"
        )
    ids = relations.ids(list(graph.relations))
    splits = {split: graph.split(split).copy() for split in SPLITS}
    for triples in splits.values():
        triples[:, 1] = ids[triples[:, 1]]
    return graph.replace(relations=relations, **splits)


def _full_names(graph: Graph, facts: Iterable[NamedFact]) -> list[NamedFact]:
    entities, relations = graph.entities.prefixes, graph.relations.prefixes
    return list(dict.fromkeys((expand(h, entities), expand(r, relations), expand(t, entities)) for h, r, t in facts))


def _extended(names: Vocabulary, used: Iterable[str]) -> Vocabulary:
    """The vocabulary with the names in use that it does not have."""
    if new := names.unknown(used):
        names.check_new(new)
    return names.extended(new) if new else names


def _find_removed(graph: Graph, facts: Sequence[NamedFact]) -> Triples:
    """The ids of facts, all of which the graph holds."""
    vocabularies = graph.entities, graph.relations, graph.entities
    rows = [[names.find(name) for names, name in zip(vocabularies, fact, strict=True)] for fact in facts]
    ids = np.array([[-1 if part is None else part for part in row] for row in rows], np.int32).reshape(-1, 3)
    if missing := [fact for fact, found in zip(facts, _among(ids, graph.known).tolist(), strict=True) if not found]:
        listed = ", ".join(map(str, missing[:NUM_LISTED])) + (", …" if len(missing) > NUM_LISTED else "")
        count = f"{len(missing)} of the {len(facts)} facts to remove are" if len(missing) > 1 else "a fact to remove is"
        raise DihedralError(f"{count} not in the graph: {listed}; nothing was changed")
    return _distinct(ids)


def _distinct(triples: Triples) -> Triples:
    """Triples without repetitions: a fact may be given by names and by labels."""
    _, first = np.unique(triples, axis=0, return_index=True)
    return triples[np.sort(first)]


def _among(triples: Triples, others: Triples) -> NDArray[np.bool_]:
    """Which triples are among others; an id of -1 is that of an unknown name."""
    both = triples.astype(np.int64) + 1, others.astype(np.int64) + 1
    entities, relations = (1 + max(int(each[:, part].max(initial=0)) for each in both) for part in ([0, 2], [1]))
    own, theirs = ((each[:, 0] * relations + each[:, 1]) * entities + each[:, 2] for each in both)
    return np.isin(own, theirs)
