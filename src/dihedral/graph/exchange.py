"""Convert data in memory, such as data frames, networkx graphs and PyKEEN factories, to tables."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Number
from typing import Any

import pyarrow as pa

from dihedral.errors import DihedralError


def columns_of(source: Any) -> Any:
    """A list, generator or array of triples as three columns; other objects are returned unchanged."""
    if isinstance(source, Iterator):
        source = list(source)
    if not _are_triples(source):
        return source
    rows = [[_name(part, number) for part in row] for number, row in enumerate(source)]
    return dict(zip(("head", "relation", "tail"), map(list, zip(*rows, strict=True)), strict=True))


def _are_triples(source: Any) -> bool:
    """Whether the source is a list of (head, relation, tail) strings or an array [n, 3]."""
    if hasattr(source, "shape"):
        return len(source.shape) == 2 and source.shape[1] == 3 and not hasattr(source, "__arrow_c_stream__")
    if not isinstance(source, (tuple, list)) or not source:
        return False
    if not all(isinstance(row, (tuple, list)) and len(row) == 3 for row in source):
        return False
    return any(isinstance(part, str) for row in source for part in row)  # otherwise they are tables


def _name(part: Any, row: int) -> str | None:
    """A part of a triple as a name; numbers are names too, and NaN is a missing one."""
    if isinstance(part, str):
        return part
    if part is None or part != part:
        return None
    if isinstance(part, bool) or not isinstance(part, Number):
        raise DihedralError(f"row {row} (from 0) has {part!r:.80} as a name; names are strings or numbers")
    return str(part)


def as_table(source: Any) -> pa.Table:
    """A table with the Arrow interface (Arrow, pandas, polars), a networkx graph or a PyKEEN factory."""
    if hasattr(source, "is_multigraph") and hasattr(source, "edges"):
        return _networkx_table(source)
    if hasattr(source, "mapped_triples"):
        return _pykeen_table(source)
    if type(source).__name__ == "LazyFrame" and hasattr(source, "collect"):  # polars
        source = source.collect()
    try:
        return pa.table(source)
    except (TypeError, ValueError, pa.ArrowException):
        _check_cells(source)
        raise DihedralError(
            f"a graph cannot be read from a {type(source).__name__}; give the name of a benchmark, a path, a table "
            "with three columns (Arrow, pandas, polars), a networkx graph or PyKEEN triples"
        ) from None


def _check_cells(source: Any) -> None:
    """Raise an error for the first cell of a pandas frame that is not a string among strings."""
    if not (hasattr(source, "iloc") and hasattr(source, "items")):
        return
    for name, column in source.items():
        texts = any(isinstance(value, str) for value in column)
        for row, value in enumerate(column):
            if texts and not isinstance(value, str) and value is not None and value == value:
                raise DihedralError(
                    f"column {name!r} has {value!r:.80} in row {row} (from 0); its names must be strings"
                )


def _networkx_table(graph: Any) -> pa.Table:
    """Edges as triples: the relation is the attribute `relation`, or else the key of a multigraph edge."""
    if not graph.is_directed():
        raise DihedralError(f"a networkx {type(graph).__name__} is undirected; give a MultiDiGraph or a DiGraph")
    nodes = {node: str(node) for node in graph}
    if len(set(nodes.values())) < len(nodes):
        raise DihedralError("two nodes of the networkx graph convert to the same string; names must be unique")
    edges = graph.edges(keys=True, data=True) if graph.is_multigraph() else graph.edges(data=True)
    rows = []
    for head, tail, *key, data in edges:
        relation = data.get("relation", key[0] if key and isinstance(key[0], str) else None)
        if relation is None:
            raise DihedralError(
                f"the edge from {head!r} to {tail!r} has no relation; set the attribute `relation`, or use a "
                "MultiDiGraph with relations as keys"
            )
        rows.append((nodes[head], str(relation), nodes[tail], data.get("split")))
    columns = zip(*rows, strict=True) if rows else ((), (), (), ())
    table = pa.table([pa.array(column, pa.string()) for column in columns], ["head", "relation", "tail", "split"])
    return table if any(row[3] is not None for row in rows) else table.drop_columns("split")


def _pykeen_table(factory: Any) -> pa.Table:
    if not hasattr(factory, "entity_to_id"):
        raise DihedralError(f"a {type(factory).__name__} has no names; give a TriplesFactory")
    triples = factory.mapped_triples.numpy()
    names = {"head": factory.entity_to_id, "relation": factory.relation_to_id, "tail": factory.entity_to_id}
    columns = {}
    for i, (column, ids) in enumerate(names.items()):
        ordered: list[str | None] = [None] * (max(ids.values()) + 1)
        for name, number in ids.items():
            ordered[number] = name
        columns[column] = pa.DictionaryArray.from_arrays(triples[:, i], pa.array(ordered, pa.string()))
    return pa.table(columns)
