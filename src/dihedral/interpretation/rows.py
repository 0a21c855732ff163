"""Relations as rows of group elements that combine like in mathematics: `spouse @ parent`, `~parent`.

Relations have hundreds of learned components, so no statement holds for all of them: answers are shares of components.
Most components matter little to any one relation. A share therefore weights each component by how much it adds to the
scores of the facts of the relations involved; the unweighted count is given with it.

The elements of a row may be graded (`monoid.GradedMonoid`): s_l = 2⁻ᵉ is the size of component l; it is 0 if the
component does not concern the relation. With weights w_l, rows A and B agree to the share

    agreement(A, B) = Σ_l w_l s_l(A) s_l(B) [g_l(A) = g_l(B)] / √( Σ_l w_l s_l(A)² · Σ_l w_l s_l(B)² )

It is 1 if both hold the same elements with proportional sizes. For rows of D_K all sizes are 1, and it is the weighted
share of components with equal elements. Symmetry is the agreement of a row with its transpose, and the inverse of a
relation has the transposed row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.steps import Step
from dihedral.graph.vocabulary import Vocabulary
from dihedral.group import Elements
from dihedral.inference.predictor import Predictor
from dihedral.inference.scorer import Scorer
from dihedral.interpretation.compositions import best_compositions
from dihedral.monoid import GradedMonoid

MIN_WEIGHT = 1e-3  # relative to the largest
MAX_FACTS = 2000  # of a relation, that its weights are averaged over


class Share(float):
    """A weighted share of components, between 0 and 1; `count` is the unweighted share.

    >>> Share(0.75, 0.5)
    0.75 (count 0.50)
    """

    count: float

    def __new__(cls, weighted: float, count: float) -> Share:
        share = super().__new__(cls, weighted)
        share.count = count
        return share

    def __repr__(self) -> str:
        return f"{float(self):.2f} (count {self.count:.2f})"

    def __reduce__(self) -> Any:
        return Share, (float(self), self.count)


class Match(NamedTuple):
    """A relation and the share of components in which it agrees."""

    relation: str
    share: Share


class Rule(NamedTuple):
    """A body, a head, and the share of components in which the product of the body is the head.

    similarity: of a composition, the cosine of the matrices of the product and of the head.
    """

    body: tuple[str, ...]
    head: str
    share: Share
    similarity: float | None = None

    def __str__(self) -> str:
        return f"{' · '.join(self.body)} = {self.head}"


@dataclass(frozen=True, eq=False)
class Row:
    """L elements of D_K, which may be graded: a relation, or a product or inverse of relations."""

    algebra: Algebra
    codes: Elements  # [L]
    name: str
    relations: tuple[int, ...]  # the relations it is made of; they give its weights

    def __matmul__(self, other: Row) -> Row:
        """First self, then other: R₁R₂, as (h, r₁, m) and (m, r₂, t) compose."""
        if not isinstance(other, Row):
            return NotImplemented
        self._check(other)
        codes = self.algebra.monoid.product(self.codes, other.codes)
        return Row(self.algebra, codes, f"{self.name} · {other.name}", self.relations + other.relations)

    def __invert__(self) -> Row:
        """The row of the inverse relation: the transpose, which in D_K is the inverse."""
        codes = self.algebra.monoid.transpose(self.codes)
        return Row(self.algebra, codes, f"{_bracket(self.name)}⁻¹", self.relations)

    def _check(self, other: Row) -> None:
        if self.algebra.monoid != other.algebra.monoid or self.codes.shape != other.codes.shape:
            raise DihedralError(f"{self.name!r} and {other.name!r} come from models with different K or dimension")

    def __pow__(self, exponent: int) -> Row:
        codes = self.algebra.monoid.power(self.codes, exponent)
        return Row(self.algebra, codes, f"{_bracket(self.name)}^{exponent}", self.relations)

    def __repr__(self) -> str:
        shown = " ".join(self.algebra.monoid.name(code) for code in self.codes[:6])
        return f"Row({self.name}: {shown}{' …' if len(self.codes) > 6 else ''})"

    def agreement(self, other: Row) -> Share:
        """Share of components in which both hold the same element (chance level 1/2K)."""
        self._check(other)
        equal = self.algebra.monoid.group_part(self.codes) == self.algebra.monoid.group_part(other.codes)
        return self._share(equal, other)

    def identity(self) -> Share:
        """Share of components that are the identity, up to their size."""
        return self._share(self.algebra.monoid.group_part(self.codes) == 0, self)

    def symmetry(self) -> Share:
        """Share of components whose matrix is symmetric."""
        return self._share(self.algebra.monoid.is_symmetric(self.codes), self)

    def skewness(self) -> Share:
        """Share of components whose matrix is skew-symmetric."""
        return self._share(self.algebra.monoid.is_skew(self.codes), self)

    def commutation(self, other: Row) -> Share:
        """Share of components in which the order of the product does not matter."""
        return (self @ other).agreement(other @ self)

    @property
    def sizes(self) -> NDArray[np.float64]:
        """The size of each component: 1 in D_K, 0 where the component does not concern the relation."""
        return self.algebra.monoid.sizes(self.codes)

    def _share(self, holds: NDArray[np.bool_], other: Row) -> Share:
        """The weight of a component is the geometric mean of its weights for the relations involved."""
        involved = self.relations + (() if other is self else other.relations)
        log_weights = self.algebra.log_weights[list(involved)].mean(axis=0)
        weights = np.exp(log_weights - log_weights.max())
        mine, others = self.sizes, other.sizes
        return Share(*(_cosine(each, mine, others, holds) for each in (weights, np.ones_like(weights))))

    def elements(self) -> dict[str, int]:
        """The number of components with each element."""
        monoid, codes = self.algebra.monoid, self.codes.astype(np.int64)
        size = 2 * monoid.K
        max_grade = max(0, int(codes.max(initial=0))) // size
        counts = np.bincount(codes + 1, minlength=size * (max_grade + 1) + 1)
        named = dict(zip(monoid.names(max_grade), [*counts[1:].tolist(), int(counts[0])], strict=True))
        return named if self.algebra.is_graded else {name: n for name, n in named.items() if name != "0"}

    def nearest(self, count: int = 3) -> list[Match]:
        """The relations that agree with this row in the largest share of components."""
        if count < 1:
            raise DihedralError(f"count is {count}; ask for at least 1 relation")
        shares = [self.agreement(row) for row in self.algebra]
        order = np.argsort([-share for share in shares], kind="stable")[:count]
        return [Match(self.algebra.names[i], shares[i]) for i in order]


class Algebra:
    """The relations of a DihEdral model as rows of group elements.

    >>> from dihedral.graph.vocabulary import Vocabulary
    >>> codes = np.array([[1, 2], [3, 2]])
    >>> a = Algebra(codes, 4, Vocabulary(["parent", "child"], "relation"))
    >>> (~a["parent"]).nearest(1)
    [Match(relation='child', share=1.00 (count 1.00))]
    """

    def __init__(self, codes: NDArray[Any], K: int, names: Vocabulary, weights: NDArray[Any] | None = None) -> None:
        """weights [R, L]: how much each component matters to each relation; equal if not given."""
        self.monoid = GradedMonoid(K)
        self.codes = codes
        self.is_graded = codes.dtype.kind == "i" and bool(((codes < 0) | (codes >= 2 * K)).any())
        self.names = names
        self.log_weights = log_weights(np.ones(codes.shape) if weights is None else weights)

    def __getitem__(self, relation: str) -> Row:
        number = self.names.id(relation)
        return Row(self, self.codes[number], relation, (number,))

    def step(self, step: int) -> Row:
        """The row of a signed step id: of a relation, or of its inverse."""
        relation, backwards = Step.from_id(step, len(self))
        row = self[self.names[relation]]
        return ~row if backwards else row

    def __iter__(self) -> Iterator[Row]:
        return (Row(self, self.codes[i], name, (i,)) for i, name in enumerate(self.names))

    def __len__(self) -> int:
        return len(self.codes)

    def inverse_pairs(self, top: int = 10) -> list[Rule]:
        """Pairs r₁, r₂ whose product is nearest to the identity; r₁ = r₂ means that r₁ is an involution."""
        shares = self.agreements(self.monoid.transpose(self.codes), np.arange(len(self))[:, None])
        first, second = np.triu_indices(len(self))
        order = np.argsort(-shares[first, second], kind="stable")[:top]
        pairs = [(self.names[first[i]], self.names[second[i]]) for i in order]
        return [Rule((r1, r2), "identity", (~self[r1]).agreement(self[r2])) for r1, r2 in pairs]

    def compositions(self, top: int = 10, *, inverses: bool = False) -> list[Rule]:
        """Products r₁ · r₂ most similar to a relation r₃, from the codes alone (`interpretation.compositions`).

        inverses: bodies may walk relations backwards. `find_rules` uses the entities too and counts the rules.
        """
        rules = []
        for *body, head, similarity in best_compositions(self.codes, self.monoid.K, top, inverses=inverses):
            names = tuple(Step.from_id(step, len(self)).name(self.names) for step in body)
            first, second = map(self.step, body)
            share = (first @ second).agreement(self.step(head))
            rules.append(Rule(names, self.names[head], share, similarity))
        return rules

    def agreements(self, rows: Elements, made_of: NDArray[Any]) -> NDArray[np.float32]:
        """Weighted share of components in which rows [n, L] agree with each relation: [n, R].

        made_of [n, m]: the relations that each row is made of. A geometric mean is a product of powers, one factor
        from the row's relations and one from the other relation, so all pairs are one matrix product.
        """
        parts = made_of.shape[1] + 1
        left_weights = np.exp(self.log_weights[made_of].sum(axis=1) / parts).astype(np.float32)  # [n, L]
        right_weights = np.exp(self.log_weights / parts).astype(np.float32)  # [R, L]
        left_sizes, right_sizes = (self.monoid.sizes(codes).astype(np.float32) for codes in (rows, self.codes))
        left, right = (
            self._one_hot(rows, left_weights * left_sizes),
            self._one_hot(self.codes, right_weights * right_sizes),
        )
        norms = (left_weights * left_sizes**2) @ right_weights.T * (left_weights @ (right_weights * right_sizes**2).T)
        shares: NDArray[np.float32] = (left @ right.T) / np.sqrt(np.maximum(norms, 1e-30))
        return shares

    def _one_hot(self, codes: Elements, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The values [n, L] of the components, in the column of their group element: [n, L · 2K]."""
        columns = self.monoid.group_part(codes)[..., None] == np.arange(2 * self.monoid.K)
        return (columns * values[..., None]).reshape(len(codes), -1)


