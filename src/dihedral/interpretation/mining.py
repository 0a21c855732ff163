"""Rules that the graph's counts confirm and the model believes in.

Rules are ordered by the lower end of the 95 % confidence interval of their confidence (`graph.patterns`). A rule that
fewer than `min_support` pairs support, or that the model believes in too little (`interpretation.beliefs`), is not
proposed. No path or chain is counted for a belief score.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import reduce
from itertools import islice
from operator import matmul
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dihedral.elements.shares import ComponentShare
from dihedral.errors import DihedralError
from dihedral.graph import Graph, patterns
from dihedral.graph.index import GraphIndex
from dihedral.graph.joins import TILE, Body, Ids, ones, paths_between, ranges, tiles
from dihedral.graph.steps import Step, inverse_ids
from dihedral.graph.vocabulary import Show
from dihedral.interpretation.beliefs import Beliefs, PathBeliefs
from dihedral.interpretation.element_rows import algebra
from dihedral.predict.completion import OnProgress
from dihedral.predict.predictor import Predictor
from dihedral.predict.results import Results
from dihedral.runtime import interruption
from dihedral.scoring.embedding import need_embeddings
from dihedral.scoring.path_scorer import PathScorer

Matrix = NDArray[np.float32]
Steps = tuple[int, ...]
Kind = Literal["symmetric", "skew-symmetric", "inverse", "composition"]
KINDS: tuple[Kind, ...] = ("symmetric", "skew-symmetric", "inverse", "composition")
Sort = Literal["confidence", "belief", "support"]
BATCH = 256  # relations or facts looked at together
MAX_SCORES = 1 << 23  # scores in memory; many bodies together take less time
MAX_LONGER = 20_000  # bodies of three steps that get a rough score: those that join most
MIN_SCORE = 0.1  # rules with a lower belief score are left out
MAX_SCORED = 1000  # bodies of three steps that get an exact score: those with the best rough ones
ROUGH_STARTS = 4  # entities that a body is followed from for a rough score
CONSIDERED = 4  # rules considered per rule wanted: not all have enough support or say something new
MAX_BATCHES = 200  # batches of facts looked at for examples
MAX_PATHS = 100_000  # partial paths looked at together for examples
SAME = 0.8  # two steps are the same if they share at least this part of their pairs
COVERED = 0.95  # a longer body adds nothing if shorter ones join this part of its pairs
SAMPLES = 2000  # paths of a longer body that are looked at to see whether it adds something
ORDER_MATTERS = 0.8  # order matters if the swapped body has less than this share of the score


@dataclass(frozen=True)
class MinedRule:
    """body ⇒ head, with the model's score and the graph's counts."""

    kind: Kind
    body: tuple[str, ...]  # `~name` is walked backwards
    head: str
    score: float  # belief score, between 0 and 1
    agreement: ComponentShare  # share of components in which the product of the body is the head, against chance
    support: int  # pairs that the body joins and the head relation holds
    body_pairs: int  # pairs that the body joins
    pca_pairs: int  # those (x, y) of which x is the head of any fact of the head relation
    head_facts: int  # facts of the head relation between two entities
    confidence: float  # support / body_pairs
    pca_confidence: float  # support / pca_pairs
    head_coverage: float  # support / head_facts
    interval: patterns.Interval | None = None  # the counts are estimates from a sample of paths; None if they are exact
    order_matters: bool | None = None  # for compositions: whether the swapped body scores clearly less
    examples: tuple[tuple[str, ...], ...] = ()  # entities along the body, from head to tail

    def __str__(self) -> str:
        return self.text()

    def text(self, relation: Show = str) -> str:
        """The rule for people to read. relation: how a relation is shown, such as a vocabulary's `shown`."""
        if self.kind in ("symmetric", "skew-symmetric"):
            return f"{relation(self.head)} is {self.kind}"
        return f"{' · '.join(map(relation, self.body))} ⇒ {relation(self.head)}"

    def sort_key(self, sort: Sort) -> tuple[bool, float]:
        """What rules are ordered by; what a skew-symmetric relation excludes comes after what others imply."""
        counts = patterns.RuleCount(self.support, self.body_pairs, self.pca_pairs, self.interval)
        return self.kind == "skew-symmetric", -sort_value(sort, self.score, counts)

    def to_dict(self) -> dict[str, Any]:
        interval = self.interval and self.interval._asdict()
        return asdict(self) | {"agreement": self.agreement.to_dict(), "interval": interval}


