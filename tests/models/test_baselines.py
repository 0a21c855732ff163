"""What the paper's Table 1 says of the bilinear baselines."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dihedral.models import Model, build_model
from dihedral.scoring.embedding import EmbeddingScorer

DIMENSION = 8
L = DIMENSION // 2


def build(name: str, **weights: float | torch.Tensor) -> Model:
    """One relation; p and q are the two weights of each component, random unless given."""
    model = build_model(name, 6, 1, dimension=DIMENSION, entity_init=1.0)
    with torch.no_grad():
        for place, key in enumerate(("p", "q")):
            if key in weights:
                model.relations.weights[0, place] = weights[key]
    return model


def scores(model: Model) -> np.ndarray:
    """φ(h, 0, t) of all pairs: [N, N]."""
    n = model.num_entities
    pairs = torch.cartesian_prod(torch.arange(n), torch.tensor([0]), torch.arange(n))
    return EmbeddingScorer(model).score(pairs).reshape(n, n).numpy()


def is_symmetric(found: np.ndarray) -> bool:
    return np.allclose(found, found.T, atol=1e-5)


def is_skew(found: np.ndarray) -> bool:
    return np.allclose(found, -found.T, atol=1e-5)


def matrix(model: Model) -> np.ndarray:
    """R as it acts on (L first coordinates, L second coordinates), from the scores of unit vectors."""
    units = Model(torch.eye(DIMENSION), model.relations)
    return scores(units)


def test_distmult_is_always_symmetric():
    assert is_symmetric(scores(build("distmult")))


def test_distmult_is_a_diagonal_matrix():
    R = matrix(build("distmult", p=torch.arange(1.0, 5.0), q=torch.arange(5.0, 9.0)))
    np.testing.assert_array_equal(R, np.diag(np.arange(1.0, 9.0)))


@pytest.mark.parametrize(
    ("name", "symmetric", "skew"),
    [
        ("complex", {"q": 0.0}, {"p": 0.0}),
        ("simple", {"p": 2.0, "q": 2.0}, {"p": 2.0, "q": -2.0}),
    ],
)
def test_special_weights_make_symmetric_and_skew_relations(name, symmetric, skew):
    assert is_symmetric(scores(build(name, **symmetric)))
    assert is_skew(scores(build(name, **skew)))
    free = scores(build(name))
    assert not is_symmetric(free) and not is_skew(free)


def test_complex_is_a_turn_and_a_stretch_of_every_component():
    R = matrix(build("complex", p=3.0, q=2.0))
    one = np.eye(L)
    np.testing.assert_array_equal(R, np.block([[3 * one, -2 * one], [2 * one, 3 * one]]))


def test_simple_joins_the_first_coordinates_of_one_side_with_the_second_of_the_other():
    R = matrix(build("simple", p=3.0, q=2.0))
    one, zero = np.eye(L), np.zeros((L, L))
    np.testing.assert_array_equal(R, np.block([[zero, 3 * one], [2 * one, zero]]))


def test_analogy_is_complex_in_one_half_and_distmult_in_the_other():
    R = matrix(build("analogy", p=3.0, q=2.0))
    turned, straight = np.diag([1.0, 1, 0, 0]), np.diag([0.0, 0, 1, 1])
    expected = np.block([[3 * (turned + straight), -2 * turned], [2 * turned, 3 * turned + 2 * straight]])
    np.testing.assert_array_equal(R, expected)


def test_analogy_takes_an_odd_number_of_components():
    model = build_model("analogy", 4, 2, dimension=6)
    assert EmbeddingScorer(model).score(torch.tensor([[0, 1, 2]])).isfinite().all()


def test_hole_is_a_circulant_matrix():
    model = build_model("hole", 1, 1, dimension=DIMENSION)
    r = model.relations.weights.detach().numpy()[0]
    expected = [[r[(j - i) % DIMENSION] for j in range(DIMENSION)] for i in range(DIMENSION)]
    np.testing.assert_allclose(matrix(model), expected, atol=1e-6)


def test_rescal_is_any_matrix():
    model = build_model("rescal", 1, 1, dimension=DIMENSION)
    np.testing.assert_array_equal(matrix(model), model.relations.weights.detach().numpy()[0])


def test_a_rescal_query_is_about_as_long_as_its_entity():
    model = build_model("rescal", 100, 1, dimension=200)
    queries = EmbeddingScorer(model).queries(torch.arange(100), torch.zeros(100, dtype=torch.long))
    assert (queries.norm() / model.entities.norm()).item() == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("name", ["distmult", "complex", "analogy"])
def test_the_baselines_only_compose_commutatively(name):
    first, second = (matrix(build_model(name, 1, 1, dimension=DIMENSION, seed=seed)) for seed in (0, 1))
    np.testing.assert_allclose(first @ second, second @ first, atol=1e-5)
