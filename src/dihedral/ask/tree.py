"""The query object: facts with named variables, joined by and, or and not, and their JSON form.

    x, y = Variable("x"), Variable("y")
    Query(x, Fact("aspirin", "interacts_with", y) & Fact(y, "associated_with", x) & ~Fact(x, "treated_by", "aspirin"))

Text stands for an entity.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dihedral.errors import DihedralError
from dihedral.graph.steps import split_step

MAX_FACTS = 32
MAX_DEPTH = 12  # levels of and, or and not inside each other
TOO_DEEP = f"and, or and not are nested more than {MAX_DEPTH} deep; use fewer"
MAX_ENTITIES = 1000  # in one OneOf
MAX_LIMIT = 100_000
NAME = re.compile(r"\w{1,64}")
_short = reprlib.Repr()  # cuts before it writes: content of a request may be nested deeply
_short.maxstring = _short.maxother = 80


def shown(value: object) -> str:
    """A value for an error message."""
    return _short.repr(value)[:80]


@dataclass(frozen=True)
class Variable:
    """An entity that the query does not name."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise DihedralError(f"variable name {shown(self.name)} is invalid; use 1 to 64 letters, digits and _")

    def __str__(self) -> str:
        return f"?{self.name}"


Term = Variable | str  # text is the name of an entity


class Pattern:
    """What must hold; patterns combine with & (and), | (or) and ~ (not)."""

    def __and__(self, other: Pattern) -> And:
        return And((*_parts(self, And), *_parts(other, And)))

    def __or__(self, other: Pattern) -> Or:
        return Or((*_parts(self, Or), *_parts(other, Or)))

    def __invert__(self) -> Not:
        return Not(self)


@dataclass(frozen=True)
class Fact(Pattern):
    """A triple in which variables may stand for entities."""

    subject: Term
    relation: str
    object: Term

    def __post_init__(self) -> None:
        for term in (self.subject, self.object):
            if not isinstance(term, (Variable, str)):
                raise DihedralError(f"{shown(term)} is neither a Variable nor the name of an entity")
        if not isinstance(self.relation, str):
            raise DihedralError(f"relation {shown(self.relation)} is not text; name the relation")

    def __str__(self) -> str:
        return f"{self.subject} {self.relation} {self.object}"


@dataclass(frozen=True)
class OneOf(Pattern):
    """A variable that is one of some entities."""

    variable: Variable
    entities: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.variable, Variable):
            raise DihedralError(f"{shown(self.variable)} is not a Variable; give a Variable and names of entities")
        object.__setattr__(self, "entities", tuple(self.entities))
        if not 1 <= len(self.entities) <= MAX_ENTITIES:
            raise DihedralError(f"{self.variable} is one of {len(self.entities)} entities; give 1 to {MAX_ENTITIES}")
        if not all(isinstance(name, str) for name in self.entities):
            raise DihedralError(f"{self.variable} is one of entities that are not all text; give names of entities")


@dataclass(frozen=True)
class And(Pattern):
    """All parts hold."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True)
class Or(Pattern):
    """At least one part holds."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True)
class Not(Pattern):
    """The part does not hold."""

    part: Pattern


@dataclass(frozen=True)
class Query:
    """Which entities can the answer variable be, so that the pattern holds for some choice of the others?"""

    answer: Variable
    where: Pattern
    limit: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.answer, Variable):
            raise DihedralError(f"the answer is {shown(self.answer)}; it must be a Variable")
        if not isinstance(self.where, Pattern):
            raise DihedralError(f"the pattern is a {type(self.where).__name__}; combine facts with &, | and ~")
        limit = self.limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT):
            raise DihedralError(f"limit is {shown(limit)}; it must be a whole number from 1 to {MAX_LIMIT}")
        check_size(self.where)

    def to_dict(self) -> dict[str, Any]:
        """The query as JSON content."""
        content = {"select": self.answer.name, "where": _pattern_to_dict(self.where)}
        return content if self.limit is None else content | {"limit": self.limit}

    @classmethod
    def from_dict(cls, content: Any) -> Query:
        """The query of JSON content.

        >>> Query.from_dict({"select": "x", "where": {"fact": ["ann", "knows", {"variable": "x"}]}}).to_dict()
        {'select': 'x', 'where': {'fact': ['ann', 'knows', {'variable': 'x'}]}}
        """
        needed, allowed = {"select", "where"}, {"select", "where", "limit"}
        if not isinstance(content, Mapping) or not needed <= content.keys() <= allowed:
            raise DihedralError('a query is an object with "select", "where" and, if wanted, "limit"')
        return cls(Variable(content["select"]), _pattern_from(content["where"], MAX_DEPTH), content.get("limit"))


