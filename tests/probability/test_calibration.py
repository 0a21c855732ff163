"""Probabilities: fitted on valid, well calibrated on test, for proposals and for judgements."""

from __future__ import annotations

import numpy as np
import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.ask.tree import path_query
from dihedral.graph.index import GraphIndex
from dihedral.graph.patterns import wilson_interval
from dihedral.learn.finish import fit_probabilities
from dihedral.probability.calibration import (
    Calibration,
    _cuts,
    expected_error,
    false_triples,
    reliability,
)
from dihedral.probability.evidence import CountedRules, Evidence
from dihedral.probability.missing_share import MissingShare
from dihedral.probability.proposals import draw, is_among, sides_of


@pytest.fixture(scope="module")
def umls(benchmark_graph):
    return benchmark_graph("umls")


@pytest.fixture(scope="module")
def trained(umls_predictor):
    return umls_predictor


@pytest.fixture(scope="module")
def evidence(trained, umls):
    return Evidence(trained.scorer, umls.train_index, CountedRules.count(umls.train_index))


def hard_negatives(trained, umls, evidence):
    """Proposals, and their probabilities, of which facts of test are never drawn as false."""
    sides = sides_of(evidence)
    triples, scores = draw(evidence, sides, dict.fromkeys(sides, 1.0))
    likely = trained.calibration.estimate(evidence, triples, scores)[0].clip(max=0.999)
    return triples.numpy(), np.where(is_among(triples, umls.known, umls.num_entities), 1.0, likely)


def test_false_triples_differ_on_one_side_or_are_proposals(umls, evidence, trained):
    proposals = hard_negatives(trained, umls, evidence)
    true, false = false_triples(evidence, umls, proposals, seed=3)
    assert len(true) == len(false) > 0.9 * len(umls.valid)
    known = set(map(tuple, np.concatenate([umls.train, umls.valid]).tolist()))
    assert not known & set(map(tuple, false.tolist()))
    replaced = (true != false).sum(axis=1) <= 1
    likely = dict(zip(map(tuple, proposals[0].tolist()), proposals[1].tolist(), strict=True))
    drawn, unknown = [likely[tuple(each)] for each in false[~replaced].tolist()], proposals[1][proposals[1] < 1]
    assert 0.4 < replaced.mean() < 0.6 and max(drawn) < 1 and np.mean(drawn) > 2 * unknown.mean()


def test_judgements_of_umls_are_well_calibrated(trained):
    measured = trained.calibration.judged
    assert measured.expected_calibration_error < 0.05
    assert measured.accuracy > 0.85
    assert sum(row["triples"] for row in measured.reliability) == measured.triples


def test_claimed_and_measured_precision_of_missing_facts_agree(trained, umls):
    known = GraphIndex.build([umls.train, umls.valid], umls.num_entities, umls.num_relations)
    evidence = Evidence(trained.scorer, known, trained.calibration.rules)
    sides = sides_of(evidence)
    triples, scores = draw(evidence, sides, dict.fromkeys(sides, 1.0))
    likely, _ = trained.calibration.estimate(evidence, triples, scores)
    order = np.argsort(-likely, kind="stable")
    held = is_among(triples, umls.test, umls.num_entities)[order]
    for cut in (100, 300, 500, 1000, 2000):
        assert likely[order[:cut]].mean() == pytest.approx(held[:cut].mean(), abs=0.12)  # the share is estimated
    assert held[:100].mean() > 0.95


def shown(predictor, asked):
    """The fit, evidence, orders, lists, answers, judgements, queries and explanations of a model."""
    ids, columns = predictor.triple_ids(asked), ["head", "relation", "tail", "probability"]
    path = path_query("virus", ["causes", "~causes"], predictor.graph.relations)
    return {
        "fit": predictor.calibration.to_dict(),
        "evidence": predictor.evidence.features(ids).tolist(),
        "list": dh.missing_facts(predictor, top=2000).select(columns).to_pylist(),
        "answers": [
            (answer.tail, answer.score, answer.probability)
            for answer in predictor.predict(head="virus", relation="causes", top=20)
        ],
        "judgements": list(predictor.classify(asked)),
        "queries": [answer[:3] for answer in predictor.ask(path, facts="train")],
        "explanations": [
            (found.paths, found.similar_facts, found.probability, found.elements)
            for found in (dh.explain(predictor, *fact) for fact in asked[:3])
        ],
    }


def test_the_test_part_changes_nothing_that_is_shown(trained, umls):
    asked, found = list(umls.names_of(umls.test[:50])), [shown(trained, list(umls.names_of(umls.test[:50])))]
    for test in (np.random.default_rng(0).permutation(umls.test), umls.test[:0]):
        model = dh.TrainedModel(trained.model, umls.replace(test=test))
        fit_probabilities(model)
        found.append(shown(dh.Predictor(model), asked))
    lists = [each.pop("list") for each in found]
    assert found[0] == found[1] == found[2]
    tested = set(umls.names_of(umls.test))  # known, so not listed
    unknown = [row for row in lists[2] if (row["head"], row["relation"], row["tail"]) not in tested]
    assert lists[0] == lists[1] and len(unknown) > 1000 and unknown == lists[0][: len(unknown)]


def test_the_expected_error_is_the_mean_distance_of_probability_and_true_share():
    rows = reliability(np.array([0.1, 0.1, 0.9, 0.9]), np.array([False, True, True, True]))
    assert expected_error(rows) == pytest.approx((2 * 0.4 + 2 * 0.1) / 4)


