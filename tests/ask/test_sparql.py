"""SPARQL: the subset gives the same tree as Python and JSON, and everything else one sentence."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError
from dihedral.ask import Fact, OneOf, Query, Variable
from dihedral.ask.sparql import MAX_LENGTH, parse_sparql
from dihedral.io.iris import to_iri

X, Y, BETWEEN = Variable("x"), Variable("y"), Variable("_1")
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("<a> <r> ?x", Fact("a", "r", X)),
        ('"a b" "r s" ?x', Fact("a b", "r s", X)),
        ("'it\\'s' <r> ?x", Fact("it's", "r", X)),
        ('"""a "quoted" name""" <r> ?x', Fact('a "quoted" name', "r", X)),
        ('"\\u00e9" <r> ?x', Fact("é", "r", X)),
        ("</m/02mjmr> </people/person/profession> ?x", Fact("/m/02mjmr", "/people/person/profession", X)),
        ("<http://e.org/a#b> ex:r ?x", Fact("http://e.org/a#b", "http://ex.org/r", X)),
        ("<urn:dihedral:Ann%20Smith> <urn:dihedral:100%25%20of> ?x", Fact("Ann Smith", "100% of", X)),
        ("?x a ex:C", Fact(X, TYPE, "http://ex.org/C")),
        ("<a> ^<r> ?x", Fact(X, "r", "a")),
        ("<a> <r>/<s> ?x", Fact("a", "r", BETWEEN) & Fact(BETWEEN, "s", X)),
        ("<a> <r>/^<s> ?x", Fact("a", "r", BETWEEN) & Fact(X, "s", BETWEEN)),
        ("<a> <r>|<s> ?x", Fact("a", "r", X) | Fact("a", "s", X)),
        ("<a> <r> ?y . ?y <s> ?x", Fact("a", "r", Y) & Fact(Y, "s", X)),
        ("<a> <r> ?x ; <s> ?x .", Fact("a", "r", X) & Fact("a", "s", X)),
        ("{ <a> <r> ?x } UNION { <b> <r> ?x }", Fact("a", "r", X) | Fact("b", "r", X)),
        ("<a> <r> ?x MINUS { ?x <s> <b> }", Fact("a", "r", X) & ~Fact(X, "s", "b")),
        ("<a> <r> ?x FILTER NOT EXISTS { ?x <s> <b> }", Fact("a", "r", X) & ~Fact(X, "s", "b")),
        ("VALUES ?y { <a> 'b' } ?y <r> ?x", OneOf(Y, ("a", "b")) & Fact(Y, "r", X)),
        ('<a> <r> ?x # a comment with <iris> and "text"\n', Fact("a", "r", X)),
    ],
)
def test_the_subset_gives_the_tree_of_python(text, where):
    found = parse_sparql(f"SELECT ?x WHERE {{ {text} }}", {"ex": "http://ex.org/"})
    assert found.answer == X
    assert set(getattr(found.where, "parts", [found.where])) == set(getattr(where, "parts", [where]))
    assert type(found.where) is type(where)
    assert Query.from_dict(found.to_dict()) == found


def test_blank_nodes_are_variables_without_a_name():
    found = parse_sparql("SELECT ?x WHERE { ?x <r> [ <s> <b> ] }")
    inner, outer = found.where.parts
    assert inner.subject == outer.object and inner.subject.name.startswith("_")


def test_limits_and_prefixes_of_the_text_are_read():
    found = parse_sparql("PREFIX f: <http://f.org/>\nSELECT DISTINCT ?x { f:a f:r ?x } LIMIT 7")
    assert found == Query(X, Fact("http://f.org/a", "http://f.org/r", X), limit=7)


def test_prefixes_of_written_iris_are_read():
    found = parse_sparql("PREFIX d: <urn:dihedral:>\nSELECT ?x { d:Ann%20Smith d:knows ?x }")
    assert found.where == Fact("Ann Smith", "knows", X)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_the_iri_of_any_name_is_read_as_the_name(name):
    assert parse_sparql(f"SELECT ?x WHERE {{ <{to_iri(name)}> <r> ?x }}").where == Fact(name, "r", X)


FACT = "<a> <r> ?x"
REFUSED = [
    ("", "the query is not SPARQL: it ends too early, at line 1, column 1"),
    ("SELECT * { <a> <r> ?x }", "SELECT \\* at line 1, column 1 is not supported .*; name one variable after SELECT"),
    ("hello", "the query is not SPARQL: unexpected 'hello' at line 1, column 1"),
    ("SELECT ?x", "the query is not SPARQL"),
    ("SELECT ?x { <a> <lives in> ?x }", 'the query is not SPARQL: .*; write a name with spaces in quotes: "lives in"'),
    ("SELECT WHERE { <a> <r> ?x }", "the query is not SPARQL"),
    ("SELECT ?x { <a> <r> ?x", "it ends too early, at line 1, column 23"),
    ("SELECT ?x\n{ <a> <r> }", "the query is not SPARQL: unexpected .* at line 2, column"),
    ("SELECT ?x { <a> <r> ?x } LIMIT many", "unexpected .*LIMIT many|unexpected 'many'|unexpected"),
    ("SELECT ?x { <a b> <r> ?x }", "the query is not SPARQL"),
    ('SELECT ?x { "a <r> ?x }', "the query is not SPARQL"),
    ("SELECT ?x { }", r"a group \{ \} of the query is empty"),
    ("SELECT ?x { <a> <r> ?x MINUS { } }", r"a group \{ \} of the query is empty"),
    ("SELECT ?x { <a> foo:r ?x }", "the prefix 'foo:' is not declared"),
    ("SELECT ?x { :a <r> ?x }", "the prefix ':' is not declared"),
    ("ASK { <a> <r> ?x }", "ASK at line 1, column 1 is not supported"),
    ("CONSTRUCT { <a> <r> ?x } WHERE { <a> <r> ?x }", "CONSTRUCT at line 1, column 1 is not supported"),
    ("DESCRIBE <a>", "DESCRIBE at line 1, column 1 is not supported"),
    ("INSERT DATA { <a> <r> <b> }", "INSERT at line 1, column 1 is not supported"),
    ("SELECT ?x ?y { ?x <r> ?y }", "SELECT of 2 variables is not supported"),
    ("SELECT (COUNT(?x) AS ?n) { <a> <r> ?x }", "COUNT at line 1, column 9 is not supported"),
    ("SELECT ?x { <a> <r> ?x } GROUP BY ?x", "GROUP BY at line 1, column 26 is not supported"),
    ("SELECT ?x { <a> <r> ?x } HAVING (COUNT(?x) > 1)", "HAVING at line 1, column 26 is not supported"),
    ("SELECT ?x { <a> <r> ?x }\nORDER BY ?x", "ORDER BY at line 2, column 1 is not supported"),
    ("SELECT ?x { <a> <r> ?x } OFFSET 5", "OFFSET at line 1, column 26 is not supported"),
    ("SELECT ?x { <a> <r> ?x } LIMIT 0", "limit is 0; it must be"),
    ("SELECT REDUCED ?x { <a> <r> ?x }", "REDUCED at line 1, column 8 is not supported"),
    ("SELECT ?x FROM <g> { <a> <r> ?x }", "FROM at line 1, column 11 is not supported"),
    ("SELECT ?x { <a> <r> ?x OPTIONAL { ?x <s> ?y } }", "OPTIONAL at line 1, column 24 is not supported"),
    ("SELECT ?x { <a> <r> ?x BIND(<b> AS ?y) }", "BIND at line 1, column 24 is not supported"),
    ("SELECT ?x { GRAPH <g> { <a> <r> ?x } }", "GRAPH at line 1, column 13 is not supported"),
    ("SELECT ?x { SERVICE <g> { <a> <r> ?x } }", "SERVICE at line 1, column 13 is not supported"),
    ("SELECT ?x { { SELECT ?x { <a> <r> ?x } } }", r"\{ SELECT at line 1, column 13 is not supported"),
    ("SELECT ?x { <a> <r> ?x FILTER(?x != <b>) }", "FILTER at line 1, column 24"),
    ("SELECT ?x { <a> <r> ?x FILTER EXISTS { ?x <s> <b> } }", "FILTER at line 1, column 24"),
    ("SELECT ?x { <a> ?p ?x }", r"the variable \?p in place of a relation is not supported"),
    ("SELECT ?x { <a> <r>+ ?x }", r"\+ at line 1, column 20 is not supported"),
    ("SELECT ?x { <a> <r>* ?x }", r"\* at line 1, column 20 is not supported"),
    ("SELECT ?x { <a> !<r> ?x }", "! at line 1, column 17 is not supported"),
    ("SELECT ?x { ?x <r> 5 }", "the literal '5' at line 1, column 20 is not supported"),
    ("SELECT ?x { ?x <r> true }", "TRUE at line 1, column 20 is not supported"),
    ('SELECT ?x { ?x <r> "a"@en }', "the literal .* at line 1, column 20 is not supported"),
    ('SELECT ?x { ?x <r> "5"^^<int> }', "the literal .* at line 1, column 20 is not supported"),
    ("SELECT ?x { VALUES (?x ?y) { (<a> <b>) } ?x <r> ?y }", "VALUES with several variables at line 1, column 24"),
    ("SELECT ?x { VALUES ?x { UNDEF } ?x <r> <a> }", "UNDEF at line 1, column 25"),
    ("SELECT ?x { VALUES ?x { } ?x <r> <a> }", "VALUES without entities at line 1, column 27"),
    ("SELECT ?x " + "{" * 20 + FACT + "}" * 20, "more than 12 nested brackets at line 1, column 23"),
    ("SELECT ?x { " + f"{FACT} . " * 40 + "}", "more than 32 facts"),
    (" " * (MAX_LENGTH + 1), "the query has 10001 characters; at most 10000 are allowed"),
    (5, "the query is a int; give SPARQL as text"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_is_outside_of_the_subset_gets_one_sentence(text, message):
    with pytest.raises(DihedralError, match=message) as refused:
        parse_sparql(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "piece",
    ["1-", "a.", "^", "(", "{", "[", "?x <r>/", "\\u0031\\u002d", "<a ", '"', "'''", "a.b.c:", "<r> ?x,", "<r>|", "é"],
)
def test_a_text_of_any_kind_and_the_greatest_length_is_refused_in_one_sentence(piece):
    for start in ("", "SELECT ?x { ?x ", "SELECT ?x { ?x <r> ?x } LIMIT "):
        with pytest.raises(DihedralError) as refused:
            parse_sparql((start + piece * MAX_LENGTH)[:MAX_LENGTH])
        assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


@pytest.mark.parametrize("digits", [10, 4400])
def test_a_limit_has_few_digits(digits):
    with pytest.raises(DihedralError, match=f"a LIMIT of {digits} digits at line 1, column 32 is not supported"):
        parse_sparql("SELECT ?x { <a> <r> ?x } LIMIT " + "9" * digits)


@pytest.mark.parametrize("text", ["?x <r\\u003e ?x", "<a> \\u003cr> ?x", "?x <r> \\u003ca>"])
def test_escapes_are_read_in_quoted_text_only(text):
    with pytest.raises(DihedralError, match=r"unexpected '.*\\\\u"):
        parse_sparql(f"SELECT ?x {{ {text} }}", {"ex": "http://ex.org/"})


def test_a_variable_without_a_name_is_none_of_those_with_one():
    found = parse_sparql("SELECT ?x { _:a <r>/<s> ?_1 . ?_1 <t> _:1 . _:1 <t> ?x }")
    names = {term.name for fact in found.where.parts for term in (fact.subject, fact.object)}
    assert len(names) == 5 and {"_1", "x"} < names


words = st.sampled_from(
    ["SELECT", "?x", "?y", "WHERE", "{", "}", "<a>", "<r>", '"b c"', ".", ";", ",", "UNION", "MINUS", "FILTER", "NOT",
     "EXISTS", "VALUES", "OPTIONAL", "^", "/", "|", "(", ")", "LIMIT", "3", "*", "a", "ex:r", "[", "]", "#", "\n", "'",
     "BIND", "AS", "PREFIX", "ex:", "<http://e/>", "@en", "!", "+", "GROUP BY", "1e999", "\\", "\ud800", "é"]
)  # fmt: skip


@given(st.lists(words, max_size=15).map(" ".join), st.text(max_size=20))
def test_any_text_is_read_or_refused(tokens, noise):
    for text in (tokens, noise, f"SELECT ?x WHERE {{ {tokens} }}", f"SELECT ?x WHERE {{ <a> <r> ?x {noise} }}"):
        with suppress(DihedralError):
            assert isinstance(parse_sparql(text), Query)
