"""The paper's lemmas and theorem, and the two ways to train group elements: signs and Gumbel-softmax."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dihedral import DihedralError, DihedralGroup
from dihedral.elements.group import GradedMonoid
from dihedral.models import Model, build_model
from dihedral.models.dihedral import (
    ArgmaxRelations,
    CodeRelations,
    CyclicGumbelRelations,
    CyclicSignRelations,
    GumbelRelations,
    OrthogonalRelations,
    SignRelations,
    gumbel_noise,
    sign,
    straight_through_argmax,
    temperature_at,
)
from dihedral.scoring.embedding import EmbeddingScorer

SQRT3 = math.sqrt(3)


def element_blocks(K):
    """The matrices of Eq. 1 as block entries by id."""
    return torch.as_tensor(GradedMonoid(K).matrices().reshape(-1, 4), dtype=torch.float32)


def dense(operator: Tensor) -> np.ndarray:
    """An operator row [4, L] as the matrix R that acts on (L first coordinates, L second coordinates)."""
    a, b, c, d = (np.diag(entry) for entry in operator.detach().double().numpy())
    return np.block([[a, b], [c, d]])


def relation_matrix(codes: np.ndarray, K: int) -> np.ndarray:
    return dense(CodeRelations(torch.from_numpy(np.atleast_2d(codes)), K).exact()[0])


def model_of(codes: list[list[int]], K: int = 4, entities: int = 6, seed: int = 0) -> Model:
    """Random entities, given relations."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(entities, 2 * len(codes[0]), generator=generator, dtype=torch.float64)
    return Model(vectors, CodeRelations(torch.tensor(codes), K).double())


def scores(model: Model, relation: int) -> np.ndarray:
    """φ(h, relation, t) of all pairs: [N, N]."""
    n = model.num_entities
    heads, tails = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    triples = torch.stack([heads, torch.full_like(heads, relation), tails], -1).reshape(-1, 3)
    return EmbeddingScorer(model).score(triples).reshape(n, n).numpy()


@st.composite
def rows(draw: st.DrawFn, count: int) -> tuple:
    """K and `count` rows of elements of D_K, all of one length."""
    K, length = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    row = st.lists(st.integers(0, 2 * K - 1), min_size=length, max_size=length)
    return K, *(np.array(draw(row)) for _ in range(count))


# --- the paper's propositions ------------------------------------------------------------------


@given(rows(1))
def test_lemma_1_relation_matrices_are_orthogonal(drawn):
    K, codes = drawn
    R = relation_matrix(codes, K)
    np.testing.assert_allclose(R @ R.T, np.eye(len(R)), atol=1e-6)
    np.testing.assert_allclose(R.T @ R, np.eye(len(R)), atol=1e-6)


@given(rows(1), st.integers(0, 999))
def test_lemma_2_the_score_is_a_distance_between_the_turned_head_and_the_tail(drawn, seed):
    K, codes = drawn
    model = model_of([codes.tolist()], K, entities=2, seed=seed)
    h, t = model.entities.detach().numpy()
    R = relation_matrix(codes, K)
    expected = -0.5 * (np.square(R.T @ h - t).sum() - h @ h - t @ t)
    assert scores(model, 0)[0, 1] == pytest.approx(expected, abs=1e-5)


@given(rows(2))
def test_theorem_1_products_of_relation_matrices_are_the_matrices_of_the_product(drawn):
    K, first, second = drawn
    product = relation_matrix(first, K) @ relation_matrix(second, K)
    np.testing.assert_allclose(relation_matrix(DihedralGroup(K).product(first, second), K), product, atol=1e-6)


@given(rows(1))
def test_theorem_1_the_inverse_of_a_relation_matrix_is_that_of_the_inverse(drawn):
    K, codes = drawn
    inverse = np.linalg.inv(relation_matrix(codes, K))
    np.testing.assert_allclose(relation_matrix(DihedralGroup(K).inverse(codes), K), inverse, atol=1e-6)


@pytest.mark.parametrize(("K", "codes"), [(4, [1, 3, 3, 1]), (8, [2, 6, 6, 2])])
def test_skew_rows_change_the_sign_of_the_score_when_head_and_tail_change_places(K, codes):
    found = scores(model_of([codes], K), 0)
    np.testing.assert_allclose(found, -found.T, atol=1e-9)
    assert np.abs(found).max() > 0.1


