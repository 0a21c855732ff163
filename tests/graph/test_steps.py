"""Signed steps: ids, names and inverses, and questions as steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError
from dihedral.graph import Vocabulary
from dihedral.graph.steps import SIDES, Step, anchors_and_targets, inverse_ids, parse_steps, question_steps

RELATIONS = Vocabulary(["parent", "child", "~odd", "odd·", "", "~"], "relation")
COUNT = len(RELATIONS)


@given(st.integers(0, COUNT - 1), st.booleans())
def test_ids_are_r_forwards_and_r_plus_the_number_of_relations_backwards(relation, backwards):
    assert Step.from_id(relation + COUNT if backwards else relation, COUNT) == Step(relation, backwards)


@pytest.mark.parametrize("numbers", [np.arange, torch.arange])
def test_inverse_ids_are_the_ids_of_inverse_steps(numbers):
    expected = [*range(COUNT, 2 * COUNT), *range(COUNT)]
    assert inverse_ids(numbers(2 * COUNT), COUNT).tolist() == expected
    assert [inverse_ids(step, COUNT) for step in range(2 * COUNT)] == expected


@given(st.integers(0, 2 * COUNT - 1))
def test_parsing_a_name_gives_the_step_back(step):
    """Unless the inverse of one relation is written like the name of another: `~` is the inverse of the empty name."""
    (parsed,) = parse_steps([Step.from_id(step, COUNT).name(RELATIONS)], RELATIONS)
    assert parsed == (RELATIONS.id("~") if step == RELATIONS.id("") + COUNT else step)


def test_a_relation_called_like_an_inverse_wins():
    relations = Vocabulary(["~r", "r", "~s"], "relation")
    assert parse_steps(["~r", "r", "~s", "~~s"], relations) == [0, 1, 2, 5]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("parent", r"via is the string 'parent'; give a list of relations, such as \['parent'\]"),
        ([], "the path has no steps; name at least one relation"),
        (["parent", "chld"], "relation 'chld' is not among the 6 .*did you mean 'child'"),
        (["~chld"], "relation 'chld' is not among the 6 .*did you mean 'child'"),
    ],
)
def test_invalid_paths_raise_errors_that_name_the_remedy(path, message):
    with pytest.raises(DihedralError, match=message):
        parse_steps(path, RELATIONS)


def test_the_side_decides_what_is_given_and_what_is_asked_for():
    triples = torch.tensor([[1, 0, 2], [3, 1, 4]])
    assert [part.tolist() for part in anchors_and_targets(triples, "tail")] == [[1, 3], [0, 1], [2, 4]]
    assert [part.tolist() for part in anchors_and_targets(triples, "head")] == [[2, 4], [0, 1], [1, 3]]


@pytest.mark.parametrize("side", SIDES)
def test_a_question_for_heads_walks_its_relation_backwards(side):
    steps = question_steps(torch.arange(COUNT), side, COUNT).tolist()
    assert [Step.from_id(step, COUNT) for step in steps] == [Step(r, side == "head") for r in range(COUNT)]
