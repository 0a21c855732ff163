"""Filtered ranks against PyKEEN's evaluator, `dihedral.reference` and brute force in numpy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dihedral import DihedralError, Evaluator, Graph, make_family, reference
from dihedral.evaluation import Ranks, rank_triples, summarise
from dihedral.graph import GraphIndex
from dihedral.graph.steps import SIDES, anchors_and_targets, question_steps
from dihedral.models import Model, build_model
from dihedral.models.dihedral import CodeRelations
from dihedral.scoring.embedding import EmbeddingScorer
from dihedral.scoring.scorer import count_ranks


def rank(model: Model, graph: Graph, side: str, triples: np.ndarray | None = None, **options: int) -> Ranks:
    triples = graph.test if triples is None else triples
    return rank_triples(EmbeddingScorer(model), torch.from_numpy(triples), side, graph.index.answers, **options)


def integer_model(graph: Graph, components: int = 3) -> Model:
    """A D4 model whose entity coordinates are -1, 0 or 1: scores are small integers with many exact ties."""
    rng = np.random.default_rng(0)
    entities = torch.from_numpy(rng.integers(-1, 2, (graph.num_entities, 2 * components))).float()
    codes = torch.from_numpy(rng.integers(0, 8, (graph.num_relations, components)))
    return Model(entities, CodeRelations(codes, 4))


def dense_scores(model: Model, triples: np.ndarray, side: str) -> np.ndarray:
    """hᵀRt of all candidates on one side, in float64 by the reference: [n, N]."""
    entities, relations = model.entities.detach().double(), reference.dihedral_group(4)[model.codes.long()]
    relations = torch.where(relations.abs() < 1e-15, 0.0, relations)  # exact ties stay exact
    scores = []
    for head, relation, tail in triples.tolist():
        h, t = (entities[head], entities) if side == "tail" else (entities, entities[tail])
        scores.append(reference.score(h, relations[relation], t).numpy())
    return np.stack(scores)


def brute_force(scores: np.ndarray, triples: np.ndarray, known: np.ndarray, side: str) -> tuple[list[int], list[int]]:
    """Counts of greater and equal candidates that are not known answers, one triple at a time."""
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


def test_a_realistic_rank_is_the_middle_of_the_ties():
    ranks = Ranks(np.array([2, 0, 0]), np.array([2, 0, 1]))
    assert ranks.optimistic.tolist() == [3, 1, 1]
    assert ranks.realistic.tolist() == [4, 1, 1.5]
    assert ranks.pessimistic.tolist() == [5, 1, 2]


def test_ranks_are_selected_and_joined():
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
    """PyKEEN's filter and ranks applied to the same scores."""
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
def test_metrics_equal_those_of_pykeen_on_the_same_scores(pykeen, levels):
    rng = np.random.default_rng(levels)
    entities, relations = 40, 3
    known = rng.integers(0, [entities, relations, entities], (500, 3)).astype(np.int32)
    triples = np.unique(known, axis=0)[::2]
    scores = {
        side: torch.from_numpy(rng.integers(0, levels, (len(triples), entities))).float() / levels for side in SIDES
    }
    index = GraphIndex.build([known], entities, relations)
    ranks = {}
    for side in SIDES:
        anchors, relation, targets = anchors_and_targets(torch.from_numpy(triples).long(), side)
        answers = index.answers(anchors, question_steps(relation, side, relations))
        greater, equal = count_ranks(scores[side].clone(), targets, *answers)
        ranks[side] = Ranks(greater.numpy(), equal.numpy())
    ranks["both"] = Ranks.join([ranks[side] for side in SIDES])
    for (side, ties), expected in pykeen_metrics(pykeen, scores, triples, known).items():
        assert summarise(ranks[side], ties) == pytest.approx(expected, rel=1e-6, abs=1e-6), (side, ties)


def test_an_evaluation_with_many_ties_equals_that_of_pykeen(pykeen, family):
    model = integer_model(family)
    scores = {side: torch.from_numpy(dense_scores(model, family.test, side)) for side in SIDES}
    found = Evaluator(family, "test")(EmbeddingScorer(model))
    assert found.both.equal.mean() > 1, "there are many ties"
    report = found.to_dict()
    expected = pykeen_metrics(pykeen, scores, family.test, family.known)
    for key in ("head", "tail", "both"):
        assert report[key] == pytest.approx(expected[key, "realistic"], rel=1e-6, abs=1e-6), key
    for ties in ("optimistic", "pessimistic"):
        assert report[ties] == pytest.approx(expected["both", ties], rel=1e-6, abs=1e-6), ties


