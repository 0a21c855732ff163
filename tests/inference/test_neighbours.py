"""The index finds what exact search finds, nearly always."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.inference.neighbours import NearestAnswers


@pytest.fixture(scope="module")
def wn18rr(benchmark_graph):
    recipe = dh.Recipe(model="dihedral-ste", dimension=32, entity_init=0.1, epochs=3, validate_every=0)
    return dh.train(benchmark_graph("WN18RR"), recipe, progress=False, device="cpu")


def test_the_best_ten_are_found(wn18rr):
    index = NearestAnswers(wn18rr)
    assert index.recall >= 0.99
    questions = torch.from_numpy(wn18rr.graph.test[:300].astype(np.int64))
    exact, scores = wn18rr.top(questions[:, 0], questions[:, 1], "tail", 10)
    found, found_scores = index.top(questions[:, 0], questions[:, 1], "tail", 10)
    same = (found[:, :, None] == exact[:, None, :]).any(dim=1).float().mean()
    assert same > 0.97
    torch.testing.assert_close(found_scores[:, 0], scores[:, 0], rtol=0.05, atol=0.05)


def test_known_answers_can_be_left_out(predictor):
    index = NearestAnswers(predictor, recall=1.0)
    graph = predictor.graph
    questions = torch.from_numpy(graph.train.astype(np.int64))
    for side, column in (("tail", 0), ("head", 2)):
        asked = (questions[:, column], questions[:, 1], side, 5)
        exact = predictor.top(*asked, known="exclude")[1]
        ids, scores = index.top(*asked, known="exclude")
        torch.testing.assert_close(scores, exact, rtol=1e-4, atol=1e-4)
        row, answer = predictor.known[side].of(*asked[:2])
        assert not (ids[row] == answer[:, None]).any()


def test_a_recall_over_one_is_refused(predictor):
    with pytest.raises(DihedralError, match=r"recall is 1\.5"):
        NearestAnswers(predictor, recall=1.5)
