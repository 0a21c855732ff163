"""Prefixes of IRIs: names are stored as full IRIs, and shown and typed as `ex:ann`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib import resources

WELL_KNOWN: dict[str, str] = tomllib.loads((resources.files(__package__) / "prefixes.toml").read_text("utf-8"))


def with_well_known(own: Mapping[str, str]) -> dict[str, str]:
    """The prefixes of a file, plus the well-known ones that do not conflict with them."""
    taken = set(own.values())
    return dict(own) | {
        prefix: namespace for prefix, namespace in WELL_KNOWN.items() if prefix not in own and namespace not in taken
    }


def shorten(text: str, prefixes: Mapping[str, str]) -> str:
    """A name, or text that contains names, with the longest matching namespace replaced by its prefix.

    >>> shorten("~http://xmlns.com/foaf/0.1/knows", WELL_KNOWN)
    '~foaf:knows'
    """
    if not prefixes:
        return text
    prefix_of = {namespace: prefix for prefix, namespace in prefixes.items()}
    longest_first = sorted(prefix_of, key=len, reverse=True)
    namespaces = rf"(?<![^\s~(,—])({'|'.join(map(re.escape, longest_first))})"  # at the start of a name, not within one
    return re.sub(namespaces, lambda found: f"{prefix_of[found[1]]}:", text)


def expand(name: str, prefixes: Mapping[str, str]) -> str:
    """The full IRI of a name with a known prefix; other names are returned unchanged.

    >>> expand("foaf:knows", WELL_KNOWN)
    'http://xmlns.com/foaf/0.1/knows'
    """
    prefix, colon, rest = name.partition(":")
    return prefixes[prefix] + rest if colon and prefix in prefixes else name
