"""Studies of a trained model for the figures."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import Graph, Predictor
from dihedral.elements.group import DihedralGroup
from dihedral.models import MODELS, Model, build_model
from dihedral.models.dihedral import CodeRelations
from dihedral.scoring.embedding import EmbeddingScorer
from dihedral.store.trained import TrainedModel
from paper.studies import compositions, inverses, relation_matrix, symmetry


@pytest.mark.parametrize("name", [name for name in MODELS if name != "transe"])  # a distance is not a bilinear form
def test_relation_matrix_gives_the_scores_of_the_model(name):
    model = build_model(name, 5, 3, dimension=8, entity_init=1.0, seed=2)
    vectors = model.entities.detach().double().numpy()
    for relation in range(3):
        scores = vectors @ relation_matrix(model, relation) @ vectors.T
        triples = torch.tensor([(h, relation, t) for h in range(5) for t in range(5)])
        np.testing.assert_allclose(scores.ravel(), EmbeddingScorer(model).score(triples).numpy(), atol=1e-4)


def test_relation_matrix_includes_the_factor_of_the_relation():
    codes = torch.zeros(1, 3, dtype=torch.uint8)
    model = Model(torch.ones(2, 6), CodeRelations(codes, 4, torch.tensor([2.5])))
    np.testing.assert_allclose(relation_matrix(model, 0), 2.5 * np.eye(6))


# --- hand-made codes -------------------------------------------------------------------------------

K, L = 4, 40


def predictor_of(codes, triples, K=K, scales=None):
    """Return a predictor with these codes per relation name and a graph of these triples."""
    graph = Graph.from_names(triples)
    rows = torch.tensor(np.stack([codes[name] for name in graph.relations]), dtype=torch.uint8)
    entities = torch.zeros(graph.num_entities, 2 * rows.shape[1])
    return Predictor(TrainedModel(Model(entities, CodeRelations(rows, K, scales)), graph))


def random_codes(K=K, seed=0):
    return np.random.default_rng(seed).integers(2 * K, size=L)


PAIRS = [(f"h{i}", f"t{i}") for i in range(12)]
THERE_AND_BACK = [(h, "there", t) for h, t in PAIRS] + [(t, "back", h) for h, t in PAIRS]


@pytest.mark.parametrize("K", [3, 4, 6, 8])
def test_the_product_of_exact_inverses_is_the_identity(K):
    there = random_codes(K)
    codes = {"there": there, "back": DihedralGroup(K).inverse(there)}
    (row,) = inverses(predictor_of(codes, THERE_AND_BACK, K))
    assert row["relations"] == ["there", "back"]
    assert row["support"] == 12 and row["confidence"] == [1.0, 1.0]
    assert row["share"] == row["ones"] == 1.0 and row["diagonal"] == {"1": 2 * L}
    assert row["cosine"] == pytest.approx(1) and row["diagonality"] == pytest.approx(1)
    assert row["spread"] == pytest.approx(0, abs=1e-6)


def test_relation_factors_do_not_change_inverse_pairs():
    there = random_codes()
    codes = {"there": there, "back": DihedralGroup(K).inverse(there)}
    (row,) = inverses(predictor_of(codes, THERE_AND_BACK, scales=torch.tensor([3.0, 0.5])))
    assert row["share"] == 1.0 and row["cosine"] == pytest.approx(1) and row["spread"] == pytest.approx(0, abs=1e-6)


def test_share_counts_the_inverse_components():
    there = random_codes()
    back = np.array(DihedralGroup(K).inverse(there))
    back[: L // 4] = (back[: L // 4] + 1) % K + K * (back[: L // 4] >= K)  # another rotation or reflection
    (row,) = inverses(predictor_of({"there": there, "back": back}, THERE_AND_BACK))
    assert row["share"] == 0.75
    assert row["cosine"] < 0.9 and row["diagonality"] < 1


def test_diagonal_of_a_half_turn_is_minus_one():
    codes = {"there": np.full(L, 1), "back": np.full(L, 1)}  # two quarter turns
    (row,) = inverses(predictor_of(codes, THERE_AND_BACK))
    assert row["share"] == row["ones"] == 0.0 and row["diagonal"] == {"-1": 2 * L}
    assert row["cosine"] == pytest.approx(-1) and row["diagonality"] == pytest.approx(1)


def test_a_graph_without_inverse_pairs_has_no_rows():
    assert inverses(predictor_of({"there": random_codes()}, THERE_AND_BACK[:12])) == []


def test_model_without_group_elements_has_inverses_from_its_matrices(family):
    model = build_model("complex", family.num_entities, family.num_relations, dimension=8)
    rows = inverses(Predictor(TrainedModel(model, family)))
    assert rows and all("share" not in row and {"cosine", "diagonality", "spread"} <= set(row) for row in rows)


def test_symmetric_and_skew_relations_are_classified_by_the_graph():
    both_ways = [(h, "beside", t) for h, t in PAIRS] + [(t, "beside", h) for h, t in PAIRS]
    codes = {"there": np.full(L, 1), "back": np.full(L, 3), "beside": np.arange(L) % (2 * K)}
    rows = {row["relation"]: row for row in symmetry(predictor_of(codes, THERE_AND_BACK + both_ways))}
    assert {name: row["kind"] for name, row in rows.items()} == {"there": "skew", "back": "skew", "beside": "symmetric"}
    assert rows["there"]["skewness"] == 1.0 and rows["there"]["symmetry"] == 0.0
    assert rows["beside"]["skewness"] == 0.25 and rows["beside"]["symmetry"] == 0.75
    assert rows["beside"]["triples"] == 24 and set(rows["beside"]["elements"].values()) == {L // (2 * K)}


def test_a_composition_that_holds_in_one_order_only():
    first, second = random_codes(seed=1), random_codes(seed=2)
    group = DihedralGroup(K)
    codes = {"a": first, "b": second, "ab": group.product(first, second)}
    steps = [(f"x{i}", f"y{i}", f"z{i}") for i in range(11)]
    triples = [row for x, y, z in steps for row in ((x, "a", y), (y, "b", z), (x, "ab", z))]
    (row,) = compositions(predictor_of(codes, triples))
    assert row["relations"] == ["a", "b", "ab"] and row["support"] == 11 and row["confidence"] == 1.0
    assert row["right"]["share"] == 1.0
    swapped = group.product(group.product(second, first), group.inverse(codes["ab"]))
    assert row["swapped"]["share"] == (swapped == 0).mean() < 1


def test_compositions_of_family_are_those_of_the_case_studies(predictor):
    a = dh.algebra(predictor)
    rows = compositions(predictor)
    assert ["spouse", "parent", "parent_in_law"] in [row["relations"] for row in rows]
    for row in rows:
        r1, r2, r3 = (a[name] for name in row["relations"])
        assert row["right"]["share"] == (r1 @ r2).agreement(r3).count
        assert row["swapped"]["share"] == (r2 @ r1).agreement(r3).count
