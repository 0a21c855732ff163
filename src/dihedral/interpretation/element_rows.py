"""Relations as rows of group elements that combine like in mathematics: `spouse @ parent`, `~parent`.

Relations have hundreds of learned components, so no statement holds for all of them: answers are shares of components.
A share weights each component by how much it adds to the scores of the facts of the relations involved; the unweighted
count is given with it. With weights w_l and sizes s_l = 2⁻ᵉ of graded components, rows A and B agree to the share

    agreement(A, B) = Σ_l w_l s_l(A) s_l(B) [g_l(A) = g_l(B)] / √( Σ_l w_l s_l(A)² · Σ_l w_l s_l(B)² )

Symmetry is the agreement of a row with its transpose, which is the row of the inverse relation.

Each share has its chance level, Cohen's kappa and a significance (`elements.shares`). Where two rows are compared, the
chance level is the mean over all shuffles of the group elements of the second one; weights and sizes stay in place. In
a product, the elements of all factors but the first are shuffled. Where a statement is about one relation, such as its
symmetry, shuffling changes nothing, and the null hypothesis is a row of elements drawn uniformly from D_K.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.elements.group import Elements, GradedMonoid
from dihedral.elements.shares import ComponentShare, chernoff
from dihedral.engine.blocks import block_product, with_transposes
from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.steps import Step, inverse_ids
from dihedral.graph.vocabulary import Vocabulary
from dihedral.interpretation.pictures import element_picture
from dihedral.io.display import table
from dihedral.models.dihedral import DiscreteRelations
from dihedral.predict.predictor import Predictor
from dihedral.runtime import interruption
from dihedral.scoring.embedding import CHUNK, EmbeddingScorer, need_embeddings
from dihedral.scoring.path_scorer import PathScorer

DIGITS = 9  # kappas are rounded, so that errors of rounding do not order what is equal
MIN_WEIGHT = 1e-3  # the smallest weight of a component, relative to the largest
MAX_FACTS = 2000  # facts per relation that its weights are averaged over


class Match(NamedTuple):
    """A relation and the share of components in which it agrees."""

    relation: str
    share: ComponentShare


class Equation(NamedTuple):
    """A body, a head, the share of components in which they agree, and, of a composition, the cosine of matrices."""

    body: tuple[str, ...]
    head: str
    share: ComponentShare
    similarity: float | None = None

    def __str__(self) -> str:
        return f"{' · '.join(self.body)} = {self.head}"


@dataclass(frozen=True, eq=False)
class Row:
    """L elements of D_K, which may be graded: a relation, or a product or inverse of relations."""

    algebra: Algebra
    codes: Elements  # [L]
    name: str
    steps: tuple[int, ...]  # the signed steps that it is the product of

    @property
    def relations(self) -> tuple[int, ...]:
        """The relations that it is made of; they give its weights."""
        return tuple(step % len(self.algebra) for step in self.steps)

    def __matmul__(self, other: Row) -> Row:
        """First self, then other: R₁R₂, as (h, r₁, m) and (m, r₂, t) compose."""
        if not isinstance(other, Row):
            return NotImplemented
        self._check(other)
        codes = self.algebra.monoid.product(self.codes, other.codes)
        return Row(self.algebra, codes, f"{self.name} · {other.name}", self.steps + other.steps)

    def __invert__(self) -> Row:
        """The row of the inverse relation: the transpose, which in D_K is the inverse."""
        codes = self.algebra.monoid.transpose(self.codes)
        steps = tuple(inverse_ids(step, len(self.algebra)) for step in reversed(self.steps))
        name = f"({self.name})" if "·" in self.name or self.name.endswith("⁻¹") else self.name
        return Row(self.algebra, codes, f"{name}⁻¹", steps)

    def _check(self, other: Row) -> None:
        if self.algebra.monoid != other.algebra.monoid or self.codes.shape != other.codes.shape:
            raise DihedralError(f"{self.name!r} and {other.name!r} come from models with different K or dimension")

    def __repr__(self) -> str:
        shown = " ".join(self.algebra.monoid.name(code) for code in self.codes[:6])
        return f"Row({self.name}: {shown}{' …' if len(self.codes) > 6 else ''})"

    # --- shares of components ------------------------------------------------------------------

    def agreement(self, other: Row) -> ComponentShare:
        """Share of components in which both hold the same element."""
        return self._compare(other, np.eye(2 * self.algebra.monoid.K, dtype=bool))

    def commutation(self, other: Row) -> ComponentShare:
        """Share of components in which the order of the product does not matter."""
        commuting = self.algebra.products == self.algebra.products.T
        return self._compare(other, commuting, sizes=(self @ other).sizes)

    def identity(self) -> ComponentShare:
        """Share of components that are the identity, up to their size."""
        return self._state(self.algebra.monoid.group.elements == 0)

    def symmetry(self) -> ComponentShare:
        """Share of components whose matrix is symmetric."""
        return self._state(self.algebra.monoid.group.is_symmetric(self.algebra.monoid.group.elements))

    def skewness(self) -> ComponentShare:
        """Share of components whose matrix is skew-symmetric."""
        return self._state(self.algebra.monoid.group.is_skew(self.algebra.monoid.group.elements))

    @property
    def sizes(self) -> NDArray[np.float64]:
        """The size of each component: 1 in D_K, 0 where the component does not concern the relation."""
        return self.algebra.monoid.sizes(self.codes)

    @property
    def parts(self) -> Elements:
        """The group element of each component."""
        return self.algebra.monoid.group_part(self.codes)

    def _compare(
        self, other: Row, holds: NDArray[np.bool_], sizes: NDArray[np.float64] | None = None
    ) -> ComponentShare:
        """The share of components (g, h) of two rows for which holds[g, h]; sizes: instead of those of both rows."""
        self._check(other)
        mine, others = (self.sizes, other.sizes) if sizes is None else (sizes, sizes)
        weights = self._weights(self.relations + other.relations)
        if len({*self.relations, *other.relations}) == 1:  # a statement about one relation, such as ~r against r
            probabilities = [np.full(len(weights), holds[self._image(), other._image()].mean())]
        else:  # the elements of one row as drawn with the frequencies of the other
            probabilities = [(holds @ other.frequencies)[self.parts], (self.frequencies @ holds)[other.parts]]
        return _share(weights, mine, others, holds[self.parts, other.parts], probabilities)

    def _state(self, holds: NDArray[np.bool_]) -> ComponentShare:
        """The share of components g for which holds[g]."""
        alone = len(set(self.relations)) == 1
        chance = float(holds[self._image()].mean() if alone else self._shuffled()[holds].sum())
        weights, chances = self._weights(self.relations), [np.full(len(self.codes), chance)]
        return _share(weights, self.sizes, self.sizes, holds[self.parts], chances, chance)

    def _weights(self, relations: tuple[int, ...]) -> NDArray[Any]:
        """The weight of a component is the geometric mean of its weights for the relations involved."""
        log_weights = self.algebra.log_weights[list(relations)].mean(axis=0)
        return np.exp(log_weights - log_weights.max())

    def _image(self) -> Elements:
        """What the row would hold for each element of its one relation: [2K]."""
        group = self.algebra.monoid.group
        back = [step >= len(self.algebra) for step in self.steps]
        factors = [group.inverse(group.elements) if each else group.elements for each in back]
        return reduce(group.product, factors)

    def _shuffled(self) -> NDArray[np.float64]:
        """Weighted frequencies of the elements of the product: the mean over all shuffles of the other factors [2K]."""
        size, (first, *others) = 2 * self.algebra.monoid.K, map(self.algebra.step, self.steps)
        used = self._weights(self.relations) * self.sizes**2
        found: NDArray[Any] = np.bincount(first.parts, used, minlength=size) / (float(used.sum()) or 1.0)
        for row in others:
            pairs = np.outer(found, row.frequencies)
            found = np.bincount(self.algebra.products.ravel(), pairs.ravel(), minlength=size)
        return found

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """The share of the components with each group element, of those that are not zero: [2K]."""
        counts = np.bincount(self.parts[self.sizes > 0], minlength=2 * self.algebra.monoid.K)
        return counts / max(1, int(counts.sum()))

    def elements(self) -> dict[str, int]:
        """The number of components with each element."""
        monoid, codes = self.algebra.monoid, self.codes.astype(np.int64)
        size = 2 * monoid.K
        max_grade = max(0, int(codes.max(initial=0))) // size
        counts = np.bincount(codes + 1, minlength=size * (max_grade + 1) + 1)
        named = dict(zip(monoid.names(max_grade), [*counts[1:].tolist(), int(counts[0])], strict=True))
        return named if self.algebra.is_graded else {name: n for name, n in named.items() if name != "0"}

    def carried(self) -> NDArray[np.float64]:
        """The share of the scores of the relations' facts that each component carries: [L]."""
        used = self._weights(self.relations) * (self.sizes > 0)
        return used / (float(used.sum()) or 1.0)

    def _repr_html_(self) -> str:
        counts = {name: count for name, count in self.elements().items() if count}
        rows = [[element_picture(name), name, count, count / len(self.codes)] for name, count in counts.items()]
        known = self.algebra.names.label(self.name)
        return table(("", "element", "components", "share"), rows, f"{known} ({self.name})" if known else self.name)

    def nearest(self, count: int = 3) -> list[Match]:
        """The relations that agree best with this row, by kappa."""
        if count < 1:
            raise DihedralError(f"count is {count}; ask for at least 1 relation")
        a = self.algebra
        kappas, shares = a.agreements([self])
        best = np.lexsort((-shares[0], -kappas[0]))[:count].tolist()
        return [Match(a.names[i], self.agreement(a.step(i)).among(len(a))) for i in best]


