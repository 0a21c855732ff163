"""Horn rules of any shape: a body of atoms and one head atom.

The variables and constants of a rule stand for different entities, as in AnyBURL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.patterns import RuleCount
from dihedral.graph.steps import INVERSE, Fact, Side, facts_along
from dihedral.graph.vocabulary import Show, Vocabulary

BETWEEN = "ABCDEFGHIJKLMNOPQRSTUVW"  # variables other than X and Y


class Constant(NamedTuple):
    """An entity in a rule."""

    name: str


Term = str | Constant  # a string is a variable


class Atom(NamedTuple):
    """One relation between two terms."""

    subject: Term
    relation: str
    object: Term

    def __str__(self) -> str:
        return f"{self.relation}({','.join(self.words())})"

    def text(self, entity: Show, relation: Show) -> str:
        """The atom for people to read, with names as they are to be shown."""
        return f"{relation(self.relation)}({', '.join(self.words(constant=entity))})"

    @property
    def terms(self) -> tuple[Term, Term]:
        return self.subject, self.object

    def words(self, variable: Show = str, constant: Show = str) -> list[str]:
        """Subject and object as text."""
        return [variable(term) if isinstance(term, str) else constant(term.name) for term in self.terms]

    def change(self, term: Callable[[Term], Term]) -> Atom:
        """The atom with other terms."""
        return Atom(term(self.subject), self.relation, term(self.object))

    @property
    def variables(self) -> list[str]:
        return [term for term in self.terms if isinstance(term, str)]

    @property
    def constants(self) -> list[str]:
        return [term.name for term in self.terms if isinstance(term, Constant)]


@dataclass(frozen=True)
class HornRule:
    """body ⇒ head, with counts. The head's variables are X and Y, those of the body A, B, … in its order."""

    body: tuple[Atom, ...]
    head: Atom
    counts: RuleCount | None = None
    head_size: int = 0  # facts of the head atom
    score: float | None = None  # a model's belief in the rule
    examples: tuple[tuple[Fact, ...], ...] = ()  # facts of the body, several times
    functional: Side = "head"  # PCA confidence counts pairs whose head, or tail, has any fact of the head relation

    def __str__(self) -> str:
        return f"{self.head} <= {', '.join(map(str, self.body))}"

    def text(self, entity: Show, relation: Show) -> str:
        """The rule for people to read, with names as they are to be shown."""
        body = ", ".join(atom.text(entity, relation) for atom in self.body)
        return f"{self.head.text(entity, relation)} <= {body}"

    @property
    def key(self) -> tuple[tuple[Atom, ...], Atom]:
        return self.body, self.head

    @property
    def variables(self) -> list[str]:
        return list(dict.fromkeys(name for atom in (self.head, *self.body) for name in atom.variables))

    @property
    def constants(self) -> list[str]:
        return list(dict.fromkeys(name for atom in (self.head, *self.body) for name in atom.constants))

    @property
    def steps(self) -> list[str] | None:
        """The relations from X to Y, backwards as `~name`, if the body is such a path."""
        here, steps = "X", []
        for atom in self.body:
            if atom.subject == here:
                steps.append(atom.relation)
            elif atom.object == here:
                steps.append(INVERSE + atom.relation)
            else:
                return None
            there = atom.object if atom.subject == here else atom.subject
            if not isinstance(there, str):
                return None
            here = there
        path = [self.head.subject, *self.variables[2:], self.head.object]
        return steps if here == "Y" and len(path) == len(steps) + 1 and self.head.subject == "X" else None

    @property
    def confidence(self) -> float:
        return self.counts.support / self.counts.pairs if self.counts and self.counts.pairs else 0.0

    @property
    def pca_confidence(self) -> float:
        return self.counts.support / self.counts.pca_pairs if self.counts and self.counts.pca_pairs else 0.0

    @property
    def head_coverage(self) -> float:
        return self.counts.support / self.head_size if self.counts and self.head_size else 0.0


def make_rule(body: Iterable[Atom], head: Atom, functional: Term | None = None) -> HornRule:
    """A rule with its variables named X, Y, A, B, … and its body in the order in which it connects.

    functional: the head's variable that PCA confidence is about; its subject by default.
    """
    left = list(body)
    if not left:
        raise DihedralError("the body is empty; it needs at least one atom")
    if len(set(head.variables)) != len(head.variables) or not head.variables:
        raise DihedralError(f"the head {head} needs one variable, or two different ones")
    names = {term: name for term, name in zip(head.terms, "XY", strict=True) if isinstance(term, str)}
    ordered: list[Atom] = []
    here: Term = head.variables[0]
    bound = {here}
    while left:
        place = next((i for i, atom in enumerate(left) if here in atom.variables), None)
        if place is None:
            place = next((i for i, atom in enumerate(left) if bound & set(atom.variables)), None)
        if place is None:
            raise DihedralError(f"{left[0]} shares no variable with the rest of the rule")
        atom = left.pop(place)
        here = atom.object if atom.subject == here else atom.subject
        bound |= set(atom.variables)
        ordered.append(atom)
    for name in (each for atom in ordered for each in atom.variables):
        if name not in names:
            if len(names) - len(head.variables) == len(BETWEEN):
                raise DihedralError(f"the rule has more than {len(BETWEEN) + 2} variables")
            names[name] = BETWEEN[len(names) - len(head.variables)]
    if not set(head.variables) <= {name for atom in ordered for name in atom.variables}:
        raise DihedralError(f"a variable of the head {head} is not in the body")

    def renamed(term: Term) -> Term:
        return names[term] if isinstance(term, str) else term

    side: Side = "tail" if functional is not None and functional == head.object else "head"
    return HornRule(tuple(atom.change(renamed) for atom in ordered), head.change(renamed), functional=side)


def path_rule(steps: Sequence[str], head: str, relations: Vocabulary) -> HornRule:
    """The rule of a path of `name` and `~name` from X to Y."""
    body = facts_along(steps, ["X", *BETWEEN[: len(steps) - 1], "Y"], relations)
    return HornRule(tuple(Atom(*fact) for fact in body), Atom("X", head, "Y"))


def in_graph(rules: Iterable[HornRule], graph: Graph) -> tuple[list[HornRule], list[str]]:
    """Rules with the names that the graph has; and one name that it does not have for each rule left out.

    AMIE writes names as its input has them, so `<name>` is found as `name` too.
    """
    found, unknown = [], []
    for rule in rules:
        try:
            body = tuple(_known(atom, graph) for atom in rule.body)
            found.append(replace(rule, body=body, head=_known(rule.head, graph)))
        except _UnknownNameError as error:
            unknown.append(str(error))
    return found, unknown


class _UnknownNameError(Exception):
    pass


def _known(atom: Atom, graph: Graph) -> Atom:
    def term(given: Term) -> Term:
        return given if isinstance(given, str) else Constant(_find(given.name, graph.entities))

    return atom.change(term)._replace(relation=_find(atom.relation, graph.relations))


def _find(name: str, names: Vocabulary) -> str:
    for each in (name, name.removeprefix("<").removesuffix(">")):
        if not names.unknown([each]):
            return names[names.id(each)]
    raise _UnknownNameError(name)
