"""TransE: a distance written as an inner product."""

from __future__ import annotations

import pytest
import torch

from dihedral.models import Model, build_model
from dihedral.models.baselines import TransE
from dihedral.scoring.embedding import EmbeddingScorer


def transe(entities: list[list[float]], translation: list[float], margin: float) -> Model:
    relations = TransE(1, len(translation))
    with torch.no_grad():
        relations.weights[0] = torch.tensor([*translation, margin])
    return Model(torch.tensor(entities), relations)


def test_the_score_is_the_margin_less_half_the_squared_distance():
    model = transe([[1.0, 2.0], [4.0, 0.0]], [1.0, -1.0], margin=0.25)
    # h + r - t = (1 + 1 - 4, 2 - 1 - 0) = (-2, 1), half its squared length is 2.5
    assert EmbeddingScorer(model).score(torch.tensor([[0, 0, 1]])).item() == pytest.approx(0.25 - 2.5)


def test_an_exact_translation_scores_the_margin():
    model = transe([[1.0, 2.0], [2.0, 1.0]], [1.0, -1.0], margin=0.75)
    assert EmbeddingScorer(model).score(torch.tensor([[0, 0, 1]])).item() == pytest.approx(0.75)


def test_the_nearest_entity_is_the_best_answer():
    model = transe([[0.0, 0.0], [1.0, 0.0], [1.1, 0.1], [9.0, 9.0]], [1.0, 0.0], margin=0.0)
    zero = torch.tensor([0])
    scorer = EmbeddingScorer(model)
    tails = scorer.queries(zero, zero) @ scorer.candidates.T
    heads = scorer.queries(torch.tensor([2]), torch.tensor([1])) @ scorer.candidates.T  # step 1 is ~r
    assert tails.argsort(descending=True)[0].tolist() == [1, 2, 0, 3]
    assert heads.argmax().item() == 0


def test_a_query_has_two_more_coordinates_than_an_entity():
    scorer = EmbeddingScorer(build_model("transe", 5, 2, dimension=6))
    query = scorer.queries(torch.tensor([0, 1]), torch.tensor([1, 0]))
    assert query.shape == (2, 8)
    assert scorer.candidates.shape == (5, 8)


def test_the_margin_starts_at_zero_and_is_learned():
    relations = build_model("transe", 5, 2, dimension=6).relations
    assert relations.weights[:, -1].tolist() == [0.0, 0.0]
    query = relations.queries(relations.operators(), torch.tensor([0]), torch.zeros(1, 6), "tail")
    (query * relations.candidates(torch.ones(1, 6))).sum().backward()
    assert relations.weights.grad[0, -1].item() == pytest.approx(1.0)
