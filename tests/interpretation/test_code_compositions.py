"""Compositions from the codes alone, against all products of dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from dihedral.elements.group import GradedMonoid
from dihedral.interpretation.element_rows import best_compositions


def dense(codes: np.ndarray, K: int) -> np.ndarray:
    """Block-diagonal matrices [R, 2L, 2L]."""
    m = GradedMonoid(K)
    blocks = m.matrices(3)[codes]
    size = codes.shape[1]
    matrices = np.zeros((len(codes), 2 * size, 2 * size))
    for row in range(len(codes)):
        for i in range(size):
            matrices[row, 2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = blocks[row, i]
    return matrices


def all_rules(codes: np.ndarray, K: int, inverses: bool) -> dict[tuple[int, int, int], float]:
    """The cosine of every product of two steps with every relation, from dense matrices."""
    matrices, count = dense(codes, K), len(codes)
    steps = np.concatenate([matrices, matrices.transpose(0, 2, 1)]) if inverses else matrices
    found = {}
    for i, first in enumerate(steps):
        for j, second in enumerate(steps):
            for k, head in enumerate(matrices):
                if (i + count) % (2 * count) != j:
                    product = first @ second
                    norms = np.linalg.norm(product) * np.linalg.norm(head)
                    found[i, j, k] = float((product * head).sum() / norms) if norms else 0.0
    return found


@pytest.mark.parametrize("inverses", [False, True])
@pytest.mark.parametrize(("K", "max_grade"), [(4, 0), (4, 2), (6, 3), (5, 1)])
def test_all_rules_have_the_cosine_of_their_dense_matrices(K, max_grade, inverses):
    codes = np.random.default_rng(K).integers(-1 if max_grade else 0, 2 * K * (max_grade + 1), (5, 7))
    expected = all_rules(codes, K, inverses)
    found = best_compositions(codes, K, 10_000, inverses=inverses)
    assert {rule[:3] for rule in found} == set(expected)
    for *key, similarity in found:
        assert similarity == pytest.approx(expected[tuple(key)], abs=1e-5)


def test_the_best_rules_come_first():
    codes = np.random.default_rng(0).integers(-1, 24, (12, 30))
    everything = best_compositions(codes, 4, 10**6)
    values = [rule[3] for rule in everything]
    assert values == sorted(values, reverse=True)
    top = best_compositions(codes, 4, 20)
    np.testing.assert_allclose([rule[3] for rule in top], values[:20], atol=1e-6)


def test_a_composition_that_holds_exactly_is_found_in_its_order():
    m, rng = GradedMonoid(4), np.random.default_rng(3)
    first, second, other = rng.integers(0, 8, (3, 40))
    codes = np.stack([first, second, m.product(first, second), other])
    best, *rest = best_compositions(codes, 4, 50, inverses=False)
    assert best[:3] == (0, 1, 2) and best[3] == pytest.approx(1.0)
    swapped = next(rule for rule in rest if rule[:3] == (1, 0, 2))
    assert swapped[3] < 0.7


def test_the_order_cannot_be_read_if_the_head_is_in_the_body():
    codes = np.random.default_rng(5).integers(-1, 24, (6, 50))
    similarity = {rule[:3]: rule[3] for rule in best_compositions(codes, 4, 10**6, inverses=False)}
    for i in range(6):
        for j in range(6):
            assert similarity[i, j, i] == pytest.approx(similarity[j, i, i], abs=1e-6)
