"""Horn rules of any shape: a body of atoms and one head atom; their exact counts in a graph, and what bodies join.

The variables and constants of a rule stand for different entities, as in AnyBURL. Pairs are counted as in
`graph.patterns`, but never estimated from a sample: a body with many paths takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.joins import Body, Ids, StepPairs, contains, follow, leads
from dihedral.graph.patterns import RuleCount
from dihedral.graph.steps import INVERSE, Fact, Side, facts_along, parse_steps
from dihedral.graph.vocabulary import Show, Vocabulary
from dihedral.interpretation.mining import MinedRule

MAX_BODY_STEPS = 3  # longer bodies are counted path by path
BETWEEN = "ABCDEFGHIJKLMNOPQRSTUVW"  # variables other than X and Y


class Constant(NamedTuple):
    """An entity in a rule."""

    name: str


Term = str | Constant  # a string is a variable
NumberedAtom = tuple[str | int, int, str | int]  # variables stay names


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
        path: list[Term] = ["X", *BETWEEN[: len(self.body) - 1], "Y"]
        steps = []
        for atom, start, end in zip(self.body, path[:-1], path[1:], strict=False):
            if atom.terms not in ((start, end), (end, start)):
                return None
            steps.append(atom.relation if atom.subject == start else INVERSE + atom.relation)
        return steps if self.head.terms == ("X", "Y") and len(steps) == len(self.body) else None

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

    def known(name: str, names: Vocabulary) -> str:
        for each in (name, name.removeprefix("<").removesuffix(">")):
            if not names.unknown([each]):
                return names[names.id(each)]
        raise KeyError(name)

    def term(given: Term) -> Term:
        return given if isinstance(given, str) else Constant(known(given.name, graph.entities))

    for rule in rules:
        try:
            atoms = [atom.change(term) for atom in (*rule.body, rule.head)]
            *body, head = (atom._replace(relation=known(atom.relation, graph.relations)) for atom in atoms)
            found.append(replace(rule, body=tuple(body), head=head))
        except KeyError as error:
            unknown.append(error.args[0])
    return found, unknown


class RuleCounter:
    """Counts rules and finds what they join, in the training facts of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.index = graph, graph.train_index
        self._pairs: dict[int, StepPairs] = {}

    def pairs_of(self, step: int) -> StepPairs:
        if step not in self._pairs:
            self._pairs[step] = StepPairs.of(self.index, step)
        return self._pairs[step]

    def count(self, rule: HornRule) -> HornRule:
        """The rule with its exact counts."""
        head = self.graph.relations.id(rule.head.relation)
        side = head if rule.functional == "head" else head + self.graph.num_relations
        held, any_fact = self.pairs_of(head), self.pairs_of(side).heads
        support = pairs = pca_pairs = 0
        steps = rule.steps
        if steps is not None and len(steps) <= MAX_BODY_STEPS:
            joined = Body(self.index, parse_steps(steps, self.graph.relations)).joined()
        else:
            joined = ((heads, tails) for heads, tails, _ in self.ground(rule))
        for heads, tails in joined:
            support += int(held.has(heads, tails).sum())
            pairs += len(heads)
            pca_pairs += int(contains(any_fact, heads if rule.functional == "head" else tails).sum())
        size = np.ones(len(held), bool)
        for term, column in zip(rule.head.terms, (held.heads, held.tails), strict=True):
            if isinstance(term, Constant):
                size &= column == self.graph.entities.id(term.name)
        return replace(rule, counts=RuleCount(support, pairs, pca_pairs), head_size=int(size.sum()))

    def ground(self, rule: HornRule) -> Iterator[tuple[Ids, Ids, Ids]]:
        """The distinct heads and tails that a body joins, and one choice of entities for its variables: [n, variables].

        The variables are in the order of `rule.variables`.
        """
        lead, *_ = rule.head.variables
        atoms = [self._numbered(atom) for atom in rule.body]
        apart = self.graph.entities.ids(rule.constants).astype(np.int64) if rule.constants else np.zeros(0, np.int64)
        first = next(atom for atom in atoms if lead in atom)
        step = first[1] if first[0] == lead else first[1] + self.graph.num_relations
        members = self.index.members(step).numpy().astype(np.int64)
        subject, _, object_ = self._numbered(rule.head)
        for found in self._extend({lead: members[~np.isin(members, apart)]}, atoms, lead, apart):
            rows = np.stack([found[name] for name in rule.variables], axis=1)
            heads, tails = _column(found, subject, lead), _column(found, object_, lead)
            _, where = np.unique(heads * self.graph.num_entities + tails, return_index=True)
            yield heads[where], tails[where], rows[where]

    def _numbered(self, atom: Atom) -> NumberedAtom:
        one, other = (term if isinstance(term, str) else self.graph.entities.id(term.name) for term in atom.terms)
        return one, self.graph.relations.id(atom.relation), other

    def _extend(
        self, table: dict[str, Ids], atoms: list[NumberedAtom], lead: str, apart: Ids
    ) -> Iterator[dict[str, Ids]]:
        """Join a table of bindings with the facts of atoms, one after the other, in tiles of the lead variable.

        apart: entities that no variable stands for.
        """
        if not len(table[lead]):
            return
        if not atoms:
            yield table
            return
        bound = [any(not isinstance(term, str) or term in table for term in (atom[0], atom[2])) for atom in atoms]
        place = bound.index(True)
        (source, step, target), rest = atoms[place], atoms[:place] + atoms[place + 1 :]
        if isinstance(source, str) and source not in table:
            source, step, target = target, step + self.graph.num_relations, source
        start = _column(table, source, lead)
        if not isinstance(target, str) or target in table:
            kept = leads(self.index, step, start, _column(table, target, lead))
            yield from self._extend({name: column[kept] for name, column in table.items()}, rest, lead, apart)
            return
        for row, ends in follow(self.index, start, step, groups=table[lead]):
            longer = {name: column[row] for name, column in table.items()}
            new = ~np.isin(ends, apart)
            for column in longer.values():
                new &= column != ends
            longer[target] = ends
            yield from self._extend({name: column[new] for name, column in longer.items()}, rest, lead, apart)


def _column(table: dict[str, Ids], term: str | int, lead: str) -> Ids:
    """The entities of a variable, or a constant as often as the table has rows."""
    return table[term] if isinstance(term, str) else np.full(len(table[lead]), term)


def from_mined(rules: Sequence[MinedRule], graph: Graph) -> list[HornRule]:
    """Mined rules as Horn rules; a pair of inverse relations is one rule in each direction.

    Skew-symmetric relations are left out: what they exclude is not a Horn rule.
    """
    found, counter = [], RuleCounter(graph)
    for rule in rules:
        if rule.kind == "skew-symmetric":
            continue
        horn = path_rule(rule.body, rule.head, graph.relations)
        count = RuleCount(rule.support, rule.body_pairs, rule.pca_pairs, rule.interval)
        facts = tuple(tuple(facts_along(rule.body, example, graph.relations)) for example in rule.examples)
        found.append(replace(horn, counts=count, head_size=rule.head_facts, score=rule.score, examples=facts))
        if rule.kind == "inverse":
            other = path_rule([f"{INVERSE}{rule.head}"], horn.body[0].relation, graph.relations)
            facts = tuple(((example[0], rule.head, example[-1]),) for example in rule.examples)
            found.append(replace(counter.count(other), score=rule.score, examples=facts))
    return found
