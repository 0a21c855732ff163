"""Probabilities: fitted on valid, honest on test, and comparable across relations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.inference.calibration import Calibration, expected_error, false_triples, fit_calibration, reliability


@pytest.fixture(scope="module")
def umls(benchmark_graph):
    return benchmark_graph("umls")


@pytest.fixture(scope="module")
def trained(umls):
    return dh.train(umls, "demo/umls", epochs=15, progress=False, device="cpu")


def test_false_triples_are_no_facts_and_differ_on_one_side(umls):
    true, false = false_triples(umls, umls.test, seed=3)
    facts = set(map(tuple, umls.known.tolist()))
    assert len(true) == len(false) > 0.8 * len(umls.test)
    assert not facts & set(map(tuple, false.tolist()))
    changed = true != false
    assert (changed.sum(axis=1) <= 1).all() and not changed[:, 1].any()


def test_about_half_of_the_false_triples_stay_in_the_relations_range(umls):
    _, false = false_triples(umls, umls.test, seed=0)
    seen = {(h, r) for h, r, _ in umls.train.tolist()}, {(r, t) for _, r, t in umls.train.tolist()}
    inside = np.mean([(h, r) in seen[0] and (r, t) in seen[1] for h, r, t in false.tolist()])
    assert 0.5 < inside < 1.0


def test_probabilities_of_umls_are_honest_on_test(trained):
    measured = trained.metrics["calibration"]["test"]
    assert measured["expected_calibration_error"] < 0.05
    assert measured["accuracy"] > 0.85
    assert sum(row["triples"] for row in measured["reliability"]) == measured["triples"]


def test_the_error_is_the_mean_distance_of_probability_and_share():
    probabilities = torch.tensor([0.1, 0.1, 0.9, 0.9])
    rows = reliability(probabilities, torch.tensor([0.0, 1.0, 1.0, 1.0]))
    assert expected_error(rows) == pytest.approx((2 * 0.4 + 2 * 0.1) / 4)


def test_a_relation_without_valid_triples_keeps_the_common_curve(trained, umls):
    absent = sorted(set(range(umls.num_relations)) - set(umls.valid[:, 1].tolist()))
    calibration = fit_calibration(trained)
    slopes = calibration.slope[absent]
    assert len(absent) > 1 and (slopes - slopes[0]).abs().max() < 1e-5
    assert (calibration.threshold[absent] == 0.5).all()


def test_predictions_carry_their_probability_and_keep_it_on_disk(trained, tmp_path):
    trained.save(tmp_path / "model")
    for predictor in (trained, dh.load(tmp_path / "model")):
        found = predictor.predict(head="virus", relation="causes", top=5)
        likely = [p.probability for p in found]
        assert likely == sorted(likely, reverse=True) and 0 < likely[-1] < likely[0] < 1
        relations = predictor.predict(head="virus", tail="disease_or_syndrome", top=3)
        assert all(0 <= p.probability <= 1 for p in relations)


def test_triples_are_called_true_or_false(trained, umls):
    true, false = false_triples(umls, umls.test, seed=5)
    called = [j.true for j in trained.classify(list(umls.labels(np.concatenate([true, false]))))]
    right = np.mean(called[: len(true)]), 1 - np.mean(called[len(true) :])
    assert min(right) > 0.75


def test_a_model_that_was_not_calibrated_says_so(predictor, family):
    bare = dh.Predictor(predictor.model, family)
    assert bare.calibration is None
    assert bare.predict(head="man_0000", relation="spouse", top=1)[0].probability is None
    with pytest.raises(DihedralError, match=r"call calibrate\(\) first"):
        bare.classify([("man_0000", "spouse", "man_0001")])


def test_curves_survive_their_own_format():
    curves = Calibration(torch.rand(3), torch.rand(3), torch.rand(3))
    again = Calibration.from_dict(curves.to_dict(), len(curves.slope))
    torch.testing.assert_close(again.slope, curves.slope, atol=1e-5, rtol=0)


def test_a_higher_score_is_never_less_likely():
    """Also where a few triples of valid say otherwise."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        facts = {(f"e{a}", f"r{r}", f"e{b}") for a, r, b in rng.integers([20, 3, 20], size=(160, 3)).tolist()}
        predictor = dh.train(dh.load_graph(sorted(facts)), "demo/umls", epochs=3, progress=False, device="cpu")
        predictor.metrics.pop("calibration", None)
        predictor.calibrate()
        assert (predictor.calibration.slope >= 0).all()


def test_too_few_valid_triples_give_no_probabilities():
    graph = dh.load_graph([(f"e{i}", "r", f"e{i + 1}") for i in range(40)])
    predictor = dh.train(graph, "demo/umls", epochs=1, progress=False, device="cpu")
    assert predictor.calibration is None
    with pytest.raises(DihedralError, match="has 0 valid triples; probabilities need 10 or more"):
        predictor.calibrate()
