"""Probabilities of answers to queries: fitted on drawn queries, in the order of their values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.ask import Fact, Query, Variable
from dihedral.ask.answer_calibration import (
    SHAPES,
    draw_queries,
    fit_answers,
    num_steps,
    probabilities,
)
from dihedral.ask.messages import KnownSteps, Semantics, Transitions, evaluate
from dihedral.ask.tree import path_query
from dihedral.probability.calibration import Calibration
from tests.small_graphs import small_probabilities

pytestmark = pytest.mark.usefixtures("probabilities_of_small_graphs")
X, Y = Variable("x"), Variable("y")


@pytest.fixture(scope="module")
def trained():
    with small_probabilities():
        return dh.train(dh.make_family(300, seed=1), "demo/family", epochs=8, progress=False, device="cpu")


def test_drawn_queries_have_answers_by_facts_alone(trained):
    facts = trained.graph.train_index
    plans = draw_queries(facts, 5)
    assert len(plans) == 5 * len(SHAPES) and {num_steps(plan) for plan in plans} == {1, 2, 3}
    assert plans == draw_queries(facts, 5) != draw_queries(facts, 5, seed=1)
    for plan, messages in evaluate(plans, KnownSteps(facts), Semantics(width=1)):
        assert (messages[plan].best == 0).any()


def test_probabilities_keep_the_order_of_values_and_known_answers_are_certain(trained):
    model = fit_answers(trained.scorer, trained.graph)
    assert model is not None
    rows = Transitions(trained.scorer, trained.graph.train_index)
    for plan, messages in evaluate(draw_queries(trained.graph.train_index, 3, seed=5), rows, Semantics()):
        message = messages[plan]
        order = torch.argsort(message.likely, descending=True)
        found = np.array(probabilities(model, trained.calibration.missing, plan, message, order))
        certain = (message.best[order] == 0).numpy()
        assert (found[certain] == 1).all() and (found[~certain] < 1).all()
        assert (np.diff(found[~certain]) <= 1e-12).all()


def test_a_path_and_what_is_said_twice_have_one_probability(trained):
    spouse, parent = Fact("man_0000", "spouse", Y), Fact(Y, "parent", X)
    asked = (
        path_query("man_0000", ["spouse", "parent"], trained.graph.relations), Query(X, spouse & parent),
        Query(X, spouse & parent & spouse), Query(X, (spouse & parent) | (parent & spouse)),
    )  # fmt: skip
    found = [[answer[:4] for answer in trained.ask(query, known="exclude")] for query in asked]
    assert found[0] == found[1] == found[2] == found[3] and all(0 < answer[2] < 1 for answer in found[0])


def test_the_fit_is_stored_with_the_model(trained, tmp_path):
    trained.save(tmp_path / "model")
    query = Query(X, Fact("man_0000", "spouse", Y) & Fact(Y, "parent", X))
    before, after = trained.ask(query), dh.load(tmp_path / "model").ask(query)
    assert [answer.entity for answer in after] == [answer.entity for answer in before]
    for name in ("value", "probability"):  # a product with one vector is rounded by where the memory lies
        values = [[getattr(answer, name) for answer in answers] for answers in (before, after)]
        assert values[1] == pytest.approx(values[0], rel=1e-4)


def test_a_damaged_fit_is_named(trained):
    content = trained.calibration.to_dict() | {"queries": {"curves": []}}
    with pytest.raises(DihedralError, match="the model's probabilities are damaged"):
        Calibration.from_dict(content, trained.graph.relations)


def test_a_graph_with_few_valid_facts_has_no_fit(family, predictor, monkeypatch):
    monkeypatch.setattr("dihedral.probability.calibration.MIN_TRUE", 10**6)
    assert fit_answers(predictor.scorer, family) is None


def test_a_value_that_is_not_fitted_is_no_probability(trained):
    query = Query(X, Fact("man_0000", "spouse", Y) & Fact(Y, "parent", X))
    assert all(0 < answer.probability <= 1 for answer in trained.ask(query))
    for options in ({"conjunction": "minimum"}, {"ways": "max"}):  # the fit is made of values that combine by default
        assert all(answer.probability is None and answer.value > 0 for answer in trained.ask(query, **options))
    negated = Query(X, Fact("man_0000", "spouse", X) & ~Fact("man_0001", "spouse", X))  # no drawn query has a negation
    assert all(answer.probability is None for answer in trained.ask(negated))
    without = replace(trained.calibration, queries=None)
    small = dh.Predictor(dh.TrainedModel(trained.model, trained.graph, calibration=without))
    assert [(answer.entity, answer.value) for answer in small.ask(query)] == [
        (answer.entity, answer.value) for answer in trained.ask(query)
    ]
    assert all(answer.probability is None for answer in small.ask(query))
