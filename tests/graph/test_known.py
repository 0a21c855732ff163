"""The index of known answers against a dictionary of sets."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dihedral.graph import KnownAnswers
from dihedral.graph.known import anchors_and_targets
from dihedral.graph.steps import SIDES

ENTITIES, RELATIONS = 9, 3
triple = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))


def dictionary(triples, side):
    known = defaultdict(set)
    for head, relation, tail in triples:
        anchor, answer = (head, tail) if side == "tail" else (tail, head)
        known[anchor, relation].add(answer)
    return known


def ask(index, questions):
    """The answers to each question, as the index gives them."""
    questions = torch.tensor(questions).reshape(-1, 2)
    rows, answers = index.of(questions[:, 0], questions[:, 1])
    found = [[] for _ in range(len(questions))]
    for row, answer in zip(rows.tolist(), answers.tolist(), strict=True):
        found[row].append(answer)
    return found


@pytest.mark.parametrize("side", SIDES)
@given(triples=st.lists(triple, max_size=80), order=st.randoms(use_true_random=False))
def test_answers_equal_a_dictionary_of_sets(side, triples, order):
    index = KnownAnswers.build(np.array(triples, np.int32).reshape(-1, 3), side, RELATIONS, ENTITIES)
    questions = [(entity, relation) for entity in range(ENTITIES) for relation in range(RELATIONS)] * 2
    order.shuffle(questions)
    known = dictionary(triples, side)
    assert ask(index, questions) == [sorted(known[question]) for question in questions]


@pytest.mark.parametrize("side", SIDES)
def test_answers_equal_a_dictionary_of_sets_on_umls(benchmark_graph, side):
    graph = benchmark_graph("umls")
    index = KnownAnswers.build(graph.known, side, graph.num_relations, graph.num_entities)
    known = dictionary(graph.known.tolist(), side)
    questions = [(e, r) for e in range(graph.num_entities) for r in range(graph.num_relations)]
    assert ask(index, questions) == [sorted(known[question]) for question in questions]


def test_an_index_of_nothing_knows_nothing():
    index = KnownAnswers.build(np.empty((0, 3), np.int32), "tail", RELATIONS, ENTITIES)
    assert ask(index, [(0, 0), (8, 2)]) == [[], []]


def test_no_questions_have_no_answers():
    index = KnownAnswers.build(np.array([[0, 0, 1]], np.int32), "tail", RELATIONS, ENTITIES)
    assert ask(index, []) == []


def test_the_side_decides_what_is_given_and_what_is_asked():
    triples = torch.tensor([[1, 0, 2], [3, 1, 4]])
    assert [part.tolist() for part in anchors_and_targets(triples, "tail")] == [[1, 3], [0, 1], [2, 4]]
    assert [part.tolist() for part in anchors_and_targets(triples, "head")] == [[2, 4], [0, 1], [1, 3]]


@pytest.mark.parametrize("side", ["head", "tail"])
def test_questions_and_answers_beyond_64_bits_together_are_indexed_all_the_same(side):
    last = 2**31 - 2
    triples = np.array([(last, last, 0), (last, last, last), (last, last, 0), (0, 1, last), (last, 0, 5)], np.int32)
    known = KnownAnswers.build(triples, side, 2**31 - 1, 2**31 - 1)
    head, relation, tail = torch.from_numpy(triples).unbind(1)
    anchor, answer = (head, tail) if side == "tail" else (tail, head)
    for i in range(len(triples)):
        _, found = known.of(anchor[i : i + 1], relation[i : i + 1])
        same = (anchor == anchor[i]) & (relation == relation[i])
        assert found.tolist() == sorted(set(answer[same].tolist()))