@pytest.mark.parametrize(("K", "codes"), [(4, [0, 2, 4, 5, 6, 7]), (6, [0, 3, 6, 7, 11]), (5, [0, 5, 9])])
def test_symmetric_rows_score_a_triple_and_its_reverse_alike(K, codes):
    found = scores(model_of([codes], K), 0)
    np.testing.assert_allclose(found, found.T, atol=1e-6)


def test_other_rows_are_neither_symmetric_nor_skew():
    found = scores(model_of([[1, 4]]), 0)
    assert np.abs(found - found.T).max() > 0.1
    assert np.abs(found + found.T).max() > 0.1


@given(rows(1))
def test_the_inverse_relation_scores_the_reversed_triple(drawn):
    K, codes = drawn
    model = model_of([codes.tolist(), DihedralGroup(K).inverse(codes).tolist()], K)
    np.testing.assert_allclose(scores(model, 0), scores(model, 1).T, atol=1e-5)


@given(rows(2))
def test_two_queries_in_a_row_are_the_query_of_the_product(drawn):
    K, first, second = drawn
    group = DihedralGroup(K)
    model = model_of([row.tolist() for row in (first, second, group.product(first, second))], K)
    operators = model.relations.exact()
    of = [torch.full((model.num_entities,), relation) for relation in range(3)]
    middle = model.relations.queries(operators, of[0], model.entities, "tail")
    end = model.relations.queries(operators, of[1], middle, "tail")
    at_once = model.relations.queries(operators, of[2], model.entities, "tail")
    torch.testing.assert_close(end, at_once, atol=1e-5, rtol=0)


def test_the_order_of_a_reflection_and_a_rotation_matters_to_the_score():
    group = DihedralGroup(4)
    spouse, parent = np.array([4, 5]), np.array([1, 3])
    model = model_of([group.product(spouse, parent).tolist(), group.product(parent, spouse).tolist()])
    assert np.abs(scores(model, 0) - scores(model, 1)).max() > 0.1


def test_the_order_of_two_rotations_does_not():
    group = DihedralGroup(4)
    assert (group.product([1, 2], [3, 3]) == group.product([3, 3], [1, 2])).all()
    R1, R2 = relation_matrix(np.array([1, 2]), 4), relation_matrix(np.array([3, 3]), 4)
    np.testing.assert_array_equal(R1 @ R2, R2 @ R1)


# --- straight-through signs --------------------------------------------------------------------


def sign_relations(
    K: int, scale: float = 1.0, model: type[SignRelations] = SignRelations
) -> tuple[SignRelations, np.ndarray]:
    """One relation whose components run through every pattern of signs; the patterns [variables, L]."""
    patterns = np.array(list(itertools.product([-1.0, 1.0], repeat=3 if K == 4 else 4))).T
    relations = model(1, 2 * patterns.shape[1], K)
    with torch.no_grad():
        relations.latents.copy_(torch.from_numpy(patterns * scale)[None])
    return relations, patterns


@pytest.mark.parametrize("K", [4, 6])
def test_every_pattern_of_signs_is_an_element_and_its_code_says_which(K):
    relations, _ = sign_relations(K)
    codes = relations.codes[0].tolist()
    blocks = relations.operators()[0].T.reshape(-1, 2, 2).detach().double().numpy()
    expected = DihedralGroup(K).matrices[codes]
    np.testing.assert_allclose(blocks, expected, atol=0 if K == 4 else 1e-7)
    assert set(codes) == set(range(2 * K)), "every element is reached"


@pytest.mark.parametrize("K", [4, 6])
def test_evaluation_applies_the_elements_of_the_codes_exactly(K):
    relations, _ = sign_relations(K)
    assert torch.equal(relations.exact()[0].T, element_blocks(K)[relations.codes[0].long()])


def test_the_eight_patterns_of_k_4_are_the_eight_elements_once_each():
    relations, _ = sign_relations(4)
    assert sorted(relations.codes[0].tolist()) == list(range(8))


def test_z_has_no_effect_where_x_is_negative_for_k_6():
    relations, patterns = sign_relations(6)
    _, x, _, z = patterns
    codes = relations.codes[0].numpy()
    negative_x = x < 0
    np.testing.assert_array_equal(codes[negative_x & (z < 0)], codes[negative_x & (z > 0)])
    assert (codes[~negative_x & (z < 0)] != codes[~negative_x & (z > 0)]).all()


