"""A new entity is placed by its facts, and the rest stays as it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.inference.folding import fold_in


@pytest.fixture(scope="module")
def without_virus(benchmark_graph):
    """umls trained without any fact of one entity, and those facts."""
    umls = benchmark_graph("umls")
    virus = umls.entities.id("virus")
    touching = (umls.train[:, 0] == virus) | (umls.train[:, 2] == virus)
    facts = [fact for fact in umls.labels(umls.train[touching]) if fact[0] != fact[2]]
    others = dh.Graph(umls.entities, umls.relations, umls.train[~touching], umls.valid[:0], umls.test[:0], "umls", ())
    return dh.train(others, "demo/umls", epochs=20, progress=False, device="cpu"), facts


def test_a_new_entity_is_predicted_by_the_facts_it_was_not_given(without_virus):
    predictor, facts = without_virus
    renamed = [tuple("new" if part == "virus" else part for part in fact) for fact in facts]
    order = np.random.default_rng(0).permutation(len(renamed))
    given, held = [renamed[i] for i in order[: len(order) * 2 // 3]], [renamed[i] for i in order[len(order) * 2 // 3 :]]
    grown = fold_in(predictor, "new", given)
    ranks = []
    for head, relation, tail in held:
        asked = {"head": "new"} if head == "new" else {"tail": "new"}
        answers = grown.predict(relation=relation, top=grown.graph.num_entities, known="exclude", **asked)
        names = [p.tail if head == "new" else p.head for p in answers]
        ranks.append(1 / (1 + names.index(tail if head == "new" else head)))
    assert len(held) > 10 and np.mean(ranks) > 0.2  # chance is about 0.04


def test_everything_else_scores_as_before(without_virus):
    predictor, facts = without_virus
    _, relation, tail = next(fact for fact in facts if fact[0] == "virus")
    grown = fold_in(predictor, "new", [("new", relation, tail)])
    assert grown.graph.num_entities == predictor.graph.num_entities + 1
    assert ("new", relation, tail) in set(grown.graph.labels(grown.graph.train))
    torch.testing.assert_close(grown.model.entities[:-1], predictor.model.entities)
    assert grown.score("cell", "part_of", "tissue") == predictor.score("cell", "part_of", "tissue")


def test_a_grown_model_can_be_saved_and_opened(without_virus, tmp_path):
    predictor, facts = without_virus
    _, relation, tail = next(fact for fact in facts if fact[0] == "virus")
    grown = fold_in(predictor, "new", [("new", relation, tail)])
    grown.save(tmp_path / "grown")
    assert dh.load(tmp_path / "grown").score("new", relation, tail) == pytest.approx(grown.score("new", relation, tail))


@pytest.mark.parametrize(
    ("name", "facts", "message"),
    [
        ("man_0000", [("man_0000", "spouse", "man_0001")], "is in the graph already"),
        ("new", [], "has no facts"),
        ("new", [("man_0000", "spouse", "man_0001")], "must name 'new' once"),
        ("new", [("new", "spouse", "new")], "must name 'new' once"),
        ("new", [("new", "spouse", "nobody")], "entity 'nobody' is not among"),
    ],
)
def test_bad_facts_are_named(predictor, name, facts, message):
    with pytest.raises(DihedralError, match=message):
        fold_in(predictor, name, facts)


def test_a_translation_is_not_bilinear(family):
    predictor = dh.train(family, dh.Recipe(model="transe", dimension=8, epochs=1), progress=False, device="cpu")
    with pytest.raises(DihedralError, match="not bilinear"):
        fold_in(predictor, "new", [("new", "spouse", "man_0001")])


def test_a_folded_model_does_not_claim_what_was_measured_before(predictor):
    grown = fold_in(predictor, "new", [("new", "spouse", "man_0001")] * 3)
    assert "test" not in grown.metrics and len(grown.graph.train) == len(predictor.graph.train) + 1
    assert grown.metrics["calibration"] is not predictor.metrics["calibration"]
