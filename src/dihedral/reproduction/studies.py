"""The Case Studies as numbers: what is read off a trained model while it is in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.graph import Graph
from dihedral.graph.patterns import find_chains, find_reversals
from dihedral.inference.predictor import Predictor
from dihedral.interpretation import Row, algebra
from dihedral.models import Model
from dihedral.objectives.negatives import definitely_skew

MAX_PAIRS = 8
FAMILY_CHAINS = (
    ("spouse", "parent", "parent_in_law"),
    ("child", "spouse", "child_in_law"),
    ("parent", "child", "sibling"),
    ("sibling", "parent", "parent"),
)


def inverses(predictor: Predictor) -> list[dict[str, Any]]:
    """Figure 2: R₁R₂ of the pairs that the training graph holds as inverses, best supported first."""
    graph = predictor.graph
    found = find_reversals(graph.train, graph.num_entities, graph.num_relations)
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
    """The matrix R [2L, 2L] of φ = hᵀRt; row i is Rᵀ applied to the i-th unit vector."""
    relations = model.relations
    units = torch.eye(model.dimension, device=model.entities.device)
    index = torch.full((model.dimension,), relation, device=units.device)
    with torch.no_grad():
        return relations.queries(relations.exact(), index, units, "tail").double().cpu().numpy()


def _identity_likeness(matrix: NDArray[np.float64]) -> dict[str, float]:
    """How near a matrix is to a multiple of the identity, whatever its size.

    cosine: with the identity, 1 for a positive multiple of it; diagonality: the share of the squared
    entries that is on the diagonal; spread: standard deviation of the diagonal over its mean's size.
    """
    diagonal = matrix.diagonal()
    size = float(np.linalg.norm(matrix)) or 1.0
    return {
        "cosine": float(diagonal.sum() / (size * len(diagonal) ** 0.5)),
        "diagonality": float((diagonal**2).sum() / size**2),
        "spread": float(diagonal.std() / max(abs(float(diagonal.mean())), 1e-12)),
    }


def _product(row: Row) -> dict[str, Any]:
    """A product of group rows that ought to be the identity: the share, and the diagonal entries of its blocks."""
    diagonal = row.algebra.group.matrices[row.codes][:, [0, 1], [0, 1]].ravel().round(3)
    values, counts = np.unique(diagonal + 0.0, return_counts=True)
    return {
        "share": row.identity().count,
        "ones": float((diagonal == 1).mean()),
        "diagonal": {f"{value:g}": int(count) for value, count in zip(values, counts, strict=True)},
    }


def symmetry(predictor: Predictor) -> list[dict[str, Any]]:
    """Figure 3: the elements of symmetric and of definitely skew-symmetric relations."""
    graph, a = predictor.graph, algebra(predictor)
    found = find_reversals(graph.train, graph.num_entities, graph.num_relations)
    skew = definitely_skew(graph.train, graph.num_entities, graph.num_relations).nonzero()[:, 0].tolist()
    rows = []
    for kind, members in (("symmetric", found.symmetric()), ("skew", skew)):
        for relation in sorted(members, key=lambda member: -int(found.size[member])):
            row = a[graph.relations[relation]]
            rows.append(
                {
                    "kind": kind,
                    "relation": row.name,
                    "triples": int(found.size[relation]),
                    "symmetry": row.symmetry().count,
                    "skewness": row.skewness().count,
                    "elements": row.elements(),
                }
            )
    return rows


def compositions(predictor: Predictor) -> list[dict[str, Any]]:
    """Figure 4: R₁R₂R₃⁻¹ in both orders, of FAMILY's rules or the best supported chains of the graph."""
    graph, a = predictor.graph, algebra(predictor)
    rows = []
    for first, second, third, extra in _chains(graph):
        r1, r2, r3 = a[first], a[second], a[third]
        rows.append(
            {
                "relations": [first, second, third],
                **extra,
                "right": _product(r1 @ r2 @ ~r3),
                "swapped": _product(r2 @ r1 @ ~r3),
            }
        )
    return rows


def _chains(graph: Graph) -> list[tuple[str, str, str, dict[str, Any]]]:
    if graph.name == "family":
        return [(*chain, {}) for chain in FAMILY_CHAINS]
    found = find_chains(graph.train, graph.num_entities, graph.num_relations)
    r1, r2, r3 = found.rules.T
    new = (found.confidence >= 0.5) & (r1 != r2) & (r3 != r1) & (r3 != r2)
    found = found[new]
    best = np.argsort(-found.support, kind="stable")[:MAX_PAIRS]
    return [
        (
            *(graph.relations[r] for r in found.rules[i]),
            {"support": int(found.support[i]), "confidence": float(found.confidence[i])},
        )
        for i in best
    ]


STUDIES: dict[str, Callable[[Predictor], Any]] = {
    "inverses": inverses,
    "symmetry": symmetry,
    "compositions": compositions,
}