@pytest.mark.parametrize("K", [4, 6])
def test_only_the_signs_of_the_latents_matter(K):
    assert torch.equal(sign_relations(K, 1e-20)[0].codes, sign_relations(K, 1e20)[0].codes)


def test_blocks_are_built_as_the_paper_prints_them():
    for K in (4, 6):
        relations, (alpha, x, y, *z) = sign_relations(K)
        if K == 4:
            lam, gamma = (x + y) / 2, (x - y) / 2
        else:
            lam, gamma = y * (3 - x) / 4, z[0] * (x + 1) * SQRT3 / 4
        expected = np.stack([lam, -alpha * gamma, gamma, alpha * lam])
        np.testing.assert_allclose(relations.operators()[0].detach(), expected, atol=1e-7)


def test_the_sign_of_zero_is_plus_one():
    assert sign(torch.tensor([0.0, -0.0, -1e-30, 2.0])).tolist() == [1.0, 1.0, -1.0, 1.0]


@pytest.mark.parametrize("K", [4, 6])
def test_latents_of_zero_give_a_valid_element(K):
    relations, _ = sign_relations(K, 0.0)
    _, plus = sign_relations(K)
    all_plus = (plus == 1).all(axis=0).argmax()
    assert set(relations.codes[0].tolist()) == {sign_relations(K)[0].codes[0, all_plus].item()}


def test_the_gradient_passes_the_sign_unchanged():
    real = torch.tensor([-3.0, 0.0, 0.2, 50.0], requires_grad=True)
    upstream = torch.tensor([1.0, -2.0, 0.5, 4.0])
    sign(real).backward(upstream)
    assert torch.equal(real.grad, upstream)


@pytest.mark.parametrize("scale", [1.0, 0.3, 7.0])
def test_the_gradient_of_the_latents_is_that_of_the_binary_variables_for_k_4(scale):
    relations, (alpha, x, y) = sign_relations(4, scale)
    upstream = np.random.default_rng(0).normal(size=(4, len(x)))
    relations.operators().backward(torch.from_numpy(upstream).float()[None])
    da, db, dc, dd = upstream  # of the entries λ, -αγ, γ, αλ
    lam, gamma = (x + y) / 2, (x - y) / 2
    d_alpha = -gamma * db + lam * dd
    d_lam, d_gamma = da + alpha * dd, -alpha * db + dc
    expected = np.stack([d_alpha, (d_lam + d_gamma) / 2, (d_lam - d_gamma) / 2])
    np.testing.assert_allclose(relations.latents.grad[0], expected, atol=1e-6)


def test_the_gradient_of_the_latents_is_that_of_the_binary_variables_for_k_6():
    relations, (alpha, x, y, z) = sign_relations(6, 0.4)
    upstream = np.random.default_rng(0).normal(size=(4, len(x)))
    relations.operators().backward(torch.from_numpy(upstream).float()[None])
    da, db, dc, dd = upstream
    lam, gamma = y * (3 - x) / 4, z * (x + 1) * SQRT3 / 4
    d_alpha = -gamma * db + lam * dd
    d_lam, d_gamma = da + alpha * dd, -alpha * db + dc
    d_x = -y / 4 * d_lam + z * SQRT3 / 4 * d_gamma
    expected = np.stack([d_alpha, d_x, (3 - x) / 4 * d_lam, (x + 1) * SQRT3 / 4 * d_gamma])
    np.testing.assert_allclose(relations.latents.grad[0], expected, atol=1e-6)


@pytest.mark.parametrize("K", [1, 2, 3, 5, 8])
def test_signs_cannot_make_other_groups(K):
    with pytest.raises(DihedralError, match=f"K is {K}.*4 and 6"):
        SignRelations(1, 4, K)


# --- Gumbel-softmax (Eq. 3) --------------------------------------------------------------------


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max())
    return powers / powers.sum()


