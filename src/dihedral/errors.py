"""Errors that a user can cause: one sentence that names the thing, the value and what is valid."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import Any

MAX_COMPARED = 50_000  # names that a misspelled one is compared with


class DihedralError(ValueError):
    """The user gave invalid input."""


class TrainingError(DihedralError):
    """Training cannot continue; the last checkpoint is kept."""


def optional_module(name: str, need: str) -> Any:
    """Import a module that a plain install may lack; need: the error message then."""
    try:
        return import_module(name)
    except ImportError:
        raise DihedralError(need) from None


def check_seed(seed: int) -> int:
    """Return the seed if it is valid for all random generators."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise DihedralError(f"seed is {seed!r}; it must be a whole number from 0 to {2**32 - 1}")
    return seed


def check_triples(triples: Iterable[object]) -> None:
    """Raise an error unless each item is a (head, relation, tail) tuple or list."""
    for triple in triples:
        if not isinstance(triple, (tuple, list)) or len(triple) != 3:
            raise DihedralError(f"{triple!r} is not a triple; give head, relation and tail")


def close_matches(name: str, names: Iterable[str], limit: int = 3) -> str:
    """A suffix for an error message, `; did you mean 'a', 'b'?`, or an empty string.

    >>> close_matches("prent", ["parent", "child"])
    "; did you mean 'parent'?"
    """
    shown = ", ".join(map(repr, close_names(name, names, limit)))
    return f"; did you mean {shown}?" if shown else ""


def close_names(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """The names that a misspelled one may mean, closest first.

    >>> close_names("prent", ["parent", "child"])
    ['parent']
    """
    wanted = name.casefold()
    by_key: dict[str, str] = {}
    for candidate in names:
        by_key.setdefault(candidate.casefold(), candidate)
    found = sorted((key for key in by_key if len(wanted) > 1 and key.startswith(wanted)), key=len)[:limit]
    pool = list(by_key)
    if len(pool) > MAX_COMPARED:  # a comparison takes microseconds: only names that start the same
        pool = [key for key in pool if key[:2] == wanted[:2]][:MAX_COMPARED]
    found += [key for key in difflib.get_close_matches(wanted, pool, limit, 0.6) if key not in found]
    if len(found) < limit:
        found += [key for key in by_key if len(wanted) > 2 and wanted in key and key not in found]
    return [by_key[key] for key in found[:limit]]
