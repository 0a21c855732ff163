"""Answers in order of probability."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.graph.steps import SIDES, anchors_and_targets, question_steps
from dihedral.models import Model
from dihedral.probability import ordering
from dihedral.probability.evidence import Evidence
from dihedral.probability.ordering import POOL, compare_orders


def questions_of(graph, count=6):
    return list(graph.names_of(graph.test))[:count]


def test_the_best_answers_by_score_are_ordered_by_probability(predictor, family):
    for head, relation, _ in questions_of(family):
        again = predictor.predict(head=head, relation=relation, top=POOL, order="probability")
        by_score = predictor.predict(head=head, relation=relation, top=POOL, order="score")
        likely = [answer.probability for answer in again]
        assert likely == sorted(likely, reverse=True)
        assert set(again) == set(by_score)
        first = predictor.predict(head=head, relation=relation, top=3, order="probability")
        assert first == again[:3]


def test_fewer_entities_than_asked_for_are_all_answered(predictor, family):
    allowed = ["man_0000", "man_0001"]
    found = predictor.predict(head="man_0002", relation="sibling", among=allowed, order="probability")
    assert {answer.tail for answer in found} == set(allowed)


@pytest.mark.parametrize("order", ["probability", "score"])
def test_a_file_of_questions_has_the_same_answers_in_the_same_order(predictor, family, order):
    asked = [(head, relation, None) for head, relation, _ in questions_of(family)]
    asked += [(None, relation, tail) for _, relation, tail in questions_of(family)]
    table = dh.complete(predictor, asked, top=5, order=order).to_pylist()
    for number, (head, relation, tail) in enumerate(asked, start=1):
        expected = predictor.predict(head=head, relation=relation, tail=tail, top=5, order=order)
        rows = [row for row in table if row["question"] == number]
        assert [(row["head"], row["tail"]) for row in rows] == [(answer.head, answer.tail) for answer in expected]
        assert [row["probability"] for row in rows] == pytest.approx([answer.probability for answer in expected])


def test_the_order_by_default_is_the_better_one_on_valid(predictor, family):
    measured = predictor.calibration.orders
    better = measured.mrr["probability"] > measured.mrr["score"]
    assert predictor.resolve_order("auto") == measured.order == ("probability" if better else "score")
    head, relation, _ = questions_of(family)[0]
    assert predictor.predict(head=head, relation=relation) == predictor.predict(
        head=head, relation=relation, order=predictor.resolve_order("auto")
    )


@pytest.fixture(scope="module")
def umls_paths(benchmark_graph):
    """A path model, whose scores of a fact differ between the questions for its head and its tail."""
    return dh.train(benchmark_graph("umls"), "paths/umls", epochs=1, facts_per_epoch=500, dimension=8, progress=False)


# umls has fewer entities than are ordered again, and many known answers
@pytest.mark.parametrize("name", ["predictor", "umls_predictor", "umls_paths"])
def test_the_measured_mrr_is_that_of_ranking_one_question_at_a_time(name, request):
    predictor = request.getfixturevalue(name)
    calibration, graph = predictor.calibration, predictor.graph
    measured = compare_orders(predictor.scorer, graph, calibration, "test", sample=10, seed=1)
    evidence = Evidence(predictor.scorer, graph.train_index, calibration.rules)
    drawn = graph.test[np.random.default_rng(1).permutation(len(graph.test))[:10]]
    facts = {tuple(fact) for fact in graph.known.tolist()}
    inverse_ranks = {"score": [], "probability": []}
    for triple in drawn.tolist():
        for side, column in (("tail", 2), ("head", 0)):
            candidates = torch.tensor([triple] * graph.num_entities)
            candidates[:, column] = torch.arange(graph.num_entities)
            others = [row for row in candidates.tolist() if tuple(row) not in facts]
            anchor, relation, _ = anchors_and_targets(torch.tensor([triple]), side)
            asked = anchor, question_steps(relation, side, graph.num_relations)
            scores = predictor.scorer.rows()(*asked)[0, [row[column] for row in (triple, *others)]]
            by_score, last = 1 + int((scores[1:] > scores[0]).sum()), int((scores >= scores[0]).sum())
            inverse_ranks["score"].append(2 / (by_score + last))
            pool = [0, *(1 + scores[1:].topk(min(POOL - 1, len(others))).indices).tolist()]
            likely, z = calibration.estimate(evidence, torch.tensor([triple, *others])[pool], scores[pool])
            keys = list(zip(likely.tolist(), z.tolist(), scores[pool].tolist(), strict=True))
            rank = (by_score + last) / 2 if last > POOL else 1 + sum(key > keys[0] for key in keys)
            inverse_ranks["probability"].append(1 / rank)
    assert len(SIDES) * measured.triples == len(inverse_ranks["score"])
    for order, expected in inverse_ranks.items():
        assert measured.mrr[order] == pytest.approx(np.mean(expected), abs=1e-3)


def test_both_orders_are_measured_by_evaluate(predictor, family):
    measured = compare_orders(predictor.scorer, family, predictor.calibration, "test", sample=len(family.test))
    for order, mrr in measured.mrr.items():
        assert dh.evaluate(predictor, order=order).mrr == pytest.approx(mrr)
    assert dh.evaluate(predictor, order="auto").mrr == dh.evaluate(predictor, order=predictor.resolve_order("auto")).mrr
    assert dh.evaluate(predictor).mrr == dh.evaluate(predictor, order="score").mrr
    with pytest.raises(DihedralError, match="order is 'best'; choose auto, probability, score"):
        dh.evaluate(predictor, order="best")
    with pytest.raises(DihedralError, match="order is 'probability', but this model has none"):
        dh.evaluate(dh.Predictor(dh.TrainedModel(predictor.model, family)), order="probability")


def test_answers_beyond_the_pool_keep_their_rank(predictor, family, monkeypatch):
    monkeypatch.setattr(ordering, "POOL", 2)
    noise = torch.randn(predictor.model.entities.shape, generator=torch.Generator().manual_seed(0))
    predictor = dh.Predictor(
        dh.TrainedModel(Model(noise, predictor.model.relations), family, calibration=predictor.calibration)
    )
    by_score, by_probability = (dh.evaluate(predictor, order=order).both for order in ("score", "probability"))
    beyond = by_score.greater + by_score.equal >= 2
    assert beyond.any() and (by_probability.greater[beyond] == by_score.greater[beyond]).all()
    assert (by_probability.greater[~beyond] < 2).all()


def test_an_answer_that_ties_with_others_beyond_the_pool_keeps_its_rank(predictor, family, monkeypatch):
    zero = Model(torch.zeros_like(predictor.model.entities), predictor.model.relations)
    tied = dh.Predictor(dh.TrainedModel(zero, family, calibration=predictor.calibration))
    by_score = dh.evaluate(tied, order="score")
    assert (by_score.both.greater == 0).all() and by_score.both.equal.min() > 20  # all candidates
    monkeypatch.setattr(ordering, "POOL", 20)
    again = dh.evaluate(tied, order="probability")
    assert (again.both.realistic == by_score.both.realistic).all()


def test_an_unknown_order_is_refused(predictor):
    with pytest.raises(DihedralError, match="order is 'best'; choose auto, probability, score"):
        predictor.predict(head="man_0000", relation="spouse", order="best")
    with pytest.raises(DihedralError, match="relations are ordered by score"):
        predictor.predict(head="man_0000", tail="man_0001", order="probability")


def test_a_model_without_probabilities_orders_by_score(predictor, family):
    bare = dh.Predictor(dh.TrainedModel(predictor.model, family))
    assert bare.resolve_order("auto") == "score"
    assert bare.predict(head="man_0000", relation="spouse")[0].probability is None
