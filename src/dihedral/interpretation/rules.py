"""Rules ranked by belief score, with their counts in the graph.

A body is scored by the model's belief in it (`interpretation.beliefs`); no path or chain is counted for a score.
Counts (`graph.patterns`) check a rule and decide which bodies join anything at all.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import reduce
from operator import matmul
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.patterns import Reversals, count_rule, find_chains, find_reversals
from dihedral.graph.steps import Step, inverse_ids
from dihedral.inference.completion import OnProgress
from dihedral.inference.predictor import Predictor
from dihedral.interpretation.beliefs import Beliefs
from dihedral.interpretation.rows import algebra

Matrix = NDArray[np.float32]
Kind = Literal["symmetric", "skew-symmetric", "inverse", "composition"]
KINDS: tuple[Kind, ...] = ("symmetric", "skew-symmetric", "inverse", "composition")
BATCH = 256  # bodies scored between two progress reports
MAX_LONGER = 20_000  # bodies of three steps: those that join most
MIN_SCORE = 0.1  # rules with a lower belief score are left out
MAX_WAYS = 100_000  # partial paths looked at together for examples
ORDER_MATTERS = 0.8  # order matters if the swapped body has less than this share of the score


@dataclass(frozen=True)
class MinedRule:
    """body ⇒ head, with the model's score and the graph's counts."""

    kind: Kind
    body: tuple[str, ...]  # `~name` is walked backwards
    head: str
    score: float  # belief score, between 0 and 1
    count: float  # unweighted share of components in which the product of the body is the head
    support: int  # pairs that the body joins and the head relation holds
    body_pairs: int  # pairs that the body joins
    confidence: float  # support / body_pairs
    pca_confidence: float  # the same among pairs whose head entity has any fact of the head relation
    order_matters: bool | None = None  # of a composition: whether the swapped body scores clearly less
    examples: tuple[tuple[str, ...], ...] = ()  # entities along the body, from head to tail

    def __str__(self) -> str:
        if self.kind in ("symmetric", "skew-symmetric"):
            return f"{self.head} is {self.kind}"
        return f"{' · '.join(self.body)} ⇒ {self.head}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def find_rules(
    predictor: Predictor,
    graph: Graph | None = None,
    *,
    kinds: tuple[Kind, ...] = KINDS,
    min_support: int = 10,
    top: int = 100,
    inverses: bool = True,
    length: int = 2,
    min_score: float = MIN_SCORE,
    examples: int = 2,
    on_progress: OnProgress | None = None,
) -> list[MinedRule]:
    """The best rules of each kind, by descending score.

    graph: count rules in the training triples of this graph instead of the model's own.
    min_support: the minimum number of pairs that the body of a composition joins, or that the relation of a symmetry
    or an inverse has. Chains whose parts never meet are not proposed.
    inverses: the body of a composition may walk relations backwards.
    length: steps of the longest bodies, 2 or 3.
    min_score: leave out rules with a lower score.
    on_progress: called with the number of bodies scored so far and the total.
    """
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    _check(kinds, min_support, top, length, min_score)
    facts = predictor.graph if graph is None else predictor.align(graph)
    miner = RuleMiner(predictor, facts, min_support, top, examples, min_score, on_progress)
    rules: list[MinedRule] = []
    if set(kinds) & {"symmetric", "skew-symmetric", "inverse"}:
        rules += miner.reversals(kinds)
    if "composition" in kinds:
        rules += miner.compositions(inverses, length)
    return rules


def _check(kinds: tuple[Kind, ...], min_support: int, top: int, length: int, min_score: float) -> None:
    if length not in (2, 3):
        raise DihedralError(f"length is {length}; bodies have 2 or 3 steps")
    for name, value in (("min_support", min_support), ("top", top)):
        if value < 1:
            raise DihedralError(f"{name} is {value}; it must be 1 or more")
    for kind in kinds:
        if kind not in KINDS:
            raise DihedralError(f"kind is {kind!r}; choose {', '.join(KINDS)}")
    if not 0 <= min_score <= 1:
        raise DihedralError(f"min_score is {min_score}; it must be between 0 and 1")


@dataclass(eq=False)
class RuleMiner:
    """Belief scores of one model and counts in one graph, combined into rules."""

    predictor: Predictor
    facts: Graph
    min_support: int
    top: int
    examples: int
    min_score: float
    on_progress: OnProgress | None

    def __post_init__(self) -> None:
        self.algebra = algebra(self.predictor)
        self.beliefs = Beliefs(self.predictor.scorer, self.predictor.graph)
        self.index, self.num_relations = self.facts.train_index, self.facts.num_relations

    def name(self, step: int) -> str:
        return Step.from_id(step, self.num_relations).name(self.facts.relations)

    # --- symmetric relations and inverse pairs: ~r₂ ⇒ r₁ ----------------------------------------

    def reversals(self, kinds: tuple[Kind, ...]) -> list[MinedRule]:
        count = self.num_relations
        counted = find_reversals(self.index)
        scores = self.beliefs.score(np.arange(count, 2 * count)[:, None])  # [r₂, r₁]: ~r₂ ⇒ r₁
        both = np.minimum(scores, scores.T)
        enough = counted.size >= self.min_support
        own = both.diagonal()
        rules: list[MinedRule] = []
        of_one: tuple[tuple[Kind, Any], ...] = (("symmetric", own), ("skew-symmetric", 1 - own))
        for kind, share in of_one:
            here = enough & (share >= max(0.5, self.min_score))
            best = np.flatnonzero(here)[np.argsort(-share[here], kind="stable")][: self.top if kind in kinds else 0]
            rules += [self._reversal(kind, r, r, counted, float(share[r])) for r in best.tolist()]
        if "inverse" not in kinds:
            return rules
        first, second = np.triu_indices(count, k=1)
        usable = enough[first] & enough[second]
        first, second = first[usable], second[usable]
        best = np.argsort(-both[first, second], kind="stable")[: self.top]
        best = best[both[first[best], second[best]] >= self.min_score]
        pairs = zip(first[best].tolist(), second[best].tolist(), strict=True)
        return rules + [self._reversal("inverse", r1, r2, counted, float(both[r1, r2])) for r1, r2 in pairs]

    def _reversal(self, kind: Kind, head: int, other: int, counted: Reversals, score: float) -> MinedRule:
        step = self.num_relations + other
        row = self.algebra.step(head)
        share = row.skewness() if kind == "skew-symmetric" else self.algebra.step(step).agreement(row)
        support, size = int(counted.support[other, head]), int(counted.size[other])
        pca_body = self._reversed_with_head(other, head)
        if kind == "skew-symmetric":  # the support are the pairs that are not held reversed
            support, pca_body = size - support, size
        return MinedRule(
            kind, (self.name(step),), self.name(head), score, share.count, support, size,
            support / max(size, 1), support / max(pca_body, 1),
            examples=self._examples([step], head) if kind != "skew-symmetric" else (),
        )  # fmt: skip

    def _reversed_with_head(self, other: int, head: int) -> int:
        """Pairs of a relation whose tail is the head of any fact of another; facts about an entity and itself do not
        count."""
        facts, heads = (each[each[:, 0] != each[:, 2]] for each in map(self.facts.facts_of, (other, head)))
        return int(np.isin(facts[:, 2], heads[:, 0]).sum())

    # --- compositions: r₁ · r₂ ⇒ r₃ -------------------------------------------------------------

    def compositions(self, inverses: bool, length: int) -> list[MinedRule]:
        chains = find_chains(self.index, min_support=1, inverses=inverses)
        meets = chains.joined >= self.min_support
        steps = np.arange(len(meets))
        meets[inverse_ids(steps, self.num_relations)[:, None] == steps] = False  # r · ~r leads back to its start
        bodies = np.argwhere(meets)
        counted: dict[tuple[int, ...], int] = {tuple(rule): i for i, rule in enumerate(chains.rules.tolist())}
        found = []
        for body, head, score, swapped in self._best(bodies):
            place = counted.get((*body, head))
            support, pca = (0, 0) if place is None else (int(chains.support[place]), int(chains.pca_body[place]))
            found.append(self._composition(body, head, score, swapped, (support, int(chains.joined[body]), pca)))
        if length == 3:
            for body, head, score, swapped in self._best(self._longer(bodies, chains.joined, meets)):
                counts = count_rule(self.index, body, head)
                if counts[1] >= self.min_support:
                    found.append(self._composition(body, head, score, swapped, counts))
        return sorted(found, key=lambda rule: -rule.score)[: self.top]

    @staticmethod
    def _longer(bodies: NDArray[np.int64], joined: NDArray[np.int64], meets: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Bodies [n, 2] extended by every third step that meets the second; those that join most."""
        row, third = np.nonzero(meets[bodies[:, 1]])
        first, second = bodies[row].T
        size = joined[first, second] * joined[second, third].astype(float)
        return np.stack([first, second, third], axis=1)[np.argsort(-size, kind="stable")[:MAX_LONGER]]

    def _best(self, bodies: NDArray[np.int64]) -> list[tuple[tuple[int, ...], int, float, float]]:
        """The best heads among all bodies: (body, head, score, score of the reversed body)."""
        best: list[tuple[NDArray[np.int64], NDArray[np.int64], Matrix]] = []
        for start in range(0, len(bodies), BATCH):
            scores = self.beliefs.score(bodies[start : start + BATCH])
            flat = np.argpartition(-scores, min(self.top, scores.size - 1), axis=None)[: self.top]
            place, heads = np.unravel_index(flat, scores.shape)
            best.append((bodies[start + place], heads, scores[place, heads]))
            if self.on_progress:
                self.on_progress(min(start + BATCH, len(bodies)), len(bodies))
        if not best:
            return []
        chosen, heads, values = (np.concatenate(part) for part in zip(*best, strict=True))
        order = np.argsort(-values, kind="stable")[: self.top]
        order = order[values[order] >= self.min_score]
        swapped = self.beliefs.score(chosen[order][:, ::-1])
        return [
            (tuple(chosen[i].tolist()), int(heads[i]), float(values[i]), float(swapped[n, heads[i]]))
            for n, i in enumerate(order)
        ]

    def _composition(
        self, body: tuple[int, ...], head: int, score: float, swapped: float, counts: tuple[int, int, int]
    ) -> MinedRule:
        share = reduce(matmul, map(self.algebra.step, body)).agreement(self.algebra.step(head))
        support, joined, pca_body = counts
        return MinedRule(
            "composition", tuple(map(self.name, body)), self.name(head), score, share.count, support, joined,
            support / joined, support / max(pca_body, 1),
            order_matters=body != body[::-1] and swapped < ORDER_MATTERS * score,
            examples=self._examples(list(body), head),
        )  # fmt: skip

    def _examples(self, steps: list[int], head: int) -> tuple[tuple[str, ...], ...]:
        """Instances in the graph: entities along the body whose ends the head relation joins."""
        facts = torch.from_numpy(self.facts.facts_of(head)).long()
        found: dict[tuple[int, int], list[int]] = {}  # one way per fact of the head relation
        for part in facts[facts[:, 0] != facts[:, 2]].split(BATCH):
            ways, tails = part[:, :1], part[:, 2]
            for step in steps[:-1]:
                row, there = self.index.answers(ways[:, -1], torch.full((len(ways),), step))
                row, there = row[:MAX_WAYS], there[:MAX_WAYS]
                ways, tails = torch.cat([ways[row], there[:, None]], dim=1), tails[row]
            closed = self.index.locate(ways[:, -1], torch.full((len(ways),), steps[-1]), tails) >= 0
            for way in torch.cat([ways, tails[:, None]], dim=1)[closed].tolist():
                found.setdefault((way[0], way[-1]), way)
            if len(found) >= self.examples:
                break
        names = self.facts.entities
        return tuple(tuple(names[i] for i in way) for way in list(found.values())[: self.examples])
