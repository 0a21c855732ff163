"""Rules with a constant in one argument of each atom: h(X,c) ⇐ r(X,d), such as "who lives in Paris speaks French".

Candidates are counted: pairs of properties (a step and where it leads) that enough entities share, those with the
highest confidence first. The score is the model's mean belief in the head for entities that have the body's property,
as in `interpretation.beliefs`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.joins import TILE, Ids, ones, tiles
from dihedral.graph.steps import SIDES, Fact, Side, Step
from dihedral.interpretation.beliefs import NUM_STARTS, Beliefs
from dihedral.interpretation.horn import Atom, Constant, HornRule, RuleCounter
from dihedral.interpretation.mining import MIN_SCORE, Pruning, Sort, check_limits, sort_value
from dihedral.predict.predictor import Predictor
from dihedral.runtime import interruption

PRIOR = 5.0  # entities without the head's property that each rule starts with
CANDIDATES = 20  # counted rules that are scored per rule wanted


def find_constant_rules(
    predictor: Predictor,
    graph: Graph | None = None,
    *,
    side: Side = "tail",
    inverses: bool = True,
    min_support: int = 10,
    top: int = 100,
    min_score: float = MIN_SCORE,
    min_confidence: float = 0.0,
    sort: Sort = "confidence",
    examples: int = 2,
) -> list[HornRule]:
    """The best rules with constants, in the order of `find_rules`.

    graph: count rules in the training triples of this graph instead of the model's own.
    side: the argument of the head that is a constant.
    inverses: the body may be r(d,X) as well as r(X,d), or r(Y,d) for a head h(c,Y).
    """
    if side not in SIDES:
        raise DihedralError(f"constants is {side!r}; choose head or tail")
    check_limits(min_support, top, min_score, min_confidence, sort)
    facts = predictor.graph if graph is None else predictor.align(graph)
    properties = Properties.of(facts, min_support)
    heads = (properties.step < facts.num_relations) == (side == "tail")
    bodies = (properties.step < facts.num_relations) | inverses
    body, head = properties.pairs(np.flatnonzero(bodies), np.flatnonzero(heads), min_support, CANDIDATES * top)
    scores = _beliefs(predictor, properties, body, head, side)
    kept = np.flatnonzero(scores >= min_score)  # by descending confidence
    order = kept[np.argsort(-scores[kept], kind="stable")] if sort == "belief" else kept
    counter, found = RuleCounter(facts), []
    for i in order[:top].tolist():
        rule = counter.count(properties.rule(int(body[i]), int(head[i]), side))
        if rule.counts and rule.confidence >= min_confidence:
            shown = properties.examples(int(body[i]), int(head[i]), examples)
            value = sort_value(sort, scores[i], rule.counts)
            found.append((value, replace(rule, score=float(scores[i]), examples=shown)))
    return [rule for _, rule in sorted(found, key=lambda each: -each[0])]


@dataclass(frozen=True, eq=False)
class Properties:
    """Steps and the entities that they lead to, of which enough other entities have each."""

    graph: Graph
    step: Ids  # [K]
    end: Ids  # [K]
    members: Any  # sparse 0/1 [N, K]: which entities have which property

    @classmethod
    def of(cls, graph: Graph, min_support: int) -> Properties:
        index = graph.train_index
        source, step, end = (each.long().numpy() for each in (index.sources, index.steps, index.ends))
        two = source != end
        keys, column, size = np.unique(
            step[two] * graph.num_entities + end[two], return_inverse=True, return_counts=True
        )
        enough = size >= min_support
        members = ones(source[two], column, (graph.num_entities, len(keys)))[:, np.flatnonzero(enough)]
        return cls(graph, *np.divmod(keys[enough], graph.num_entities), members)

    def pairs(self, bodies: Ids, heads: Ids, min_support: int, top: int) -> tuple[Ids, Ids]:
        """Bodies and heads that enough entities have together, those with the highest smoothed confidence first."""
        same = Pruning(self.graph.train_index, min_support).step[self.step] * self.graph.num_entities
        same += self.end  # a rule without constants says that these are the same property
        size = self.members.sum(axis=0)
        with_head, num_properties = self.members[:, heads], np.diff(self.members.indptr)
        by_property = self.members.T.tocsr()
        found = np.zeros((2, 0), np.int64)
        best = np.zeros(0)
        for part in tiles(by_property[bodies] @ num_properties, TILE):
            interruption.check()
            both = (by_property[bodies[part]] @ with_head).tocoo()
            body, head = bodies[part][both.coords[0]], heads[both.coords[1]]
            kept = (both.data >= min_support) & (same[body] != same[head])
            here = np.stack([body[kept], head[kept]])
            found = np.concatenate([found, here], axis=1)
            best = np.concatenate([best, both.data[kept] / (size[here[0]] + PRIOR)])
            order = np.argsort(-best, kind="stable")[:top]
            found, best = found[:, order], best[order]
        return found[0], found[1]

    def members_of(self, number: int) -> Ids:
        return self.members[:, [number]].tocoo().coords[0].astype(np.int64)

    def rule(self, body: int, head: int, side: Side) -> HornRule:
        variable = "X" if side == "tail" else "Y"
        return HornRule((self._atom(body, variable),), self._atom(head, variable))

    def _atom(self, number: int, variable: str) -> Atom:
        step = Step.from_id(int(self.step[number]), self.graph.num_relations)
        constant, name = Constant(self.graph.entities[self.end[number]]), self.graph.relations[step.relation]
        return Atom(constant, name, variable) if step.backwards else Atom(variable, name, constant)

    def examples(self, body: int, head: int, count: int) -> tuple[tuple[Fact, ...], ...]:
        """Facts of the body's property for entities that have both properties."""
        both = np.intersect1d(self.members_of(body), self.members_of(head))[:count]
        atoms = [self._atom(body, self.graph.entities[i]) for i in both]
        return tuple(((subject, atom.relation, object_),) for atom in atoms for subject, object_ in [atom.words()])


def _beliefs(predictor: Predictor, properties: Properties, body: Ids, head: Ids, side: Side) -> NDArray[np.float64]:
    """The mean belief in the head for some entities with the body's property, other than the head's constant."""
    rng, found = np.random.default_rng(0), np.zeros(len(body))
    level, relations = Beliefs.levels(predictor.scorer, predictor.graph), predictor.graph.num_relations
    some = {i: rng.permutation(properties.members_of(i))[:NUM_STARTS] for i in np.unique(body).tolist()}
    for i, (one, other) in enumerate(zip(body.tolist(), head.tolist(), strict=True)):
        relation, end = int(properties.step[other]) % relations, int(properties.end[other])
        entities = some[one][some[one] != end]
        if not len(entities):
            continue
        columns = [entities, np.full_like(entities, relation), np.full_like(entities, end)]
        triples = torch.from_numpy(np.stack(columns if side == "tail" else columns[::-1], axis=1))
        above = predictor.scorer.score(triples.to(predictor.scorer.device)) - level[relation]
        found[i] = float(above.clamp(max=0).exp().mean())
    return found
