"""Rules that the model believes in, and how well the graph bears them out.

A body is scored by what the model makes of it (`algebra.beliefs`); no path or chain is counted for a score.
Counting them (`graph.patterns`) is how a rule is checked, and what says which bodies join anything at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.patterns import RuleCounter, find_chains, find_reversals
from dihedral.graph.triples import Triples
from dihedral.inference.paths import INVERSE
from dihedral.inference.predictor import Predictor
from dihedral.interpretation.beliefs import Beliefs
from dihedral.interpretation.rows import Algebra, Share, algebra

Matrix = NDArray[np.float32]
Kind = Literal["symmetric", "skew-symmetric", "inverse", "composition"]
KINDS: tuple[Kind, ...] = ("symmetric", "skew-symmetric", "inverse", "composition")
AT_ONCE = 256  # bodies that are scored between two looks at the progress
MAX_LONGER = 20_000  # bodies of three steps: those that join most
MIN_SCORE = 0.1  # what the model believes less is no rule
MAX_WAYS = 200  # that an example is looked for among
ORDER_MATTERS = 0.8  # a swapped body with less than this share of the score is another body


@dataclass(frozen=True)
class MinedRule:
    """body ⇒ head: what the algebra says, and what the graph holds."""

    kind: Kind
    body: tuple[str, ...]  # `~name` is walked backwards
    head: str
    score: float  # of the algebra, between 0 and 1
    count: float  # share of components in which the body's product is the head, each counted alike
    support: int  # pairs that the body joins and the head holds
    body_pairs: int  # pairs that the body joins
    confidence: float  # support / body_pairs
    pca_confidence: float  # the same among pairs whose head has any fact of the relation
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
    on_progress: Callable[[int, int], None] | None = None,
) -> list[MinedRule]:
    """The best rules of each kind, the highest score first.

    graph: in whose training triples rules are counted; by default the model's own graph.
    min_support: a composition is proposed only if its body joins this many pairs, an inverse or a symmetry
    only if its relation has this many; so a chain whose parts never meet is not proposed.
    inverses: relations may be walked backwards in the body of a composition.
    length: steps of the longest bodies, 2 or 3.
    min_score: what the model believes less is left out.
    on_progress: told how many of how many bodies are scored.
    """
    if length not in (2, 3):
        raise DihedralError(f"length is {length}; bodies have 2 or 3 steps")
    for name, value in (("min_support", min_support), ("top", top)):
        if value < 1:
            raise DihedralError(f"{name} is {value}; it must be 1 or more")
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    for kind in kinds:
        if kind not in KINDS:
            raise DihedralError(f"kind is {kind!r}; choose {', '.join(KINDS)}")
    if not 0 <= min_score <= 1:
        raise DihedralError(f"min_score is {min_score}; it must be between 0 and 1")
    a = algebra(predictor)
    triples = predictor.graph.train if graph is None else predictor.align(graph).train
    book = RuleMiner(
        a, Beliefs(predictor), triples, predictor.graph, min_support, top, examples, min_score, on_progress
    )
    rules: list[MinedRule] = []
    if "symmetric" in kinds or "skew-symmetric" in kinds or "inverse" in kinds:
        rules += book.reversals(kinds)
    if "composition" in kinds:
        rules += book.compositions(inverses, length)
    return rules


class RuleMiner:
    """Scores and counts of one graph, from which rules are written."""

    def __init__(
        self,
        a: Algebra,
        beliefs: Beliefs,
        triples: Triples,
        graph: Graph,
        min_support: int,
        top: int,
        examples: int,
        min_score: float,
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        self.algebra, self.beliefs, self.triples, self.graph = a, beliefs, triples, graph
        self.min_support, self.top, self.examples = min_support, top, examples
        self.min_score, self.on_progress = min_score, on_progress or (lambda done, total: None)
        self.num_relations = graph.num_relations

    def name(self, step: int) -> str:
        names = self.graph.relations
        return names[step] if step < self.num_relations else INVERSE + names[step - self.num_relations]

    def row(self, step: int) -> Any:
        row = self.algebra[self.graph.relations[step % self.num_relations]]
        return row if step < self.num_relations else ~row

    # --- symmetric relations and inverse pairs: ~r₂ ⇒ r₁ ----------------------------------------

    def reversals(self, kinds: tuple[Kind, ...]) -> list[MinedRule]:
        count = self.num_relations
        counted = find_reversals(self.triples, self.graph.num_entities, count)
        scores = self.beliefs.score(np.arange(count, 2 * count)[:, None])  # [r₂, r₁]: ~r₂ ⇒ r₁
        both = np.minimum(scores, scores.T)
        enough = counted.size >= self.min_support
        own = both.diagonal()
        rules: list[MinedRule] = []
        for kind, share in (("symmetric", own), ("skew-symmetric", 1 - own)):
            here = enough & (share >= max(0.5, self.min_score))
            best = np.flatnonzero(here)[np.argsort(-share[here], kind="stable")][: self.top if kind in kinds else 0]
            rules += [self._reversal(kind, r, r, counted, float(share[r])) for r in best]  # type: ignore[arg-type]
        if "inverse" not in kinds:
            return rules
        first, second = np.triu_indices(count, k=1)
        usable = enough[first] & enough[second]
        first, second = first[usable], second[usable]
        best = np.argsort(-both[first, second], kind="stable")[: self.top]
        best = best[both[first[best], second[best]] >= self.min_score]
        pairs = [
            self._reversal("inverse", first[i], second[i], counted, float(both[first[i], second[i]])) for i in best
        ]
        return rules + pairs

    def _reversal(self, kind: Kind, head: int, other: int, counted: Any, score: float) -> MinedRule:
        step = self.num_relations + int(other)
        row = self.row(int(head))
        share: Share = row.skewness() if kind == "skew-symmetric" else self.row(step).agreement(row)
        support, size = int(counted.support[other, head]), int(counted.size[other])
        two = self.triples[self.triples[:, 0] != self.triples[:, 2]]  # as counted: without an entity and itself
        tails = two[two[:, 1] == other, 2]  # heads of the reversed facts
        has_any = np.isin(tails, two[two[:, 1] == head, 0])
        if kind == "skew-symmetric":  # borne out by the pairs that are not held reversed
            support, has_any = size - support, np.ones(size, bool)
        return MinedRule(
            kind, (self.name(step),), self.name(int(head)), score, share.count, support, size,
            support / max(size, 1), support / max(int(has_any.sum()), 1),
            examples=self._walks([step], int(head)) if kind != "skew-symmetric" else (),
        )  # fmt: skip

    # --- compositions: r₁ · r₂ ⇒ r₃ -------------------------------------------------------------

    def compositions(self, inverses: bool, length: int) -> list[MinedRule]:
        count, entities = self.num_relations, self.graph.num_entities
        chains = find_chains(self.triples, entities, count, min_support=1, inverses=inverses)
        meets = chains.joined >= self.min_support
        steps = np.arange(len(meets))
        meets[np.abs(steps[:, None] - steps[None]) == count] = False  # r · ~r leads back to where it began
        bodies = np.argwhere(meets)
        known = {(r1, r2, r3): i for i, (r1, r2, r3) in enumerate(chains.rules.tolist())}
        found = []
        for body, head, score, swapped in self._best(bodies):
            r1, r2 = body
            place = known.get((r1, r2, head))
            pca = int(chains.pca_body[place]) if place is not None else 0
            support = int(chains.support[place]) if place is not None else 0
            found.append(self._composition(body, head, score, swapped, (support, int(chains.joined[r1, r2]), pca)))
        if length == 3:
            counter = RuleCounter(self.triples, entities, count)
            for body, head, score, swapped in self._best(self._longer(bodies, chains.joined, meets)):
                counts = counter.count(body, head)
                if counts[1] >= self.min_support:
                    found.append(self._composition(body, head, score, swapped, counts))
        return sorted(found, key=lambda rule: -rule.score)[: self.top]

    @staticmethod
    def _longer(bodies: NDArray[np.int64], joined: NDArray[np.int64], meets: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Bodies [n, 2] with every third step whose relation meets the second; those that join most."""
        row, third = np.nonzero(meets[bodies[:, 1]])
        first, second = bodies[row].T
        most = np.argsort(-(joined[first, second] * joined[second, third].astype(float)), kind="stable")[:MAX_LONGER]
        return np.stack([first, second, third], axis=1)[most]

    def _best(self, bodies: NDArray[np.int64]) -> list[tuple[tuple[int, ...], int, float, float]]:
        """The best heads among all bodies: (body, head, score, score of the body from back to front)."""
        best: list[tuple[NDArray[np.int64], NDArray[np.int64], Matrix]] = []
        for start in range(0, len(bodies), AT_ONCE):
            scores = self.beliefs.score(bodies[start : start + AT_ONCE])
            flat = np.argpartition(-scores, min(self.top, scores.size - 1), axis=None)[: self.top]
            place, heads = np.unravel_index(flat, scores.shape)
            best.append((bodies[start + place], heads, scores[place, heads]))
            self.on_progress(min(start + AT_ONCE, len(bodies)), len(bodies))
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
        product = self.row(body[0])
        for step in body[1:]:
            product = product @ self.row(step)
        share: Share = product.agreement(self.row(head))
        support, joined, pca_body = counts
        return MinedRule(
            "composition", tuple(map(self.name, body)), self.name(head), score, share.count, support, joined,
            support / joined, support / max(pca_body, 1),
            order_matters=body != body[::-1] and swapped < ORDER_MATTERS * score,
            examples=self._walks(list(body), head),
        )  # fmt: skip

    def _walks(self, steps: list[int], head: int) -> tuple[tuple[str, ...], ...]:
        """Instances in the graph: entities along the body whose ends the head relation holds."""
        if not self.examples:
            return ()
        onward = [self._edges(step) for step in steps]
        found: list[tuple[str, ...]] = []
        names = self.graph.entities
        for start, end in self.triples[self.triples[:, 1] == head][:, (0, 2)].tolist():
            if start == end:
                continue
            ways = [[start]]
            for edges in onward[:-1]:
                ways = [[*way, m] for way in ways[:MAX_WAYS] for m in edges.get(way[-1], ())]
            whole = next((way for way in ways if end in onward[-1].get(way[-1], ())), None)
            if whole:
                found.append(tuple(names[entity] for entity in (*whole, end)))
            if len(found) >= self.examples:
                break
        return tuple(found)

    def _edges(self, step: int) -> dict[int, list[int]]:
        """Where a step leads from each entity."""
        facts = self.triples[self.triples[:, 1] == step % self.num_relations]
        edges: dict[int, list[int]] = defaultdict(list)
        for source, target in facts[:, (0, 2) if step < self.num_relations else (2, 0)].tolist():
            edges[source].append(target)
        return edges
