"""Filtered ranks against PyKEEN's evaluator, brute force in numpy and small examples by hand."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dihedral import DihedralError, DihedralGroup, Evaluator, Graph, make_family
from dihedral.engine import compiled
from dihedral.evaluation import Ranks, rank_triples, summarise
from dihedral.evaluation.ranking import best_answers, ranks_from_scores
from dihedral.graph import KnownAnswers
from dihedral.graph.known import anchors_and_targets
from dihedral.graph.steps import SIDES
from dihedral.models import Model, build_model
from dihedral.models.dihedral import CodeRelations


def known_answers(graph: Graph, side: str) -> KnownAnswers:
    return KnownAnswers.build(graph.known, side, graph.num_relations, graph.num_entities)


def whole_numbered_model(graph: Graph, components: int = 3) -> Model:
    """A D4 model whose entities are -1, 0 or 1 everywhere: scores are small whole numbers, so ties abound."""
    rng = np.random.default_rng(0)
    entities = torch.from_numpy(rng.integers(-1, 2, (graph.num_entities, 2 * components))).float()
    codes = torch.from_numpy(rng.integers(0, 8, (graph.num_relations, components)))
    return Model(entities, CodeRelations(codes, 4))


def dense_scores(model: Model, triples: np.ndarray, side: str) -> np.ndarray:
    """hᵀ R t of every candidate for the asked side, in float64 by the group's own action: [n, N]."""
    group = DihedralGroup(model.relations.K)
    entities, codes = model.entities.detach().double().numpy(), model.codes.numpy()
    scores = np.empty((len(triples), len(entities)))
    for i, (head, relation, tail) in enumerate(triples):
        turned = group.act(codes[relation], entities)  # R t for every t
        scores[i] = turned @ entities[head] if side == "tail" else entities @ turned[tail]
    return scores


def brute_force(scores: np.ndarray, triples: np.ndarray, known: np.ndarray, side: str) -> tuple[list[int], list[int]]:
    """Counts of greater and of equal candidates that are not known answers, one triple at a time."""
    facts = set(map(tuple, known.tolist()))
    greater, equal = [], []
    for row, (head, relation, tail) in zip(scores, triples.tolist(), strict=True):
        answer = tail if side == "tail" else head
        others = [
            candidate
            for candidate in range(len(row))
            if candidate != answer
            and ((head, relation, candidate) if side == "tail" else (candidate, relation, tail)) not in facts
        ]
        greater.append(int((row[others] > row[answer]).sum()))
        equal.append(int((row[others] == row[answer]).sum()))
    return greater, equal


# --- by hand -------------------------------------------------------------------------------------


def rank_one(scores: list[float], target: int, known: list[int]) -> tuple[int, int]:
    rows = torch.zeros(len(known), dtype=torch.long)
    greater, equal = ranks_from_scores(torch.tensor([scores]), torch.tensor([target]), rows, torch.tensor(known))
    return int(greater), int(equal)


def test_greater_and_equal_candidates_are_counted():
    assert rank_one([3.0, 2.0, 2.0, 1.0, 2.0, 5.0], target=2, known=[2]) == (2, 2)


def test_other_known_answers_are_left_out():
    assert rank_one([3.0, 2.0, 2.0, 1.0, 2.0, 5.0], target=2, known=[0, 1, 2]) == (1, 1)


def test_known_answers_that_score_lower_change_nothing():
    assert rank_one([3.0, 2.0, 1.0], target=1, known=[1, 2]) == (1, 0)


def test_a_realistic_rank_is_the_middle_of_the_ties():
    ranks = Ranks(np.array([2, 0, 0]), np.array([2, 0, 1]))
    assert ranks.optimistic.tolist() == [3, 1, 1]
    assert ranks.realistic.tolist() == [4, 1, 1.5]
    assert ranks.pessimistic.tolist() == [5, 1, 2]


def test_ranks_are_chosen_and_joined():
    ranks = Ranks(np.array([2, 0, 7]), np.array([1, 0, 3]))
    joined = Ranks.join([ranks[np.array([True, False, True])], ranks])
    assert joined.greater.tolist() == [2, 7, 2, 0, 7]
    assert joined.equal.tolist() == [1, 3, 1, 0, 3]


