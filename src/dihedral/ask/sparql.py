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

from dihedral.ask.tree import MAX_FACTS, MAX_LIMIT, And, Fact, Not, OneOf, Or, Pattern, Query, Term, Variable
from dihedral.errors import DihedralError
from dihedral.io.iris import from_iri

MAX_LENGTH = 10_000  # characters
MAX_NESTING = 12  # levels of braces, brackets and parentheses: the parser's time doubles with some
MAX_SIGNS = 200  # separators, brackets and operators: the parser's time grows with their square
SIGNS = re.compile(r"[;,/|^{}()\[\]+*!=<>&]|\.(?!\w)")
QUOTED = "urn:dihedral:quoted:"  # how quoted text passes the parser
BOUND = "urn:dihedral:base:"  # keeps the parser from changing IRIs such as </m/02mjmr>
TOKENS = re.compile(
    r"(?P<comment>\#[^\n]*)|(?P<iri><[^<>\"{}|^`\\\s]*>)"
    r"|(?P<text>\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*\"\"\"|'''(?:[^'\\]|\\.|'(?!''))*'''"
    r"|\"(?:[^\"\\\n\r]|\\.)*\"|'(?:[^'\\\n\r]|\\.)*')(?P<suffix>@[A-Za-z-]+|\^\^\S+)?",
    re.S,
)
ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
FORMS = {"AskQuery": "ASK", "ConstructQuery": "CONSTRUCT", "DescribeQuery": "DESCRIBE"}
UNSUPPORTED = {  # names in the algebra, words in the text, in the order of precedence
    "LeftJoin": ("OPTIONAL", r"OPTIONAL"),
    "Extend": ("BIND or AS", r"BIND|AS"),
    "Graph": ("GRAPH", r"GRAPH"),
    "ServiceGraphPattern": ("SERVICE", r"SERVICE"),
    "OrderBy": ("ORDER BY", r"ORDER\s+BY"),
    "Reduced": ("REDUCED", r"REDUCED"),
    "Project": ("a query inside the query", r"\{\s*SELECT"),
}
LISTS = tuple(f"http://www.w3.org/1999/02/22-rdf-syntax-ns#{name}" for name in ("first", "rest"))
AGGREGATES = r"\b(?:GROUP\s+BY|HAVING|(?:COUNT|SUM|MIN|MAX|AVG|SAMPLE|GROUP_CONCAT)\s*\()"
TOO_DEEP = f"the query has too many facts or is nested too deeply; use at most {MAX_FACTS} facts"
EMPTY = "a group { } of the query is empty; state at least one fact in it"
SUBSET = "use facts, UNION, MINUS, FILTER NOT EXISTS, VALUES, the paths ^ / |, and LIMIT"


def parse_sparql(text: str, prefixes: Mapping[str, str] | None = None) -> Query:
    """The query of a SELECT in the subset; `prefixes` need no declaration.

    >>> parse_sparql("SELECT ?x WHERE { <ann> <knows> ?x }").where  # doctest: +SKIP
    Fact(subject='ann', relation='knows', object=Variable(name='x'))
    """
    if not isinstance(text, str):
        raise DihedralError(f"the query is a {type(text).__name__}; give SPARQL as text")
    if len(text) > MAX_LENGTH:
        raise DihedralError(f"the query has {len(text)} characters; at most {MAX_LENGTH} are allowed")
    return _Reader(text, prefixes or {}).read()


