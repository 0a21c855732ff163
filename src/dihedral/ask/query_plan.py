"""The plan of a query: steps from its entities to the answer variable, as a tree of ids.

Every node of a plan gives each entity a probability. Equal nodes are equal objects, so what several branches or queries
share is evaluated once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dihedral.ask.tree import And, Fact, Not, OneOf, Or, Pattern, Query, Variable, variables
from dihedral.errors import DihedralError

MAX_NODES = 256  # a union that is joined by two variables is copied into each way to join it


@dataclass(frozen=True)
class Given:
    """One of these entities, by id."""

    entities: tuple[int, ...]


@dataclass(frozen=True)
class Anything:
    """Any entity: a variable that nothing else is said about."""


@dataclass(frozen=True)
class Walk:
    """Where a signed step leads from some entity of `source`; `variable` names that entity, if it has a name."""

    step: int
    source: Node
    variable: str | None


@dataclass(frozen=True)
class Every:
    """All parts hold, and no part of `without` does."""

    parts: tuple[Node, ...]
    without: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Either:
    """At least one part holds."""

    parts: tuple[Node, ...]


Node = Given | Anything | Walk | Every | Either


def is_only_way(node: Node) -> bool:
    """Whether every answer rests on certain facts, all of which must hold: there is no other way to it."""
    if isinstance(node, Walk):
        return isinstance(node.source, Given) and len(node.source.entities) == 1
    parts = node.parts if isinstance(node, Every) and not node.without else ()
    return bool(parts) and all(isinstance(part, Given) or is_only_way(part) for part in parts)


def inputs(node: Node) -> tuple[Node, ...]:
    """The nodes that a node is computed from."""
    if isinstance(node, Walk):
        return (node.source,)
    if isinstance(node, Every):
        return (*node.parts, *node.without)
    return node.parts if isinstance(node, Either) else ()


def below(node: Node) -> Iterator[Node]:
    """The nodes of a plan, each after those that it needs."""
    for each in inputs(node):
        yield from below(each)
    yield node


def height(node: Node) -> int:
    """The number of steps on the longest way to a node."""
    return isinstance(node, Walk) + max(map(height, inputs(node)), default=0)


def compile_query(query: Query, entities: Any, relations: Any) -> Node:
    """The plan of a query with the ids of two vocabularies; an error if the query is not a tree."""
    if query.answer not in variables(query.where):
        raise DihedralError(f"the answer variable {query.answer} is in no fact of the query")
    return _Compiler(entities, relations).at([query.where], query.answer)


class _Compiler:
    def __init__(self, entities: Any, relations: Any) -> None:
        self.entities, self.relations = entities, relations
        self.nodes = 0

    def at(self, patterns: Sequence[Pattern], variable: Variable) -> Node:
        """The entities that a variable can be, by patterns that must all hold."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise DihedralError(f"the query has more than {MAX_NODES} steps with its unions joined; use fewer unions")
        items = list(dict.fromkeys(_flat(patterns)))
        parts: list[Node] = []
        without: list[Node] = []
        for group in _groups(items, variable):
            if len(group) == 1 and isinstance(group[0], Not):
                without.append(self.at([group[0].part], variable))
            else:
                parts.append(self.group(group, variable))
        parts = [part for part in dict.fromkeys(parts) if not isinstance(part, Anything)]
        if not parts and without:
            raise DihedralError(f"{variable} is described only by what does not hold; add a fact that holds")
        if len(parts) == 1 and not without:
            return parts[0]
        return Every(tuple(parts), tuple(without)) if parts else Anything()

    def group(self, group: list[Pattern], variable: Variable) -> Node:
        """The same for patterns that are joined by variables other than this one."""
        here = [item for item in group if variable in variables(item)]
        if not here:
            name = min(map(str, set().union(*map(variables, group))), default="a fact without variables")
            raise DihedralError(f"{name} is not connected to {variable} by facts; connect it, or leave it out")
        for item in here:
            if isinstance(item, Or):
                rest = [other for other in group if other is not item]
                missing = [part for part in item.parts if variable not in variables(part)]
                if missing:
                    raise DihedralError(f"a part of a union does not mention {variable}; every part must")
                found = [self.at([part, *rest], variable) for part in item.parts]
                ways = [way for each in found for way in (each.parts if isinstance(each, Either) else [each])]
                return Either(tuple(dict.fromkeys(ways))) if len(set(ways)) > 1 else ways[0]
        if len(here) > 1 or isinstance(here[0], Not):
            shared = sorted(str(each) for each in set().union(*map(variables, here)) - {variable})
            cycle = f"the query has a cycle through {variable} and {shared[0]}"
            raise DihedralError(f"{cycle}; only one way may join two variables")
        item = here[0]
        if isinstance(item, OneOf):
            return Given(tuple(sorted({self.entities.id(name) for name in item.entities})))
        assert isinstance(item, Fact)
        return self.walk(item, [other for other in group if other is not item], variable)

    def walk(self, fact: Fact, rest: list[Pattern], variable: Variable) -> Node:
        if fact.subject == fact.object:
            raise DihedralError(f"the fact {fact} joins {variable} to itself, which is a cycle; use two variables")
        forwards = fact.object == variable  # from the subject to the object
        other = fact.subject if forwards else fact.object
        step = self.relations.id(fact.relation) + (0 if forwards else len(self.relations))
        if isinstance(other, Variable):
            return Walk(step, self.at(rest, other) if rest else Anything(), other.name)
        return Walk(step, Given((self.entities.id(other),)), None)


def _flat(patterns: Sequence[Pattern]) -> list[Pattern]:
    """The patterns with every And replaced by its parts."""
    return [item for each in patterns for item in (_flat(each.parts) if isinstance(each, And) else [each])]


def _groups(items: list[Pattern], variable: Variable) -> list[list[Pattern]]:
    """The patterns in groups that share no variable except this one."""
    groups: list[tuple[set[Variable], list[Pattern]]] = []
    outside = [variables(item) - {variable} for item in items]
    positive = set().union(*(names for item, names in zip(items, outside, strict=True) if not isinstance(item, Not)))
    for item, names in zip(items, outside, strict=True):
        if isinstance(item, Not):  # variables that nothing outside mentions are its own
            names = names & positive
        joined = [group for group in groups if group[0] & names]
        groups = [group for group in groups if not group[0] & names]
        merged = set().union(names, *(group[0] for group in joined))
        groups.append((merged, [*(each for group in joined for each in group[1]), item]))
    return [members for _, members in groups]
