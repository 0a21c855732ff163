"""Metrics computed from ranks, checked by hand on a small graph."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError, Evaluation, Evaluator, Graph
from dihedral.evaluation import Ranks, summarise
from dihedral.evaluation.metrics import relation_categories
from dihedral.graph.vocabulary import Vocabulary
from dihedral.models import Model, build_model
from dihedral.models.dihedral import CodeRelations
from dihedral.scoring.embedding import EmbeddingScorer

METRICS = {"mrr", "hits@1", "hits@3", "hits@10", "mr"}


# --- summaries -------------------------------------------------------------------------------------


def test_a_summary_holds_the_mean_reciprocal_rank_hits_and_the_mean_rank():
    ranks = Ranks(np.array([0, 1, 3, 19]), np.zeros(4, dtype=np.int64))  # ranks 1, 2, 4, 20
    assert summarise(ranks) == pytest.approx(
        {"mrr": (1 + 1 / 2 + 1 / 4 + 1 / 20) / 4, "hits@1": 0.25, "hits@3": 0.5, "hits@10": 0.75, "mr": 27 / 4}
    )


def test_ties_have_a_realistic_an_optimistic_and_a_pessimistic_rank():
    ranks = Ranks(np.array([0]), np.array([2]))
    assert summarise(ranks)["mrr"] == summarise(ranks, "realistic")["mrr"] == 1 / 2
    assert summarise(ranks, "optimistic")["mrr"] == 1
    assert summarise(ranks, "pessimistic")["mrr"] == 1 / 3


def test_a_tie_at_the_top_is_not_a_hit_at_one():
    assert summarise(Ranks(np.array([0]), np.array([1])))["hits@1"] == 0.0


def test_metrics_of_no_ranks_are_nan():
    found = summarise(Ranks(np.empty(0, np.int64), np.empty(0, np.int64)))
    assert set(found) == METRICS
    assert all(math.isnan(value) for value in found.values())


# --- an evaluation ---------------------------------------------------------------------------------

# With the identity of D4, φ(h, r, t) = ⟨h, t⟩: of entities on a line, the one farther out scores higher.
PLACES = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "new": 5.0}
GRAPH = Graph.from_names(
    train=[("a", "knows", "b"), ("a", "knows", "d"), ("b", "likes", "c")],
    test=[("a", "knows", "c"), ("b", "likes", "new")],
    name="line",
)


@pytest.fixture
def evaluation() -> Evaluation:
    entities = torch.tensor([[PLACES[name], 0.0] for name in GRAPH.entities])
    return Evaluator(GRAPH, "test")(EmbeddingScorer(Model(entities, CodeRelations(torch.zeros(2, 1), 4))))


def test_ranks_are_filtered_by_all_three_splits(evaluation):
    # (a, knows, ?): new 5, [d 4 known], c 3 → rank 2; (b, likes, ?): new 5 → rank 1
    assert evaluation.ranks["tail"].realistic.tolist() == [2, 1]
    # (?, knows, c): new, d, c, b, a → 5; (?, likes, new): new, d, c, b → 4
    assert evaluation.ranks["head"].realistic.tolist() == [5, 4]
    assert evaluation.mrr == pytest.approx((1 / 2 + 1 + 1 / 5 + 1 / 4) / 4)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_ranks_of_the_other_splits_do_not_depend_on_test(split):
    entities = torch.tensor([[PLACES[name], 0.0] for name in GRAPH.entities])
    scorer = EmbeddingScorer(Model(entities, CodeRelations(torch.zeros(2, 1), 4)))
    parts = {"train": GRAPH.train, "valid": GRAPH.train[:0]} | {split: GRAPH.train}
    with_test, without = (GRAPH.replace(**parts, test=test) for test in (GRAPH.test, GRAPH.test[:0]))
    one, other = (Evaluator(graph, split)(scorer) for graph in (with_test, without))
    assert one.both.realistic.tolist() == other.both.realistic.tolist()
    # (a, knows, b): new, [d known], c of test, b → rank 3; (a, knows, d): new, d → 2; (b, likes, c): new, d, c → 3
    assert one.ranks["tail"].realistic.tolist() == [3, 2, 3]
    alone = dh.Predictor(dh.TrainedModel(scorer.model, without))
    assert dh.evaluate(alone, with_test, split=split).both.realistic.tolist() == one.both.realistic.tolist()


def test_the_report_has_these_parts(evaluation):
    report = evaluation.to_dict()
    assert {"split", "both", "head", "tail", "seen_only", "per_relation"} <= set(report)
    assert report["split"] == "test"
    for part in ("both", "head", "tail", "optimistic", "pessimistic"):
        assert set(report[part]) == METRICS, part
    assert set(report["seen_only"]) >= METRICS
    assert json.loads(json.dumps(report)) == report


def test_both_sides_have_the_same_weight(evaluation):
    report = evaluation.to_dict()
    assert report["tail"]["mrr"] == pytest.approx((1 / 2 + 1) / 2)
    assert report["head"]["mrr"] == pytest.approx((1 / 5 + 1 / 4) / 2)
    for metric in METRICS:
        assert report["both"][metric] == pytest.approx((report["head"][metric] + report["tail"][metric]) / 2)


def test_seen_only_leaves_out_entities_without_training_facts(evaluation):
    report = evaluation.to_dict()["seen_only"]  # (a, knows, c) alone
    assert report["triples"] == 1
    assert report["mrr"] == pytest.approx((1 / 2 + 1 / 5) / 2)


def test_an_entity_is_seen_if_training_has_it_on_either_side():
    graph = Graph.from_names([("a", "r", "b")], test=[("b", "r", "a"), ("c", "r", "a")])
    found = Evaluator(graph, "test")(EmbeddingScorer(build_model("dihedral-ste", 3, 1, dimension=2)))
    assert found.seen.tolist() == [True, False]


def test_each_relation_of_the_split_has_a_row(evaluation):
    rows = evaluation.to_dict()["per_relation"]
    assert [row["relation"] for row in rows] == ["knows", "likes"]
    assert [row["triples"] for row in rows] == [1, 1]
    assert [row["category"] for row in rows] == ["1-N", "1-1"]
    assert rows[0]["mrr"] == pytest.approx((1 / 2 + 1 / 5) / 2)
    assert (rows[1]["tail_mrr"], rows[1]["head_mrr"]) == pytest.approx((1, 1 / 4))
    assert set(rows[0]) >= METRICS


def test_a_relation_that_the_split_lacks_has_no_row():
    graph = Graph.from_names([("a", "r", "b"), ("a", "s", "b")], test=[("b", "s", "a")])
    report = Evaluator(graph, "test")(EmbeddingScorer(build_model("dihedral-ste", 2, 2, dimension=2))).to_dict()
    assert [row["relation"] for row in report["per_relation"]] == ["s"]


def test_categories_summarise_their_relations(evaluation):
    report = evaluation.to_dict()["per_category"]
    assert set(report) == {"1-1", "1-N"}
    assert report["1-N"]["tail"]["mrr"] == pytest.approx(1 / 2)
    assert report["1-1"]["head"]["mrr"] == pytest.approx(1 / 4)
    assert report["1-N"]["both"]["mrr"] == pytest.approx((1 / 2 + 1 / 5) / 2)


def test_given_triples_are_evaluated_and_count_as_known():
    graph = Graph.from_names([("a", "r", "b"), ("c", "r", "d")])
    triples = np.array([[0, 0, 2], [0, 0, 3]], dtype=np.int32)
    entities = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    scorer = EmbeddingScorer(Model(entities, CodeRelations(torch.zeros(1, 1), 4)))
    found = Evaluator(graph, "mine", triples=triples)(scorer)
    assert found.split == "mine"
    assert found.ranks["tail"].realistic.tolist() == [1, 1]  # d is a known answer, so it does not count against c


def test_a_split_without_triples_raises_an_error():
    graph = Graph.from_names([("a", "r", "b")], name="tiny")
    with pytest.raises(DihedralError, match="'tiny' has no valid triples"):
        Evaluator(graph, "valid")


def test_an_unknown_split_is_named_in_the_error():
    with pytest.raises(DihedralError, match="split 'tset' does not exist"):
        Evaluator(GRAPH, "tset")


# --- relation categories -----------------------------------------------------------------------------


def categories(triples: list[tuple[str, str, str]]) -> dict[str, str]:
    graph = Graph.from_names(triples)
    return dict(zip(graph.relations, relation_categories(graph).tolist(), strict=True))


def test_a_side_is_many_from_one_and_a_half_entities_per_entity_of_the_other_side():
    assert categories(
        [
            ("a", "capital", "b"),
            ("c", "capital", "d"),
            ("a", "has_child", "b"),
            ("a", "has_child", "c"),
            ("b", "born_in", "a"),
            ("c", "born_in", "a"),
            *((x, "friend", y) for x in "ab" for y in "cd"),
        ]
    ) == {"capital": "1-1", "has_child": "1-N", "born_in": "N-1", "friend": "N-N"}


def test_a_mean_of_one_and_a_half_is_many_and_four_thirds_is_not():
    three_for_two = [("a", "r", "x"), ("a", "r", "y"), ("b", "r", "z")]
    four_for_three = [*three_for_two, ("c", "r", "w")]
    assert categories(three_for_two) == {"r": "1-N"}
    assert categories(four_for_three) == {"r": "1-1"}


def test_a_relation_without_training_triples_is_one_to_one():
    graph = Graph.from_names([("a", "r", "b")], test=[("a", "s", "b")])
    assert relation_categories(graph).tolist() == ["1-1", "1-1"]


# --- samples ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranked():
    """The evaluation of a complete split, its graph and the scorer."""
    rng = np.random.default_rng(1)
    rows = np.unique(rng.integers(60, size=(4000, 3)) % (60, 4, 60), axis=0).astype(np.int32)
    rng.shuffle(rows)
    names = Vocabulary([f"e{i}" for i in range(60)]), Vocabulary([f"r{i}" for i in range(4)], "relation")
    graph = Graph(*names, train=rows[1500:], valid=rows[:0], test=rows[:1500])
    scorer = EmbeddingScorer(build_model("distmult", 60, 4, dimension=8, seed=2))
    return Evaluator(graph)(scorer), graph, scorer


def test_the_mrr_of_95_percent_of_samples_is_within_two_standard_errors_of_that_of_all_triples(ranked):
    complete, graph, scorer = ranked
    inside = 0
    for seed in range(200):
        found = Evaluator(graph, sample=150, seed=seed)(scorer)
        error = found.standard_errors()["mrr"]
        assert abs(found.mrr - complete.mrr) < 5 * error
        inside += abs(found.mrr - complete.mrr) < 1.96 * error
    assert 180 <= inside <= 198  # 190 expected, give or take 3


def test_a_standard_error_is_over_triples_not_over_ranks(ranked):
    _, graph, scorer = ranked
    found = Evaluator(graph, sample=400)(scorer)
    means = (1 / found.ranks["head"].realistic + 1 / found.ranks["tail"].realistic) / 2
    expected = means.std(ddof=1) / 20 * np.sqrt(1 - 400 / 1500)
    assert found.standard_errors()["mrr"] == pytest.approx(expected)
    assert found.to_dict()["standard_error"] == found.standard_errors()
    assert found.to_dict()["drawn_from"] == 1500 and found.to_dict()["triples"] == 400
    assert "400 triples of 1500" in repr(found) and " ± " in repr(found)


def test_sampled_triples_keep_their_ranks(ranked):
    complete, graph, scorer = ranked
    found = Evaluator(graph, sample=300, seed=3)(scorer)
    place = {tuple(triple): i for i, triple in enumerate(complete.triples.tolist())}
    rows = [place[tuple(triple)] for triple in found.triples.tolist()]
    assert len(set(rows)) == 300
    for side in ("head", "tail"):
        assert np.array_equal(found.ranks[side].realistic, complete.ranks[side].realistic[rows])


def test_the_seed_decides_the_sample(ranked):
    _, graph, _ = ranked
    one, again, other = (Evaluator(graph, sample=50, seed=seed).triples for seed in (1, 1, 2))
    assert np.array_equal(one, again) and not np.array_equal(one, other)


@pytest.mark.parametrize("sample", [0, 1500, 9999])
def test_a_sample_of_all_triples_is_a_complete_evaluation(ranked, sample):
    complete, graph, scorer = ranked
    found = Evaluator(graph, sample=sample)(scorer)
    assert found.to_dict() == complete.to_dict() and "standard_error" not in found.to_dict()


@pytest.mark.parametrize("sample", [-1, 2.5, True])
def test_an_invalid_sample_size_raises_an_error(ranked, sample):
    with pytest.raises(DihedralError, match=f"sample is {sample}; give the number of triples to rank, or 0 for all"):
        Evaluator(ranked[1], sample=sample)
