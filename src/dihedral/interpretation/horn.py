"""Horn rules of any shape: what their bodies join in a graph, and exact counts.

A rule is a body of atoms and one head atom. Its variables and constants stand for different entities, as in AnyBURL, so
pairs are counted as in `graph.patterns`. Counts here are always exact; a body with many ways takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.joins import TILE, Body, StepPairs, contains, tiles
from dihedral.graph.patterns import RuleCount
from dihedral.graph.steps import INVERSE, Side, Step, parse_steps
from dihedral.graph.vocabulary import Show, Vocabulary
from dihedral.interpretation.mining import MinedRule
from dihedral.runtime import interruption

Ids = NDArray[np.int64]
BETWEEN = "ABCDEFGHIJKLMNOPQRSTUVW"  # variables other than X and Y
MAX_BODY_STEPS = 3  # longer bodies are counted way by way


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
        return f"{self.relation}({_text(self.subject)},{_text(self.object)})"

    def text(self, entity: Show, relation: Show) -> str:
        terms = (entity(term.name) if isinstance(term, Constant) else term for term in (self.subject, self.object))
        return f"{relation(self.relation)}({', '.join(terms)})"

    @property
    def variables(self) -> list[str]:
        return [term for term in (self.subject, self.object) if isinstance(term, str)]

    @property
    def constants(self) -> list[str]:
        return [term.name for term in (self.subject, self.object) if isinstance(term, Constant)]


@dataclass(frozen=True)
class HornRule:
    """body ⇒ head, with counts. The head's variables are X and Y, those of the body A, B, … in its order."""

    body: tuple[Atom, ...]
    head: Atom
    counts: RuleCount | None = None
    head_size: int = 0  # facts of the head atom
    score: float | None = None  # a model's belief in the rule
    examples: tuple[tuple[tuple[str, str, str], ...], ...] = ()  # facts of the body, several times
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


def _text(term: Term) -> str:
    return term if isinstance(term, str) else term.name


def make_rule(body: Iterable[Atom], head: Atom, functional: Term | None = None) -> HornRule:
    """A rule with its variables named X, Y, A, B, … and its body in the order in which it connects.

    functional: the head's variable that PCA confidence is about; its subject by default.
    """
    left = list(body)
    if not left:
        raise DihedralError("the body is empty; it needs at least one atom")
    if len(set(head.variables)) != len(head.variables) or not head.variables:
        raise DihedralError(f"the head {head} needs one variable, or two different ones")
    names = {term: name for term, name in zip((head.subject, head.object), "XY", strict=True) if isinstance(term, str)}
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

    def renamed(atom: Atom) -> Atom:
        terms = (names[term] if isinstance(term, str) else term for term in (atom.subject, atom.object))
        subject, object_ = terms
        return Atom(subject, atom.relation, object_)

    side: Side = "tail" if functional is not None and functional == head.object else "head"
    return HornRule(tuple(map(renamed, ordered)), renamed(head), functional=side)


def path_rule(steps: Sequence[str], head: str, relations: Vocabulary) -> HornRule:
    """The rule of a path of `name` and `~name` from X to Y."""
    between = ["X", *BETWEEN[: len(steps) - 1], "Y"]
    atoms = []
    for text, one, other in zip(steps, between[:-1], between[1:], strict=True):
        step = Step.parse(text, relations)
        name = relations[step.relation]
        atoms.append(Atom(other, name, one) if step.backwards else Atom(one, name, other))
    return HornRule(tuple(atoms), Atom("X", head, "Y"))


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
        grounded = tuple(_facts(rule.body, example, graph) for example in rule.examples)
        found.append(replace(horn, counts=count, head_size=rule.head_facts, score=rule.score, examples=grounded))
        if rule.kind == "inverse":
            other = path_rule([f"{INVERSE}{rule.head}"], horn.body[0].relation, graph.relations)
            facts = tuple(((example[0], rule.head, example[-1]),) for example in rule.examples)
            found.append(replace(counter.count(other), score=rule.score, examples=facts))
    return found


def _facts(body: Sequence[str], entities: Sequence[str], graph: Graph) -> tuple[tuple[str, str, str], ...]:
    facts = []
    for text, one, other in zip(body, entities[:-1], entities[1:], strict=True):
        step = Step.parse(text, graph.relations)
        head, tail = (other, one) if step.backwards else (one, other)
        facts.append((head, graph.relations[step.relation], tail))
    return tuple(facts)


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

    return Atom(term(atom.subject), _find(atom.relation, graph.relations), term(atom.object))