class _Reader:
    """One text, and how its algebra becomes a query."""

    def __init__(self, text: str, prefixes: Mapping[str, str]) -> None:
        self.text, self.prefixes = text, prefixes
        self.between = 0  # variables inside of property paths
        self.prepared, self.bare, self.shifts = self.prepare()

    def prepare(self) -> tuple[str, str, list[tuple[int, int]]]:
        """The text for the parser, the text without names and comments, and where their places differ."""
        parts, bare, shifts, done, length = [], [], [(0, 0)], 0, 0
        for found in TOKENS.finditer(self.text):
            between, token = self.text[done : found.start()], found[0]
            if found["suffix"]:
                raise self.error(f"the literal {token!r:.80}", found.start(), "name entities only")
            bare += [between, " " * len(token)]
            if found["text"]:
                token = f"<{QUOTED}{quote(self.unescape(found), safe='', errors='surrogatepass')}>"
            elif found["iri"]:
                token = f"<{BOUND}{quote(found['iri'][1:-1], safe='', errors='surrogatepass')}>"
            else:
                token = " "
            parts += [between, token]
            length += len(between) + len(token)
            done = found.end()
            shifts.append((length, done))
        rest = self.text[done:]
        bare_text = "".join(bare) + rest
        self.check_signs(bare_text)
        return "".join(parts) + rest, bare_text, shifts

    def unescape(self, found: re.Match[str]) -> str:
        body = found["text"]
        body = body[3:-3] if body[:3] in ('"""', "'''") else body[1:-1]

        def plain(escape: re.Match[str]) -> str:
            code = escape[1]
            if code[0] in "uU" and len(code) > 1 and int(code[1:], 16) < 0x110000:
                return chr(int(code[1:], 16))
            if code not in ESCAPES:
                raise DihedralError(
                    f"the query has the escape \\{code} at {self.place(found.start())}; SPARQL has none"
                )
            return ESCAPES[code]

        return re.sub(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", plain, body, flags=re.S)

    def check_signs(self, bare: str) -> None:
        depth = 0
        for number, sign in enumerate(SIGNS.finditer(bare)):
            depth += (sign[0] in "{[(") - (sign[0] in "}])")
            if depth > MAX_NESTING:
                raise self.error(f"nesting of more than {MAX_NESTING} brackets", sign.start(), "use fewer")
            if number >= MAX_SIGNS:
                raise self.error(f"a text of more than {MAX_SIGNS} separators and brackets", sign.start(), "use fewer")

    # --- messages ------------------------------------------------------------------------------

    def place(self, at: int) -> str:
        line = self.text.count("\n", 0, at) + 1
        return f"line {line}, column {at - self.text.rfind(chr(10), 0, at)}"

    def error(self, what: str, at: int | None, hint: str = SUBSET) -> DihedralError:
        where = "" if at is None else f" at {self.place(at)}"
        return DihedralError(f"{what}{where} is not supported in a query; {hint}")

    def unsupported(self, name: str) -> DihedralError:
        shown, words = UNSUPPORTED.get(name, (name, re.escape(name)))
        return self.error(shown, self.find(rf"\b(?:{words})\b" if words[0].isalpha() else words))

    def find(self, pattern: str, text: str | None = None) -> int | None:
        found = re.search(pattern, self.bare if text is None else text, re.I)
        return found.start() if found else None

    def original(self, at: int) -> int:
        """The place in the text of a place in the prepared text."""
        prepared, own = max(shift for shift in self.shifts if shift[0] <= at)
        return min(own + at - prepared, len(self.text))

    # --- from the parser to a query ------------------------------------------------------------

    def read(self) -> Query:
        form = re.search(r"\b(INSERT|DELETE|LOAD|CLEAR|CREATE|DROP|COPY|MOVE|ADD)\b", self.bare, re.I)
        if form and not re.search(r"\b(SELECT|ASK|CONSTRUCT|DESCRIBE)\b", self.bare, re.I):
            raise self.error(form[1].upper(), form.start(), "ask with SELECT")
        algebra = self.parse()
        if algebra.name != "SelectQuery":
            word = FORMS.get(algebra.name, algebra.name)
            raise self.error(word, self.find(rf"\b{word}\b"), "ask with SELECT")
        if algebra.datasetClause:
            raise self.error("FROM", self.find(r"\bFROM\b"))
        node, limit = algebra.p, None
        while node.name in ("Slice", "Distinct"):
            if node.name == "Slice":
                limit = self.limit(node)
            node = node.p
        if node.name != "Project":
            raise self.unsupported(node.name)
        aggregate = self.find(AGGREGATES)
        if aggregate is not None:
            raise self.error("an aggregate", aggregate)
        where = self.pattern(node.p)
        if re.search(r"\bSELECT\s+(DISTINCT\s+)?\*", self.bare, re.I) or len(node.PV) != 1:
            names = "*" if re.search(r"\bSELECT\s+(DISTINCT\s+)?\*", self.bare, re.I) else f"{len(node.PV)} variables"
            at = self.find(r"\bSELECT\b")
            raise self.error(f"SELECT of {names}", at, "select one variable; its answers show the others")
        return Query(Variable(str(node.PV[0])), where, limit)

    def limit(self, node: Any) -> int | None:
        if node.start:
            raise self.error("OFFSET", self.find(r"\bOFFSET\b"), "use LIMIT alone")
        if node.length is not None and not 1 <= node.length <= MAX_LIMIT:
            raise DihedralError(f"LIMIT is {node.length}; it must be a whole number from 1 to {MAX_LIMIT}")
        return None if node.length is None else int(node.length)

    def parse(self) -> Any:
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
            parsed = parseQuery(self.prepared)
        except ParseException as error:
            raise DihedralError(f"the query is not SPARQL: {self.syntax(error.loc)}") from None
        except RecursionError:
            raise DihedralError(TOO_DEEP) from None
        except (ValueError, TypeError) as error:
            raise DihedralError(f"the query is not SPARQL: {str(error)[:80]}") from None
        try:
            return translateQuery(parsed, initNs=dict(self.prefixes)).algebra
        except RecursionError:
            raise DihedralError(TOO_DEEP) from None
        except Exception as error:  # noqa: BLE001 - rdflib raises this class itself
            return self.refuse(str(error))

    def refuse(self, message: str) -> Any:
        prefix = re.search(r"Unknown namespace prefix : (\S*)", message)
        if prefix:
            name = "" if prefix[1] == "None" else prefix[1]
            at = self.find(rf"(?<![\w:-]){re.escape(name)}:")
            where = "" if at is None else f" at {self.place(at)}"
            raise DihedralError(
                f"the prefix '{name}:'{where} is not declared; add PREFIX {name}: <...>, or write <NAME>"
            )
        raise DihedralError(f"the query is not valid SPARQL: {message[:200]}") from None

    def syntax(self, at: int) -> str:
        place = self.original(at)
        rest = self.text[place:].split("\n")[0].strip()
        if not rest:
            return f"it ends too early, at {self.place(place)}"
        spaced = re.search(r"<([^<>]*\s[^<>]*)>", self.text[place:])
        hint = f'; write a name with spaces in quotes: "{spaced[1]:.40}"' if spaced else ""
        return f"unexpected {rest[:30]!r} at {self.place(place)}{hint}"

    def pattern(self, node: Any) -> Pattern:
        """The pattern of a node of the algebra."""
        readers: dict[str, Callable[[Any], Pattern]] = {
            "BGP": self.facts, "Join": self.join, "Union": self.union, "Minus": self.minus, "Filter": self.filter,
            "ToMultiSet": self.choice, "values": self.choice,
        }  # fmt: skip
        if node.name not in readers:
            raise self.unsupported(node.name)
        return readers[node.name](node)

    def join(self, node: Any) -> Pattern:
        return _and(*self.stated(node.p1), *self.stated(node.p2))

    def stated(self, node: Any) -> list[Pattern]:
        """The pattern of a node, unless it is the empty group that the algebra starts from."""
        return [] if node.name == "BGP" and not node.triples else [self.pattern(node)]

    def union(self, node: Any) -> Pattern:
        return self.pattern(node.p1) | self.pattern(node.p2)

    def minus(self, node: Any) -> Pattern:
        return _and(*self.stated(node.p1), Not(self.pattern(node.p2)))

    def filter(self, node: Any) -> Pattern:
        expressions, found = [node.expr], []
        while expressions:
            expression = expressions.pop()
            name = getattr(expression, "name", "")
            if name == "ConditionalAndExpression":
                expressions += [expression.expr, *expression.other]
            elif name == "Builtin_NOTEXISTS":
                found.append(Not(self.pattern(expression.graph)))
            else:
                at = self.find(r"\bFILTER\b(?!\s*NOT\s+EXISTS)")
                raise self.error("FILTER with anything but NOT EXISTS", at)
        return _and(*self.stated(node.p), *reversed(found))

    def choice(self, node: Any) -> Pattern:
        rows = node.p if node.name == "ToMultiSet" else node
        if not rows:
            raise self.error("VALUES without entities", self.find(r"\bVALUES\b"), "name at least one")
        if rows.name != "values":
            raise self.unsupported(rows.name)
        names = {variable for row in rows.res for variable in row}
        if len(names) != 1:
            raise self.error(f"VALUES with {len(names)} variables", self.find(r"\bVALUES\b"), "choose for one variable")
        variable = self.term(names.pop())
        terms = [self.term(next(iter(row.values()), None)) for row in rows.res]
        if not isinstance(variable, Variable) or not all(isinstance(term, str) for term in terms):
            raise self.error("UNDEF", self.find(r"\bUNDEF\b"), "name entities")
        return OneOf(variable, tuple(map(str, terms)))

    def facts(self, node: Any) -> Pattern:
        if not node.triples:
            raise DihedralError(EMPTY)
        for s, p, _ in node.triples:
            if str(p) in LISTS and isinstance(self.term(s), Variable) and str(s) not in self.bare:
                raise self.error("a list ( ... )", None, "write a fact for each entity")
        return _and(*(self.path(self.term(s), p, self.term(o)) for s, p, o in node.triples))

    def path(self, subject: Term, path: Any, object_: Term) -> Pattern:
        """The facts of a property path."""
        from rdflib import paths
        from rdflib.term import URIRef
        from rdflib.term import Variable as SparqlVariable

        if isinstance(path, URIRef):
            return Fact(subject, self.name(path), object_)
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
        if isinstance(path, SparqlVariable):
            at = self.find(rf"[?$]{re.escape(str(path))}\b")
            raise self.error(f"the variable ?{path} in place of a relation", at, "name the relation")
        sign = {"MulPath": "path with + * or ?", "NegatedPath": "path with !"}.get(type(path).__name__, "path")
        at = self.find(r"!" if "!" in sign else r"(?<=[\s>):\w])[+*?](?=[\s/|)])")
        raise self.error(f"the property {sign}", at, "use ^, / and |")

    def term(self, term: Any) -> Term:
        from rdflib.term import BNode, Literal, URIRef
        from rdflib.term import Variable as SparqlVariable

        if isinstance(term, SparqlVariable):
            return Variable(str(term))
        if isinstance(term, BNode):
            return Variable(f"_{term}"[:64])
        if isinstance(term, URIRef):
            return self.name(term)
        if isinstance(term, Literal):
            at = self.find(rf"(?<![\w?$]){re.escape(str(term))}")
            raise self.error(f"the literal {str(term)!r:.80}", at, "name entities only")
        raise self.error("UNDEF", self.find(r"\bUNDEF\b"), "name entities")

    def name(self, iri: Any) -> str:
        if iri.startswith(QUOTED):
            return unquote(iri[len(QUOTED) :], errors="surrogatepass")
        before, mark, rest = str(iri).partition(BOUND)  # a prefix that the text declares is before the mark
        return from_iri(before + unquote(rest, errors="surrogatepass") if mark else before)


def _and(*patterns: Pattern) -> Pattern:
    parts = [part for each in patterns for part in (each.parts if isinstance(each, And) else (each,))]
    if not parts:
        raise DihedralError(EMPTY)
    return parts[0] if len(parts) == 1 else And(tuple(parts))