def sort_value(sort: Sort, belief: float, counts: patterns.RuleCount) -> float:
    """What rules are ordered by, the highest first."""
    return {"belief": belief, "support": counts.support, "confidence": counts.bounds[0]}[sort]


def find_rules(
    predictor: Predictor,
    graph: Graph | None = None,
    *,
    kinds: tuple[Kind, ...] = KINDS,
    relation: str | None = None,
    min_support: int = 10,
    top: int = 100,
    inverses: bool = True,
    length: int = 2,
    min_score: float = MIN_SCORE,
    min_confidence: float = 0.0,
    sort: Sort = "confidence",
    examples: int = 2,
    on_progress: OnProgress | None = None,
) -> Results[MinedRule]:
    """The best rules of each kind, in one order.

    graph: count rules in the training triples of this graph instead of the model's own.
    relation: only rules that imply this relation.
    min_support: the minimum support: pairs that the body joins and the head relation holds. Of a skew-symmetric
    relation it is the minimum number of pairs that are not reversed.
    inverses: the body of a composition may walk relations backwards.
    length: steps of the longest bodies, 2 or 3.
    min_score, min_confidence: leave out rules with a lower belief score or confidence.
    sort: by "confidence", which is its lower bound so that few pairs count less, by the model's "belief" or "support".
    on_progress: called with the number of bodies scored so far and the total.
    """
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if length not in (2, 3):
        raise DihedralError(f"length is {length}; bodies have 2 or 3 steps")
    for kind in kinds:
        if kind not in KINDS:
            raise DihedralError(f"kind is {kind!r}; choose {', '.join(KINDS)}")
    check_limits(min_support, top, min_score, min_confidence, sort)
    facts = predictor.graph if graph is None else predictor.align(graph)
    head = None if relation is None else facts.relations.id(relation)
    miner = RuleMiner(
        predictor, facts, head, min_support, top, examples, min_score, min_confidence, sort,
        on_progress or (lambda done, total: None),
    )  # fmt: skip
    rules: list[MinedRule] = []
    if set(kinds) & {"symmetric", "skew-symmetric", "inverse"}:
        rules += miner.of_reversals(kinds)
    if "composition" in kinds:
        rules += miner.compositions(inverses, length)
    compared = (replace(rule, agreement=rule.agreement.among(len(rules))) for rule in rules)
    return Results(sorted(compared, key=lambda rule: rule.sort_key(sort)), facts)


def check_limits(min_support: int, top: int, min_score: float, min_confidence: float, sort: str) -> None:
    if sort not in get_args(Sort):
        raise DihedralError(f"sort is {sort!r}; choose {', '.join(get_args(Sort))}")
    for name, value in (("min_support", min_support), ("top", top)):
        if value < 1:
            raise DihedralError(f"{name} is {value}; it must be 1 or more")
    for name, share in (("min_score", min_score), ("min_confidence", min_confidence)):
        if not 0 <= share <= 1:
            raise DihedralError(f"{name} is {share}; it must be between 0 and 1")


