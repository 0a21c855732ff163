"""Relations as rows of group elements that combine as mathematics reads: `spouse @ parent`, `~parent`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.triples import Vocabulary
from dihedral.group import DihedralGroup, Elements
from dihedral.predictor import Predictor


class Match(NamedTuple):
    """A relation and the share of components in which it agrees."""

    relation: str
    share: float


class Rule(NamedTuple):
    """body ⇒ head with the share of components in which the product of the body is the head."""

    body: tuple[str, ...]
    head: str
    share: float

    def __str__(self) -> str:
        return f"{' · '.join(self.body)} = {self.head}"


@dataclass(frozen=True, eq=False)
class Row:
    """L elements of D_K: a relation, or what products and inverses make of relations."""

    algebra: Algebra
    codes: Elements  # [L]
    name: str

    def __matmul__(self, other: Row) -> Row:
        """First self, then other: R₁R₂, as (h, r₁, m) and (m, r₂, t) compose."""
        if self.algebra.group != other.algebra.group or self.codes.shape != other.codes.shape:
            raise DihedralError(f"{self.name!r} and {other.name!r} come from models with another K or dimension")
        codes = self.algebra.group.product(self.codes, other.codes)
        return Row(self.algebra, codes, f"{self.name} · {other.name}")

    def __invert__(self) -> Row:
        return Row(self.algebra, self.algebra.group.inverse(self.codes), f"{_bracket(self.name)}⁻¹")

    def __pow__(self, exponent: int) -> Row:
        codes = self.algebra.group.power(self.codes, exponent)
        return Row(self.algebra, codes, f"{_bracket(self.name)}^{exponent}")

    def __repr__(self) -> str:
        names = self.algebra.group.names
        shown = " ".join(names[code] for code in self.codes[:6])
        return f"Row({self.name}: {shown}{' …' if len(self.codes) > 6 else ''})"

    def agreement(self, other: Row) -> float:
        """Share of components in which both hold the same element (chance 1/2K)."""
        return float((self.codes == other.codes).mean())

    def identity(self) -> float:
        """Share of components that are the identity."""
        return float((self.codes == 0).mean())

    def symmetry(self) -> float:
        """Share of components whose matrix is symmetric."""
        return float(self.algebra.group.is_symmetric(self.codes).mean())

    def skewness(self) -> float:
        """Share of components whose matrix is skew-symmetric."""
        return float(self.algebra.group.is_skew(self.codes).mean())

    def commutation(self, other: Row) -> float:
        """Share of components in which the order of the product does not matter."""
        return (self @ other).agreement(other @ self)

    def elements(self) -> dict[str, int]:
        """How often each element occurs."""
        counts = np.bincount(self.codes, minlength=len(self.algebra.group))
        return dict(zip(self.algebra.group.names, counts.tolist(), strict=True))

    def nearest(self, count: int = 3) -> list[Match]:
        """The relations that agree with this row in most components."""
        shares = (self.algebra.codes == self.codes).mean(axis=1)
        order = np.argsort(-shares, kind="stable")[:count]
        return [Match(self.algebra.names[i], float(shares[i])) for i in order]


class Algebra:
    """The relations of a DihEdral model as rows of group elements.

    >>> from dihedral.graph.triples import Vocabulary
    >>> codes = np.array([[1, 2], [3, 2]])
    >>> a = Algebra(codes, 4, Vocabulary(["parent", "child"], "relation"))
    >>> (~a["parent"]).nearest(1)
    [Match(relation='child', share=1.0)]
    """

    def __init__(self, codes: NDArray[Any], K: int, names: Vocabulary) -> None:
        self.group = DihedralGroup(K)
        self.codes = codes
        self.names = names

    def __getitem__(self, relation: str) -> Row:
        return Row(self, self.codes[self.names.id(relation)], relation)

    def __iter__(self) -> Iterator[Row]:
        return (Row(self, codes, name) for codes, name in zip(self.codes, self.names, strict=True))

    def __len__(self) -> int:
        return len(self.codes)

    def inverse_pairs(self, top: int = 10) -> list[Rule]:
        """Pairs r₁, r₂ whose product is nearest to the identity; r₁ = r₂ says r₁ is an involution."""
        shares = self._agreements(self.group.inverse(self.codes))
        first, second = np.triu_indices(len(self))
        order = np.argsort(-shares[first, second], kind="stable")[:top]
        return [
            Rule((self.names[first[i]], self.names[second[i]]), "identity", float(shares[first[i], second[i]]))
            for i in order
        ]

    def compositions(self, top: int = 10) -> list[Rule]:
        """Products r₁ · r₂ that agree best with a relation r₃."""
        found: list[Rule] = []
        for i, codes in enumerate(self.codes):
            shares = self._agreements(self.group.product(codes, self.codes))
            flat = np.argsort(-shares, axis=None, kind="stable")[:top]
            for j, k in zip(*np.unravel_index(flat, shares.shape), strict=True):
                found.append(Rule((self.names[i], self.names[j]), self.names[k], float(shares[j, k])))
        return sorted(found, key=lambda rule: -rule.share)[:top]

    def _agreements(self, rows: Elements) -> NDArray[np.float32]:
        """Share of components in which rows [n, L] agree with each relation: [n, R]."""
        size = len(self.group)
        shape = -1, size * self.codes.shape[1]
        left = (rows[..., None] == np.arange(size)).astype(np.float32).reshape(shape)
        right = (self.codes[..., None] == np.arange(size)).astype(np.float32).reshape(shape)
        shares: NDArray[np.float32] = left @ right.T / np.float32(self.codes.shape[1])
        return shares


def algebra(predictor: Predictor) -> Algebra:
    """The algebra of a trained DihEdral model."""
    codes = predictor.model.codes
    if codes is None:
        raise DihedralError(
            f"a {predictor.model.relations.kind!r} model has no group elements; the algebra needs a DihEdral model"
        )
    K = int(predictor.model.relations.settings()["K"])
    return Algebra(codes.cpu().numpy(), K, predictor.graph.relations)


def _bracket(name: str) -> str:
    return f"({name})" if "·" in name or "^" in name or name.endswith("⁻¹") else name