# --- brute force ---------------------------------------------------------------------------------


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["dihedral-ste", "dihedral-gumbel"])
def test_ranks_of_umls_equal_brute_force(benchmark_graph, name, side):
    graph = benchmark_graph("umls")
    model = build_model(name, graph.num_entities, graph.num_relations, dimension=20)
    found = rank(model, graph, side)
    greater, equal = brute_force(dense_scores(model, graph.test, side), graph.test, graph.known, side)
    assert found.greater.tolist() == greater
    assert found.equal.tolist() == equal


@pytest.mark.parametrize("side", SIDES)
def test_exact_ties_of_umls_equal_brute_force(benchmark_graph, side):
    graph = benchmark_graph("umls")
    model = integer_model(graph)
    found = rank(model, graph, side)
    greater, equal = brute_force(dense_scores(model, graph.test, side), graph.test, graph.known, side)
    assert found.equal.sum() > len(graph.test)
    assert found.greater.tolist() == greater
    assert found.equal.tolist() == equal


@pytest.mark.parametrize("side", SIDES)
def test_ranks_are_the_filtered_ranks_of_the_reference(family, side):
    model, asked = integer_model(family), family.test[:40]
    scores, known = torch.from_numpy(dense_scores(model, asked, side)), torch.from_numpy(family.known).long()
    blank, given = (2, 0) if side == "tail" else (0, 2)
    expected = []
    for row, triple in zip(scores, torch.from_numpy(asked).long(), strict=True):
        same = (known[:, 1] == triple[1]) & (known[:, given] == triple[given])
        expected.append(reference.filtered_rank(row, int(triple[blank]), known[same, blank]))
    assert rank(model, family, side, asked).realistic.tolist() == expected


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["complex", "hole", "rescal", "transe", "orthogonal"])
def test_ranks_of_all_kinds_of_models_equal_brute_force(family, name, side):
    model = build_model(name, family.num_entities, family.num_relations, dimension=8, entity_init=1.0)
    every = torch.cartesian_prod(*map(torch.arange, (family.num_entities, family.num_relations, family.num_entities)))
    table = (
        EmbeddingScorer(model)
        .score(every)
        .reshape(family.num_entities, family.num_relations, family.num_entities)
        .numpy()
    )
    head, relation, tail = family.test.T
    scores = table[head, relation] if side == "tail" else table[:, relation, tail].T
    found = rank(model, family, side)
    greater, equal = brute_force(scores, family.test, family.known, side)
    assert found.greater.tolist() == greater
    assert found.equal.tolist() == equal


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("integers", [False, True])
def test_ranks_do_not_depend_on_the_memory_limit(side, integers):
    graph = make_family(1200)
    model = integer_model(graph) if integers else build_model("dihedral-ste", 1200, 6, dimension=20)
    small, large = (rank(model, graph, side, graph.known[-800:], memory_mb=memory) for memory in (1, 512))
    assert small.greater.tolist() == large.greater.tolist()
    assert small.equal.tolist() == large.equal.tolist()


@pytest.mark.parametrize("name", ["dihedral-ste", "hole"])
def test_no_triples_have_no_ranks(family, name):
    model = build_model(name, family.num_entities, family.num_relations, dimension=4)
    found = rank(model, family, "tail", family.test[:0])
    assert len(found.greater) == len(found.equal) == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("where", ["entities", "relations.weights"])
def test_a_model_with_parameters_that_are_not_finite_cannot_be_ranked(family, where, value):
    model = build_model("complex", family.num_entities, family.num_relations, dimension=4)
    with torch.no_grad():
        model.get_parameter(where).view(-1)[-1] = value
    with pytest.raises(DihedralError, match="not finite"):
        rank(model, family, "tail")


@pytest.mark.parametrize("side", SIDES)
def test_a_model_whose_scores_overflow_cannot_be_ranked(family, side):
    model = build_model("dihedral-ste", family.num_entities, family.num_relations, dimension=4, entity_init=1e25)
    with pytest.raises(DihedralError, match="not finite"):
        rank(model, family, side)