@dataclass(eq=False)
class RuleMiner:
    """Belief scores of one model and counts in one graph, combined into rules."""

    predictor: Predictor
    facts: Graph
    head: int | None  # the relation that rules are wanted for
    min_support: int
    top: int
    examples: int
    min_score: float
    min_confidence: float
    sort: Sort
    on_progress: OnProgress

    def __post_init__(self) -> None:
        self.algebra = algebra(self.predictor)
        scorer, graph = self.predictor.scorer, self.predictor.graph
        self.beliefs: Beliefs | PathBeliefs
        if isinstance(scorer, PathScorer):
            self.beliefs = PathBeliefs(scorer, graph)
        else:
            self.beliefs = Beliefs(need_embeddings(scorer, "the model's belief in rules"), graph)
        self.index, self.num_relations = self.facts.train_index, self.facts.num_relations
        self.pruning = Pruning(self.index, self.min_support)
        self.size = self.pruning.reversals.size

    def name(self, step: int) -> str:
        return Step.from_id(step, self.num_relations).name(self.facts.relations)

    def _values(self, heads: Any, belief: Any, support: Any, pairs: Any) -> NDArray[np.float64]:
        """What rules [n] are ordered by; -inf for those of too little belief or confidence, or with another head."""
        pairs = np.maximum(pairs, 1)
        low, _ = patterns.wilson_interval(support / pairs, pairs)
        value: Any = {"belief": belief, "support": support, "confidence": low}[self.sort]
        wanted = (self.head is None) | (heads == self.head)
        return np.where(wanted & (belief >= self.min_score) & (support >= self.min_confidence * pairs), value, -np.inf)

    # --- symmetric relations and inverse pairs: ~r₂ ⇒ r₁ ----------------------------------------

    def of_reversals(self, kinds: tuple[Kind, ...]) -> list[MinedRule]:
        rules: list[MinedRule] = []
        every, mutual = np.arange(self.num_relations), self.pruning.reversals.mutual
        own = self._mutual_beliefs(every, every)
        of_one: tuple[tuple[Kind, Any, Any], ...] = (
            ("symmetric", own, mutual),
            ("skew-symmetric", 1 - own, self.size - mutual),
        )
        for kind, share, support in of_one:
            enough = (support >= self.min_support) & (share >= 0.5) & (kind in kinds)
            best = _descending(np.where(enough, self._values(every, share, support, self.size), -np.inf))[: self.top]
            rules += [self._reversal(kind, r, r, float(share[r])) for r in best]
        if "inverse" in kinds:
            first, second, support = self.pruning.reversals.pairs(self.min_support)
            turned = second == self.head
            first, second = np.where(turned, second, first), np.where(turned, first, second)
            both = self._mutual_beliefs(first, second)
            best = _descending(self._values(first, both, support, self.size[second]))[: self.top]
            rules += [self._reversal("inverse", int(first[i]), int(second[i]), float(both[i])) for i in best]
        return rules

    def _mutual_beliefs(self, first: Ids, second: Ids) -> Matrix:
        """The lower of the belief scores of ~r₂ ⇒ r₁ and ~r₁ ⇒ r₂, for pairs of relations [n]."""
        found = np.ones(len(first), np.float32)
        bodies, place = np.unique(np.concatenate([first, second]), return_inverse=True)
        heads_of = ones(place, np.concatenate([second, first]), (len(bodies), self.num_relations))
        for start in range(0, len(bodies), BATCH):
            part, wanted = bodies[start : start + BATCH], heads_of[start : start + BATCH]
            scores = self.beliefs.score(self.num_relations + part[:, None], heads=wanted)  # [part, R]
            for body, head in ((first, second), (second, first)):
                here = np.flatnonzero((body >= part[0]) & (body <= part[-1]))
                found[here] = np.minimum(found[here], scores[np.searchsorted(part, body[here]), head[here]])
        return found

    def _reversal(self, kind: Kind, head: int, other: int, score: float) -> MinedRule:
        step, row = self.num_relations + other, self.algebra.step(head)
        counts = patterns.count_rule(self.index, [step], head)
        if kind == "skew-symmetric":  # the support are the pairs that are not held reversed
            counts = patterns.RuleCount(counts.pairs - counts.support, counts.pairs, counts.pairs)
            return self._rule(kind, (step,), head, score, row.skewness(), counts)
        return self._rule(kind, (step,), head, score, self.algebra.step(step).agreement(row), counts)

    # --- compositions: r₁ · r₂ ⇒ r₃ -------------------------------------------------------------

    def compositions(self, inverses: bool, length: int) -> list[MinedRule]:
        chains = patterns.find_chains(self.index, min_support=self.min_support, inverses=inverses)
        rules = [(tuple(rule[:2]), rule[2]) for rule in chains.rules.tolist()]
        values = self._values(chains.rules[:, 2], np.ones(len(rules)), chains.support, chains.body)
        kept = iter(_descending(values))
        if self.sort != "belief":  # otherwise all are scored, and then the best are looked at
            kept = islice((i for i in kept if self.pruning.is_new(*rules[i])), CONSIDERED * self.top)
        place = {rules[i]: i for i in kept}
        wanted = np.array([body for body, _ in place], np.int64).reshape(-1, 2)
        bodies, row = np.unique(wanted, axis=0, return_inverse=True)
        heads = np.array([head for _, head in place], np.int64)
        heads_of = ones(row.reshape(-1), heads, (len(bodies), self.num_relations))
        scores = {(body, head): score for body, head, score in self._best(bodies, heads_of)}
        found: list[tuple[float, float, Steps, int]] = []
        for body, head in scores if self.sort == "belief" else [rule for rule in place if rule in scores]:
            if len(found) < self.top and (self.sort != "belief" or self.pruning.is_new(body, head)):
                i, score = place[body, head], scores[body, head]
                self.pruning.keep(body, head, chains.confidence[i])
                found.append((score if self.sort == "belief" else values[i], score, body, head))
        longer = self._best(self._promising(self._longer(chains.joined)), None) if length == 3 else []
        full = len(found) + self.top
        for body, head, score in longer:
            least = sorted(found, reverse=True)[self.top - 1][0] if len(found) >= self.top else -np.inf
            if len(found) == full or (self.sort == "belief" and score <= least):
                break  # the list is full, and what follows scores less
            if not self.pruning.is_new(body, head):
                continue
            numbers = patterns.count_rule(self.index, body, head)
            value = float(self._values(head, score, numbers.support, numbers.pairs))
            enough = numbers.support >= self.min_support and value > -np.inf
            if enough and self.pruning.adds(body, head, numbers.support / numbers.pairs):
                found.append((value, score, body, head))
        found = sorted(found, key=lambda rule: -rule[0])[: self.top]
        return [self._composition(body, head, score) for _, score, body, head in found]

    def _longer(self, joined: Any) -> Ids:
        """Bodies of three steps whose parts join enough pairs; those that join most.

        A step is not taken back by the next: r · ~r · s leads where s does.
        """
        first, second = (each.astype(np.int64) for each in joined.nonzero())
        kept = inverse_ids(first, self.num_relations) != second
        first, second = first[kept], second[kept]
        order = np.lexsort((second, first))
        first, second = first[order], second[order]
        sizes = joined[first, second].astype(float)
        starts = np.searchsorted(first, np.arange(joined.shape[0] + 1))  # the bodies that begin with each step
        found, best = np.zeros((0, 3), np.int64), np.zeros(0)
        for part in tiles(starts[second + 1] - starts[second], TILE):
            interruption.check()
            row, last = ranges(starts[second[part]], starts[second[part] + 1] - starts[second[part]])
            row += part.start
            found = np.concatenate([found, np.stack([first[row], second[row], second[last]], axis=1)])
            best = np.concatenate([best, sizes[row] * sizes[last]])
            kept = np.argsort(-best, kind="stable")[:MAX_LONGER]
            found, best = found[kept], best[kept]
        return found

    def _promising(self, bodies: Ids) -> Ids:
        """The bodies with the best rough scores."""
        most = max(MAX_SCORED, 2 * CONSIDERED * self.top)
        if len(bodies) <= most:
            return bodies
        rough = np.concatenate([scores.max(axis=1) for _, scores in self._scores(bodies, None, ROUGH_STARTS)])
        return bodies[np.sort(np.argsort(-rough, kind="stable")[:most])]

    def _best(self, bodies: Ids, heads_of: Any) -> list[tuple[Steps, int, float]]:
        """The best heads among all bodies: (body, head, score).

        heads_of: sparse [n, R], the heads that each body may have; any if None.
        """
        top = CONSIDERED * self.top
        found: list[tuple[Ids, Ids, Matrix]] = []
        for start, scores in self._scores(bodies, heads_of):
            flat = np.argpartition(-scores, min(top, scores.size - 1), axis=None)[:top]
            flat = flat[scores.flat[flat] >= max(self.min_score, 1e-30)]
            place, heads = np.unravel_index(flat, scores.shape)
            found.append((bodies[start + place], heads, scores[place, heads]))
        if not found:
            return []
        best, heads, values = (np.concatenate(part) for part in zip(*found, strict=True))
        order = np.argsort(-values, kind="stable")[:top]
        return [(tuple(best[i].tolist()), int(heads[i]), float(values[i])) for i in order]

    def _scores(self, bodies: Ids, heads_of: Any, starts: int | None = None) -> Iterator[tuple[int, Matrix]]:
        """Belief scores of bodies in batches: the first body, and the scores of the heads that each may have [n, R]."""
        size = max(BATCH, MAX_SCORES // self.num_relations)
        if heads_of is None and self.head is not None:
            place = np.arange(len(bodies))
            heads_of = ones(place, np.full_like(place, self.head), (len(bodies), self.num_relations))
        for start in range(0, len(bodies), size):
            here = slice(start, start + size)
            heads = None if heads_of is None else heads_of[here]

            def report(done: int, before: int = start) -> None:
                self.on_progress(before + done, len(bodies))

            scores = self.beliefs.score(bodies[here], heads, starts, min_score=self.min_score, on_progress=report)
            yield start, scores
            report(len(bodies[here]))

    def _composition(self, body: Steps, head: int, score: float) -> MinedRule:
        share = reduce(matmul, map(self.algebra.step, body)).agreement(self.algebra.step(head))
        wanted = ones(np.array([0]), np.array([head]), (1, self.num_relations))
        swapped = float(self.beliefs.score(np.array([body[::-1]]), heads=wanted)[0, head])
        counts = patterns.count_rule(self.index, body, head)
        return self._rule("composition", body, head, score, share, counts, swapped < ORDER_MATTERS * score)

    def _rule(
        self, kind: Kind, body: Steps, head: int, score: float, agreement: ComponentShare, counts: patterns.RuleCount,
        order_matters: bool | None = None,
    ) -> MinedRule:  # fmt: skip
        support, pairs, pca_pairs, interval = counts
        facts = int(self.size[head])
        return MinedRule(
            kind, tuple(map(self.name, body)), self.name(head), score, agreement, support, pairs, pca_pairs, facts,
            support / pairs, support / pca_pairs, support / facts, interval, order_matters,
            examples=self._examples(list(body), head) if kind != "skew-symmetric" else (),
        )  # fmt: skip

    def _examples(self, steps: list[int], head: int) -> tuple[tuple[str, ...], ...]:
        """Instances in the graph: entities along the body whose ends the head relation joins."""
        facts = self.facts.facts_of(head).astype(np.int64)
        facts = facts[facts[:, 0] != facts[:, 2]]
        found: dict[tuple[int, int], list[int]] = {}  # one path per fact of the head relation
        for start in range(0, min(len(facts), MAX_BATCHES * BATCH), BATCH):
            heads, _, tails = facts[start : start + BATCH].T
            paths = paths_between(self.index, steps, heads, tails, max_answers=MAX_PATHS // BATCH, max_paths=MAX_PATHS)
            for path in paths.tolist():
                found.setdefault((path[0], path[-1]), path)
            if len(found) >= self.examples:
                break
        names = self.facts.entities
        return tuple(tuple(names[i] for i in path) for path in list(found.values())[: self.examples])


def _descending(values: NDArray[np.float64]) -> list[int]:
    """The places of values in descending order, without those of -inf."""
    return np.argsort(-values, kind="stable")[: np.count_nonzero(values > -np.inf)].tolist()


class Pruning:
    """The rules kept so far, and whether a further one says something new.

    A symmetric relation walked backwards is the same step, and so is the inverse of a relation. If the head is
    symmetric, a body read from its end is the same body too. Of rules that are the same in this way, the best is kept.
    A longer rule adds nothing if nearly all pairs that it joins are joined by one with a shorter body, the same head
    and at least its confidence.
    """

    def __init__(self, index: GraphIndex, min_support: int) -> None:
        self.index, self.reversals = index, patterns.find_reversals(index)
        self.step = self.reversals.same_steps(SAME, min_support)
        self.symmetric = set(self.reversals.symmetric(SAME, min_support))
        self._seen: set[tuple[Steps, int]] = set()
        self._kept: dict[int, list[tuple[Steps, float]]] = {}
        self._bodies: dict[Steps, Body] = {}

    def is_new(self, body: Steps, head: int) -> bool:
        """Whether this is not the same as an earlier rule; it counts as one from now on."""
        key = tuple(self.step[list(body)].tolist())
        if head in self.symmetric:
            turned = inverse_ids(np.array(body[::-1]), self.index.num_relations)
            key = min(key, tuple(self.step[turned].tolist()))
        new = (key, head) not in self._seen
        self._seen.add((key, head))
        return new

    def keep(self, body: Steps, head: int, confidence: float) -> None:
        """Compare longer rules with this one."""
        self._kept.setdefault(head, []).append((body, confidence))

    def adds(self, body: Steps, head: int, confidence: float) -> bool:
        """Whether a body joins pairs that shorter ones with at least its confidence do not."""
        shorter = [steps for steps, share in self._kept.get(head, ()) if len(steps) < len(body) and share >= confidence]
        if not shorter:
            return True
        heads, tails, again = patterns.draw_paths(Body(self.index, body), SAMPLES, np.random.default_rng(0))
        pairs = heads * self.index.num_entities + tails
        heads, tails = np.divmod(np.unique(pairs[~again & (heads != tails)]), self.index.num_entities)
        left = np.ones(len(heads), bool)
        for steps in shorter:
            if steps not in self._bodies:
                self._bodies[steps] = Body(self.index, steps)
            left[left] = self._bodies[steps].count_paths(heads[left], tails[left]) == 0
        return float(left.mean()) > 1 - COVERED if len(left) else False