# --- PyKEEN --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pykeen() -> SimpleNamespace:
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.evaluation import evaluator as filters

    return SimpleNamespace(RankBasedEvaluator=RankBasedEvaluator, filters=filters)


def pykeen_metrics(pykeen, scores: dict[str, torch.Tensor], triples: np.ndarray, known: np.ndarray) -> dict:
    """PyKEEN's own filter and its own ranks of the same scores."""
    evaluator = pykeen.RankBasedEvaluator()
    batch, facts = torch.from_numpy(triples).long(), torch.from_numpy(known).long().unique(dim=0)
    for side, column in (("head", 0), ("tail", 2)):
        true = scores[side].gather(1, batch[:, column, None])
        positives, _ = pykeen.filters.create_sparse_positive_filter_(batch, facts, filter_col=column)
        filtered = pykeen.filters.filter_scores_(scores[side].clone(), positives)
        filtered.scatter_(1, batch[:, column, None], true)
        evaluator.process_scores_(hrt_batch=batch, target=side, scores=filtered, true_scores=true)
    results = evaluator.finalize()
    names = {
        "mrr": "inverse_harmonic_mean_rank",
        "hits@1": "hits@1",
        "hits@3": "hits@3",
        "hits@10": "hits@10",
        "mr": "arithmetic_mean_rank",
    }
    return {
        (side, ties): {ours: results.get_metric(f"{side}.{ties}.{theirs}") for ours, theirs in names.items()}
        for side in ("head", "tail", "both")
        for ties in ("optimistic", "realistic", "pessimistic")
    }


@pytest.mark.parametrize("levels", [2, 5, 10**6], ids=["all ties", "many ties", "few ties"])
def test_metrics_are_those_of_pykeen_on_the_same_scores(pykeen, levels):
    rng = np.random.default_rng(levels)
    entities, relations = 40, 3
    known = rng.integers(0, [entities, relations, entities], (500, 3)).astype(np.int32)
    triples = np.unique(known, axis=0)[::2]
    scores = {
        side: torch.from_numpy(rng.integers(0, levels, (len(triples), entities))).float() / levels for side in SIDES
    }
    ranks = {}
    for side in SIDES:
        anchors, relation, targets = anchors_and_targets(torch.from_numpy(triples).long(), side)
        answers = KnownAnswers.build(known, side, relations, entities).of(anchors, relation)
        greater, equal = ranks_from_scores(scores[side], targets, *answers)
        ranks[side] = Ranks(greater.numpy(), equal.numpy())
    ranks["both"] = Ranks.join([ranks[side] for side in SIDES])
    for (side, ties), expected in pykeen_metrics(pykeen, scores, triples, known).items():
        assert summarise(ranks[side], ties) == pytest.approx(expected, rel=1e-6, abs=1e-6), (side, ties)


def test_an_evaluation_is_that_of_pykeen_where_many_scores_tie(pykeen, family):
    model = whole_numbered_model(family)
    scores = {side: torch.from_numpy(dense_scores(model, family.test, side)) for side in SIDES}
    found = Evaluator(family, "test")(model)
    assert found.both.equal.mean() > 1, "ties abound"
    report = found.to_dict()
    expected = pykeen_metrics(pykeen, scores, family.test, family.known)
    for key in ("head", "tail", "both"):
        assert report[key] == pytest.approx(expected[key, "realistic"], rel=1e-6, abs=1e-6), key
    for ties in ("optimistic", "pessimistic"):
        assert report[ties] == pytest.approx(expected["both", ties], rel=1e-6, abs=1e-6), ties


# --- brute force ---------------------------------------------------------------------------------


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["dihedral-ste", "dihedral-gumbel"])
def test_ranks_of_umls_are_those_of_brute_force(benchmark_graph, name, side):
    graph = benchmark_graph("umls")
    model = build_model(name, graph.num_entities, graph.num_relations, dimension=20)
    found = rank_triples(model, torch.from_numpy(graph.test), side, known_answers(graph, side))
    greater, equal = brute_force(dense_scores(model, graph.test, side), graph.test, graph.known, side)
    assert found.greater.tolist() == greater
    assert found.equal.tolist() == equal


