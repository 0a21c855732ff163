"""New relations of path models: they are learned, and no parameter of another relation changes."""

from __future__ import annotations

import pytest
import torch

import dihedral as dh


@pytest.fixture(scope="module")
def updated(path_predictor):
    """The relation "offspring" arrives with the pairs of "child" but the last ten, which are asked."""
    graph = path_predictor.graph
    pairs = [(head, "offspring", tail) for head, relation, tail in graph.names_of(graph.train) if relation == "child"]
    return path_predictor.update(add=pairs[:-10]), pairs[-10:]


def test_all_parameters_of_other_relations_stay_bit_identical(path_predictor, updated):
    before, after = path_predictor.scorer.model, updated[0].scorer.model
    known, count, width = before.num_relations, after.num_relations, before.relations.dimension
    assert count == known + 1 and torch.equal(after.relations.codes[:known], before.relations.codes)
    rows = torch.arange(2 * count) % count < known  # of both directions
    for name, tensor in before.stored().items():
        grown = after.stored()[name]
        if name in ("vectors", "reading", "bias"):
            assert torch.equal(grown[rows], tensor) and not torch.equal(grown[~rows], torch.zeros_like(grown[~rows]))
        elif name in ("gate_weights", "gate_bias"):
            gates = grown.unflatten(1, (2 * count, width // 2))
            assert torch.equal(gates[:, rows], tensor.unflatten(1, (2 * known, width // 2)))
        else:
            assert torch.equal(grown, tensor)


def test_a_new_relation_is_learned_from_its_facts(updated):
    predictor, asked = updated
    ranks = [
        [each.tail for each in predictor.predict(head=head, relation=relation, known="exclude")].index(tail)
        for head, relation, tail in asked
    ]
    assert sum(rank == 0 for rank in ranks) >= 8


def test_the_answers_to_other_questions_stay_as_good(path_predictor, updated):
    graph = path_predictor.graph
    before, after = (dh.evaluate(each, graph).mrr for each in (path_predictor, updated[0]))
    assert after > before - 0.05


def test_the_version_says_what_was_trained(updated):
    version = updated[0].history.latest
    assert version.new_relations == 1 and version.epochs > 0 and version.test_mrr is not None