def _parts(pattern: Pattern, kind: type[And] | type[Or]) -> tuple[Pattern, ...]:
    if not isinstance(pattern, Pattern):
        raise DihedralError(f"{shown(pattern)} is not a pattern; combine facts with &, | and ~")
    return pattern.parts if isinstance(pattern, kind) else (pattern,)


def children(pattern: Pattern) -> tuple[Pattern, ...]:
    """The patterns directly inside a pattern."""
    if isinstance(pattern, (And, Or)):
        return pattern.parts
    return (pattern.part,) if isinstance(pattern, Not) else ()


def variables(pattern: Pattern) -> set[Variable]:
    """The variables of a pattern."""
    if isinstance(pattern, Fact):
        return {term for term in (pattern.subject, pattern.object) if isinstance(term, Variable)}
    return {pattern.variable} if isinstance(pattern, OneOf) else set().union(*map(variables, children(pattern)))


def check_size(pattern: Pattern, depth: int = MAX_DEPTH) -> int:
    """The number of facts; an error if there are too many, or if they are nested too deeply."""
    if depth < 0:
        raise DihedralError(TOO_DEEP)
    inside = children(pattern)
    if isinstance(pattern, (And, Or)) and not inside:
        raise DihedralError(f"{'and' if isinstance(pattern, And) else 'or'} has no parts; give at least one")
    count = isinstance(pattern, Fact) + sum(check_size(part, depth - 1) for part in inside)
    if count > MAX_FACTS:
        raise DihedralError(f"the query has more than {MAX_FACTS} facts; use fewer")
    return count


def path_query(start: str, via: Sequence[str], relations: Container[str]) -> Query:
    """The query of a path of `name` and `~name` from an entity; the entities between are ?step1, ?step2, ...

    >>> print(path_query("ann", ["knows", "~likes"], ["knows", "likes"]).where.parts[1])
    ?answer likes ?step1
    """
    if isinstance(via, str):
        raise DihedralError(f"via is the string {via!r}; give a list of relations, such as [{via!r}]")
    if not via:
        raise DihedralError("the path has no steps; name at least one relation")
    stops: list[Term] = [start, *(Variable(f"step{number}") for number in range(1, len(via))), Variable("answer")]
    facts = []
    for text, source, end in zip(via, stops, stops[1:], strict=False):
        relation, backwards = split_step(text, relations)
        facts.append(Fact(end, relation, source) if backwards else Fact(source, relation, end))
    return Query(Variable("answer"), And(tuple(facts)))


# --- JSON ----------------------------------------------------------------------------------------


def _pattern_to_dict(pattern: Pattern) -> dict[str, Any]:
    if isinstance(pattern, Fact):
        terms = pattern.subject, pattern.relation, pattern.object
        return {"fact": [{"variable": each.name} if isinstance(each, Variable) else each for each in terms]}
    if isinstance(pattern, OneOf):
        return {"one_of": {"variable": pattern.variable.name, "entities": list(pattern.entities)}}
    if isinstance(pattern, Not):
        return {"not": _pattern_to_dict(pattern.part)}
    assert isinstance(pattern, (And, Or))
    return {"and" if isinstance(pattern, And) else "or": [_pattern_to_dict(part) for part in pattern.parts]}


def _term_from(content: Any) -> Term:
    match content:
        case str():
            return content
        case {"variable": name} if len(content) == 1:
            return Variable(name)
    raise DihedralError(f'{shown(content)} is not a part of a fact; give a name, or {{"variable": NAME}}')


def _pattern_from(content: Any, depth: int) -> Pattern:
    if depth < 0:
        raise DihedralError(TOO_DEEP)
    match content if isinstance(content, Mapping) and len(content) == 1 else None:
        case {"fact": [subject, relation, object_]}:
            return Fact(_term_from(subject), relation, _term_from(object_))
        case {"one_of": {"variable": variable, "entities": [*entities]}}:
            return OneOf(Variable(variable), tuple(entities))
        case {"and": [*parts]}:
            return And(tuple(_pattern_from(part, depth - 1) for part in parts))
        case {"or": [*parts]}:
            return Or(tuple(_pattern_from(part, depth - 1) for part in parts))
        case {"not": part}:
            return Not(_pattern_from(part, depth - 1))
    raise DihedralError(f"{shown(content)} is not a pattern; give an object with one of fact, one_of, and, or, not")
