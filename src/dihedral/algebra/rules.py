"""Rules that the codes imply, and how well the graph bears them out.

A relation moves the vectors of its heads to where its tails are. A body r₁ · … · rₙ implies r₃ as far as both do the
same, seen in two ways. Over the heads of r₁, h ↦ (R₁…Rₙ)ᵀh against h ↦ R₃ᵀh, and over the tails of rₙ the other way:
the mean cosine, weighed by squared length, needs only the second moments of those vectors in each component. And
component by component, half the trace of R₁…RₙR₃⁻¹, weighed by what a component adds to the facts of the relations
involved. The mean of the two is multiplied by how alike the mean heads of r₁ and r₃ are, and the mean tails of rₙ and
r₃. Either way every candidate is scored by one matrix product.

No path or chain is ever counted for a score; counting them (`graph.patterns`) is how a rule is checked.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dihedral.algebra.rows import Algebra, Share, algebra, component_weights, log_weights
from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.patterns import RuleCounter, find_chains, find_reversals
from dihedral.graph.triples import Triples
from dihedral.models import Model
from dihedral.models.dihedral import DiscreteRelations
from dihedral.paths import INVERSE
from dihedral.predictor import Predictor

Matrix = NDArray[np.float32]
Kind = Literal["symmetric", "skew-symmetric", "inverse", "composition"]
KINDS: tuple[Kind, ...] = ("symmetric", "skew-symmetric", "inverse", "composition")
AT_ONCE = 4096  # bodies that are scored together
MOST_WAYS = 200  # that an example is looked for among
ORDER_MATTERS = 0.8  # a swapped body with less than this share of the score is another body


@dataclass(frozen=True)
class RelationViews:
    """What scoring needs to know of each relation; of R relations, R + r is the inverse of r."""

    blocks: Matrix  # [2R, 2, 2, L]: the operators
    head_moments: Matrix  # [2R, 2, 2, L]: mean of h hᵀ over distinct heads, scaled to a whole trace of 1
    tail_moments: Matrix  # [2R, 2, 2, L]
    mean_head: Matrix  # [2R, 2L], of length 1
    mean_tail: Matrix  # [2R, 2L], of length 1
    log_weights: Matrix  # [2R, L]: what each component adds to the relation's facts

    @classmethod
    def of(cls, predictor: Predictor, blocks: Matrix) -> RelationViews:
        """blocks [R, 2, 2, L] of a model; its training triples say which entities a relation joins."""
        model, train = predictor.model, predictor.graph.train
        entities = model.entities.detach().float().cpu().numpy().reshape(model.num_entities, 2, -1)  # [N, 2, L]
        count = len(blocks)
        moments = np.zeros((2, count, *blocks.shape[1:]), np.float32)
        means = np.zeros((2, count, entities[0].size), np.float32)
        order = np.argsort(train[:, 1], kind="stable")
        bounds = np.searchsorted(train[order, 1], np.arange(count + 1))
        for relation in range(count):
            facts = train[order[bounds[relation] : bounds[relation + 1]]]
            for side, column in enumerate((0, 2)):
                if len(facts):
                    rows = entities[np.unique(facts[:, column])]
                    moments[side, relation] = np.einsum("nal,nbl->abl", rows, rows, optimize=True)
                    means[side, relation] = rows.mean(axis=0).ravel()
        moments /= np.maximum(np.einsum("sraal->sr", moments), 1e-12)[:, :, None, None, None]
        means /= np.maximum(np.linalg.norm(means, axis=-1, keepdims=True), 1e-12)
        return cls(
            blocks=np.concatenate([blocks, blocks.swapaxes(1, 2)]),
            head_moments=np.concatenate([moments[0], moments[1]]),
            tail_moments=np.concatenate([moments[1], moments[0]]),
            mean_head=np.concatenate([means[0], means[1]]),
            mean_tail=np.concatenate([means[1], means[0]]),
            log_weights=np.tile(log_weights(component_weights(predictor)), (2, 1)).astype(np.float32),
        )

    @property
    def num_relations(self) -> int:
        return len(self.blocks) // 2

    def product(self, bodies: NDArray[np.int64]) -> Matrix:
        """The operators of bodies [n, steps]: [n, 2, 2, L]."""
        product = self.blocks[bodies[:, 0]]
        for step in range(1, bodies.shape[1]):
            product = np.einsum("nabl,nbcl->nacl", product, self.blocks[bodies[:, step]], optimize=True)
        return product

    def score(self, bodies: NDArray[np.int64], *, at_once: int = 2048) -> Matrix:
        """How far each body [n, steps] implies each relation: [n, R], between 0 and 1."""
        count, parts = self.num_relations, bodies.shape[1] + 1
        heads, tails = self.mean_head[:count], self.mean_tail[:count]
        forms = self.blocks[:count].reshape(count, -1).T  # [4L, R]
        weights = np.exp(self.log_weights / parts)  # a geometric mean is a product of these
        weighed_forms = (self.blocks[:count] * weights[:count, None, None]).reshape(count, -1).T
        scores = np.empty((len(bodies), self.num_relations), np.float32)
        for start in range(0, len(bodies), at_once):
            part = bodies[start : start + at_once]
            first, last = part[:, 0], part[:, -1]
            product = self.product(part)
            # tr(M P R₃ᵀ) over heads and tr(P N R₃ᵀ) over tails are both ⟨·, R₃⟩
            moved = np.einsum("nabl,nbcl->nacl", self.head_moments[first], product, optimize=True)
            moved += np.einsum("nabl,nbcl->nacl", product, self.tail_moments[last], optimize=True)
            on_vectors = 0.5 * moved.reshape(len(part), -1) @ forms
            mine = np.prod(weights[part], axis=1)  # [n, L]
            traces = 0.5 * (product * mine[:, None, None]).reshape(len(part), -1) @ weighed_forms
            by_component = traces / (mine @ weights[:count].T)
            same = 0.5 * (np.clip(on_vectors, 0, 1) + np.clip(by_component, 0, 1))
            alike = np.maximum(self.mean_head[first] @ heads.T, 0) * np.maximum(self.mean_tail[last] @ tails.T, 0)
            scores[start : start + at_once] = same * alike
        return scores


def group_blocks(model: Model) -> Matrix:
    """The 2x2 matrices of a DihEdral model's codes: [R, 2, 2, L]; a relation's factor is left out."""
    assert isinstance(model.relations, DiscreteRelations)
    elements = model.relations.elements().float().cpu().numpy()
    return elements.reshape(len(elements), 2, 2, -1)


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
    examples: int = 2,
) -> list[MinedRule]:
    """The best rules of each kind, the highest score first.

    graph: where rules are counted; by default the training triples of the model's own graph.
    min_support: a composition is proposed only if its body joins this many pairs, an inverse or a symmetry
    only if its relation has this many; so a chain whose parts never meet is not proposed.
    inverses: relations may be walked backwards in the body of a composition.
    length: steps of the longest bodies, 2 or 3.
    """
    if length not in (2, 3):
        raise DihedralError(f"length is {length}; bodies have 2 or 3 steps")
    if min_support < 1 or top < 1:
        raise DihedralError(f"min_support is {min_support} and top {top}; both must be 1 or more")
    a = algebra(predictor)
    triples = predictor.graph.train if graph is None else predictor.align(graph).train
    views = RelationViews.of(predictor, group_blocks(predictor.model))
    book = _Book(a, views, triples, predictor.graph, min_support, top, examples)
    rules: list[MinedRule] = []
    if "symmetric" in kinds or "skew-symmetric" in kinds or "inverse" in kinds:
        rules += [rule for rule in book.reversals() if rule.kind in kinds]
    if "composition" in kinds:
        rules += book.compositions(inverses, length)
    return rules


class _Book:
    """Scores and counts of one graph, from which rules are written."""

    def __init__(
        self,
        a: Algebra,
        views: RelationViews,
        triples: Triples,
        graph: Graph,
        min_support: int,
        top: int,
        examples: int,
    ) -> None:
        self.algebra, self.views, self.triples, self.graph = a, views, triples, graph
        self.min_support, self.top, self.examples = min_support, top, examples
        self.num_relations = graph.num_relations

    def name(self, step: int) -> str:
        names = self.graph.relations
        return names[step] if step < self.num_relations else INVERSE + names[step - self.num_relations]

    def row(self, step: int) -> Any:
        row = self.algebra[self.graph.relations[step % self.num_relations]]
        return row if step < self.num_relations else ~row

    # --- symmetric relations and inverse pairs: ~r₂ ⇒ r₁ ----------------------------------------

    def reversals(self) -> list[MinedRule]:
        count = self.num_relations
        counted = find_reversals(self.triples, self.graph.num_entities, count)
        scores = self.views.score(np.arange(count, 2 * count)[:, None])  # [r₂, r₁]: ~r₂ ⇒ r₁
        both = np.minimum(scores, scores.T)
        enough = counted.size >= self.min_support
        own = both.diagonal()
        rules = []
        order = np.argsort(-own, kind="stable")
        order = order[enough[order]]
        for relation in order:
            symmetric = own[relation] >= 0.5
            rules.append(self._reversal("symmetric" if symmetric else "skew-symmetric", relation, relation, counted,
                                        float(own[relation] if symmetric else 1 - own[relation])))  # fmt: skip
        symmetric_rules = [rule for rule in rules if rule.kind == "symmetric"][: self.top]
        skew_rules = [rule for rule in rules[::-1] if rule.kind == "skew-symmetric"][: self.top]
        first, second = np.triu_indices(count, k=1)
        usable = enough[first] & enough[second]
        first, second = first[usable], second[usable]
        best = np.argsort(-both[first, second], kind="stable")[: self.top]
        pairs = [
            self._reversal("inverse", first[i], second[i], counted, float(both[first[i], second[i]])) for i in best
        ]
        return symmetric_rules + skew_rules + pairs

    def _reversal(self, kind: Kind, head: int, other: int, counted: Any, score: float) -> MinedRule:
        step = self.num_relations + int(other)
        share: Share = self.row(step).agreement(self.row(int(head)))
        if kind == "skew-symmetric":
            share = self.row(int(head)).skewness()
        support, size = int(counted.support[other, head]), int(counted.size[other])
        tails = self.triples[self.triples[:, 1] == other, 2]  # heads of the reversed facts
        has_any = np.isin(tails, self.triples[self.triples[:, 1] == head, 0])
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
            for body, head, score, swapped in self._best(_longer(bodies, meets)):
                counts = counter.count(body, head)
                if counts[1] >= self.min_support:
                    found.append(self._composition(body, head, score, swapped, counts))
        return sorted(found, key=lambda rule: -rule.score)[: self.top]

    def _best(self, bodies: NDArray[np.int64]) -> list[tuple[tuple[int, ...], int, float, float]]:
        """The best heads among all bodies: (body, head, score, score of the body from back to front)."""
        best: list[tuple[NDArray[np.int64], NDArray[np.int64], Matrix]] = []
        for start in range(0, len(bodies), AT_ONCE):
            scores = self.views.score(bodies[start : start + AT_ONCE])
            flat = np.argpartition(-scores, min(self.top, scores.size - 1), axis=None)[: self.top]
            place, heads = np.unravel_index(flat, scores.shape)
            best.append((bodies[start + place], heads, scores[place, heads]))
        if not best:
            return []
        chosen, heads, values = (np.concatenate(part) for part in zip(*best, strict=True))
        order = np.argsort(-values, kind="stable")[: self.top]
        swapped = self.views.score(chosen[order][:, ::-1])
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
                ways = [[*way, m] for way in ways[:MOST_WAYS] for m in edges.get(way[-1], ())]
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


def _longer(bodies: NDArray[np.int64], meets: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Bodies [n, 2] with every third step whose relation meets the second."""
    row, third = np.nonzero(meets[bodies[:, 1]])
    return np.concatenate([bodies[row], third[:, None]], axis=1)
