"""Relations as rows of group elements that combine like in mathematics: `spouse @ parent`, `~parent`.

Relations have hundreds of learned components, so no statement holds for all of them: answers are shares of components.
Most components matter little to any one relation. A share therefore weights each component by how much it adds to the
scores of the facts of the relations involved; the unweighted count is given with it.
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
from dihedral.graph.vocabulary import Vocabulary
from dihedral.group import DihedralGroup, Elements
from dihedral.inference.predictor import Predictor
from dihedral.inference.scorer import Scorer

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
    """A body, a head, and the share of components in which the product of the body is the head."""

    body: tuple[str, ...]
    head: str
    share: Share

    def __str__(self) -> str:
        return f"{' · '.join(self.body)} = {self.head}"


@dataclass(frozen=True, eq=False)
class Row:
    """L elements of D_K: a relation, or a product or inverse of relations."""

    algebra: Algebra
    codes: Elements  # [L]
    name: str
    relations: tuple[int, ...]  # the relations it is made of; they give its weights

    def __matmul__(self, other: Row) -> Row:
        """First self, then other: R₁R₂, as (h, r₁, m) and (m, r₂, t) compose."""
        if not isinstance(other, Row):
            return NotImplemented
        self._check(other)
        codes = self.algebra.group.product(self.codes, other.codes)
        return Row(self.algebra, codes, f"{self.name} · {other.name}", self.relations + other.relations)

    def __invert__(self) -> Row:
        codes = self.algebra.group.inverse(self.codes)
        return Row(self.algebra, codes, f"{_bracket(self.name)}⁻¹", self.relations)

    def _check(self, other: Row) -> None:
        if self.algebra.group != other.algebra.group or self.codes.shape != other.codes.shape:
            raise DihedralError(f"{self.name!r} and {other.name!r} come from models with different K or dimension")

    def __pow__(self, exponent: int) -> Row:
        codes = self.algebra.group.power(self.codes, exponent)
        return Row(self.algebra, codes, f"{_bracket(self.name)}^{exponent}", self.relations)

    def __repr__(self) -> str:
        names = self.algebra.group.names
        shown = " ".join(names[code] for code in self.codes[:6])
        return f"Row({self.name}: {shown}{' …' if len(self.codes) > 6 else ''})"

    def agreement(self, other: Row) -> Share:
        """Share of components in which both hold the same element (chance level 1/2K)."""
        self._check(other)
        return self._share(self.codes == other.codes, other.relations)

    def identity(self) -> Share:
        """Share of components that are the identity."""
        return self._share(self.codes == 0)

    def symmetry(self) -> Share:
        """Share of components whose matrix is symmetric."""
        return self._share(self.algebra.group.is_symmetric(self.codes))

    def skewness(self) -> Share:
        """Share of components whose matrix is skew-symmetric."""
        return self._share(self.algebra.group.is_skew(self.codes))

    def commutation(self, other: Row) -> Share:
        """Share of components in which the order of the product does not matter."""
        return (self @ other).agreement(other @ self)

    def _share(self, holds: NDArray[np.bool_], others: tuple[int, ...] = ()) -> Share:
        """The weight of a component is the geometric mean of its weights for the relations involved."""
        log_weights = self.algebra.log_weights[list(self.relations + others)].mean(axis=0)
        weights = np.exp(log_weights - log_weights.max())
        return Share(float(weights[holds].sum() / weights.sum()), float(holds.mean()))

    def elements(self) -> dict[str, int]:
        """The number of components with each element."""
        counts = np.bincount(self.codes, minlength=len(self.algebra.group))
        return dict(zip(self.algebra.group.names, counts.tolist(), strict=True))

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
        self.group = DihedralGroup(K)
        self.codes = codes
        self.names = names
        self.log_weights = log_weights(np.ones(codes.shape) if weights is None else weights)

    def __getitem__(self, relation: str) -> Row:
        number = self.names.id(relation)
        return Row(self, self.codes[number], relation, (number,))

    def __iter__(self) -> Iterator[Row]:
        return (Row(self, self.codes[i], name, (i,)) for i, name in enumerate(self.names))

    def __len__(self) -> int:
        return len(self.codes)

    def inverse_pairs(self, top: int = 10) -> list[Rule]:
        """Pairs r₁, r₂ whose product is nearest to the identity; r₁ = r₂ means that r₁ is an involution."""
        shares = self.agreements(self.group.inverse(self.codes), np.arange(len(self))[:, None])
        first, second = np.triu_indices(len(self))
        order = np.argsort(-shares[first, second], kind="stable")[:top]
        pairs = [(self.names[first[i]], self.names[second[i]]) for i in order]
        return [Rule((r1, r2), "identity", (self[r1] @ self[r2]).identity()) for r1, r2 in pairs]

    def compositions(self, top: int = 10) -> list[Rule]:
        """Products r₁ · r₂ that agree best with a relation r₃ in the codes alone; `find_rules` finds more."""
        found: list[tuple[float, int, int, int]] = []
        for i, codes in enumerate(self.codes):
            others = np.stack([np.full(len(self), i), np.arange(len(self))], axis=1)
            shares = self.agreements(self.group.product(codes, self.codes), others)
            flat = np.argsort(-shares, axis=None, kind="stable")[:top]
            rows, columns = np.unravel_index(flat, shares.shape)
            found += [(float(shares[j, k]), i, int(j), int(k)) for j, k in zip(rows, columns, strict=True)]
        best = sorted(found, key=lambda rule: -rule[0])[:top]
        named = [tuple(self.names[r] for r in rule[1:]) for rule in best]
        return [Rule((r1, r2), r3, (self[r1] @ self[r2]).agreement(self[r3])) for r1, r2, r3 in named]

    def agreements(self, rows: Elements, made_of: NDArray[Any]) -> NDArray[np.float32]:
        """Weighted share of components in which rows [n, L] agree with each relation: [n, R].

        made_of [n, m]: the relations that each row is made of. A geometric mean is a product of powers, one factor
        from the row's relations and one from the other relation, so all pairs are one matrix product.
        """
        size, parts = len(self.group), made_of.shape[1] + 1
        left_weights = np.exp(self.log_weights[made_of].sum(axis=1) / parts).astype(np.float32)  # [n, L]
        right_weights = np.exp(self.log_weights / parts).astype(np.float32)  # [R, L]
        shape = -1, size * self.codes.shape[1]
        one_hot = np.arange(size)
        left = ((rows[..., None] == one_hot) * left_weights[..., None]).reshape(shape)
        right = ((self.codes[..., None] == one_hot) * right_weights[..., None]).reshape(shape)
        shares: NDArray[np.float32] = (left @ right.T) / (left_weights @ right_weights.T)
        return shares


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


def _bracket(name: str) -> str:
    return f"({name})" if "·" in name or "^" in name or name.endswith("⁻¹") else name