class Algebra:
    """The relations of a DihEdral model as rows of group elements.

    >>> from dihedral.graph.vocabulary import Vocabulary
    >>> codes = np.array([[1, 2], [3, 2]])
    >>> a = Algebra(codes, 4, Vocabulary(["parent", "child"], "relation"))
    >>> (~a["parent"]).nearest(1)
    [Match(relation='child', share=1.00 (chance 0.50, not significant))]
    """

    def __init__(self, codes: NDArray[Any], K: int, names: Vocabulary, weights: NDArray[Any] | None = None) -> None:
        """weights [R, L]: how much each component matters to each relation; equal if not given."""
        self.monoid = GradedMonoid(K)
        self.codes = codes
        self.is_graded = codes.dtype.kind == "i" and bool(((codes < 0) | (codes >= 2 * K)).any())
        self.names = names
        self.log_weights = log_weights(np.ones(codes.shape) if weights is None else weights)

    def __getitem__(self, relation: str) -> Row:
        return self.step(self.names.id(relation))

    def step(self, step: int) -> Row:
        """The row of a signed step id: of a relation, or of its inverse."""
        number, backwards = Step.from_id(step, len(self))
        row = Row(self, self.codes[number], self.names[number], (number,))
        return ~row if backwards else row

    @cached_property
    def products(self) -> Elements:
        """The products of all elements of D_K: [2K, 2K]."""
        group = self.monoid.group
        return group.product(group.elements[:, None], group.elements[None])

    def __iter__(self) -> Iterator[Row]:
        return map(self.step, range(len(self)))

    def __len__(self) -> int:
        return len(self.codes)

    def inverse_pairs(self, top: int = 10) -> list[Equation]:
        """Pairs r₁, r₂ whose product is nearest to the identity, by kappa; r₁ = r₂ means that r₁ is an involution."""
        first, second = np.triu_indices(len(self))
        kappas = self._inverse_kappas(range(len(self)))[first, second]
        best = np.argsort(-kappas, kind="stable")[:top]
        pairs = [(self.step(r1), self.step(r2)) for r1, r2 in zip(first[best], second[best], strict=True)]
        return [Equation((a.name, b.name), "identity", (~a).agreement(b).among(len(first))) for a, b in pairs]

    def nearest_inverses(self, which: Sequence[int], count: int) -> NDArray[np.int64]:
        """The relations that agree best with the inverses of some relations, by kappa: [n, count]."""
        return np.argsort(-self._inverse_kappas(which), axis=1, kind="stable")[:, :count]

    def _inverse_kappas(self, which: Sequence[int]) -> NDArray[np.float64]:
        return self.agreements([self.step(len(self) + number) for number in which])[0]

    @cached_property
    def _tables(self) -> tuple[NDArray[np.float64], Elements]:
        """Sizes and group elements of all components: [R, L] each."""
        return self.monoid.sizes(self.codes), self.monoid.group_part(self.codes)

    def agreements(self, rows: Sequence[Row]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The kappas and shares of the agreement of rows, of equally many steps, with all relations: [n, R] each.

        A weight is a geometric mean, a product of a factor from each relation, so all pairs are a few matrix products.
        """
        power = 1 / (len(rows[0].steps) + 1)
        weights = np.exp(power * np.stack([self.log_weights[list(row.relations)].sum(axis=0) for row in rows]))
        sizes, parts = np.stack([row.sizes for row in rows]), np.stack([row.parts for row in rows])
        their_weights, (their_sizes, their_parts) = np.exp(power * self.log_weights), self._tables
        mine, theirs = weights * sizes, their_weights * their_sizes  # [n, L], [R, L]
        norm = np.sqrt(((mine * sizes) @ their_weights.T) * (weights @ (theirs * their_sizes).T))
        share, chance = np.zeros((2, len(rows), len(self)))
        often = np.stack([row.frequencies for row in self])  # [R, 2K]
        for g in range(2 * self.monoid.K):
            interruption.check()
            ours = mine * (parts == g)
            share += ours @ (theirs * (their_parts == g)).T
            chance += (ours @ theirs.T) * often[:, g]
        norm = np.where(norm > 0, norm, 1.0)
        share, chance = share / norm, chance / norm
        kappas = np.where(chance < 1, (share - chance) / np.where(chance < 1, 1 - chance, 1.0), 0.0)
        for place, row in enumerate(rows):
            if len(set(row.relations)) == 1:  # its chance level is another
                kappas[place, row.relations[0]] = row.agreement(self.step(row.relations[0])).kappa
        return kappas.round(DIGITS), share.round(DIGITS)

    def compositions(self, top: int = 10, *, inverses: bool = False) -> list[Equation]:
        """Products r₁ · r₂ most similar to a relation r₃, from the codes alone.

        inverses: bodies may walk relations backwards. `find_rules` uses the entities too and counts the rules.
        """
        rules, comparisons = [], len(self) ** 3 * (4 if inverses else 1)
        for *body, head, similarity in best_compositions(self.codes, self.monoid.K, top, inverses=inverses):
            names = tuple(Step.from_id(step, len(self)).name(self.names) for step in body)
            first, second = map(self.step, body)
            share = (first @ second).agreement(self.step(head)).among(comparisons)
            rules.append(Equation(names, self.names[head], share, similarity))
        return rules


@torch.no_grad()
def best_compositions(
    codes: NDArray[Any], K: int, top: int, *, inverses: bool = True
) -> list[tuple[int, int, int, float]]:
    """The `top` rules r₁ · r₂ ⇒ r₃ with the most similar products, best first, from codes [R, L]: step ids, similarity.

    The similarity of the product R₁R₂ and R₃ is the cosine of their matrices, tr(R₁R₂R₃ᵀ) / (‖R₁R₂‖ ‖R₃‖). If r₃ is r₁
    or r₂, it is the same for r₁ · r₂ and r₂ · r₁: the codes cannot tell the order of such a body.

    inverses: bodies may walk relations backwards. Bodies r · ~r, which lead back to their start, are left out.
    """
    count, monoid = len(codes), GradedMonoid(K)
    sizes = torch.from_numpy(monoid.sizes(codes)).float()
    matrices = torch.from_numpy(monoid.group.matrices.reshape(-1, 4)).float()
    parts = matrices[torch.from_numpy(monoid.group_part(codes)).long()]
    operators = (parts * sizes[..., None]).transpose(1, 2).contiguous()  # [R, 4, L]
    heads, steps = operators.flatten(1), with_transposes(operators) if inverses else operators
    squares = sizes.square()
    norms = squares.sum(1).sqrt().clamp(min=1e-30)  # ‖R_c‖, all norms divided by √2
    pairs = (squares @ squares.T).sqrt().clamp(min=1e-30).repeat(1, len(steps) // count)  # ‖R_a R_b‖
    best, rules = torch.zeros(0), torch.zeros((0, 3), dtype=torch.long)
    for first in range(len(steps)):
        interruption.check()
        products = block_product(steps[first], steps).flatten(1)  # R_a R_b: [steps, 4L]
        similarity = products @ heads.T / 2 / pairs[first % count][:, None] / norms  # [b, c]
        if inverses:
            similarity[inverse_ids(first, count)] = -2.0  # below any cosine
        threshold = float(best[-1]) if len(best) == top else -1.5
        found = (similarity > threshold).nonzero()
        best = torch.cat([best, similarity[found[:, 0], found[:, 1]]])
        rules = torch.cat([rules, torch.cat([torch.full_like(found[:, :1], first), found], dim=1)])
        order = best.argsort(descending=True, stable=True)[:top]
        best, rules = best[order], rules[order]
    return list(zip(*rules.T.tolist(), best.tolist(), strict=True))


def algebra(predictor: Predictor) -> Algebra:
    """The algebra of a trained DihEdral model; all components of a path model have the same weight."""
    scorer = predictor.scorer
    if not isinstance(scorer, PathScorer):
        scorer = need_embeddings(scorer, "the algebra")
    relations = scorer.model.relations
    if not isinstance(relations, DiscreteRelations):
        raise DihedralError(f"a {relations.kind!r} model has no group elements; the algebra needs a DihEdral model")
    weights = None if isinstance(scorer, PathScorer) else component_weights(scorer, predictor.graph)
    return Algebra(relations.codes.cpu().numpy(), relations.K, predictor.graph.relations, weights)


@torch.no_grad()
def component_weights(scorer: EmbeddingScorer, graph: Graph) -> NDArray[np.float64]:
    """What each component adds to the score of a relation's facts on average, at least 0: [R, L]."""
    facts = graph.train[np.argsort(graph.train[:, 1], kind="stable")]
    first = np.searchsorted(facts[:, 1], np.arange(graph.num_relations))
    facts = facts[np.arange(len(facts)) - first[facts[:, 1]] < MAX_FACTS]
    counts = torch.from_numpy(np.bincount(facts[:, 1], minlength=graph.num_relations))[:, None]
    sums = torch.zeros(graph.num_relations, scorer.entities.shape[1] // 2, device=scorer.device)
    for part in torch.from_numpy(facts).long().to(scorer.device).split(CHUNK):
        head, relation, tail = part.T
        added = scorer.queries(head, relation) * scorer.entities[tail]
        sums.index_add_(0, relation, added.view(len(part), 2, -1).sum(dim=1))
    means = (sums.cpu() / counts.clamp(min=1)).clamp(min=0)
    return torch.where(counts > 0, means, 1.0).double().numpy()


def log_weights(added: NDArray[Any]) -> NDArray[Any]:
    """Logarithms of the component weights [R, L], bounded below by MIN_WEIGHT of the largest of each relation."""
    largest = added.max(axis=1, keepdims=True)
    added = np.where(largest > 0, added, 1.0)  # equal weights for a relation whose facts no component supports
    return np.log(np.maximum(added, MIN_WEIGHT * np.where(largest > 0, largest, 1.0)))


def _share(
    weights: NDArray[Any],
    mine: NDArray[Any],
    others: NDArray[Any],
    true: NDArray[np.bool_],
    chances: list[NDArray[Any]],
    chance: float | None = None,
) -> ComponentShare:
    """The share of the components of two rows with these sizes for which something is true.

    chances: the probability of each component that it is true by chance; the least significant counts.
    chance: the chance level, if it is the same for all components.
    """

    def norm(weights: Any) -> float:
        return float((weights * mine**2).sum() * (weights * others**2).sum()) ** 0.5 or 1.0

    used = weights * mine * others
    held, count = float(used[true].sum()), float((mine * others)[true].sum()) / norm(1.0)
    p = max(chernoff(used, each, held) for each in chances)
    chance = float(used @ chances[0]) / norm(weights) if chance is None else chance
    return ComponentShare(held / norm(weights), count, chance=chance, p=p)
