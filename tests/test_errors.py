"""Errors that a user can cause, and the close matches they offer."""

from __future__ import annotations

import pytest

from dihedral import DihedralError
from dihedral.errors import TrainingError, close_matches


def test_bad_input_is_a_value_error():
    assert issubclass(DihedralError, ValueError)


def test_a_training_error_is_caught_with_the_others():
    with pytest.raises(DihedralError, match="loss"):
        raise TrainingError("the loss became nan")


def test_a_slip_of_the_finger_finds_the_name():
    assert close_matches("spose", ["parent", "spouse", "child"]) == "; did you mean 'spouse'?"


def test_the_nearest_name_comes_first():
    assert close_matches("parent", ["parent_in_law", "parents"]) == "; did you mean 'parents', 'parent_in_law'?"


def test_upper_and_lower_case_are_the_same():
    assert close_matches("wn18rr", ["WN18RR"]) == "; did you mean 'WN18RR'?"


def test_a_part_of_a_name_finds_it():
    assert close_matches("hyper", ["_instance_hypernym", "_part_of"]) == "; did you mean '_instance_hypernym'?"


def test_nothing_alike_offers_nothing():
    assert close_matches("zebra", ["parent", "child"]) == ""
    assert close_matches("zebra", []) == ""


def test_an_empty_name_offers_nothing():
    assert close_matches("", ["parent", "child"]) == ""


def test_only_so_many_are_offered():
    names = [f"relation_{i}" for i in range(9)]
    assert close_matches("relation", names).count("relation_") == 3
    assert close_matches("relation", names, limit=5).count("relation_") == 5


def test_a_name_is_offered_once():
    assert close_matches("parent", ["parent", "parent"]).count("parent") == 1
