"""Prefixes of IRIs: names are stored as full IRIs, and shown and typed as `ex:ann`."""

from __future__ import annotations

import re
from collections.abc import Mapping

WELL_KNOWN = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "dc": "http://purl.org/dc/elements/1.1/",
    "dcterms": "http://purl.org/dc/terms/",
    "schema": "http://schema.org/",
    "obo": "http://purl.obolibrary.org/obo/",
    "wd": "http://www.wikidata.org/entity/",
    "wdt": "http://www.wikidata.org/prop/direct/",
    "dbr": "http://dbpedia.org/resource/",
    "dbo": "http://dbpedia.org/ontology/",
    "yago": "http://yago-knowledge.org/resource/",
}


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
