"""Queries in a subset of SPARQL, parsed by rdflib.

    SELECT ?x WHERE { <aspirin> <interacts_with>/<associated_with> ?x MINUS { ?x <treated_by> <aspirin> } } LIMIT 5

The subset: one variable after SELECT, basic graph patterns, UNION, MINUS, FILTER NOT EXISTS, VALUES with one variable,
the property paths ^, / and |, blank nodes, and LIMIT. A name is an IRI in <>, a prefixed name, or quoted text for names
that are not IRIs. Quoted text may also stand for a relation, which SPARQL itself does not allow. IRIs that the package
writes for such names, <urn:dihedral:Ann%20Smith>, stand for the names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from dihedral.ask.tree import And, Fact, Not, OneOf, Or, Pattern, Query, Term, Variable
from dihedral.errors import DihedralError
from dihedral.io.iris import from_iri

MAX_LENGTH = 10_000  # characters
MAX_NESTING = 12  # levels of braces, brackets and parentheses: the parser's time doubles with some
MAX_SIGNS = 200  # separators, brackets and operators: the parser's time grows with their square
SIGNS = re.compile(r"[;,/|^{}()\[\]+*!=<>&]|\.(?!\w)")
QUOTED = "urn:dihedral:quoted:"  # how quoted text passes the parser
TOKENS = re.compile(
    r"(?P<comment>\#[^\n]*)|(?P<iri><[^<>\"{}|^`\\\s]*>)"
    r"|(?P<text>\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*\"\"\"|'''(?:[^'\\]|\\.|'(?!''))*'''"
    r"|\"(?:[^\"\\\n\r]|\\.)*\"|'(?:[^'\\\n\r]|\\.)*')(?P<suffix>@[A-Za-z-]+|\^\^\S+)?",
    re.S,
)
OUTSIDE = re.compile(  # what is not in the subset, in a text without names
    r"(?<![\w?$:.-])(?:ASK|CONSTRUCT|DESCRIBE|INSERT|DELETE|LOAD|CLEAR|CREATE|DROP|COPY|MOVE|ADD|REDUCED|FROM|OPTIONAL"
    r"|GRAPH|SERVICE|BIND|AS|UNDEF|ORDER\s+BY|GROUP\s+BY|HAVING|COUNT|SUM|MIN|MAX|AVG|SAMPLE|GROUP_CONCAT|OFFSET"
    r"|TRUE|FALSE|FILTER(?!\s*NOT\s+EXISTS))(?![\w:-])|\{\s*SELECT\b|[*+!]|\?(?!\w)",
    re.I,
)
SUBSET = "use SELECT, facts, UNION, MINUS, FILTER NOT EXISTS, VALUES, the paths ^ / |, and LIMIT"


def parse_sparql(text: str, prefixes: Mapping[str, str] | None = None) -> Query:
    """The query of a SELECT in the subset; `prefixes` need no declaration.

    >>> parse_sparql("SELECT ?x WHERE { <ann> <knows> ?x }").where  # doctest: +SKIP
    Fact(subject='ann', relation='knows', object=Variable(name='x'))
    """
    if not isinstance(text, str):
        raise DihedralError(f"the query is a {type(text).__name__}; give SPARQL as text")
    if len(text) > MAX_LENGTH:
        raise DihedralError(f"the query has {len(text)} characters; at most {MAX_LENGTH} are allowed")
    return _Reader(text).read(prefixes or {})


class _Reader:
    """One text, and how its algebra becomes a query."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.between = 0  # variables inside of property paths
        self.shifts = [(0, 0)]  # places in the text for the parser, and the same places in this text

    def read(self, prefixes: Mapping[str, str]) -> Query:
        algebra = self.parse(self.prepare(), prefixes)
        node, limit = algebra.p, None
        while node.name in ("Slice", "Distinct"):
            limit = int(node.length) if node.name == "Slice" else limit
            node = node.p
        if len(node.PV) != 1:
            hint = "select one variable; its answers show the others"
            raise self.outside(f"SELECT of {len(node.PV)} variables", hint=hint)
        return Query(Variable(str(node.PV[0])), self.pattern(node.p), limit)

    def prepare(self) -> str:
        """The text for the parser, after what is outside of the subset was refused."""
        parts, bare, done, length = [], [], 0, 0
        for found in TOKENS.finditer(self.text):
            between, token = self.text[done : found.start()], found[0]
            if found["suffix"]:
                raise self.outside(f"the literal {token!r:.80}", found.start(), "name entities only")
            bare += [between, " " * len(token)]
            if found["text"]:
                token = f"<{QUOTED}{quote(token, safe='', errors='surrogatepass')}>"
            elif found["comment"]:
                token = " "
            parts += [between, token]
            length += len(between) + len(token)
            done = found.end()
            self.shifts.append((length, done))
        rest = self.text[done:]
        self.check("".join(bare) + rest)
        return "".join(parts) + rest

    def check(self, bare: str) -> None:
        """Refuse what is outside of the subset or slow to parse, in the text without names and comments."""
        found = OUTSIDE.search(bare)
        if found:
            raise self.outside(found[0].upper(), found.start())
        depth = 0
        for number, sign in enumerate(SIGNS.finditer(bare)):
            depth += (sign[0] in "{[(") - (sign[0] in "}])")
            if depth > MAX_NESTING or number >= MAX_SIGNS:
                limit = f"more than {MAX_NESTING} nested brackets or {MAX_SIGNS} separators and brackets"
                raise self.outside(limit, sign.start(), "use fewer")

    def place(self, at: int) -> str:
        line = self.text.count("\n", 0, at) + 1
        return f"line {line}, column {at - self.text.rfind(chr(10), 0, at)}"

    def outside(self, what: str, at: int | None = None, hint: str = SUBSET) -> DihedralError:
        where = "" if at is None else f" at {self.place(at)}"
        return DihedralError(f"{what}{where} is not supported in a query; {hint}")

    def parse(self, prepared: str, prefixes: Mapping[str, str]) -> Any:
        """The algebra of the text."""
        try:
            from pyparsing import ParseException
            from rdflib.plugins.sparql.algebra import translateQuery
            from rdflib.plugins.sparql.parser import parseQuery
        except ImportError:
            raise DihedralError(
                "SPARQL needs rdflib, which is not installed; run pip install 'dihedral[sparql]', or write the query "
                "as JSON"
            ) from None
        try:
            return translateQuery(parseQuery(prepared), initNs=dict(prefixes)).algebra
        except ParseException as error:
            raise DihedralError(f"the query is not SPARQL: {self.syntax(error.loc)}") from None
        except Exception as error:  # noqa: BLE001 - rdflib raises this class itself
            prefix = re.fullmatch(r"Unknown namespace prefix : (\S*)", str(error))
            if prefix is None:
                raise DihedralError(f"the query is not SPARQL: {str(error)[:80]}") from None
            name = prefix[1].removeprefix("None")
            raise DihedralError(
                f"the prefix '{name}:' is not declared; add PREFIX {name}: <...>, or write <NAME>"
            ) from None

    def syntax(self, at: int) -> str:
        """What is wrong at a place in the text for the parser."""
        prepared, own = max(shift for shift in self.shifts if shift[0] <= at)
        place = min(own + at - prepared, len(self.text))
        rest = self.text[place:].split("\n")[0].strip()
        if not rest:
            return f"it ends too early, at {self.place(place)}"
        spaced = re.search(r"<([^<>]*\s[^<>]*)>", self.text[place:])
        hint = f'; write a name with spaces in quotes: "{spaced[1]:.40}"' if spaced else ""
        return f"unexpected {rest[:30]!r} at {self.place(place)}{hint}"

    # --- from the algebra to a query -----------------------------------------------------------

    def pattern(self, node: Any) -> Pattern:
        """The pattern of a node of the algebra."""
        readers: dict[str, Callable[[Any], Pattern]] = {
            "BGP": lambda each: _and(*(self.path(self.term(s), p, self.term(o)) for s, p, o in each.triples)),
            "Join": lambda each: _and(*self.stated(each.p1), *self.stated(each.p2)),
            "Union": lambda each: self.pattern(each.p1) | self.pattern(each.p2),
            "Minus": lambda each: _and(*self.stated(each.p1), Not(self.pattern(each.p2))),
            "Filter": self.filter,
            "ToMultiSet": self.choice,
            "values": self.choice,
        }
        if node.name not in readers:
            raise self.outside(node.name)
        return readers[node.name](node)

    def stated(self, node: Any) -> list[Pattern]:
        """The pattern of a node, unless it is the empty group that the algebra starts from."""
        return [] if node.name == "BGP" and not node.triples else [self.pattern(node)]

    def filter(self, node: Any) -> Pattern:
        expressions, found = [node.expr], []
        while expressions:
            expression = expressions.pop()
            if expression.name == "ConditionalAndExpression":
                expressions += [expression.expr, *expression.other]
            else:  # others were refused
                found.append(Not(self.pattern(expression.graph)))
        return _and(*self.stated(node.p), *reversed(found))

    def choice(self, node: Any) -> Pattern:
        rows = node.p.res if node.name == "ToMultiSet" and node.p else node.res or []
        names = {variable for row in rows for variable in row}
        if len(names) != 1:
            raise self.outside(f"VALUES with {len(names)} variables or no entities", hint="choose for one variable")
        terms = [self.term(term) for row in rows for term in row.values()]
        return OneOf(Variable(str(names.pop())), tuple(map(str, terms)))

    def path(self, subject: Term, path: Any, object_: Term) -> Pattern:
        """The facts of a property path."""
        from rdflib import paths

        if isinstance(path, paths.InvPath):
            return self.path(object_, path.arg, subject)
        if isinstance(path, paths.AlternativePath):
            return Or(tuple(self.path(subject, each, object_) for each in path.args))
        if isinstance(path, paths.SequencePath):
            stops: list[Term] = [subject]
            for _ in path.args[1:]:
                self.between += 1
                stops.append(Variable(f"_{self.between}"))
            stops.append(object_)
            return _and(*(self.path(a, each, b) for a, each, b in zip(stops, path.args, stops[1:], strict=False)))
        relation = self.term(path)
        if isinstance(relation, Variable):
            raise self.outside(f"the variable {relation} in place of a relation", hint="name the relation")
        return Fact(subject, relation, object_)

    def term(self, term: Any) -> Term:
        from rdflib.compat import decodeUnicodeEscape
        from rdflib.term import BNode, URIRef
        from rdflib.term import Variable as SparqlVariable

        if isinstance(term, SparqlVariable):
            return Variable(str(term))
        if isinstance(term, BNode):
            return Variable(f"_{term}"[:64])
        if not isinstance(term, URIRef):
            raise self.outside(f"the literal {str(term)!r:.80}", hint="name entities only")
        if term.startswith(QUOTED):
            text = unquote(term[len(QUOTED) :], errors="surrogatepass")
            quotes = 3 if text[:3] in ('"""', "'''") else 1
            return decodeUnicodeEscape(text[quotes:-quotes])
        return from_iri(str(term))


def _and(*patterns: Pattern) -> Pattern:
    parts = [part for each in patterns for part in (each.parts if isinstance(each, And) else (each,))]
    if not parts:
        raise DihedralError("a group { } of the query is empty; state at least one fact in it")
    return parts[0] if len(parts) == 1 else And(tuple(parts))
