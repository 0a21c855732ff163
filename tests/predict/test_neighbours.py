"""Nearest-neighbour search finds nearly all of the answers of exact search."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dihedral import DihedralError
from dihedral.models import build_model
from dihedral.predict.neighbours import NearestAnswers
from dihedral.scoring.scorer import Scorer

ENTITIES, RELATIONS = 4000, 5


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    """Entities in clusters and of different lengths, as training makes them."""
    model = build_model("dihedral-ste", ENTITIES, RELATIONS, dimension=24, seed=1)
    generator = torch.Generator().manual_seed(2)
    centres = torch.randn(60, 24, generator=generator)
    spread = 0.5 * torch.randn(ENTITIES, 24, generator=generator)
    lengths = torch.randn(ENTITIES, 1, generator=generator).mul(0.3).exp()
    with torch.no_grad():
        model.entities.copy_((centres[torch.randint(60, (ENTITIES,), generator=generator)] + spread) * lengths)
    return Scorer(model)


@pytest.fixture(scope="module")
def triples() -> np.ndarray:
    rng = np.random.default_rng(3)
    return rng.integers(0, [ENTITIES, RELATIONS, ENTITIES], (2000, 3)).astype(np.int32)


@pytest.fixture(scope="module")
def nearest(scorer, triples) -> NearestAnswers:
    return NearestAnswers(scorer, triples[:1000])


def test_nearly_all_of_the_best_ten_are_found(scorer, triples, nearest):
    assert nearest.recall >= 0.99
    entities, relations, _ = torch.from_numpy(triples[1000:]).long().T
    steps = relations + RELATIONS * (torch.arange(len(relations)) % 2)  # both directions
    exact, scores = scorer.top(entities, steps, 10)
    found, found_scores = nearest.top(entities, steps, 10)
    shares = [len(set(one) & set(other)) / 10 for one, other in zip(found.tolist(), exact.tolist(), strict=True)]
    assert np.mean(shares) > 0.97
    best_found = found[:, 0] == exact[:, 0]
    assert best_found.float().mean() > 0.97
    torch.testing.assert_close(found_scores[best_found, 0], scores[best_found, 0], rtol=1e-4, atol=1e-4)


def test_a_lower_recall_needs_a_narrower_search(scorer, triples, nearest):
    coarse = NearestAnswers(scorer, triples[:1000], recall=0.3)
    assert coarse.recall >= 0.3
    assert coarse.index.hnsw.efSearch < nearest.index.hnsw.efSearch


def test_known_answers_can_be_excluded(predictor):
    graph, scorer = predictor.graph, predictor.scorer
    nearest = NearestAnswers(scorer, graph.train, recall=1.0)
    questions = torch.from_numpy(graph.train).long()
    for column, backwards in ((0, 0), (2, graph.num_relations)):
        entities, steps = questions[:, column], questions[:, 1] + backwards
        exact = scorer.top(entities, steps, 5, exclude=predictor.known)[1]
        ids, scores = nearest.top(entities, steps, 5, exclude=predictor.known)
        torch.testing.assert_close(scores, exact, rtol=1e-4, atol=1e-4)
        row, answer = predictor.known(entities, steps)
        assert len(row) and not (ids[row] == answer[:, None]).any()


def test_invalid_numbers_are_named_in_the_error(predictor, nearest):
    with pytest.raises(DihedralError, match=r"recall is 1\.5; it must be over 0 and at most 1"):
        NearestAnswers(predictor.scorer, predictor.graph.train, recall=1.5)
    one = torch.zeros(1, dtype=torch.long)
    with pytest.raises(DihedralError, match="count is 0; ask for at least 1 answer"):
        nearest.top(one, one, 0)
