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
some_step = st.builds(Step, st.integers(0, len(RELATIONS) - 1), st.booleans())


@given(some_step)
def test_the_inverse_of_an_inverse_is_the_step_itself(step):
    assert step.inverse() != step
    assert step.inverse().inverse() == step
    assert step.inverse().relation == step.relation


@given(some_step)
def test_ids_are_r_forwards_and_r_plus_the_number_of_relations_backwards(step):
    count = len(RELATIONS)
    assert step.id(count) == (step.relation + count if step.backwards else step.relation)
    assert Step.from_id(step.id(count), count) == step


@pytest.mark.parametrize("numbers", [np.arange, torch.arange])
def test_inverse_ids_are_the_ids_of_inverse_steps(numbers):
    count = len(RELATIONS)
    steps = (Step.from_id(step, count) for step in range(2 * count))
    expected = [step._replace(backwards=not step.backwards).id(count) for step in steps]
    assert inverse_ids(numbers(2 * count), count).tolist() == expected
    assert [inverse_ids(step, count) for step in range(2 * count)] == expected


@given(st.sampled_from([step for r in range(len(RELATIONS)) for step in (Step(r), Step(r, backwards=True))]))
def test_parsing_a_name_gives_the_step_back(step):
    """Unless the inverse of one relation is written like the name of another: `~` is the inverse of the empty name."""
    parsed = Step.parse(step.name(RELATIONS), RELATIONS)
    expected = Step(RELATIONS.id("~")) if step == Step(RELATIONS.id(""), backwards=True) else step
    assert parsed == expected


def test_a_relation_called_like_an_inverse_wins():
    relations = Vocabulary(["~r", "r", "~s"], "relation")
    assert Step.parse("~r", relations) == Step(0)
    assert Step.parse("r", relations) == Step(1)
    assert Step.parse("~s", relations) == Step(2)
    assert Step.parse("~~s", relations) == Step(2, backwards=True)
    assert parse_steps(["~r", "r", "~~s"], relations) == [0, 1, 5]


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
    relations = torch.arange(len(RELATIONS))
    steps = question_steps(relations, side, len(RELATIONS))
    expected = [Step(r, backwards=side == "head").id(len(RELATIONS)) for r in range(len(RELATIONS))]
    assert steps.tolist() == expected
