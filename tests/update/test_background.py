"""The background of an update: its gradient is that of the facts that it stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dihedral.objectives.recipe import Recipe
from dihedral.update.background import Background, QuestionSample

SOFTMAX = Recipe(objective="softmax")
ROWS = torch.tensor([3, 7])


def other_facts(predictor):
    """The facts of all entities but the trained ones."""
    train = predictor.graph.train
    return train[~np.isin(train[:, [0, 2]], ROWS.numpy()).any(axis=1)]


def background(predictor, *, recipe=SOFTMAX, known=0.0, pull=0.0):
    """That of two rows, with all questions that are drawn in every step."""
    left_out = torch.zeros(predictor.graph.num_entities, dtype=torch.bool)
    left_out[ROWS] = True
    facts = other_facts(predictor)
    sample = QuestionSample.draw(predictor.scorer, facts, recipe, size=len(facts), seed=0, left_out=left_out)
    start, ones = predictor.model.entities.detach()[ROWS], torch.ones(2)
    return Background(ROWS, start, pull * ones[:, None], ones, known * ones, sample, 4000)


def gradient(predictor, found, table):
    return found.gradient(predictor.model.relations, table, torch.Generator().manual_seed(0))


def test_a_row_is_a_wrong_answer_to_the_questions_of_other_facts(predictor):
    """Each of the rows alone, beside all entities that are not trained."""
    found = background(predictor)
    table = predictor.model.entities.detach().clone()
    others = [i for i in range(len(table)) if i not in ROWS.tolist()]
    for place, row in enumerate(ROWS.tolist()):
        vector = table[row].clone().requires_grad_()
        scores = torch.cat([found.sample.queries @ table[others].T, (found.sample.queries @ vector)[:, None]], dim=1)
        loss = (scores.logsumexp(1) - scores[:, :-1].logsumexp(1)).sum() * 2  # one of two questions is drawn
        (wanted,) = torch.autograd.grad(loss, vector)
        slopes = found.sample.slopes(table[ROWS])[:, place]
        torch.testing.assert_close(slopes @ found.sample.queries, wanted, rtol=1e-3, atol=1e-4)


def test_a_part_of_the_questions_has_the_same_gradient_on_average(predictor):
    found, table = background(predictor), predictor.model.entities.detach()
    whole = found.sample.slopes(table[ROWS]).T @ found.sample.queries
    few, generator = replace(found, per_step=20), torch.Generator().manual_seed(0)
    mean = sum(few.gradient(predictor.model.relations, table, generator) for _ in range(2000)) / 2000
    assert F.cosine_similarity(mean.ravel(), whole.ravel(), dim=0) > 0.99
    assert float(mean.norm()) == pytest.approx(float(whole.norm()), rel=0.05)


def test_a_logistic_loss_counts_how_often_a_row_is_drawn(predictor):
    found = background(predictor, recipe=Recipe(negatives=6))
    vectors = predictor.model.entities.detach()[ROWS].requires_grad_()
    drawn = 2 * 6 / (2 * predictor.graph.num_entities)  # a fact asks one of its two questions, with six wrong answers
    (wanted,) = torch.autograd.grad(F.softplus(found.sample.queries @ vectors.T).sum() * drawn, vectors)
    slopes = found.sample.slopes(vectors.detach())
    torch.testing.assert_close(slopes.T @ found.sample.queries, wanted, rtol=1e-4, atol=1e-5)


def test_known_rows_feel_only_their_changes(predictor):
    fresh, known = (background(predictor, known=each) for each in (0.0, 1.0))
    before = predictor.model.entities.detach()
    after = before + 0.1
    assert not gradient(predictor, known, before).any()
    change = gradient(predictor, fresh, after) - gradient(predictor, fresh, before)
    assert torch.allclose(gradient(predictor, known, after), change, atol=1e-4)


def test_known_rows_are_pulled_back_to_where_they_were(predictor):
    table = predictor.model.entities.detach().clone()
    table[ROWS] += 0.5
    without, pulled = (gradient(predictor, background(predictor, pull=pull), table) for pull in (0.0, 2.0))
    torch.testing.assert_close(pulled - without, torch.ones(2, table.shape[1]), rtol=1e-3, atol=1e-3)


def test_there_is_only_the_pull_without_other_facts(predictor):
    sample = QuestionSample.draw(predictor.scorer, predictor.graph.train[:0], SOFTMAX, size=10, seed=0)
    found = replace(background(predictor), sample=sample)
    assert not gradient(predictor, found, predictor.model.entities.detach()).any()
