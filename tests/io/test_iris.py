"""Prefixes: short forms expand to the full IRIs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral.io.iris import WELL_KNOWN, expand, shorten, with_well_known

PREFIXES = {"ex": "http://ex.org/", "data": "http://ex.org/data#", "": "http://empty.org/"}


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("http://ex.org/ann", "ex:ann"),
        ("http://ex.org/data#ann", "data:ann"),
        ("http://empty.org/x", ":x"),
        ("http://other.org/ann", "http://other.org/ann"),
        ("http://archive.org/http://ex.org/ann", "http://archive.org/http://ex.org/ann"),
        ("_:b0", "_:b0"),
        ("ann", "ann"),
    ],
)
def test_the_longest_namespace_that_starts_a_name_becomes_its_prefix(name, short):
    assert shorten(name, PREFIXES) == short
    assert expand(short, PREFIXES) == name


def test_every_name_in_a_text_is_shortened():
    text = "(http://ex.org/a, ~http://ex.org/r, http://ex.org/b) · —http://ex.org/s→ http://ex.org/data#x ⇒ http://ex.org/y"
    assert shorten(text, PREFIXES) == "(ex:a, ~ex:r, ex:b) · —ex:s→ data:x ⇒ ex:y"


@given(st.sampled_from([*PREFIXES.values(), *WELL_KNOWN.values()]), st.from_regex(r"[a-z0-9_/#.-]*", fullmatch=True))
def test_a_short_name_expands_to_its_iri(namespace, local):
    prefixes = with_well_known(PREFIXES)
    assert expand(shorten(namespace + local, prefixes), prefixes) == namespace + local


def test_the_prefixes_of_a_file_take_precedence_over_the_well_known_ones():
    prefixes = with_well_known({"schema": "https://schema.org/", "friend": WELL_KNOWN["foaf"]})
    assert prefixes["schema"] == "https://schema.org/" and "foaf" not in prefixes
    assert shorten(WELL_KNOWN["foaf"] + "knows", prefixes) == "friend:knows"
    assert prefixes["rdf"] == WELL_KNOWN["rdf"]
