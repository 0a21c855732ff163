"""Exact counts of Horn rules in a graph, and what their bodies join.

Pairs are counted as in `graph.patterns`, but never estimated from a sample: a body with many paths takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dihedral.graph import Graph
from dihedral.graph.joins import Body, Ids, IndexedStep, StepPairs, contains, follow
from dihedral.graph.patterns import RuleCount
from dihedral.graph.steps import INVERSE, facts_along, parse_steps
from dihedral.interpretation.horn import Atom, Constant, HornRule, path_rule
from dihedral.interpretation.mining import MinedRule

MAX_BODY_STEPS = 3  # longer bodies are counted path by path
NumberedAtom = tuple[str | int, int, str | int]  # variables stay names


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
        for term, column in zip(rule.head.terms, (held.heads, held.tails), strict=True):
            if isinstance(term, Constant):
                size &= column == self.graph.entities.id(term.name)
        return replace(rule, counts=RuleCount(support, pairs, pca_pairs), head_size=int(size.sum()))

    def _joined(self, rule: HornRule) -> Iterator[tuple[Ids, Ids]]:
        steps = rule.steps
        if steps is not None and len(steps) <= MAX_BODY_STEPS:
            return Body(self.index, parse_steps(steps, self.graph.relations)).joined()
        return ((heads, tails) for heads, tails, _ in self.ground(rule))

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
            kept = IndexedStep(self.index, step).has(start, _column(table, target, lead))
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
