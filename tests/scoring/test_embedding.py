"""The scorer against dense matrices, tables of all scores and sorting."""

from __future__ import annotations

import itertools
import os
from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError, DihedralGroup
from dihedral.graph import GraphIndex
from dihedral.graph.steps import SIDES
from dihedral.models import MODELS, Model, build_model
from dihedral.models.dihedral import CodeRelations
from dihedral.scoring import embedding
from dihedral.scoring.embedding import EmbeddingScorer, score_all
from dihedral.scoring.scorer import best_answers, count_ranks

ENTITIES, RELATIONS, COMPONENTS = 11, 3, 4
EVERY_QUESTION = torch.tensor(list(itertools.product(range(ENTITIES), range(2 * RELATIONS)))).T
NO_ANSWERS = torch.empty(0, dtype=torch.long)


@pytest.fixture(scope="module", params=MODELS)
def any_scorer(request) -> EmbeddingScorer:
    """A model of each kind with random parameters."""
    return EmbeddingScorer(build_model(request.param, ENTITIES, RELATIONS, dimension=8, entity_init=1.0, seed=4))


@pytest.fixture(scope="module")
def integer_scorer() -> EmbeddingScorer:
    """A D4 model whose scores are small integers: they are exact, and many are equal."""
    rng = np.random.default_rng(0)
    entities = torch.from_numpy(rng.integers(-1, 2, (ENTITIES, 2 * COMPONENTS))).float()
    codes = torch.from_numpy(rng.integers(0, 8, (RELATIONS, COMPONENTS)))
    return EmbeddingScorer(Model(entities, CodeRelations(codes, 4)))


def score_table(scorer: EmbeddingScorer) -> torch.Tensor:
    """φ of all triples: [N, R, N]."""
    sizes = scorer.num_entities, scorer.num_relations, scorer.num_entities
    return scorer.score(torch.cartesian_prod(*map(torch.arange, sizes))).view(sizes)


