"""Questions: triples with one part missing, and which answers may be given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dihedral.errors import DihedralError
from dihedral.graph import Graph

Part = Literal["head", "relation", "tail"]
PARTS: tuple[Part, ...] = ("head", "relation", "tail")
Question = tuple[str | None, str | None, str | None]
Known = Literal["include", "exclude"]
Order = Literal["auto", "probability", "score"]
ORDERS: tuple[Order, ...] = ("auto", "probability", "score")
CANDIDATES = ("signature", "range", "all")
Among = str | Sequence[str] | None  # one of CANDIDATES, or names of entities; None is "all"
Unknown = dict[tuple[str, str], list[int]]  # (kind, name) -> the questions with it, numbered from 1


def missing_part(head: str | None, relation: str | None, tail: str | None) -> Part:
    """The part that is asked for; exactly two of the three must be given."""
    missing = [part for part, value in zip(PARTS, (head, relation, tail), strict=True) if value is None]
    given = len(PARTS) - len(missing)
    if given != 2:
        raise DihedralError(f"{given} of head, relation and tail given; give two, and the third is predicted")
    return missing[0]


def check_options(top: int, known: str, *, among: Among = None, part: Part = "tail", order: str = "auto") -> None:
    """The options that all questions share."""
    if top < 1:
        raise DihedralError(f"top is {top}; ask for at least 1 answer")
    if known not in ("include", "exclude"):
        raise DihedralError(f"known is {known!r}; choose include or exclude")
    if order not in ORDERS:
        raise DihedralError(f"order is {order!r}; choose {', '.join(ORDERS)}")
    if part == "relation" and order == "probability":
        raise DihedralError("order is 'probability', but the relation is asked for; relations are ordered by score")
    if part == "relation" and among not in (None, "all"):
        raise DihedralError("among limits entities, but the relation is asked for; leave it out")


def unknown_names(graph: Graph, questions: Sequence[Question]) -> Unknown:
    """The names in questions that the graph does not have, with the numbers of these questions."""
    found: Unknown = {}
    for vocabulary, places in ((graph.entities, (0, 2)), (graph.relations, (1,))):
        asked: dict[str, list[int]] = {}
        for number, question in enumerate(questions, start=1):
            for name in dict.fromkeys(str(question[place]) for place in places if question[place] is not None):
                asked.setdefault(name, []).append(number)
        found |= {(vocabulary.kind, name): asked[name] for name in vocabulary.unknown(asked)}
    return found


def check_names(graph: Graph, unknown: Unknown) -> None:
    """Raise an error that lists all unknown names; for a single one, with names that may be meant."""
    if len(unknown) > 1:
        raise DihedralError(
            f"{len(unknown)} names are unknown: {list_unknown(unknown)}; correct them, or leave these questions out "
            "with --skip-unknown (skip_unknown=True)"
        )
    for (kind, name), numbers in unknown.items():
        try:
            (graph.entities if kind == "entity" else graph.relations).id(name)
        except DihedralError as error:
            raise DihedralError(f"{_numbered(numbers)}: {error}") from None


def list_unknown(unknown: Unknown) -> str:
    """The unknown names with the numbers of their questions, for a message."""
    return _shortened([f"{kind} {name!r} ({_numbered(numbers)})" for (kind, name), numbers in unknown.items()], 50)


def _numbered(numbers: Sequence[int]) -> str:
    return f"question{'s' if len(numbers) > 1 else ''} {_shortened(list(map(str, numbers)), 5)}"


def _shortened(items: list[str], limit: int) -> str:
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + more
