"""Evidence for a proposed fact: the model's score, and what the known facts say about it.

Each of FEATURES but the last FREE is a number that rises with the odds that the fact holds;
docs/concepts/probabilities.md explains them. The last ones say how much is known of the entities: where that is little,
the other evidence is weak. A fact that is already known is treated as if it were not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.graph.index import GraphIndex
from dihedral.graph.joins import are_joined, ranges, reach
from dihedral.graph.patterns import find_chains, find_reversals
from dihedral.graph.signatures import Signatures
from dihedral.graph.steps import inverse_ids
from dihedral.runtime import interruption
from dihedral.scoring.scorer import Scorer

FEATURES = (
    "score", "rule", "further tail", "further head", "reverse", "head fit", "tail fit",
    "facts of head", "facts of tail",
)  # fmt: skip
FREE = 2
Features = NDArray[np.float32]  # [n, len(FEATURES)]
Values = NDArray[np.float32]  # [n]

MIN_RULE_SUPPORT = 2
RULE_PRIOR = 5.0  # body pairs without support that each rule starts with
MIN_CONFIDENCE = 0.05
MAX_RULES = 30  # per relation: those with the highest confidence
MAX_COUNT = 50  # entities with more answers count as having this many
MAX_FACTS = 15  # entities with more facts count as having this many
MAX_FURTHER = 1.0  # log-odds of one more answer; higher ones rest on few entities and change with every fact
CHUNK = 2048  # entities from which rules are followed at a time, or pairs of a rule and a triple


@dataclass(frozen=True, eq=False)
class CountedRules:
    """Rules of one or two signed steps that imply each relation, with their smoothed confidence."""

    heads: NDArray[np.int64]  # [n]: the relation implied; sorted
    bodies: NDArray[np.int64]  # [n, 2]: signed steps; a second step of -1 means that there is none
    confidence: NDArray[np.float64]  # [n]

    @classmethod
    def count(cls, facts: GraphIndex) -> CountedRules:
        relations = facts.num_relations
        found = find_reversals(facts, min_support=MIN_RULE_SUPPORT)
        parts = []
        for first_step, counted in ((0, found.parallel.tocoo()), (relations, found.support.tocoo())):
            other, head = (each.astype(np.int64) for each in counted.coords)
            alone = np.stack([other + first_step, np.full_like(other, -1)], axis=1)
            parts.append((head, alone, counted.data, found.size[other]))
        chains = find_chains(facts, min_support=MIN_RULE_SUPPORT, inverses=True)
        parts.append((chains.rules[:, 2], chains.rules[:, :2], chains.support, chains.body))
        heads, bodies, support, body = (np.concatenate(part) for part in zip(*parts, strict=True))
        confidence = support / (body + RULE_PRIOR)
        order = np.lexsort((-confidence, heads))
        heads, bodies = heads[order].astype(np.int64), bodies[order].astype(np.int64)
        confidence = confidence[order]
        rank = np.arange(len(heads)) - np.searchsorted(heads, heads)
        kept = (rank < MAX_RULES) & (confidence >= MIN_CONFIDENCE)
        return cls(heads[kept], bodies[kept], confidence[kept])

    @classmethod
    def none(cls) -> CountedRules:
        return cls(np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros(0))

    def of(self, relation: int) -> list[tuple[list[int], float]]:
        """The bodies that imply a relation and their confidence, best first."""
        first, last = np.searchsorted(self.heads, [relation, relation + 1])
        bodies = ([each for each in body if each >= 0] for body in self.bodies[first:last].tolist())
        return list(zip(bodies, self.confidence[first:last].tolist(), strict=True))

    def highest(self, relations: int) -> Values:
        """The highest confidence of a rule that implies each relation [R]; 0 without one."""
        found = np.zeros(relations, np.float32)
        np.maximum.at(found, self.heads, self.confidence.astype(np.float32))
        return found

    def implied(self, facts: GraphIndex, step: int, entities: NDArray[np.int64]) -> tuple[NDArray[np.int64], Values]:
        """What rules imply as answers of (entity, step, ?): row · N + answer, sorted, and the highest confidence."""
        relation, backwards = step % facts.num_relations, step >= facts.num_relations
        keys, values = [], []
        for steps, confidence in self.of(relation):
            if backwards:
                steps = [int(inverse_ids(each, facts.num_relations)) for each in reversed(steps)]
            found = reach(facts, steps, entities)
            keys.append(found)
            values.append(np.full(len(found), confidence, np.float32))
        if not keys:
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        joined, where = np.unique(np.concatenate(keys), return_index=True)  # rules come with the best first
        return joined, np.concatenate(values)[where]

    def to_dict(self) -> dict[str, Any]:
        shown = [float(f"{value:.4g}") for value in self.confidence]
        return {"heads": self.heads.tolist(), "bodies": self.bodies.tolist(), "confidence": shown}

    @classmethod
    def from_dict(cls, content: dict[str, Any], relations: int) -> CountedRules:
        heads, bodies = np.array(content["heads"], np.int64), np.array(content["bodies"], np.int64).reshape(-1, 2)
        confidence = np.array(content["confidence"], np.float64)
        if heads.ndim != 1 or not len(heads) == len(bodies) == len(confidence) or (np.diff(heads) < 0).any():
            raise ValueError("expected rules with a head, a body and a confidence each, sorted by head")
        first, second = bodies.T
        inside = (heads >= 0) & (heads < relations) & (first >= 0) & (second >= -1)
        if not (inside & (bodies.max(1, initial=-1) < 2 * relations) & (confidence >= 0) & (confidence <= 1)).all():
            raise ValueError(f"expected rules of {relations} relations with a confidence from 0 to 1")
        return cls(heads, bodies, confidence)


class Evidence:
    """The evidence that a model and the known facts give; counts are made once per relation, on demand."""

    def __init__(
        self, scorer: Scorer, facts: GraphIndex, rules: CountedRules, signatures: Signatures | None = None
    ) -> None:
        self.scorer, self.facts, self.rules = scorer, facts, rules
        loops = facts.loops  # through (t, s, t), a fact (h, r, t) would be evidence for itself
        self.between = facts.select(~loops) if loops.any() else facts
        self.signatures = signatures or Signatures(facts)
        self.num_facts = facts.degrees.cpu().numpy()  # [N]
        self._rates: dict[int, Values] = {}
        self._reversed: dict[int, tuple[float, float]] = {}

    def features(self, triples: Tensor, scores: Tensor | None = None, *, of_rules: bool = True) -> Features:
        """The evidence for triples [n, 3]; their scores [n] may be given.

        of_rules: look up which rules imply each triple; otherwise each has the highest confidence of its relation.
        """
        scores = self.scorer.score(triples) if scores is None else scores
        facts, backwards = self.facts, self.facts.num_relations
        ids = triples.cpu().long()
        head, relation, tail = ids.unbind(1)
        known, reversed_too = ((facts.locate(*each) >= 0).numpy() for each in ((*ids.T,), (tail, relation, head)))
        counts = [
            facts.counts(head, relation).numpy() - known,
            facts.counts(tail, relation + backwards).numpy() - known,
        ]
        heads, relations, tails = ids.numpy().T
        if of_rules:
            rule = self._rule_confidence(heads, relations, tails)
        else:
            rule = self.rules.highest(facts.num_relations)[relations]
        amounts = (np.log2(1 + (self.num_facts[each] - known).clip(0, MAX_FACTS)) for each in (heads, tails))
        found = np.zeros((len(ids), len(FEATURES)), np.float32)
        for column, values in zip(
            (0, 1, 7, 8), (scores.float().cpu().numpy(), np.log(0.001 + rule), *amounts), strict=True
        ):
            found[:, column] = values
        order = np.argsort(relations, kind="stable")
        for mine in np.split(order, np.flatnonzero(np.diff(relations[order])) + 1) if len(ids) else ():
            interruption.check()
            steps, ends = (int(relations[mine[0]]), int(relations[mine[0]]) + backwards), (heads[mine], tails[mine])
            both_ways, loops = _logit(np.array(self.reversal_shares(steps[0])))
            further = (
                self._further(*each) for each in zip(steps, ends, (count[mine] for count in counts), strict=True)
            )
            reverse = np.where(ends[0] == ends[1], loops, np.where(reversed_too[mine], both_ways, 0.0))
            fits = (self.signatures.fit(step)[each] for step, each in zip(steps, ends, strict=True))
            found[mine, 2:7] = np.stack([*further, reverse, *fits], axis=1)
        return found

    def _further(self, step: int, entities: NDArray[np.int64], counts: NDArray[np.int64]) -> Values:
        """The log-odds that entities with these counts of answers have one more; low for those that fit no role."""
        candidates = self.signatures.candidates(step)
        if not len(candidates):  # the relation has no facts
            return np.full(len(entities), _logit(np.array(0.5 / (self.facts.num_entities + 1))))
        rates = self._rates_of(step)[counts.clip(0, MAX_COUNT)]
        place = np.searchsorted(candidates, entities).clip(max=len(candidates) - 1)
        outside = 0.5 / (self.facts.num_entities - len(candidates) + 1)
        return _logit(np.where(candidates[place] == entities, rates, outside)).clip(max=MAX_FURTHER)

    def _rates_of(self, step: int) -> Values:
        """The share of the candidates of a role with at least k answers that have at least k + 1, for each k."""
        if step not in self._rates:
            members = self.facts.members(step)
            counts = self.facts.counts(members, torch.full_like(members, step)).numpy()
            at_least = np.bincount(counts.clip(0, MAX_COUNT + 1), minlength=MAX_COUNT + 2)[::-1].cumsum()[::-1]
            at_least[0] = len(self.signatures.candidates(step))
            self._rates[step] = ((at_least[1:] + 0.5) / (at_least[:-1] + 1)).astype(np.float32)
        return self._rates[step]

    def reversal_shares(self, relation: int) -> tuple[float, float]:
        """The share of a relation's pairs that hold reversed too, and of its facts about an entity and itself."""
        if relation not in self._reversed:
            heads = self.facts.members(relation)
            row, tails = self.facts.answers(heads, torch.full_like(heads, relation))
            heads = heads[row]
            two = heads != tails
            back = self.facts.locate(tails[two], torch.full_like(tails[two], relation), heads[two]) >= 0
            counts = (int(back.sum()), len(back)), (int((~two).sum()), len(two))
            both_ways, loops = ((true + 0.5) / (total + 1) for true, total in counts)
            self._reversed[relation] = both_ways, loops
        return self._reversed[relation]

    def _rule_confidence(
        self, heads: NDArray[np.int64], relations: NDArray[np.int64], tails: NDArray[np.int64]
    ) -> Values:
        """The highest confidence of a rule that joins the head and the tail of each triple [n]; 0 without one."""
        found = np.zeros(len(heads), np.float32)
        place, last = np.searchsorted(self.rules.heads, [relations, relations + 1])
        open_ = np.flatnonzero(place < last)
        while len(open_):  # rules come with the best first; of few triples, several are looked up at a time
            many = max(1, CHUNK // len(open_))
            row, rule = ranges(place[open_], np.minimum(last[open_] - place[open_], many))
            joined = are_joined(self.between, self.rules.bodies[rule], heads[open_[row]], tails[open_[row]])
            done, first = np.unique(row[joined], return_index=True)
            found[open_[done]] = self.rules.confidence[rule[joined][first]]
            place[open_] += many
            open_ = np.delete(open_, done)
            open_ = open_[place[open_] < last[open_]]
        return found


def _logit(share: NDArray[Any]) -> NDArray[Any]:
    share = share.clip(1e-4, 1 - 1e-4)
    result: NDArray[Any] = np.log(share / (1 - share))
    return result