def all_scores(scorer: EmbeddingScorer, entities: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """The scores [n, N] of all answers to questions, from the table of all triples."""
    table = score_table(scorer)
    rows = [
        table[entity, step] if step < RELATIONS else table[:, step - RELATIONS, entity]
        for entity, step in zip(entities.tolist(), steps.tolist(), strict=True)
    ]
    return torch.stack(rows)


def dense_matrices(scorer: EmbeddingScorer) -> torch.Tensor:
    """The matrix [2L, 2L] of each relation of a DihEdral model, from the matrices of its group elements."""
    codes = scorer.model.codes
    blocks = torch.from_numpy(DihedralGroup(4).matrices[codes.numpy()]).float()  # [R, L, 2, 2]
    dense = torch.zeros(len(codes), 2 * COMPONENTS, 2 * COMPONENTS)
    for relation, component in itertools.product(range(len(codes)), range(COMPONENTS)):
        places = torch.tensor([component, COMPONENTS + component])
        dense[relation, places[:, None], places] = blocks[relation, component]
    return dense


# --- scores and queries --------------------------------------------------------------------------


def test_scores_are_the_products_of_dense_matrices(integer_scorer):
    x = integer_scorer.entities
    expected = torch.einsum("hi,rij,tj->hrt", x, dense_matrices(integer_scorer), x)
    assert torch.equal(score_table(integer_scorer), expected)


def test_scores_do_not_depend_on_the_chunks(any_scorer, monkeypatch):
    expected = score_table(any_scorer)
    monkeypatch.setattr(embedding, "CHUNK", 5)
    torch.testing.assert_close(score_table(any_scorer), expected)
    assert any_scorer.score(torch.empty(0, 3, dtype=torch.long)).tolist() == []


def test_queries_of_mixed_directions_equal_those_of_one_direction_at_a_time(any_scorer):
    entities, steps = EVERY_QUESTION
    mixed = any_scorer.queries(entities, steps)
    for backwards in (False, True):
        here = (steps >= RELATIONS) == backwards
        alone = any_scorer.queries(entities[here], steps[here])
        torch.testing.assert_close(mixed[here], alone, rtol=1e-6, atol=1e-6)


def test_queries_times_candidates_are_scores_of_triples(any_scorer):
    found = any_scorer.queries(*EVERY_QUESTION) @ any_scorer.candidates.T
    torch.testing.assert_close(found, all_scores(any_scorer, *EVERY_QUESTION), rtol=1e-4, atol=1e-5)


# --- walks ---------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 2 * RELATIONS - 1), min_size=1, max_size=5))
def test_a_walk_is_the_product_of_the_matrices_of_its_steps(integer_scorer, path):
    dense = dense_matrices(integer_scorer)
    product = torch.eye(2 * COMPONENTS)
    walked = integer_scorer.entities
    for step in path:
        product = product @ (dense[step] if step < RELATIONS else dense[step - RELATIONS].T)
        walked = integer_scorer.queries_from(walked, torch.full((ENTITIES,), step))
    assert torch.equal(walked, integer_scorer.entities @ product)


def test_a_step_and_its_inverse_lead_back(integer_scorer):
    x = integer_scorer.entities
    for relation in range(RELATIONS):
        there = integer_scorer.queries_from(x, torch.full((ENTITIES,), relation))
        assert torch.equal(integer_scorer.queries_from(there, torch.full((ENTITIES,), RELATIONS + relation)), x)


# --- the best answers ----------------------------------------------------------------------------


def known_facts() -> GraphIndex:
    rng = np.random.default_rng(3)
    rows = rng.integers(0, [ENTITIES, RELATIONS, ENTITIES], (60, 3)).astype(np.int32)
    return GraphIndex.build([rows], ENTITIES, RELATIONS)


@pytest.mark.parametrize("tile", [3, 512])
def test_the_best_answers_equal_sorting_all_scores(any_scorer, monkeypatch, tile):
    monkeypatch.setattr(embedding, "CPU_QUESTIONS", tile)
    for excluded, limited in itertools.product((False, True), repeat=2):
        check_best_answers(any_scorer, excluded=excluded, limited=limited)


def check_best_answers(any_scorer, *, excluded: bool, limited: bool) -> None:
    index = known_facts()
    allowed = torch.arange(ENTITIES) % 3 > 0
    expected = all_scores(any_scorer, *EVERY_QUESTION)
    if excluded:
        expected[index.answers(*EVERY_QUESTION)] = float("-inf")
    if limited:
        expected[:, ~allowed] = float("-inf")
    options = {"exclude": index.answers if excluded else None, "allowed": allowed if limited else None}
    for count in (1, 4, ENTITIES, 10**6):
        ids, scores = any_scorer.top(*EVERY_QUESTION, count, **options)
        best = expected.sort(dim=1, descending=True).values[:, :count]
        torch.testing.assert_close(scores, best, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(expected.gather(1, ids), best, rtol=1e-4, atol=1e-5)
        assert all(len(set(row)) == len(row) for row in ids.tolist()), "each entity is named once"


def test_no_questions_have_no_answers(integer_scorer):
    ids, scores = integer_scorer.top(NO_ANSWERS, NO_ANSWERS, 4)
    assert ids.shape == scores.shape == (0, 4)
    assert ids.dtype == torch.int64 and scores.dtype == torch.float32


def test_invalid_numbers_are_named_in_the_error(integer_scorer):
    with pytest.raises(DihedralError, match="count is 0; ask for at least 1 answer"):
        integer_scorer.top(*EVERY_QUESTION, 0)
    with pytest.raises(DihedralError, match="memory_mb is 0; scores need at least 1 MiB"):
        integer_scorer.top(*EVERY_QUESTION, 4, memory_mb=0)


@pytest.mark.parametrize("size", [1, 63, 640, 5000, 5003])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_best_of_blocks_equal_topk(size, transposed):
    scores = torch.randn(7, size, generator=torch.Generator().manual_seed(size))
    if transposed:
        scores = scores.T.contiguous().T
    expected = scores.topk(min(10, size))
    ids, values = best_answers(scores, min(10, size))
    assert torch.equal(ids, expected.indices) and torch.equal(values, expected.values)


@pytest.mark.parametrize("questions", [1, 2, 9])
@pytest.mark.parametrize("candidates", [1, 2047, 2048, 4100])
def test_scores_in_blocks_equal_one_product(questions, candidates):
    generator = torch.Generator().manual_seed(candidates)
    queries = torch.randint(-3, 4, (questions, 6), generator=generator).float()  # integers: exact in any order
    table = torch.randint(-3, 4, (candidates, 6), generator=generator).float()
    scratch = torch.empty(9 * candidates)
    score_all(torch.ones(9, 6), table, scratch)  # leaves other scores in scratch memory
    assert torch.equal(score_all(queries, table, scratch), queries @ table.T)


# --- ranks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("tile", [1, 4, 512])
def test_counts_of_greater_and_equal_candidates_equal_brute_force(integer_scorer, monkeypatch, side, tile):
    monkeypatch.setattr(embedding, "CPU_QUESTIONS", tile)
    index = known_facts()
    facts = np.stack(index.facts(), axis=1).tolist()
    triples = facts[::2] * 2  # equal questions and equal triples
    table = score_table(integer_scorer)
    greater, equal = integer_scorer.rank_counts(torch.tensor(triples), side, index.answers)
    for place, (head, relation, tail) in enumerate(triples):
        others = [
            float(table[head, relation, e] if side == "tail" else table[e, relation, tail])
            for e in range(ENTITIES)
            if ([head, relation, e] if side == "tail" else [e, relation, tail]) not in facts
        ]
        own = float(table[head, relation, tail])
        assert int(greater[place]) == sum(score > own for score in others)
        assert int(equal[place]) == sum(score == own for score in others)
    assert equal.sum() > len(triples) / 2, "there are many ties"


def rank_one(scores: list[float], target: int, known: list[int]) -> tuple[int, int]:
    rows = torch.zeros(len(known), dtype=torch.long)
    greater, equal = count_ranks(torch.tensor([scores]), torch.tensor([target]), rows, torch.tensor(known))
    return int(greater), int(equal)


def test_greater_and_equal_candidates_are_counted():
    assert rank_one([3.0, 2.0, 2.0, 1.0, 2.0, 5.0], target=2, known=[2]) == (2, 2)


def test_other_known_answers_are_left_out():
    assert rank_one([3.0, 2.0, 2.0, 1.0, 2.0, 5.0], target=2, known=[0, 1, 2]) == (1, 1)


def test_known_answers_with_lower_scores_change_nothing():
    assert rank_one([3.0, 2.0, 1.0], target=1, known=[1, 2]) == (1, 0)


@pytest.mark.parametrize("plain", [False, True])
def test_counts_do_not_depend_on_memory_layout_or_compiled_code(plain):
    generator = torch.Generator().manual_seed(1)
    scores = torch.randint(5, (50, 300), generator=generator).float()  # many ties
    targets = torch.randint(300, (50,), generator=generator)
    with patch.dict(os.environ, DIHEDRAL_COMPILED="0") if plain else nullcontext():
        rows = count_ranks(scores, targets, NO_ANSWERS, NO_ANSWERS)
        columns = count_ranks(scores.T.contiguous().T, targets, NO_ANSWERS, NO_ANSWERS)
    true = scores.gather(1, targets[:, None])
    for found in (rows, columns):
        assert torch.equal(found[0], (scores > true).sum(1)) and torch.equal(found[1], (scores == true).sum(1))