def test_wilson_intervals_agree_with_those_of_a_table():
    low, high = wilson_interval(np.array([0.5, 0.9]), np.array([10, 100]))
    assert low == pytest.approx([0.2366, 0.8256], abs=1e-4) and high == pytest.approx([0.7634, 0.9448], abs=1e-4)


def test_similar_proposals_are_those_at_least_as_probable(trained):
    tied = Calibration(*(getattr(trained.calibration, name) for name in ("rules", "proposals", "judgements")),
                       _cuts(np.array([0.1] * 50 + [0.3] * 20 + [0.490909] * 11)),
                       MissingShare(1, 1, 1, 0))  # fmt: skip
    for probability, count in ((0.1, 81), (0.3, 31), (0.490909, 11), (float(np.float32(0.490909)), 11), (0.2, 31)):
        assert tied.num_similar(probability) == count


def test_predictions_have_probabilities_before_and_after_saving(trained, tmp_path):
    trained.save(tmp_path / "model")
    found = []
    for predictor in (trained, dh.load(tmp_path / "model")):
        answers = predictor.predict(head="virus", relation="causes", top=5)
        relations = predictor.predict(head="virus", tail="disease_or_syndrome", top=3)
        found.append([p.probability for p in [*answers, *relations]])
        assert all(0 <= p <= 1 for p in found[-1])
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_most_true_and_most_false_triples_are_classified_correctly(trained, umls, evidence):
    missing = umls.replace(valid=umls.test)
    true, false = false_triples(evidence, missing, hard_negatives(trained, umls, evidence), seed=5)
    called = [j.true for j in trained.classify(list(umls.names_of(np.concatenate([true, false]))))]
    right = np.mean(called[: len(true)]), 1 - np.mean(called[len(true) :])
    assert min(right) > 0.8


def test_a_person_is_not_married_to_herself():
    """The model scores (x, spouse, x) highly, because `spouse` is near the identity."""
    predictor = dh.train(dh.make_family(300), "demo/family", epochs=15, progress=False, device="cpu")
    loops = [(name, "spouse", name) for name in list(predictor.graph.entities)[:50]]
    assert not any(judgement.true for judgement in predictor.classify(loops))
    answers = predictor.predict(head=loops[0][0], relation="spouse", top=300)
    (itself,) = [answer for answer in answers if answer.tail == answer.head]
    assert itself.probability < 0.05


def test_a_known_fact_is_judged_nearly_as_if_it_were_not_known(trained, umls):
    fact = umls.test[:1]
    without = umls.replace(test=umls.test[1:])
    names = list(umls.names_of(fact))
    bare = dh.Predictor(dh.TrainedModel(trained.model, without, calibration=trained.calibration))
    assert trained.classify(names)[0].probability == pytest.approx(
        bare.classify(names)[0].probability, abs=0.1
    )  # only its fit is counted


def test_a_model_that_is_not_calibrated_has_no_probabilities(predictor, family):
    bare = dh.Predictor(dh.TrainedModel(predictor.model, family))
    assert bare.calibration is None
    assert bare.predict(head="man_0000", relation="spouse", top=1)[0].probability is None
    with pytest.raises(DihedralError, match=r"no probabilities: it was not calibrated; call calibrate\(\)"):
        bare.classify([("man_0000", "spouse", "man_0001")])


def test_models_survive_a_round_trip_through_their_dictionary(trained, umls):
    again = Calibration.from_dict(trained.calibration.to_dict(), umls.relations)
    assert again.to_dict() == trained.calibration.to_dict()
    with pytest.raises(DihedralError, match="offsets for 4 relations"):
        Calibration.from_dict(trained.calibration.to_dict(), list("abcd"))


def test_too_few_valid_triples_give_no_probabilities_and_a_reason(monkeypatch):
    monkeypatch.setattr("dihedral.probability.calibration.MIN_TRUE", 30)
    graph = dh.load_graph([(f"e{i}", "r", f"e{i + 1}") for i in range(40)])
    predictor = dh.train(graph, "demo/umls", epochs=1, progress=False, device="cpu")
    assert predictor.calibration is None
    assert predictor.why_not_calibrated == "the graph has 0 valid triples; probabilities need 30 or more"
    with pytest.raises(DihedralError, match="has 0 valid triples; probabilities need 30 or more"):
        predictor.calibrate()


@pytest.mark.usefixtures("probabilities_of_small_graphs")
def test_a_relation_without_training_facts_has_probabilities(monkeypatch):
    monkeypatch.setattr("dihedral.graph.signatures.MAX_ROLES", 1)  # as in a graph of many relations
    family = dh.make_family(60, seed=1)
    train, valid = (list(family.names_of(part)) for part in (family.train, family.valid))
    siblings = [fact for fact in train if fact[1] == "sibling"]
    graph = dh.Graph.from_names([fact for fact in train if fact[1] != "sibling"], valid + siblings[:20])
    predictor = dh.train(graph, dh.Recipe(dimension=8, epochs=2), progress=False, device="cpu")
    assert predictor.calibration is not None
    found = predictor.predict(head="man_0000", tail="man_0001", top=6)
    assert {each.relation for each in found} == set(graph.relations)
    assert all(0 <= each.probability <= 1 for each in found)
