"""Queries in a subset of SPARQL, read in one pass, whose time grows with the length of the text.

    SELECT ?x WHERE { <aspirin> <interacts_with>/<associated_with> ?x MINUS { ?x <treated_by> <aspirin> } } LIMIT 5

The subset: one variable after SELECT, basic graph patterns, UNION, MINUS, FILTER NOT EXISTS, VALUES with one variable,
the property paths ^, / and |, blank nodes, and LIMIT. A name is an IRI in <>, a prefixed name, or quoted text for names
that are not IRIs. Quoted text may also stand for a relation, which SPARQL itself does not allow. IRIs that the package
writes for such names, <urn:dihedral:Ann%20Smith>, stand for the names. Escapes of characters are read in quoted text
only, and in the names after a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import NamedTuple
from urllib.parse import urljoin

from dihedral.ask.tree import MAX_FACTS, And, Fact, Not, OneOf, Pattern, Query, Term, Variable
from dihedral.errors import DihedralError
from dihedral.io.iris import from_iri

MAX_LENGTH = 10_000  # characters
MAX_NESTING = 12  # levels of braces, brackets and parentheses
MAX_DIGITS = 9
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
TOKENS = re.compile(  # the possessive quantifiers never go back
    r"(?P<blank>(?:\s|\#[^\n]*+)++)|<(?P<iri>[^<>\"{}|^`\\\s]*+)>"
    r"|(?P<text>\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*+\"\"\"|'''(?:[^'\\]|\\.|'(?!''))*+'''"
    r"|\"(?:[^\"\\\n\r]|\\.)*+\"|'(?:[^'\\\n\r]|\\.)*+')(?P<suffix>@[A-Za-z-]++|\^\^\S++)?"
    r"|[?$](?P<variable>\w++)|_:(?P<node>[\w-]++)"
    r"|(?P<prefix>(?:[^\W\d_][\w-]{0,99}+(?:\.[\w-]++){0,9}+)?):(?P<local>(?:[\w:%-]|\.(?=[\w:%.-])|\\[^\w\s])*+)"
    r"|(?P<word>[^\W\d]\w*+)|(?P<number>\d++)|(?P<sign>.)",
    re.S,
)
ESCAPES = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U(00(?:0[0-9A-Fa-f]|10)[0-9A-Fa-f]{4})|(.))", re.S)
ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", "\\": "\\", '"': '"', "'": "'"}
OUTSIDE = re.compile(  # the first of some words and signs
    "(ASK|CONSTRUCT|DESCRIBE|INSERT|DELETE|LOAD|CLEAR|CREATE|DROP|COPY|MOVE|ADD|REDUCED|FROM|OPTIONAL|GRAPH|SERVICE|BIND"
    r"|AS|UNDEF|ORDER BY|GROUP BY|HAVING|COUNT|SUM|MIN|MAX|AVG|SAMPLE|GROUP_CONCAT|OFFSET|TRUE|FALSE|[*+!?]|\{ SELECT"
    r"|FILTER(?! NOT EXISTS))( .*)?"
)
SUBSET = "use SELECT, facts, UNION, MINUS, FILTER NOT EXISTS, VALUES, the paths ^ / |, and LIMIT"


def parse_sparql(text: str, prefixes: Mapping[str, str] | None = None) -> Query:
    """The query of a SELECT in the subset; `prefixes` need no declaration.

    >>> parse_sparql("SELECT ?x WHERE { <ann> <knows> ?x }").where
    Fact(subject='ann', relation='knows', object=Variable(name='x'))
    """
    if not isinstance(text, str):
        raise DihedralError(f"the query is a {type(text).__name__}; give SPARQL as text")
    if len(text) > MAX_LENGTH:
        raise DihedralError(f"the query has {len(text)} characters; at most {MAX_LENGTH} are allowed")
    return _Reader(text, prefixes or {}).query()


class _Token(NamedTuple):
    kind: str  # the text of words, but for `a` in upper case, and of signs; else its group in TOKENS, or end
    text: str
    at: int
    prefix: str = ""


Path = Callable[[Term, Term], Pattern]  # the facts of a property path between two terms


class _Reader:
    """Reads a text from left to right; each method reads what it is named after."""

    def __init__(self, text: str, prefixes: Mapping[str, str]) -> None:
        self.text, self.prefixes, self.base = text, dict(prefixes), ""
        self.unnamed = self.depth = self.num_facts = 0  # variables, open brackets, facts so far
        self.nodes: dict[str, Variable] = {}  # by the label of a blank node
        self.tokens = [_token(found) for found in TOKENS.finditer(text) if found.lastgroup != "blank"]
        self.tokens.append(_Token("end", "", len(text)))
        self.taken_names = {token.text for token in self.tokens if token.kind == "variable"}
        self.place = 0
        for i, (kind, text, at, _) in enumerate(self.tokens):
            if kind == "suffix":
                raise self.outside(f"the literal {text!r:.80}", at, "name entities only")
            if kind == "SELECT" and self.tokens[i + 1].kind == "*":
                raise self.outside("SELECT *", at, "name one variable after SELECT")
            found = OUTSIDE.fullmatch(" ".join(each.kind for each in self.tokens[i : i + 3]))
            if found:
                raise self.outside(found[1], at)

    def query(self) -> Query:
        while (is_prefix := self.take("PREFIX")) or self.take("BASE"):
            name = self.need("local") if is_prefix else None
            iri = self.resolved(self.need("iri").text)
            if name is None:
                self.base = iri
            elif name.text:
                raise self.outside(f"the prefix '{name.prefix}:{name.text:.80}'", name.at, "end it with the colon")
            else:
                self.prefixes[name.prefix] = iri
        self.need("SELECT")
        self.take("DISTINCT")
        answers = [self.need("variable").text]
        while self.next.kind == "variable":
            answers.append(self.need("variable").text)
        if len(answers) > 1:
            hint = "select one variable; its answers show the others"
            raise self.outside(f"SELECT of {len(answers)} variables", hint=hint)
        self.take("WHERE")
        where, limit = self.group(), None
        if self.take("LIMIT"):
            digits = self.need("number")
            if len(digits.text) > MAX_DIGITS:
                raise self.outside(f"a LIMIT of {len(digits.text)} digits", digits.at, f"use at most {MAX_DIGITS}")
            limit = int(digits.text)
        if self.take("VALUES"):
            where = _and(where, self.values())
        self.need("end")
        return Query(Variable(answers[0]), where, limit)

    # --- patterns ------------------------------------------------------------------------------

    def group(self) -> Pattern:
        """A group { }."""
        self.open("{")
        parts: list[Pattern] = []
        without, separated = [], True
        while self.next.kind != "}":
            if self.take("MINUS"):
                parts.append(Not(self.group()))
            elif self.take("FILTER", "NOT", "EXISTS"):
                without.append(Not(self.group()))
            elif self.take("VALUES"):
                parts.append(self.values())
            elif self.next.kind == "{":
                choice = self.group()
                while self.take("UNION"):
                    choice = choice | self.group()
                parts.append(choice)
            elif separated:
                parts += self.facts()
                separated = self.take(".")
                continue
            else:
                raise self.unexpected()
            separated = self.take(".") or True
        self.close("}")
        return _and(*parts, *without)

    def facts(self) -> list[Pattern]:
        """The facts of one subject."""
        found: list[Pattern] = []
        is_blank = self.next.kind == "["
        subject = self.term(found)
        if not (is_blank and found and self.next.kind in (".", "}")):
            self.properties(subject, found)
        return found

    def properties(self, subject: Term, found: list[Pattern]) -> None:
        """Relations and their objects, whose facts are added to those found."""
        while True:
            path = self.path()
            found.append(path(subject, self.term(found)))
            while self.take(","):
                found.append(path(subject, self.term(found)))
            if not self.take(";"):
                return
            while self.take(";"):
                pass
            if self.next.kind in (".", "}", "]"):
                return

    def values(self) -> OneOf:
        """What follows VALUES."""
        in_rows = self.take("(")
        variable, entities = self.need("variable").text, list[str]()
        if in_rows and not self.take(")"):
            raise self.outside("VALUES with several variables", self.next.at, "choose for one variable")
        self.need("{")
        while not self.take("}"):
            if in_rows:
                self.need("(")
            entities.append(self.name())
            if in_rows:
                self.need(")")
        if not entities:
            raise self.outside("VALUES without entities", self.next.at, "name some")
        return OneOf(Variable(variable), tuple(entities))

    # --- paths ---------------------------------------------------------------------------------

    def path(self) -> Path:
        ways = [self.sequence()]
        while self.take("|"):
            ways.append(self.sequence())
        return lambda start, end: reduce(or_, (way(start, end) for way in ways))

    def sequence(self) -> Path:
        steps = [self.step()]
        while self.take("/"):
            steps.append(self.step())

        def facts(start: Term, end: Term) -> Pattern:
            stops = [start, *(self.unnamed_variable() for _ in steps[1:]), end]
            return _and(*(step(*ends) for step, ends in zip(steps, pairwise(stops), strict=True)))

        return facts

    def step(self) -> Path:
        """A relation or a path in parentheses, in either direction."""
        backwards = self.take("^")
        path = self.relation()
        return (lambda start, end: path(end, start)) if backwards else path

    def relation(self) -> Path:
        if self.next.kind == "(":
            self.open("(")
            path = self.path()
            self.close(")")
            return path
        if self.next.kind == "variable":
            raise self.outside(f"the variable ?{self.next.text} in place of a relation", hint="name the relation")
        relation = TYPE if self.take("a") else self.name()

        def fact(start: Term, end: Term) -> Pattern:
            self.num_facts += 1
            if self.num_facts > MAX_FACTS:
                raise DihedralError(f"the query has more than {MAX_FACTS} facts; use fewer")
            return Fact(start, relation, end)

        return fact

    # --- terms ---------------------------------------------------------------------------------

    def term(self, found: list[Pattern]) -> Term:
        """An entity, a variable or a blank node, whose own facts are added to those found."""
        if self.next.kind == "variable":
            return Variable(self.need("variable").text)
        if self.next.kind == "node":
            label = self.need("node").text
            return self.nodes.get(label) or self.nodes.setdefault(label, self.unnamed_variable())
        if self.next.kind != "[":
            return self.name()
        self.open("[")
        node = self.unnamed_variable()
        if self.next.kind != "]":
            self.properties(node, found)
        self.close("]")
        return node

    def unnamed_variable(self) -> Variable:
        self.unnamed += 1
        while f"_{self.unnamed}" in self.taken_names:
            self.unnamed += 1
        return Variable(f"_{self.unnamed}")

    def name(self) -> str:
        """The name of an entity or relation."""
        kind, text, at, prefix = self.next
        if kind == "number":
            raise self.outside(f"the literal {text!r:.80}", at, "name entities only")
        if kind not in ("iri", "local", "text"):
            raise self.unexpected()
        self.place += 1
        if kind == "text":
            quotes = 3 if text[:3] in ('"""', "'''") else 1
            return ESCAPES.sub(_escaped, text[quotes:-quotes])
        if kind == "iri":
            return from_iri(self.resolved(text))
        if prefix not in self.prefixes:
            raise DihedralError(
                f"the prefix '{prefix:.80}:' is not declared; add PREFIX {prefix:.80}: <...>, or write <NAME>"
            )
        return from_iri(self.prefixes[prefix] + re.sub(r"\\(.)", r"\1", text))

    def resolved(self, iri: str) -> str:
        return urljoin(self.base, iri) if self.base else iri

    # --- tokens --------------------------------------------------------------------------------

    @property
    def next(self) -> _Token:
        return self.tokens[self.place]

    def take(self, *kinds: str) -> bool:
        """Whether the next tokens are of these kinds; they are then read."""
        if [each.kind for each in self.tokens[self.place : self.place + len(kinds)]] != list(kinds):
            return False
        self.place += len(kinds)
        return True

    def need(self, kind: str) -> _Token:
        """The next token, which must be of a kind."""
        if self.next.kind != kind:
            raise self.unexpected()
        self.place += kind != "end"
        return self.tokens[self.place - 1]

    def open(self, bracket: str) -> None:
        at = self.need(bracket).at
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.outside(f"more than {MAX_NESTING} nested brackets", at, "use fewer")

    def close(self, bracket: str) -> None:
        self.need(bracket)
        self.depth -= 1

    # --- errors --------------------------------------------------------------------------------

    def position(self, at: int) -> str:
        return f"line {self.text.count(chr(10), 0, at) + 1}, column {at - self.text.rfind(chr(10), 0, at)}"

    def outside(self, what: str, at: int | None = None, hint: str = SUBSET) -> DihedralError:
        where = "" if at is None else f" at {self.position(at)}"
        return DihedralError(f"{what}{where} is not supported in a query; {hint}")

    def unexpected(self) -> DihedralError:
        at = self.next.at
        rest = self.text[at:].split("\n")[0].strip()
        if not rest:
            return DihedralError(f"the query is not SPARQL: it ends too early, at {self.position(at)}")
        spaced = re.match(r"<([^<>]*+)>", self.text[at:])
        hint = f'; write a name with spaces in quotes: "{spaced[1]:.40}"' if spaced and " " in spaced[1] else ""
        return DihedralError(f"the query is not SPARQL: unexpected {rest[:30]!r} at {self.position(at)}{hint}")


def _token(found: re.Match[str]) -> _Token:
    kind, text = str(found.lastgroup), found[found.lastgroup or 0]
    if kind == "suffix":
        text = found[0]
    elif kind in ("word", "sign"):
        kind = text if text == "a" else text.upper()
    return _Token(kind, text, found.start(), found["prefix"] or "")


def _escaped(found: re.Match[str]) -> str:
    """The character of an escape in quoted text."""
    code = found[1] or found[2]
    return chr(int(code, 16)) if code else ESCAPED.get(found[3], found[0])


def _and(*patterns: Pattern) -> Pattern:
    parts = [part for each in patterns for part in (each.parts if isinstance(each, And) else (each,))]
    if not parts:
        raise DihedralError("a group { } of the query is empty; state at least one fact in it")
    return parts[0] if len(parts) == 1 else And(tuple(parts))
