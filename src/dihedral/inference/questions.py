"""Questions: triples with one part missing, and which answers may be given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dihedral.errors import DihedralError

Part = Literal["head", "relation", "tail"]
PARTS: tuple[Part, ...] = ("head", "relation", "tail")
Question = tuple[str | None, str | None, str | None]
Known = Literal["include", "exclude"]
CANDIDATES = ("signature", "range", "all")
Among = str | Sequence[str] | None  # one of CANDIDATES, or names of entities; None is "all"


def missing_part(head: str | None, relation: str | None, tail: str | None) -> Part:
    """The part that is asked for; exactly two of the three must be given."""
    missing = [part for part, value in zip(PARTS, (head, relation, tail), strict=True) if value is None]
    given = len(PARTS) - len(missing)
    if given != 2:
        raise DihedralError(f"{given} of head, relation and tail are given; give two, the third is predicted")
    return missing[0]


def check_options(top: int, known: str, *, among: Among = None, part: Part = "tail") -> None:
    """The options that all questions share."""
    if top < 1:
        raise DihedralError(f"top is {top}; ask for at least 1 answer")
    if known not in ("include", "exclude"):
        raise DihedralError(f"known is {known!r}; choose include or exclude")
    if part == "relation" and among is not None:
        raise DihedralError("among limits entities, but the relation is asked for; leave it out")