@pytest.mark.parametrize("side", SIDES)
def test_exact_ties_of_umls_are_those_of_brute_force(benchmark_graph, side):
    graph = benchmark_graph("umls")
    model = whole_numbered_model(graph)
    found = rank_triples(model, torch.from_numpy(graph.test), side, known_answers(graph, side))
    greater, equal = brute_force(dense_scores(model, graph.test, side), graph.test, graph.known, side)
    assert found.equal.sum() > len(graph.test)
    assert found.greater.tolist() == greater
    assert found.equal.tolist() == equal


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["complex", "hole", "rescal", "transe", "orthogonal"])
def test_ranks_of_every_kind_of_model_are_those_of_brute_force(family, name, side):
    model = build_model(name, family.num_entities, family.num_relations, dimension=8, entity_init=1.0)
    every = torch.cartesian_prod(*map(torch.arange, (family.num_entities, family.num_relations, family.num_entities)))
    table = model.score(every).reshape(family.num_entities, family.num_relations, family.num_entities).numpy()
    head, relation, tail = family.test.T
    scores = table[head, relation] if side == "tail" else table[:, relation, tail].T
    found = rank_triples(model, torch.from_numpy(family.test), side, known_answers(family, side))
    greater, equal = brute_force(scores, family.test, family.known, side)
    assert found.greater.tolist() == greater
    assert found.equal.tolist() == equal


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("whole_numbered", [False, True])
def test_ranks_do_not_depend_on_the_memory_they_may_use(side, whole_numbered):
    graph = make_family(1200)
    model = whole_numbered_model(graph) if whole_numbered else build_model("dihedral-ste", 1200, 6, dimension=20)
    triples, known = torch.from_numpy(graph.known[-800:]), known_answers(graph, side)
    small, large = (rank_triples(model, triples, side, known, memory_mb=memory) for memory in (1, 512))
    assert small.greater.tolist() == large.greater.tolist()
    assert small.equal.tolist() == large.equal.tolist()


def test_no_triples_have_no_ranks(family):
    model = build_model("dihedral-ste", family.num_entities, family.num_relations, dimension=4)
    found = rank_triples(model, torch.empty(0, 3, dtype=torch.long), "tail", known_answers(family, "tail"))
    assert len(found.greater) == len(found.equal) == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("where", ["entities", "relations.weights"])
def test_a_model_with_numbers_that_are_not_finite_is_refused(family, where, value):
    model = build_model("complex", family.num_entities, family.num_relations, dimension=4)
    with torch.no_grad():
        model.get_parameter(where).view(-1)[-1] = value
    with pytest.raises(DihedralError, match="not finite"):
        rank_triples(model, torch.from_numpy(family.test), "tail", known_answers(family, "tail"))


@pytest.mark.parametrize("side", SIDES)
def test_a_model_whose_scores_overflow_is_refused(family, side):
    model = build_model("dihedral-ste", family.num_entities, family.num_relations, dimension=4, entity_init=1e25)
    with pytest.raises(DihedralError, match="not finite"):
        rank_triples(model, torch.from_numpy(family.test), side, known_answers(family, side))


@pytest.mark.parametrize("size", [1, 63, 640, 5000, 5003])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_best_answers_are_torchs_topk(size, transposed):
    scores = torch.randn(7, size, generator=torch.Generator().manual_seed(size))
    if transposed:
        scores = scores.T.contiguous().T
    wanted = scores.topk(min(10, size))
    ids, values = best_answers(scores, min(10, size))
    assert torch.equal(ids, wanted.indices) and torch.equal(values, wanted.values)


@pytest.mark.parametrize("plain", [False, True])
def test_scores_in_either_layout_and_by_either_path_count_the_same(plain):
    generator = torch.Generator().manual_seed(1)
    scores = torch.randint(5, (50, 300), generator=generator).float()  # many ties
    targets = torch.randint(300, (50,), generator=generator)
    none = torch.empty(0, dtype=torch.long)
    with compiled.disabled() if plain else nullcontext():
        rows = ranks_from_scores(scores, targets, none, none)
        columns = ranks_from_scores(scores.T.contiguous().T, targets, none, none)
    true = scores.gather(1, targets[:, None])
    for found in (rows, columns):
        assert torch.equal(found[0], (scores > true).sum(1)) and torch.equal(found[1], (scores == true).sum(1))
