"""The share of missing facts, estimated from proposals of which the true ones are known."""

from __future__ import annotations

import numpy as np
import pytest

from dihedral.probability.additive import AdditiveModel
from dihedral.probability.missing_share import MissingShare, estimate_missing


def draw(ratio, seed, count=20_000):
    """The log odds of each proposal, and which are in valid and which are missing."""
    rng = np.random.default_rng(seed)
    z = rng.normal(-4, 3, count)
    true = rng.random(count) < 1 / (1 + np.exp(-z))
    held = true & (rng.random(count) < 1 / (1 + ratio))
    return z, held, true & ~held


def binned(z, held, bins=100):
    """A model of one relation whose last curve is the share of held proposals in bins."""
    parts = np.array_split(np.argsort(z), bins)
    shares = np.maximum.accumulate([held[part].mean() for part in parts])
    return AdditiveModel([], [], np.zeros(1), np.array([z[part].mean() for part in parts]), shares)


@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_the_interval_holds_the_ratio_that_the_proposals_were_drawn_with(ratio):
    inside = 0
    for seed in range(20):
        z, held, _ = draw(ratio, seed)
        found, _ = estimate_missing(binned(z, held), z, held, 0.0)
        assert found.ratio == pytest.approx(ratio, rel=0.4, abs=0.2)
        inside += found.low <= ratio <= found.high
    assert inside >= 18


@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_the_probability_of_an_unknown_fact_is_the_share_that_is_missing(ratio):
    z, held, missing = draw(ratio, 0, 400_000)
    likely = 1 / (1 + np.exp(-z))
    claimed = MissingShare(ratio, ratio, ratio, 0.0).of_unknown(likely / (1 + ratio))
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        here = ~held & (low <= claimed) & (claimed < low + 0.2)
        assert claimed[here].mean() == pytest.approx(missing[here].mean(), abs=0.02)


def test_facts_that_are_known_all_the_same_are_not_missing():
    z, held, missing = draw(2.0, 0, 400_000)
    likely = 1 / (1 + np.exp(-z))
    known = missing & (np.random.default_rng(1).random(len(missing)) < 0.5)  # as many as valid holds
    claimed = MissingShare(2.0, 2.0, 2.0, 1.0).of_unknown(likely / 3)
    for low in (0.2, 0.4, 0.6, 0.8):
        here = ~held & ~known & (low <= claimed) & (claimed < low + 0.2)
        assert claimed[here].mean() == pytest.approx(missing[here].mean(), abs=0.03)


def test_without_missing_facts_nothing_unknown_holds():
    assert (MissingShare(0.0, 0.0, 0.0, 0.0).of_unknown(np.array([0.0, 0.5, 1.0])) == 0).all()


def test_what_is_claimed_of_the_best_proposals_varies_less_than_what_bins_say():
    errors = []
    for seed in range(20):
        z, held, missing = draw(1.0, seed)
        bins = binned(z, held)
        share, curve = estimate_missing(bins, z, held, 0.0)
        best = np.argsort(-np.where(held, -np.inf, z))[:100]
        claimed = [share.of_unknown(model.at(z[best])).mean() for model in (bins, curve)]
        errors.append(np.array(claimed) - missing[best].mean())
    by_bins, by_curve = np.sqrt(np.mean(np.square(errors), axis=0))
    assert by_curve < 0.07 and by_curve < 0.8 * by_bins
