"""Lists of results that show as a table in notebooks and convert to Arrow, pandas and polars."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import pyarrow as pa

from dihedral.graph import Graph
from dihedral.io.display import Tabular, table

Item = TypeVar("Item")
RULE_COLUMNS = ("confidence", "support", "score", "pca_confidence", "head_coverage", "order_matters")  # of a rule


class Results(list[Item], Tabular):
    """A list of named tuples, or of objects with `to_dict`, about the names of a graph.

    It is a plain list in every other respect.

    >>> from dihedral import make_family, train
    >>> predictor = train(make_family(40), "demo/family", epochs=2, progress=False)
    >>> predictor.predict(head="man_0000", relation="spouse", top=3).to_arrow().column_names
    ['head', 'relation', 'tail', 'score', 'known', 'probability']
    """

    def __init__(self, items: Iterable[Item], graph: Graph) -> None:
        super().__init__(items)
        self.graph = graph

    def __reduce__(self) -> tuple[Any, ...]:
        return Results, (list(self), self.graph)

    def _records(self) -> list[dict[str, Any]]:
        return [each._asdict() if hasattr(each, "_asdict") else each.to_dict() for each in self]  # type: ignore[attr-defined]

    def to_arrow(self) -> pa.Table:
        """One row per result, with columns of labels if the graph has any."""
        records = [{name: _plain(value) for name, value in record.items()} for record in self._records()]
        return with_labels(pa.Table.from_pylist(records), self.graph)

    def _repr_html_(self) -> str:
        records = self._records()
        if not records:
            return "<p>no results</p>"
        shown = (str, int, float, type(None), tuple)
        columns = [name for name, value in records[0].items() if isinstance(value, shown)]
        texts: list[list[Any]] = [[] for _ in records]
        if hasattr(self[0], "text"):  # a rule: its parts are in its text
            columns = [name for name in RULE_COLUMNS if name in columns]
            texts = [[each.text(self.graph.relations.shown)] for each in self]  # type: ignore[attr-defined]
        rows = [[*text, *(self._shown(name, record[name]) for name in columns)]
                for text, record in zip(texts, records, strict=True)]  # fmt: skip
        return table([*(["rule"] if texts[0] else []), *columns], rows)

    def _shown(self, column: str, value: Any) -> Any:
        show = self.graph.show(column)
        if isinstance(value, tuple):
            return " · ".join(show(each) if isinstance(each, str) else self._text(each) for each in value)
        return show(value) if isinstance(value, str) else value

    def _text(self, fact: Any) -> str:
        return " ".join(self.graph.show(part)(getattr(fact, part)) for part in ("head", "relation", "tail"))


def with_labels(found: pa.Table, graph: Graph) -> pa.Table:
    """The table with a column of labels for each column of names, if the graph has any."""
    for column in found.column_names:
        names = graph.names_in(column)
        if names is not None and names.labels is not None and found.schema.field(column).type == pa.string():
            labels = [names.label(name) or None for name in found[column].to_pylist()]
            found = found.append_column(f"{column}_label", pa.array(labels, pa.string()))
    return found


def _plain(value: Any) -> Any:
    """A value that Arrow can hold: named tuples become dicts."""
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):  # variables of an answer
        return [{"name": name, "value": each} for name, each in value.items()]
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value
