"""The paper's Case Studies as numbers, computed from a trained model in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.graph import Graph
from dihedral.graph.patterns import find_chains, find_reversals, skew_relations
from dihedral.interpretation import Row, algebra
from dihedral.models import Model
from dihedral.predict.predictor import Predictor

MAX_PAIRS = 8
FAMILY_CHAINS = (
    ("spouse", "parent", "parent_in_law"),
    ("child", "spouse", "child_in_law"),
    ("parent", "child", "sibling"),
    ("sibling", "parent", "parent"),
)


def inverses(predictor: Predictor) -> list[dict[str, Any]]:
    """Figure 2: R₁R₂ for the inverse pairs of the training graph, highest support first."""
    graph = predictor.graph
    found = find_reversals(graph.train_index)
    a = algebra(predictor) if predictor.model.codes is not None else None
    rows = []
    for first, second in found.inverse_pairs()[:MAX_PAIRS]:
        row: dict[str, Any] = {
            "relations": [graph.relations[first], graph.relations[second]],
            "support": int(found.support[first, second]),
            "confidence": [float(found.confidence[first, second]), float(found.confidence[second, first])],
            **_identity_likeness(relation_matrix(predictor.model, first) @ relation_matrix(predictor.model, second)),
        }
        if a is not None:
            row |= _product(a[graph.relations[first]] @ a[graph.relations[second]])
        rows.append(row)
    return rows


def relation_matrix(model: Model, relation: int) -> NDArray[np.float64]:
    """Return the matrix R [2L, 2L] of φ = hᵀRt; row i is Rᵀ applied to the i-th unit vector."""
    relations = model.relations
    units = torch.eye(model.dimension, device=model.entities.device)
    index = torch.full((model.dimension,), relation, device=units.device)
    with torch.no_grad():
        return relations.queries(relations.exact(), index, units, "tail").double().cpu().numpy()


def _identity_likeness(matrix: NDArray[np.float64]) -> dict[str, float]:
    """Measure how close a matrix is to a multiple of the identity; the measures do not depend on its norm.

    cosine: cosine similarity to the identity, 1 for a positive multiple of it.
    diagonality: share of the squared Frobenius norm that lies on the diagonal.
    spread: standard deviation of the diagonal divided by the absolute value of its mean.
    """
    diagonal = matrix.diagonal()
    size = float(np.linalg.norm(matrix)) or 1.0
    return {
        "cosine": float(diagonal.sum() / (size * len(diagonal) ** 0.5)),
        "diagonality": float((diagonal**2).sum() / size**2),
        "spread": float(diagonal.std() / max(abs(float(diagonal.mean())), 1e-12)),
    }


def _product(row: Row) -> dict[str, Any]:
    """Describe a product that should be the identity: share of identity blocks, and counts of diagonal entries."""
    group_parts = row.algebra.monoid.group_part(row.codes)
    blocks = row.algebra.monoid.group.matrices[group_parts] * row.sizes[:, None, None]
    diagonal = blocks[:, [0, 1], [0, 1]].ravel().round(3)
    values, counts = np.unique(diagonal + 0.0, return_counts=True)
    return {
        "share": row.identity().count,
        "ones": float((diagonal == 1).mean()),
        "diagonal": {f"{value:g}": int(count) for value, count in zip(values, counts, strict=True)},
    }


def symmetry(predictor: Predictor) -> list[dict[str, Any]]:
    """Figure 3: the group elements of symmetric and of definitely skew-symmetric relations."""
    graph, a = predictor.graph, algebra(predictor)
    found = find_reversals(graph.train_index)
    skew = np.flatnonzero(skew_relations(graph.train_index)).tolist()
    rows = []
    for kind, members in (("symmetric", found.symmetric()), ("skew", skew)):
        for relation in sorted(members, key=lambda member: -int(found.size[member])):
            row = a[graph.relations[relation]]
            shares = {"symmetry": row.symmetry().count, "skewness": row.skewness().count, "elements": row.elements()}
            rows.append({"kind": kind, "relation": row.name, "triples": int(found.size[relation]), **shares})
    return rows


def compositions(predictor: Predictor) -> list[dict[str, Any]]:
    """Figure 4: R₁R₂R₃⁻¹ in both orders, for the rules of FAMILY or the chains with the highest support."""
    graph, a = predictor.graph, algebra(predictor)
    rows = []
    for names, counts in _chains(graph):
        r1, r2, r3 = (a[name] for name in names)
        products = {"right": _product(r1 @ r2 @ ~r3), "swapped": _product(r2 @ r1 @ ~r3)}
        rows.append({"relations": names, **counts, **products})
    return rows


def _chains(graph: Graph) -> list[tuple[list[str], dict[str, Any]]]:
    """Return the relations of each chain, and its counts in the training graph."""
    if graph.name == "family":
        return [(list(chain), {}) for chain in FAMILY_CHAINS]
    found = find_chains(graph.train_index)
    r1, r2, r3 = found.rules.T
    kept = np.flatnonzero((found.confidence >= 0.5) & (r1 != r2) & (r3 != r1) & (r3 != r2))
    chains = []
    for i in kept[np.argsort(-found.support[kept], kind="stable")][:MAX_PAIRS]:
        counts = {"support": int(found.support[i]), "confidence": float(found.confidence[i])}
        chains.append(([graph.relations[r] for r in found.rules[i]], counts))
    return chains


STUDIES: dict[str, Callable[[Predictor], Any]] = {study.__name__: study for study in (inverses, symmetry, compositions)}
