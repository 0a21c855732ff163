"""The additive model of probabilities."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from dihedral.probability.additive import AdditiveModel, fit_additive


@pytest.fixture(scope="module")
def examples():
    """Features, relations and truth with known probabilities; the second feature says nothing."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20_000, 2)).astype(np.float32)
    relations = rng.integers(3, size=20_000)
    odds = 2 * features[:, 0] + np.array([-3.0, -1.0, 1.0])[relations]
    likely = 1 / (1 + np.exp(-odds))
    return features, relations, rng.random(20_000) < likely, likely


@pytest.fixture(scope="module")
def fitted(examples):
    features, relations, truth, _ = examples
    return fit_additive(features, relations, truth, 3)


def test_probabilities_are_those_behind_the_examples(examples, fitted):
    features, relations, _, likely = examples
    model, unseen = fitted
    assert np.abs(model.probabilities(features, relations) - likely).mean() < 0.02
    assert np.abs(model.at(unseen) - likely).mean() < 0.02


def test_no_curve_falls_even_where_the_examples_do():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(5_000, 1)).astype(np.float32)
    truth = rng.random(5_000) < 1 / (1 + np.exp(3 * features[:, 0]))
    model, _ = fit_additive(features, np.zeros(5_000, np.int64), truth, 1)
    for values in (*model.heights, model.probability):
        assert (np.diff(values) >= 0).all()


def test_a_feature_that_says_nothing_hardly_counts(fitted):
    model, _ = fitted
    assert model.heights[1][-1] < 0.1 * model.heights[0][-1]


def test_a_relation_without_examples_has_the_mean_offset():
    rng = np.random.default_rng(2)
    features = rng.normal(size=(2_000, 1)).astype(np.float32)
    relations = rng.integers(2, size=2_000)
    truth = rng.random(2_000) < np.array([0.1, 0.6])[relations]
    model, _ = fit_additive(features, relations, truth, 3)
    assert model.offsets[0] < model.offsets[2] < model.offsets[1]


def test_a_model_survives_a_round_trip(fitted, examples):
    model, _ = fitted
    again = AdditiveModel.from_dict(model.to_dict(), 2, 3)
    features, relations, *_ = examples
    assert again.probabilities(features, relations) == pytest.approx(model.probabilities(features, relations), abs=1e-4)
    for content in ({**model.to_dict(), "offsets": [0.0]}, {**model.to_dict(), "z": []}):
        with pytest.raises(ValueError, match="expected curves for 2 features and offsets for 3 relations"):
            AdditiveModel.from_dict(content, 2, 3)


FIT = """
import sys
import numpy as np
from dihedral.probability.additive import fit_additive
rng = np.random.default_rng(0)
features = rng.normal(size=(20_000, 8)).astype(np.float32)
relations = rng.integers(9, size=20_000)
truth = rng.random(20_000) < 1 / (1 + np.exp(3 - features[:, 0]))
model, _ = fit_additive(features, relations, truth, 9)
np.save(sys.argv[1], model.probabilities(features, relations))
"""


def test_probabilities_do_not_depend_on_the_number_of_threads(tmp_path):
    found = []
    for threads in ("1", "2"):
        path, names = tmp_path / f"{threads}.npy", ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        subprocess.run(
            [sys.executable, "-c", FIT, str(path)], check=True, env=os.environ | dict.fromkeys(names, threads)
        )
        found.append(np.load(path))
    assert found[1] == pytest.approx(found[0], abs=1e-6)