def hand_made(logits: np.ndarray, upstream: np.ndarray, K: int, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """Σ_k c_k D_k with c = softmax(logits / τ), and the gradient of the logits by the softmax's Jacobian.

    logits [R, choices, L]; upstream gradient [R, 4, L].
    """
    D = DihedralGroup(K).matrices.reshape(-1, 4)[: logits.shape[1]]  # [choices, 4]
    operators, gradient = np.empty_like(upstream), np.empty_like(logits)
    for r in range(logits.shape[0]):
        for i in range(logits.shape[2]):
            c = softmax(logits[r, :, i] / tau)
            operators[r, :, i] = c @ D
            jacobian = (np.diag(c) - np.outer(c, c)) / tau  # ∂c_k / ∂s_j
            gradient[r, :, i] = jacobian.T @ (D @ upstream[r, :, i])
    return operators, gradient


@pytest.mark.parametrize("K", [3, 4, 8])
@pytest.mark.parametrize("tau", [3.0, 0.5])
@pytest.mark.parametrize("model", [GumbelRelations, CyclicGumbelRelations])
def test_gumbel_operators_and_gradients_are_those_of_equation_3(K, tau, model):
    relations = model(3, 10, K, generator=seeded(0))
    noise = gumbel_noise(relations.logits.detach(), seeded(5))
    operators = relations.operators(None, seeded(5), tau)
    upstream = torch.randn(operators.shape, generator=seeded(1))
    operators.backward(upstream)
    noisy = (relations.logits.detach() + noise).double().numpy()
    expected, gradient = hand_made(noisy, upstream.double().numpy(), K, tau)
    np.testing.assert_allclose(operators.detach(), expected, atol=1e-5)
    np.testing.assert_allclose(relations.logits.grad, gradient, atol=1e-5)


@pytest.mark.parametrize("generator", [seeded(0), np.random.default_rng(0)], ids=["torch", "numpy"])
def test_gumbel_noise_has_the_mean_and_spread_of_a_gumbel_distribution(generator):
    noise = gumbel_noise(torch.empty(400_000), generator)
    assert noise.isfinite().all()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.01)
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, abs=0.02)
    assert (noise <= 0).float().mean().item() == pytest.approx(math.exp(-1), abs=0.005)  # exp(-exp(-q)) at q = 0


def test_the_largest_noisy_logit_is_drawn_as_often_as_softmax_says():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    drawn = (logits + gumbel_noise(torch.empty(200_000, 4), seeded(0))).argmax(1)
    frequencies = torch.bincount(drawn, minlength=4) / len(drawn)
    torch.testing.assert_close(frequencies, logits.softmax(0), atol=0.005, rtol=0)


