"""Reviewing: what is left to decide, decisions with probabilities, and the correction of a model by them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.predict.reviewing import at_least, fact_of, find_proposals, left_open, make_decision
from dihedral.store.reviews import Decision, Reviews


@pytest.fixture
def reviews(tmp_path) -> Reviews:
    return Reviews(tmp_path)


@pytest.fixture
def own(predictor) -> dh.Predictor:
    """The predictor, with a calibration that may change."""
    return dh.Predictor(replace(predictor.trained))


def decide(predictor, reviews, fact, decision, reviewer="eve") -> Decision:
    made = make_decision(predictor, fact, decision, reviewer)
    reviews.add(made)
    return made


def test_what_was_decided_is_not_proposed_again(predictor, reviews):
    found = find_proposals(predictor, reviews, top=10)
    assert [each["probability"] for each in found] == sorted((each["probability"] for each in found), reverse=True)
    decide(predictor, reviews, fact_of(found[0]), "accept")
    decide(predictor, reviews, fact_of(found[1]), "reject")
    decide(predictor, reviews, fact_of(found[2]), "skip")
    again = find_proposals(predictor, reviews, top=8)
    assert again == found[2:]
    assert left_open(found, reviews, "eve") == found[3:] and left_open(found, reviews, "kim") == found[2:]
    assert reviews.pending(predictor.graph) == [fact_of(found[0])]


def test_the_probability_that_was_shown_is_kept(predictor, reviews):
    first = find_proposals(predictor, reviews, relations=["spouse"], top=1)[0]
    made = decide(predictor, reviews, fact_of(first), "accept")
    assert made.probability == pytest.approx(first["probability"], rel=1e-3) and made.uncorrected is None


@pytest.mark.parametrize(("decision", "sign"), [("reject", -1), ("accept", 1)])
def test_decisions_move_the_probabilities_of_their_relation(own, reviews, decision, sign):
    before = find_proposals(own, reviews, relations=["parent"], top=40)
    for each in before[:20]:
        decide(own, reviews, fact_of(each), decision)
    own.use_reviews(reviews)
    assert getattr(own.calibration.corrections, f"{decision}ed") == 20
    old = {fact_of(each): each["probability"] for each in before}
    new = {fact_of(each): each["probability"] for each in find_proposals(own, reviews, relations=["parent"], top=40)}
    both = [(old[fact], new[fact]) for fact in old.keys() & new.keys() if 0.001 < old[fact] < 0.99]
    assert both and all(np.sign(after - was) == sign for was, after in both)
    made = decide(own, reviews, fact_of(before[30]), "accept")
    assert made.uncorrected == pytest.approx(before[30]["probability"], rel=1e-3)
    assert np.sign(made.probability - made.uncorrected) == sign


def test_a_correction_is_saved_with_the_model_and_missing_replaces_it(own, reviews, tmp_path):
    plain = dh.missing_facts(own, top=5, missing=50)
    for each in find_proposals(own, reviews, top=20):
        decide(own, reviews, fact_of(each), "reject")
    own.use_reviews(reviews)
    own.save(tmp_path / "model")
    again = dh.load(tmp_path / "model")
    assert np.array_equal(again.calibration.offsets, own.calibration.offsets)
    listed = dh.missing_facts(again, top=5)
    assert listed.equals(dh.missing_facts(own, top=5)) and listed["precision_low"].null_count == 5
    assert dh.missing_facts(again, top=5, missing=50).equals(plain)


def test_judgements_do_not_change(own, reviews):
    facts = list(own.graph.names_of(own.graph.test[:5]))
    before = own.classify(facts)
    for each in find_proposals(own, reviews, top=20):
        decide(own, reviews, fact_of(each), "reject")
    own.use_reviews(reviews)
    assert own.classify(facts) == before


def test_a_fact_of_the_graph_cannot_be_decided(predictor):
    fact = next(iter(predictor.graph.names_of(predictor.graph.test)))
    with pytest.raises(DihedralError, match="is in the graph; decide about facts that it does not hold"):
        make_decision(predictor, fact, "accept", "eve")


def test_a_model_without_probabilities_can_be_reviewed_but_not_corrected(predictor, reviews):
    plain = dh.Predictor(dh.TrainedModel(predictor.model, predictor.graph))
    first = find_proposals(plain, reviews, top=1)[0]
    assert first["probability"] is None and at_least([first], None) == [first]
    assert decide(plain, reviews, fact_of(first), "accept").probability is None
    with pytest.raises(DihedralError, match="decisions correct probabilities, and there are none"):
        plain.use_reviews(reviews)


def test_accepted_facts_with_unknown_names_are_not_pending(predictor, reviews):
    reviews.add(Decision(("nobody", "spouse", "man_0000"), "accept", "eve", ""))
    assert reviews.pending(predictor.graph) == [] and find_proposals(predictor, reviews, top=1)


@pytest.mark.slow
def test_a_correction_by_a_hundred_decisions_improves_the_probabilities_of_other_facts(reviews):
    """A family of which one fact in ten is left out, and a reviewer who knows all."""
    family = dh.make_family(300)
    truth, known = set(family.names_of(family.known)), list(family.names_of(family.train))
    predictor = dh.train(dh.load_graph(known), "demo/family", epochs=40, batch_size=128, progress=False, device="cpu")
    rows = find_proposals(predictor, reviews, top=400)
    true = np.array([fact_of(row) in truth for row in rows])
    before = np.array([row["probability"] for row in rows])
    seen = np.zeros(len(rows), bool)
    seen[np.random.default_rng(0).choice(len(rows), 100, replace=False)] = True
    for i in np.flatnonzero(seen):
        decide(predictor, reviews, fact_of(rows[i]), "accept" if true[i] else "reject")
    predictor.use_reviews(reviews)
    ids = predictor.triple_ids([fact_of(row) for row in rows])
    after = np.array(predictor.probabilities(ids))
    brier = [float(((likely - true)[~seen] ** 2).mean()) for likely in (before, after)]
    assert brier[1] < 0.5 * brier[0]
    assert abs(after[~seen].mean() - true[~seen].mean()) < 0.5 * abs(before[~seen].mean() - true[~seen].mean())
