"""Fold-in: a new entity is placed by its facts, and everything else stays the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.inference.folding import fold_in
from dihedral.models import build_model


@pytest.fixture(scope="module")
def without_virus(benchmark_graph):
    """A model of umls trained without the facts of one entity, and those facts."""
    umls = benchmark_graph("umls")
    virus = umls.entities.id("virus")
    touching = (umls.train[:, 0] == virus) | (umls.train[:, 2] == virus)
    facts = [fact for fact in umls.labels(umls.train[touching]) if fact[0] != fact[2]]
    others = dh.Graph(umls.entities, umls.relations, umls.train[~touching], umls.valid[:0], umls.test[:0], "umls", ())
    return dh.train(others, "demo/umls", epochs=20, progress=False, device="cpu"), facts


def test_held_out_facts_of_a_new_entity_are_predicted(without_virus):
    predictor, facts = without_virus
    renamed = [tuple("new" if part == "virus" else part for part in fact) for fact in facts]
    order = np.random.default_rng(0).permutation(len(renamed))
    given, held_out = ([renamed[i] for i in part] for part in np.split(order, [len(order) * 2 // 3]))
    grown = fold_in(predictor, "new", given)
    ranks = []
    for head, relation, tail in held_out:
        anchor = {"head": "new"} if head == "new" else {"tail": "new"}
        answers = grown.predict(relation=relation, top=grown.graph.num_entities, known="exclude", **anchor)
        names = [p.tail if head == "new" else p.head for p in answers]
        ranks.append(1 / (1 + names.index(tail if head == "new" else head)))
    assert len(held_out) > 10 and np.mean(ranks) > 0.2  # the chance level is about 0.04


def test_other_scores_do_not_change(without_virus):
    predictor, facts = without_virus
    _, relation, tail = next(fact for fact in facts if fact[0] == "virus")
    grown = fold_in(predictor, "new", [("new", relation, tail)])
    assert grown.graph.num_entities == predictor.graph.num_entities + 1
    assert ("new", relation, tail) in set(grown.graph.labels(grown.graph.train))
    torch.testing.assert_close(grown.model.entities[:-1], predictor.model.entities)
    assert grown.score("cell", "part_of", "tissue") == predictor.score("cell", "part_of", "tissue")


def test_a_model_with_a_new_entity_can_be_saved_and_loaded(without_virus, tmp_path):
    predictor, facts = without_virus
    _, relation, tail = next(fact for fact in facts if fact[0] == "virus")
    grown = fold_in(predictor, "new", [("new", relation, tail)])
    grown.save(tmp_path / "grown")
    assert dh.load(tmp_path / "grown").score("new", relation, tail) == pytest.approx(grown.score("new", relation, tail))


@pytest.mark.parametrize(
    ("name", "facts", "message"),
    [
        ("man_0000", [("man_0000", "spouse", "man_0001")], "is in the graph already"),
        ("", [("", "spouse", "man_0001")], "the new entity has no name; give one"),
        ("new", [], "has no facts"),
        ("new", [("man_0000", "spouse", "man_0001")], "must name 'new' once"),
        ("new", [("new", "spouse", "new")], "must name 'new' once"),
        ("new", [("new", "spouse", "nobody")], "entity 'nobody' is not among"),
    ],
)
def test_invalid_facts_are_named_in_the_error(predictor, name, facts, message):
    with pytest.raises(DihedralError, match=message):
        fold_in(predictor, name, facts)


def test_translations_are_not_bilinear(family):
    predictor = dh.Predictor(build_model("transe", family.num_entities, family.num_relations, dimension=8), family)
    with pytest.raises(DihedralError, match="not bilinear"):
        fold_in(predictor, "new", [("new", "spouse", "man_0001")])


def test_a_model_with_a_new_entity_keeps_no_metrics_but_its_calibration(predictor):
    grown = fold_in(predictor, "new", [("new", "spouse", "man_0001")] * 3)
    assert "test" not in grown.metrics and len(grown.graph.train) == len(predictor.graph.train) + 1
    assert grown.metrics["calibration"] is not predictor.metrics["calibration"]
