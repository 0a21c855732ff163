"""The background of an update: its gradient is that of the facts that it stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dihedral.learn.trainer import Phase
from dihedral.objectives.recipe import Recipe
from dihedral.update.background import Anchor, make_background

SOFTMAX = Recipe(objective="softmax", batch_size=1000)


def background(predictor, others, rows, recipe=SOFTMAX, **options):
    phase = Phase(predictor.graph.train[:1], 500, rows)  # a thousand questions
    return make_background(predictor.scorer, others, phase, recipe, 0, **options)


def parts(predictor):
    """Two trained rows, and the facts of the other entities with their questions."""
    graph = predictor.graph
    rows = np.zeros(graph.num_entities, bool)
    rows[[3, 7]] = True
    others = graph.train[~rows[graph.train[:, [0, 2]]].any(axis=1)]
    head, relation, tail = torch.from_numpy(others.astype(np.int64)).unbind(1)
    anchors, steps = torch.cat([head, tail]), torch.cat([relation, relation + graph.num_relations])
    return rows, others, predictor.scorer.queries(anchors, steps), torch.cat([tail, head])


def test_the_gradient_is_that_of_the_cross_entropy_of_all_other_facts(predictor):
    rows, others, queries, targets = parts(predictor)
    found = background(predictor, others, rows)
    table = predictor.model.entities.detach().clone()
    table[rows] += 0.1  # trained for a while
    wanted = table.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(F.cross_entropy(queries @ wanted.T, targets, reduction="sum"), wanted)
    gradient = found.gradient(predictor.model.relations, table, torch.Generator())
    assert torch.allclose(gradient, wanted[rows], atol=1e-4)


def test_right_answers_among_the_trained_rows_are_not_counted_as_wrong(predictor):
    rows, _, _, _ = parts(predictor)
    facts = predictor.graph.train  # among them those of the trained rows
    found = background(predictor, facts, rows)
    head, relation, tail = torch.from_numpy(facts.astype(np.int64)).unbind(1)
    anchors, targets = torch.cat([head, tail]), torch.cat([tail, head])
    queries = predictor.scorer.queries(anchors, torch.cat([relation, relation + predictor.graph.num_relations]))
    shares = torch.softmax(queries @ predictor.model.entities.detach().T, 1)
    shares[torch.arange(len(targets)), targets] = 0.0
    gradient = found.gradient(predictor.model.relations, predictor.model.entities.detach(), torch.Generator())
    assert torch.allclose(gradient, (shares.T @ queries)[rows], atol=1e-4)


def test_a_part_of_the_questions_has_the_same_gradient_on_average(predictor):
    rows, others, _, _ = parts(predictor)
    found = background(predictor, others, rows)
    table, generator = predictor.model.entities.detach(), torch.Generator().manual_seed(0)
    whole = found.gradient(predictor.model.relations, table, generator)
    found = replace(found, per_step=20)
    mean = sum(found.gradient(predictor.model.relations, table, generator) for _ in range(2000)) / 2000
    assert torch.nn.functional.cosine_similarity(mean.ravel(), whole.ravel(), dim=0) > 0.99
    assert float(mean.norm()) == pytest.approx(float(whole.norm()), rel=0.05)


def test_a_logistic_loss_counts_how_often_a_row_is_drawn(predictor):
    rows, others, queries, _ = parts(predictor)
    found = background(predictor, others, rows, Recipe(negatives=6, batch_size=1000))
    table = predictor.model.entities.detach()
    vectors = table[rows].requires_grad_()
    drawn = 6 / (2 * len(table))  # a fact asks one of its two questions, with six wrong answers
    (wanted,) = torch.autograd.grad(F.softplus(queries @ vectors.T).sum() * drawn, vectors)
    assert torch.allclose(found.gradient(predictor.model.relations, table, torch.Generator()), wanted, atol=1e-5)


def test_there_is_none_without_other_facts_or_without_trained_rows(predictor):
    rows, others, _, _ = parts(predictor)
    assert background(predictor, others[:0], rows) is None
    assert background(predictor, others, np.zeros_like(rows)) is None


def test_rows_that_have_learned_from_the_background_feel_only_their_changes(predictor):
    rows, others, _, _ = parts(predictor)
    fresh, known = (background(predictor, others, rows, started=started) for started in (False, True))
    relations, before = predictor.model.relations, predictor.model.entities.detach()
    after = before + 0.1
    assert not known.gradient(relations, before, torch.Generator()).any()
    change = fresh.gradient(relations, after, torch.Generator()) - fresh.gradient(relations, before, torch.Generator())
    assert torch.allclose(known.gradient(relations, after, torch.Generator()), change, atol=1e-4)


def test_an_anchor_pulls_rows_back_to_where_they_were(predictor):
    table, relations = predictor.model.entities.detach().clone(), predictor.model.relations
    ids = torch.tensor([3, 7])
    anchor = Anchor(ids, table[ids], torch.tensor([[2.0], [4.0]]), None)
    table[ids] += 0.5
    pull = anchor.gradient(relations, table, torch.Generator())
    assert torch.allclose(pull, torch.tensor([[1.0], [2.0]]).expand(2, table.shape[1]))
