"""Names as IRIs, and back; prefixes of IRIs, which are stored in full, and shown and typed as `ex:ann`.

A name that is an absolute IRI stands for itself. Any other name, and any that starts with the base, is percent-encoded
after the base, so that every IRI leads back to exactly one name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from urllib.parse import quote, unquote

from dihedral.errors import DihedralError

WELL_KNOWN: dict[str, str] = tomllib.loads((resources.files(__package__) / "prefixes.toml").read_text("utf-8"))
BASE = "urn:dihedral:"
CHARACTER = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF]|%[0-9A-Fa-f]{2})"
ABSOLUTE = re.compile(
    rf"[A-Za-z][A-Za-z0-9+.\-]*:(?://(?:(?:{CHARACTER}|:)*@)?{CHARACTER}*(?::[0-9]*)?(?:/(?:{CHARACTER}|[:@/])*)?"
    rf"|(?!//)(?:{CHARACTER}|[:@/])+)(?:\?(?:{CHARACTER}|[:@/?])*)?(?:#(?:{CHARACTER}|[:@/?])*)?"
)  # RFC 3987 without IP addresses in brackets and without private characters


def check_base(base: str) -> str:
    if ABSOLUTE.fullmatch(f"{base}x") is None:
        raise DihedralError(f"base is {base!r}; it must be the start of an absolute IRI, such as {BASE!r}")
    return base


def to_iri(name: str, base: str = BASE) -> str:
    """
    >>> to_iri("http://example.org/ann"), to_iri("Ann Smith")
    ('http://example.org/ann', 'urn:dihedral:Ann%20Smith')
    """
    if ABSOLUTE.fullmatch(name) and not name.startswith(base):
        return name
    encoded = quote(name, safe="", errors="surrogatepass")
    return base + (encoded.replace(".", "%2E") if set(encoded) <= {"."} else encoded)  # dots alone are relative paths


def to_statement(fact: tuple[str, str, str], base: str = BASE) -> str:
    """Head, relation and tail as IRIs, in N-Triples and N-Quads."""
    return " ".join(f"<{to_iri(name, base)}>" for name in fact)


def from_iri(iri: str, base: str = BASE) -> str:
    """The name of an IRI that `to_iri` wrote; another IRI stands for itself."""
    try:
        return unquote(iri.removeprefix(base), errors="surrogatepass") if iri.startswith(base) else iri
    except UnicodeDecodeError:  # the percent signs do not encode UTF-8
        return iri


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
