"""Names as IRIs, and back.

A name that is an absolute IRI stands for itself. Any other name, and any that starts with the base, is percent-encoded
after the base, so that every IRI leads back to exactly one name.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from dihedral.errors import DihedralError

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
