"""The composition loss against its definition, walk by walk."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dihedral import Graph
from dihedral.models.dihedral import GumbelRelations
from dihedral.objectives.walks import SHARPNESS, THRESHOLD, Compositions

GRAPH = Graph.from_names(
    [
        ("ann", "parent", "bea"),
        ("bea", "parent", "cid"),
        ("ann", "grandparent", "cid"),
        ("ann", "spouse", "dan"),
        ("dan", "parent", "eve"),
    ]
)


def ids(*names: str) -> torch.Tensor:
    return torch.tensor([GRAPH.entities.id(name) for name in names])


def step(name: str) -> int:
    backwards = name.startswith("~")
    return GRAPH.relations.id(name.removeprefix("~")) + GRAPH.num_relations * backwards


def dense(operator: np.ndarray) -> np.ndarray:
    """The block-diagonal matrix of one operator row [4, L]."""
    size = operator.shape[1]
    matrix = np.zeros((2 * size, 2 * size))
    for i in range(size):
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = operator[:, i].reshape(2, 2)
    return matrix


def softplus(x: float) -> float:
    return float(np.logaddexp(0, x))


def test_the_loss_compares_products_of_walks_with_all_relations():
    relations = GumbelRelations(3, 10, 4, grades=(0, 1, np.inf), generator=torch.Generator().manual_seed(0))
    operators = relations.operators(generator=torch.Generator().manual_seed(1), temperature=0.3)
    walks = [
        ("ann", "parent", "parent", "cid"),
        ("ann", "spouse", "parent", "eve"),
        ("bea", "~parent", "spouse", "dan"),
    ]
    steps = torch.tensor([[step(first), step(second)] for _, first, second, _ in walks])
    compositions = Compositions.build(GRAPH)
    found = compositions.loss(operators.detach(), ids(*(w[0] for w in walks)), steps, ids(*(w[3] for w in walks)))

    matrices = [dense(row) for row in operators.detach().double().numpy()]
    both_ways = [*matrices, *(matrix.T for matrix in matrices)]
    facts = set(GRAPH.names_of(GRAPH.train))
    # spouse · parent and ~parent · spouse join entities, parent · spouse joins none and neither does spouse · ~parent
    meets = {("parent", "parent"): True, ("parent", "spouse"): False, ("spouse", "~parent"): False}
    total = 0.0
    for head, first, second, tail in walks:
        one, two = both_ways[step(first)], both_ways[step(second)]
        for number, relation in enumerate(GRAPH.relations):
            cosine, swapped = (
                float((product * matrices[number]).sum() / np.linalg.norm(product) / np.linalg.norm(matrices[number]))
                for product in (one @ two, two @ one)
            )
            sign = -1 if (head, relation, tail) in facts else 1
            total += softplus(sign * SHARPNESS * (cosine - THRESHOLD))
            if not meets[second, first]:
                total += softplus(SHARPNESS * (swapped - THRESHOLD))
    assert float(found) == pytest.approx(total / len(walks), rel=1e-4)


def test_a_batch_without_walks_has_no_composition_loss():
    operators = GumbelRelations(3, 10, 4, generator=torch.Generator().manual_seed(0)).exact().requires_grad_()
    nothing = torch.empty(0, dtype=torch.long)
    loss = Compositions.build(GRAPH).loss(operators, nothing, torch.empty(0, 2, dtype=torch.long), nothing)
    (gradient,) = torch.autograd.grad(loss, operators)
    assert float(loss.detach()) == 0.0 and not gradient.any()


def test_steps_meet_if_one_can_follow_the_other():
    meets = Compositions.build(GRAPH).meets
    index = GRAPH.train_index
    for first in range(6):
        for second in range(6):
            arrives = set(index.members((first + 3) % 6).tolist())  # where the first step ends
            leaves = set(index.members(second).tolist())
            assert bool(meets[first, second]) == bool(arrives & leaves)


def test_training_with_it_makes_products_similar_to_what_they_imply():
    operators = GumbelRelations(3, 40, 4, generator=torch.Generator().manual_seed(0))
    compositions, optimiser = Compositions.build(GRAPH), torch.optim.Adam(operators.parameters(), lr=0.1)
    first, steps, ends = ids("ann"), torch.tensor([[step("parent"), step("parent")]]), ids("cid")
    noise = torch.Generator().manual_seed(1)
    for _ in range(60):
        optimiser.zero_grad()
        compositions.loss(operators.operators(generator=noise, temperature=0.5), first, steps, ends).backward()
        optimiser.step()
    exact = operators.exact().numpy()
    parent, other, grandparent = (dense(exact[step(name)]) for name in ("parent", "spouse", "grandparent"))
    product = parent @ parent

    def cosine(matrix: np.ndarray) -> float:
        return float((product * matrix).sum() / np.linalg.norm(product) / np.linalg.norm(matrix))

    assert cosine(grandparent) > 0.5 > max(cosine(parent), cosine(other))