def test_the_same_generator_draws_the_same_and_another_draws_differently():
    relations = GumbelRelations(2, 6, 4, generator=seeded(0))
    first, again, other = (relations.operators(None, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_one_draw_of_noise_is_made_for_each_relation():
    relations = GumbelRelations(2, 6, 4, generator=seeded(0))
    drawn = relations.operators(torch.tensor([1, 0, 1]), seeded(3))
    assert drawn.shape == (3, 4, 3)
    with torch.no_grad():
        relations.logits[0] = relations.logits[1]
    drawn = relations.operators(None, seeded(3))
    assert not torch.equal(drawn[0], drawn[1])


def test_evaluation_is_free_of_noise():
    relations = GumbelRelations(2, 6, 4, generator=seeded(0))
    expected = relations.logits.argmax(1)
    for _ in range(3):
        relations.operators(None, seeded(9))
        assert torch.equal(relations.codes.long(), expected)
        assert torch.equal(relations.exact(), element_blocks(4)[expected].transpose(1, 2))


def test_a_cold_draw_is_nearly_an_element():
    relations = GumbelRelations(2, 6, 4, generator=seeded(0))
    cold = relations.operators(None, seeded(1), 1e-3)
    noisy = relations.logits + gumbel_noise(relations.logits.detach(), seeded(1))
    torch.testing.assert_close(cold, element_blocks(4)[noisy.argmax(1)].transpose(1, 2), atol=1e-3, rtol=0)


@pytest.mark.parametrize("K", [3, 4, 8])
def test_argmax_applies_the_element_and_passes_the_gradient_of_the_softmax(K):
    relations = ArgmaxRelations(3, 10, K, generator=seeded(0))
    operators = relations.operators(None, None, 1.5)
    upstream = torch.randn(operators.shape, generator=seeded(1))
    operators.backward(upstream)
    _, gradient = hand_made(relations.logits.detach().double().numpy(), upstream.double().numpy(), K, 1.5)
    torch.testing.assert_close(operators, relations.exact(), atol=1e-6, rtol=0)
    np.testing.assert_allclose(relations.logits.grad, gradient, atol=1e-5)


def test_straight_through_argmax_is_one_hot_and_passes_its_gradient_through():
    weights = torch.tensor([[[0.2, 0.5], [0.7, 0.4], [0.1, 0.1]]], requires_grad=True)
    one_hot = straight_through_argmax(weights)
    torch.testing.assert_close(one_hot, torch.tensor([[[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]]))
    upstream = torch.randn(1, 3, 2, generator=seeded(0))
    one_hot.backward(upstream)
    assert torch.equal(weights.grad, upstream)


def test_the_temperature_cools_exponentially_down_to_a_floor():
    assert temperature_at(0, 3.0, 0.5, 0.001) == 3.0
    assert temperature_at(1000, 3.0, 0.5, 0.001) == pytest.approx(3 / math.e)
    assert temperature_at(1791, 3.0, 0.5, 0.001) > 0.5  # 1000 · ln 6 = 1791.76
    assert temperature_at(1792, 3.0, 0.5, 0.001) == 0.5
    assert temperature_at(10**9, 3.0, 0.5, 0.001) == 0.5


def test_without_cooling_the_temperature_stays():
    assert temperature_at(500, 2.0, 0.5, 0.0) == 2.0


# --- ablations and stored codes ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "K"),
    [("cyclic-gumbel", 4), ("cyclic-gumbel", 7), ("cyclic-argmax", 5), ("cyclic-ste", 4), ("cyclic-ste", 6)],
)
def test_cyclic_models_hold_rotations_only(name, K):
    relations = build_model(name, 2, 40, dimension=40, K=K).relations
    assert set(relations.codes.flatten().tolist()) == set(range(K))
    for operators in (relations.exact(), relations.operators(None, seeded(0), 1.0)):
        a, b, c, d = operators.unbind(1)  # rotations and their mixtures are [[a, -c], [c, a]]
        torch.testing.assert_close(a, d)
        torch.testing.assert_close(b, -c)


@pytest.mark.parametrize("K", [4, 6])
def test_no_pattern_of_signs_gives_a_cyclic_model_a_reflection(K):
    relations, _ = sign_relations(K, model=CyclicSignRelations)
    assert set(relations.codes[0].tolist()) == set(range(K))
    relations.operators().sum().backward()
    assert not relations.latents.grad[0, 0].any(), "the reflection indicator is unused"


def test_the_orthogonal_model_is_orthogonal_at_any_angle():
    relations = OrthogonalRelations(30, 20, generator=seeded(0))
    determinants = set()
    for operator in relations.operators():
        R = dense(operator)
        np.testing.assert_allclose(R @ R.T, np.eye(20), atol=1e-6)
        a, b, c, d = operator.detach()
        determinants |= set((a * d - b * c).round().int().tolist())
    assert determinants == {-1, 1}, "rotations and reflections"


def test_the_initial_spread_of_the_orthogonal_model_is_that_of_its_reflection_latents():
    one, small = (OrthogonalRelations(30, 20, init=init, generator=seeded(0)) for init in (1.0, 0.25))
    assert torch.equal(small.reflection, one.reflection * 0.25) and torch.equal(small.angles, one.angles)


def test_the_orthogonal_model_follows_its_angles_continuously():
    relations = OrthogonalRelations(1, 2, generator=seeded(0))
    with torch.no_grad():
        relations.angles.fill_(0.1)
        relations.reflection.fill_(0.0)
    expected = torch.tensor([[math.cos(0.1)], [-math.sin(0.1)], [math.sin(0.1)], [math.cos(0.1)]])
    torch.testing.assert_close(relations.operators()[0], expected)


def test_stored_codes_have_nothing_to_train():
    relations = CodeRelations(torch.tensor([[1, 7]]), 4)
    assert list(relations.parameters()) == []
    assert torch.equal(relations.operators(), relations.exact())
    assert torch.equal(relations.operators(torch.tensor([0, 0]))[1], relations.exact()[0])


def test_codes_outside_the_group_are_refused():
    with pytest.raises(DihedralError, match="element 8; D_4 has ids 0 to 7"):
        CodeRelations(torch.tensor([[1, 8]]), 4)


def test_negative_codes_are_refused():
    with pytest.raises(DihedralError, match="element -1"):
        CodeRelations(torch.tensor([[-1, 2]]), 4)


@pytest.mark.parametrize("K", [0, -1, 129])
def test_k_must_fit_codes_of_one_byte(K):
    with pytest.raises(DihedralError, match=f"K is {K}"):
        GumbelRelations(1, 4, K)


def test_the_largest_group_fits_codes_of_one_byte():
    relations = GumbelRelations(1, 2, 128)
    with torch.no_grad():
        relations.logits[0, 255] = 100.0
    assert relations.codes.tolist() == [[255]]
