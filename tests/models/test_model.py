"""One contract for every model: a query for tails and a query for heads both give the model's own score.

The scores on the other side of the comparison are worked out here, entity by entity, from the
parameters alone: dense matrices, complex numbers, sums and distances; no queries, no FFT.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dihedral import DihedralError, DihedralGroup
from dihedral.models import MODELS, Model, build_model, restore_relations
from dihedral.scoring.embedding import EmbeddingScorer

ENTITIES, RELATIONS, DIMENSION = 7, 3, 8
L = DIMENSION // 2
RELAXED = ("dihedral-gumbel", "cyclic-gumbel")  # train with noise, so training is not what evaluation applies


def build(name: str, K: int = 4) -> Model:
    model = build_model(name, ENTITIES, RELATIONS, dimension=DIMENSION, K=K, entity_init=1.0, seed=3)
    if name == "transe":
        with torch.no_grad():
            model.relations.weights[:, -1] = torch.tensor([0.5, -1.0, 2.0])  # margins
    return model


def numbers(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def dense(blocks: np.ndarray) -> np.ndarray:
    """2x2 blocks [L, 2, 2] as the matrix that acts on (L first coordinates, L second coordinates)."""
    size = len(blocks)
    matrix = np.zeros((2 * size, 2 * size))
    for i, block in enumerate(blocks):
        matrix[np.ix_([i, size + i], [i, size + i])] = block
    return matrix


def group_score(model: Model, h: np.ndarray, r: int, t: np.ndarray) -> float:
    codes = model.codes[r].tolist()
    return h @ dense(DihedralGroup(model.relations.K).matrices[codes]) @ t


def orthogonal_score(model: Model, h: np.ndarray, r: int, t: np.ndarray) -> float:
    blocks = []
    angles, reflections = model.relations.angles[r].tolist(), model.relations.reflection[r].tolist()
    for angle, reflection in zip(angles, reflections, strict=True):
        cos, sin = math.cos(angle), math.sin(angle)
        blocks.append([[cos, -sin], [sin, cos]] if reflection >= 0 else [[cos, sin], [sin, -cos]])
    return h @ dense(np.array(blocks)) @ t


def distmult_score(model: Model, h: np.ndarray, r: int, t: np.ndarray) -> float:
    return (numbers(model.relations.weights[r]).reshape(-1) * h * t).sum()


def complex_terms(model: Model, h: np.ndarray, r: int, t: np.ndarray) -> np.ndarray:
    p, q = numbers(model.relations.weights[r])
    return ((p - 1j * q) * (h[:L] + 1j * h[L:]) * (t[:L] - 1j * t[L:])).real  # Re⟨r, h, t̄⟩ of Trouillon et al.


def complex_score(model: Model, h: np.ndarray, r: int, t: np.ndarray) -> float:
    return complex_terms(model, h, r, t).sum()


def analogy_score(model: Model, h: np.ndarray, r: int, t: np.ndarray) -> float:
    p, q = numbers(model.relations.weights[r])
    real = p * h[:L] * t[:L] + q * h[L:] * t[L:]
    return complex_terms(model, h, r, t)[: L // 2].sum() + real[L // 2 :].sum()


def simple_score(model: Model, h: np.ndarray, r: int, t: np.ndarray) -> float:
    p, q = numbers(model.relations.weights[r])
    return (p * h[:L] * t[L:] + q * h[L:] * t[:L]).sum()


def hole_score(model: Model, h: np.ndarray, r: int, t: np.ndarray) -> float:
    weights = numbers(model.relations.weights[r])
    correlation = [sum(h[i] * t[(i + k) % DIMENSION] for i in range(DIMENSION)) for k in range(DIMENSION)]
    return weights @ np.array(correlation)


def rescal_score(model: Model, h: np.ndarray, r: int, t: np.ndarray) -> float:
    return h @ numbers(model.relations.weights[r]) @ t


def transe_score(model: Model, h: np.ndarray, r: int, t: np.ndarray) -> float:
    *translation, margin = numbers(model.relations.weights[r])
    return margin - 0.5 * np.square(h + translation - t).sum()


SCORES = {
    "dihedral-gumbel": group_score,
    "dihedral-ste": group_score,
    "dihedral-argmax": group_score,
    "dihedral-projection": group_score,
    "cyclic-gumbel": group_score,
    "cyclic-argmax": group_score,
    "cyclic-ste": group_score,
    "orthogonal": orthogonal_score,
    "distmult": distmult_score,
    "complex": complex_score,
    "analogy": analogy_score,
    "simple": simple_score,
    "hole": hole_score,
    "rescal": rescal_score,
    "transe": transe_score,
}
OTHER_K = [("dihedral-ste", 6), ("dihedral-gumbel", 5), ("dihedral-argmax", 8), ("dihedral-projection", 7)]
EVERY_MODEL = [(name, 4) for name in MODELS] + OTHER_K


def all_scores(model: Model, name: str) -> np.ndarray:
    """φ of every triple: [N, R, N]."""
    entities = numbers(model.entities)
    return np.array(
        [[[SCORES[name](model, h, r, t) for t in entities] for r in range(model.num_relations)] for h in entities]
    )


def test_every_model_has_an_independent_score_here():
    assert set(SCORES) == set(MODELS)


@pytest.mark.parametrize(("name", "K"), EVERY_MODEL)
def test_tail_queries_give_the_models_score(name, K):
    model = build(name, K)
    heads = torch.arange(ENTITIES).repeat_interleave(RELATIONS)
    relations = torch.arange(RELATIONS).repeat(ENTITIES)
    scorer = EmbeddingScorer(model)
    scores = numbers(scorer.queries(heads, relations) @ scorer.candidates.T)
    np.testing.assert_allclose(scores.reshape(ENTITIES, RELATIONS, ENTITIES), all_scores(model, name), atol=1e-4)


@pytest.mark.parametrize(("name", "K"), EVERY_MODEL)
def test_head_queries_give_the_models_score(name, K):
    model = build(name, K)
    tails = torch.arange(ENTITIES).repeat_interleave(RELATIONS)
    relations = torch.arange(RELATIONS).repeat(ENTITIES)
    scorer = EmbeddingScorer(model)
    scores = numbers(scorer.queries(tails, RELATIONS + relations) @ scorer.candidates.T)
    np.testing.assert_allclose(scores.reshape(ENTITIES, RELATIONS, ENTITIES).T, all_scores(model, name), atol=1e-4)


@pytest.mark.parametrize(("name", "K"), EVERY_MODEL)
def test_the_score_of_a_triple_is_the_models_score(name, K):
    model = build(name, K)
    every = torch.cartesian_prod(torch.arange(ENTITIES), torch.arange(RELATIONS), torch.arange(ENTITIES))
    expected = all_scores(model, name).reshape(-1)
    np.testing.assert_allclose(EmbeddingScorer(model).score(every), expected, atol=1e-4)
    np.testing.assert_allclose(EmbeddingScorer(model).score(every.int()), expected, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_evaluation_gives_the_same_numbers_every_time(name):
    model = build(name)
    assert torch.equal(model.relations.exact(), model.relations.exact())


@pytest.mark.parametrize("name", [name for name in MODELS if name not in RELAXED])
def test_training_applies_what_evaluation_applies(name):
    relations = build(name).relations
    torch.testing.assert_close(relations.operators(), relations.exact(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in RELAXED])
def test_operators_of_some_relations_are_those_rows_of_all(name):
    relations = build(name).relations
    which = torch.tensor([2, 0])
    torch.testing.assert_close(relations.operators(which), relations.operators()[which], atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_of_the_relations_gets_a_gradient(name):
    model = build(name)
    generator = torch.Generator().manual_seed(0)
    operators = model.relations.operators(None, generator, 1.0)
    query = model.relations.queries(operators, torch.arange(RELATIONS), model.entities[:RELATIONS], "tail")
    (query * model.relations.candidates(model.entities[-RELATIONS:])).sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.any()


@pytest.mark.parametrize("name", MODELS)
def test_a_stored_model_scores_as_the_trained_one(name):
    model = build(name)
    relations = model.relations
    restored = restore_relations(name, relations.stored(), RELATIONS, DIMENSION, relations.settings())
    triples = torch.tensor([[0, 0, 1], [2, 1, 2], [6, 2, 3]])
    assert torch.equal(
        EmbeddingScorer(Model(model.entities.detach(), restored)).score(triples), EmbeddingScorer(model).score(triples)
    )


@pytest.mark.parametrize("name", MODELS)
def test_codes_belong_to_the_models_of_group_elements(name):
    codes = build(name).codes
    if MODELS[name].is_discrete:
        assert codes.dtype == torch.uint8
        assert codes.shape == (RELATIONS, L)
    else:
        assert codes is None


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_determines_every_parameter(name):
    first, again, other = (build_model(name, 5, 2, dimension=6, seed=seed) for seed in (1, 1, 2))
    for (key, a), b, c in zip(first.named_parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), key
        assert not torch.equal(a, c), key


def test_entities_start_as_gaussian_with_the_given_spread():
    entities = build_model("distmult", 2000, 1, dimension=50, entity_init=0.2).entities
    assert entities.std().item() == pytest.approx(0.2, rel=0.02)
    assert entities.mean().item() == pytest.approx(0, abs=0.005)


def test_relations_start_with_the_given_spread():
    assert build_model("dihedral-ste", 1, 200, dimension=100, relation_init=0.3).relations.latents.std().item() == (
        pytest.approx(0.3, rel=0.02)
    )


def test_a_model_knows_its_size():
    model = build("complex")
    assert (model.num_entities, model.num_relations, model.dimension) == (ENTITIES, RELATIONS, DIMENSION)


@pytest.mark.parametrize("dimension", [0, 1, 7, -2])
@pytest.mark.parametrize("name", ["dihedral-gumbel", "rescal", "transe"])
def test_the_dimension_is_an_even_number(name, dimension):
    with pytest.raises(DihedralError, match=f"dimension is {dimension}"):
        build_model(name, 3, 1, dimension=dimension)


def test_an_unknown_model_is_answered_with_a_close_one():
    with pytest.raises(DihedralError, match=r"model 'dihedral-stee' is unknown.*did you mean 'dihedral-ste'"):
        build_model("dihedral-stee", 3, 1, dimension=4)