def _find(name: str, names: Vocabulary) -> str:
    for each in (name, name.removeprefix("<").removesuffix(">")):
        if not names.unknown([each]):
            return names[names.id(each)]
    raise _UnknownNameError(name)


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
        for heads, tails in self._joined(rule):
            support += int(held.has(heads, tails).sum())
            pairs += len(heads)
            pca_pairs += int(contains(any_fact, heads if rule.functional == "head" else tails).sum())
        size = np.ones(len(held), bool)
        for term, column in ((rule.head.subject, held.heads), (rule.head.object, held.tails)):
            if isinstance(term, Constant):
                size &= column == self.graph.entities.id(term.name)
        return replace(rule, counts=RuleCount(support, pairs, pca_pairs), head_size=int(size.sum()))

    def _joined(self, rule: HornRule) -> Iterator[tuple[Ids, Ids]]:
        steps = rule.steps
        if steps is not None and len(steps) <= MAX_BODY_STEPS:
            yield from Body(self.index, parse_steps(steps, self.graph.relations)).joined()
            return
        for heads, tails, _ in self.ground(rule):
            yield heads, tails

    def ground(self, rule: HornRule) -> Iterator[tuple[Ids, Ids, Ids]]:
        """The distinct heads and tails that a body joins, and the entities of its variables in one way: [n, variables].

        The variables are in the order of `rule.variables`.
        """
        lead, *_ = rule.head.variables
        atoms = [self._numbered(atom) for atom in rule.body]
        apart = self.graph.entities.ids(rule.constants).astype(np.int64) if rule.constants else np.zeros(0, np.int64)
        first = next(atom for atom in atoms if lead in atom)
        step = first[1] if first[0] == lead else first[1] + self.graph.num_relations
        members = self.index.members(step).numpy().astype(np.int64)
        table = {lead: members[~np.isin(members, apart)]}
        ends = self._numbered(rule.head)
        for found in self._extend(table, atoms, lead, apart):
            rows = np.stack([found[name] for name in rule.variables], axis=1)
            heads, tails = (
                found[term] if isinstance(term, str) else np.full(len(rows), term) for term in (ends[0], ends[2])
            )
            _, where = np.unique(heads * self.graph.num_entities + tails, return_index=True)
            yield heads[where], tails[where], rows[where]

    def _numbered(self, atom: Atom) -> tuple[str | int, int, str | int]:
        entity = self.graph.entities.id
        terms = (term if isinstance(term, str) else entity(term.name) for term in (atom.subject, atom.object))
        subject, object_ = terms
        return subject, self.graph.relations.id(atom.relation), object_

    def _extend(
        self, table: dict[str, Ids], atoms: list[tuple[str | int, int, str | int]], lead: str, apart: Ids
    ) -> Iterator[dict[str, Ids]]:
        """Join a table of bindings with the facts of atoms, one after the other, in tiles of the lead variable.

        apart: entities that no variable stands for.
        """
        if not len(table[lead]):
            return
        if not atoms:
            yield table
            return
        (source, step, target), *rest = next(
            [atom, *atoms[:i], *atoms[i + 1 :]]
            for i, atom in enumerate(atoms)
            if any(not isinstance(term, str) or term in table for term in (atom[0], atom[2]))
        )
        if isinstance(source, str) and source not in table:
            source, step, target = target, step + self.graph.num_relations, source
        start = table[source] if isinstance(source, str) else np.full(len(table[lead]), source)
        steps = torch.full((len(start),), step)
        if not isinstance(target, str) or target in table:
            end = table[target] if isinstance(target, str) else np.full(len(start), target)
            kept = (self.index.locate(*map(torch.as_tensor, (start, steps, end))) >= 0).numpy()
            yield from self._extend({name: column[kept] for name, column in table.items()}, rest, lead, apart)
            return
        costs = self.index.counts(torch.from_numpy(start), steps).numpy()
        begins = np.flatnonzero(np.diff(table[lead], prepend=-1))
        stops = np.append(begins, len(start))
        for part in tiles(np.add.reduceat(costs, begins), TILE):
            interruption.check()
            here = slice(stops[part.start], stops[part.stop])
            row, ends = (each.numpy() for each in self.index.answers(torch.from_numpy(start[here]), steps[here]))
            longer = {name: column[here][row] for name, column in table.items()}
            new = ~np.isin(ends, apart)
            for column in longer.values():
                new &= column != ends
            longer[target] = ends
            yield from self._extend({name: column[new] for name, column in longer.items()}, rest, lead, apart)