def algebra(predictor: Predictor) -> Algebra:
    """The algebra of a trained DihEdral model."""
    codes = predictor.model.codes
    if codes is None:
        raise DihedralError(
            f"a {predictor.model.relations.kind!r} model has no group elements; the algebra needs a DihEdral model"
        )
    K = int(predictor.model.relations.settings()["K"])
    weights = component_weights(predictor.scorer, predictor.graph)
    return Algebra(codes.cpu().numpy(), K, predictor.graph.relations, weights)


@torch.no_grad()
def component_weights(scorer: Scorer, graph: Graph) -> NDArray[np.float64]:
    """What each component adds to the score of a relation's facts on average, at least 0: [R, L]."""
    entities = scorer.entities
    weights = torch.ones(graph.num_relations, entities.shape[1] // 2)
    for relation in range(graph.num_relations):
        facts = torch.from_numpy(graph.facts_of(relation)[:MAX_FACTS]).long().to(scorer.device)
        if len(facts):
            head, step, tail = facts.T
            parts = scorer.queries(head, step) * entities[tail]
            weights[relation] = parts.mean(dim=0).view(2, -1).sum(dim=0).clamp(min=0)
    return weights.double().numpy()


def log_weights(added: NDArray[Any]) -> NDArray[Any]:
    """Logarithms of the component weights [R, L], bounded below by MIN_WEIGHT of the largest of each relation."""
    largest = added.max(axis=1, keepdims=True)
    added = np.where(largest > 0, added, 1.0)  # equal weights for a relation whose facts no component supports
    return np.log(np.maximum(added, MIN_WEIGHT * np.where(largest > 0, largest, 1.0)))


def _cosine(
    weights: NDArray[Any], left: NDArray[np.float64], right: NDArray[np.float64], holds: NDArray[np.bool_]
) -> float:
    """Σ w s s' [holds] / √(Σ w s² · Σ w s'²); 0 for a row without components."""
    norm = float((weights * left**2).sum() * (weights * right**2).sum()) ** 0.5
    return float((weights * left * right)[holds].sum()) / norm if norm else 0.0


def _bracket(name: str) -> str:
    return f"({name})" if "·" in name or "^" in name or name.endswith("⁻¹") else name
