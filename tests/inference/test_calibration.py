"""Probabilities: fitted on valid, well calibrated on test, and comparable across relations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.inference.calibration import Calibration, expected_error, false_triples, fit_calibration, reliability
from dihedral.inference.scorer import Scorer


@pytest.fixture(scope="module")
def umls(benchmark_graph):
    return benchmark_graph("umls")


@pytest.fixture(scope="module")
def trained(umls):
    return dh.train(umls, "demo/umls", epochs=15, progress=False, device="cpu")


def test_false_triples_are_not_facts_and_differ_on_one_side(umls):
    true, false = false_triples(umls, umls.test, seed=3)
    facts = set(map(tuple, umls.known.tolist()))
    assert len(true) == len(false) > 0.8 * len(umls.test)
    assert not facts & set(map(tuple, false.tolist()))
    changed = true != false
    assert (changed.sum(axis=1) <= 1).all() and not changed[:, 1].any()


def test_about_half_of_the_false_triples_stay_in_the_range_of_the_relation(umls):
    _, false = false_triples(umls, umls.test, seed=0)
    seen = {(h, r) for h, r, _ in umls.train.tolist()}, {(r, t) for _, r, t in umls.train.tolist()}
    inside = np.mean([(h, r) in seen[0] and (r, t) in seen[1] for h, r, t in false.tolist()])
    assert 0.5 < inside < 1.0


def test_probabilities_of_umls_are_well_calibrated_on_test(trained):
    measured = trained.metrics["calibration"]["test"]
    assert measured["expected_calibration_error"] < 0.05
    assert measured["accuracy"] > 0.85
    assert sum(row["triples"] for row in measured["reliability"]) == measured["triples"]


def test_the_expected_error_is_the_mean_distance_of_probability_and_true_share():
    probabilities = torch.tensor([0.1, 0.1, 0.9, 0.9])
    rows = reliability(probabilities, torch.tensor([0.0, 1.0, 1.0, 1.0]))
    assert expected_error(rows) == pytest.approx((2 * 0.4 + 2 * 0.1) / 4)


@pytest.fixture(scope="module")
def calibration(trained, umls) -> Calibration:
    return fit_calibration(trained.scorer, umls)


def valid_scores(scorer: Scorer, graph: dh.Graph, relation: int) -> torch.Tensor:
    """The scores of a relation's valid triples and of random ones, ascending."""
    facts = graph.valid[graph.valid[:, 1] == relation]
    other = np.random.default_rng(relation).integers(0, graph.num_entities, (200, 3))
    other[:, 1] = relation
    return scorer.score(torch.from_numpy(np.concatenate([facts, other])).long()).sort().values


def test_relations_without_valid_triples_have_the_common_curve(calibration, umls):
    absent = sorted(set(range(umls.num_relations)) - set(umls.valid[:, 1].tolist()))
    assert len(absent) > 1
    for curve in (calibration.slope[absent], calibration.offset[absent]):
        assert (curve - curve[0]).abs().max() < 1e-5
    assert (calibration.threshold[absent] == 0.5).all()


def test_a_relation_with_many_valid_triples_departs_from_the_common_curve(calibration, trained, umls):
    count = np.bincount(umls.valid[:, 1], minlength=umls.num_relations)
    many, few, absent = (int(place) for place in (count.argmax(), np.flatnonzero(count == 1)[0], count.argmin()))

    def distance(relation: int) -> float:
        """The largest distance of a relation's curve to the common one, at scores of its own triples."""
        scores = valid_scores(trained.scorer, umls, relation)
        own, common = (calibration.probabilities(scores, torch.full((len(scores),), r)) for r in (relation, absent))
        return float((own - common).abs().max())

    assert distance(many) > 0.1
    assert distance(few) < distance(many)


def test_probabilities_rise_with_scores(calibration, trained, umls):
    for relation in np.unique(umls.valid[:, 1]).tolist():
        scores = valid_scores(trained.scorer, umls, relation)
        likely = calibration.probabilities(scores, torch.full((len(scores),), relation))
        assert (likely.diff() >= 0).all()
        assert likely[-1] - likely[0] > 0.2, "the curve is not flat"


class Negated:
    """A scorer that prefers false triples."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def score(self, triples: torch.Tensor) -> torch.Tensor:
        return -self.scorer.score(triples)


def test_probabilities_never_fall_with_scores_even_where_valid_triples_say_so(trained, umls):
    """A logistic curve without a constraint would fall here."""
    curves = fit_calibration(Negated(trained.scorer), umls)
    scores = torch.linspace(-20, 20, 101)
    for relation in range(umls.num_relations):
        likely = curves.probabilities(scores, torch.full((len(scores),), relation))
        assert (likely.diff() >= 0).all()


def test_predictions_have_probabilities_before_and_after_saving(trained, tmp_path):
    trained.save(tmp_path / "model")
    for predictor in (trained, dh.load(tmp_path / "model")):
        found = predictor.predict(head="virus", relation="causes", top=5)
        likely = [p.probability for p in found]
        assert likely == sorted(likely, reverse=True) and 0 < likely[-1] < likely[0] < 1
        relations = predictor.predict(head="virus", tail="disease_or_syndrome", top=3)
        assert all(0 <= p.probability <= 1 for p in relations)


def test_most_true_and_most_false_triples_are_classified_correctly(trained, umls):
    true, false = false_triples(umls, umls.test, seed=5)
    called = [j.true for j in trained.classify(list(umls.labels(np.concatenate([true, false]))))]
    right = np.mean(called[: len(true)]), 1 - np.mean(called[len(true) :])
    assert min(right) > 0.75


def test_a_model_that_is_not_calibrated_has_no_probabilities(predictor, family):
    bare = dh.Predictor(predictor.model, family)
    assert bare.calibration is None
    assert bare.predict(head="man_0000", relation="spouse", top=1)[0].probability is None
    with pytest.raises(DihedralError, match=r"call calibrate\(\) first"):
        bare.classify([("man_0000", "spouse", "man_0001")])


def test_curves_survive_a_round_trip_through_their_dictionary():
    curves = Calibration(torch.rand(3), torch.rand(3), torch.rand(3))
    again = Calibration.from_dict(curves.to_dict(), 3)
    for name in ("slope", "offset", "threshold"):
        torch.testing.assert_close(getattr(again, name), getattr(curves, name), atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="one curve for each of 4 relations"):
        Calibration.from_dict(curves.to_dict(), 4)


def test_too_few_valid_triples_give_no_probabilities():
    graph = dh.load_graph([(f"e{i}", "r", f"e{i + 1}") for i in range(40)])
    predictor = dh.train(graph, "demo/umls", epochs=1, progress=False, device="cpu")
    assert predictor.calibration is None
    with pytest.raises(DihedralError, match="has 0 valid triples; probabilities need 10 or more"):
        predictor.calibrate()
