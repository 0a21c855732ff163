"""Types of entities: those of their labels, or the tails of a relation such as `isa`."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from dihedral.errors import DihedralError, close_matches
from dihedral.graph.triples import Graph

RELATIONS = {"isa", "type", "instanceof", "p31", "hastype", "hypernym"}  # without case, prefix and punctuation
Members = dict[str, NDArray[np.int64]]


def types_of(graph: Graph) -> Members:
    """The entities of each type, the largest types first; types of labels take precedence over those of facts."""
    labels = graph.entities.labels
    if labels is not None and "type" in labels.texts:
        texts = np.array(labels.texts["type"].array.to_pylist(), str)
        entities = np.flatnonzero(texts != "")
        kinds, which = np.unique(texts[entities], return_inverse=True)
        names = kinds.tolist()
    else:
        short = [re.sub(r"[\W_]", "", re.split(r"[/#:]", name)[-1].lower()) for name in graph.relations]
        wanted = [number for number, name in enumerate(short) if name in RELATIONS]
        facts = graph.known[np.isin(graph.known[:, 1], wanted)]
        entities = facts[:, 0].astype(np.int64)
        tails, which = np.unique(facts[:, 2], return_inverse=True)
        names = [graph.entities[number] for number in tails.tolist()]
    order, sizes = np.argsort(which, kind="stable"), np.bincount(which, minlength=len(names))
    parts = np.split(entities[order], np.cumsum(sizes)[:-1]) if names else []
    found = {name: np.unique(part) for name, part in zip(names, parts, strict=True)}
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def members_of(graph: Graph, name: str, types: Members | None = None) -> NDArray[np.int64]:
    """The entities of a type."""
    found = types_of(graph) if types is None else types
    if not found:
        raise DihedralError(f"type is {name!r:.200}, but the graph has no types: no labels with types, no isa relation")
    if name not in found:
        raise DihedralError(f"type {name!r:.200} is not among the {len(found)} types{close_matches(name, found)}")
    return found[name]
