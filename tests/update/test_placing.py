"""New entities of models with entity vectors are placed by their facts, and everything else stays the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.models import build_model


@pytest.fixture(scope="module")
def without_virus(benchmark_graph):
    """A model of umls trained without the facts of one entity, and those facts."""
    umls = benchmark_graph("umls")
    virus = umls.entities.id("virus")
    touching = (umls.train[:, 0] == virus) | (umls.train[:, 2] == virus)
    facts = [fact for fact in umls.names_of(umls.train[touching]) if fact[0] != fact[2]]
    others = dh.Graph(umls.entities, umls.relations, umls.train[~touching], umls.valid[:0], umls.test[:0], "umls", ())
    return dh.train(others, "demo/umls", epochs=20, progress=False, device="cpu"), facts


def test_held_out_facts_of_a_new_entity_are_predicted(without_virus):
    predictor, facts = without_virus
    renamed = [tuple("new" if part == "virus" else part for part in fact) for fact in facts]
    order = np.random.default_rng(0).permutation(len(renamed))
    given, held_out = ([renamed[i] for i in part] for part in np.split(order, [len(order) * 2 // 3]))
    grown = predictor.update(add=given)
    ranks = []
    for head, relation, tail in held_out:
        anchor = {"head": "new"} if head == "new" else {"tail": "new"}
        answers = grown.predict(relation=relation, top=grown.graph.num_entities, known="exclude", **anchor)
        names = [p.tail if head == "new" else p.head for p in answers]
        ranks.append(1 / (1 + names.index(tail if head == "new" else head)))
    assert len(held_out) > 10 and np.mean(ranks) > 0.35  # the chance level is about 0.04


def test_other_scores_do_not_change(without_virus):
    predictor, facts = without_virus
    _, relation, tail = next(fact for fact in facts if fact[0] == "virus")
    grown = predictor.update(add=[("new", relation, tail)])
    assert grown.graph.num_entities == predictor.graph.num_entities + 1
    assert ("new", relation, tail) in set(grown.graph.names_of(grown.graph.train))
    torch.testing.assert_close(grown.model.entities[:-1], predictor.model.entities)
    assert grown.score("cell", "part_of", "tissue") == predictor.score("cell", "part_of", "tissue")


def test_a_model_with_a_new_entity_can_be_saved_and_loaded(without_virus, tmp_path):
    predictor, facts = without_virus
    _, relation, tail = next(fact for fact in facts if fact[0] == "virus")
    grown = predictor.update(add=[("new", relation, tail)])
    grown.save(tmp_path / "grown")
    assert dh.load(tmp_path / "grown").score("new", relation, tail) == pytest.approx(grown.score("new", relation, tail))


def test_translations_are_not_bilinear(family):
    predictor = dh.Predictor(
        dh.TrainedModel(build_model("transe", family.num_entities, family.num_relations, dimension=8), family)
    )
    with pytest.raises(DihedralError, match="not bilinear"):
        predictor.update(add=[("new", "spouse", "man_0001")])


def test_new_entities_that_point_at_each_other_are_placed_together(without_virus):
    predictor, _ = without_virus
    facts = [("new", "isa", "organism"), ("kin", "isa", "new"), ("new", "isa", "kin")]
    grown = predictor.update(add=facts)
    assert grown.graph.num_entities == predictor.graph.num_entities + 2
    assert grown.score("kin", "isa", "new") > np.mean(
        [grown.score("kin", "isa", each) for each in grown.graph.entities]
    )


def test_new_entities_leave_the_ranks_of_other_facts_nearly_as_they_were(without_virus):
    predictor, facts = without_virus
    renamed = [tuple("new" if part == "virus" else part for part in fact) for fact in facts]
    grown = predictor.update(add=renamed)
    before, after = (dh.evaluate(each, split="train", sample=500).mrr for each in (predictor, grown))
    assert after > before - 0.03


def test_a_model_with_a_new_entity_keeps_no_metrics_but_its_calibration(predictor):
    grown = predictor.update(add=[("new", "spouse", "man_0001")] * 3)
    assert "test" not in grown.metrics and len(grown.graph.train) == len(predictor.graph.train) + 1
    assert grown.calibration is predictor.calibration
