"""The errors a user can cause: each is one sentence that names the thing, the value and what would be valid."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_COMPARED = 50_000


class DihedralError(ValueError):
    """Bad input: something the user gave is not what the library can work with."""


class TrainingError(DihedralError):
    """Training could not go on; the last good checkpoint is kept."""


def check_seed(seed: int) -> int:
    """The seed, if random generators can take it."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise DihedralError(f"seed is {seed!r}; it must be a whole number from 0 to {2**32 - 1}")
    return seed


def check_triples(triples: Iterable[object]) -> None:
    """Each is three parts: head, relation, tail."""
    for triple in triples:
        if not isinstance(triple, (tuple, list)) or len(triple) != 3:
            raise DihedralError(f"{triple!r} is no triple; give head, relation and tail")


def close_matches(name: str, names: Iterable[str], limit: int = 3) -> str:
    """A tail for an error message: `; did you mean 'a', 'b'?`, or nothing.

    >>> close_matches("prent", ["parent", "child"])
    "; did you mean 'parent'?"
    """
    shown = ", ".join(map(repr, close_names(name, names, limit)))
    return f"; did you mean {shown}?" if shown else ""


def close_names(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """The names that a misspelt one may stand for, the closest first.

    >>> close_names("prent", ["parent", "child"])
    ['parent']
    """
    wanted = name.casefold()
    by_key: dict[str, str] = {}
    for candidate in names:
        by_key.setdefault(candidate.casefold(), candidate)
    found = sorted((key for key in by_key if len(wanted) > 1 and key.startswith(wanted)), key=len)[:limit]
    pool = list(by_key)
    if len(pool) > MAX_COMPARED:  # comparing takes microseconds a name: keep to those that begin alike
        pool = [key for key in pool if key[:2] == wanted[:2]][:MAX_COMPARED]
    found += [key for key in difflib.get_close_matches(wanted, pool, limit, 0.6) if key not in found]
    if len(found) < limit:
        found += [key for key in by_key if len(wanted) > 2 and wanted in key and key not in found]
    return [by_key[key] for key in found[:limit]]
