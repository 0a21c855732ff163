"""The objective of a recipe has the recipe's settings."""

from __future__ import annotations

import pytest

import dihedral as dh
from dihedral.learn.trainer import build_objective
from dihedral.objectives.logistic import LogisticLoss
from dihedral.objectives.softmax import SoftmaxLoss


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (LogisticLoss, {"objective": "logistic", "negatives": 7}),
        (SoftmaxLoss, {"objective": "softmax", "dropout": 0.3, "candidates": 9}),
        (SoftmaxLoss, {"objective": "softmax", "paths": 0.5, "path_length": 3}),
    ],
)
def test_it_has_the_settings_of_the_recipe(predictor, kind, settings):
    objective = build_objective(dh.Recipe(**settings), predictor.model, predictor.graph)
    assert isinstance(objective, kind)
    assert {name: getattr(objective, name) for name in settings if name != "objective"} == {
        name: value for name, value in settings.items() if name != "objective"
    }
    if kind is SoftmaxLoss:
        assert (objective.walks is not None) == bool(settings.get("paths"))
