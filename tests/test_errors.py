"""Errors that a user can cause, and their suggestions."""

from __future__ import annotations

import pytest

from dihedral import DihedralError
from dihedral.errors import TrainingError, close_matches


def test_bad_input_is_a_value_error():
    assert issubclass(DihedralError, ValueError)


def test_a_training_error_is_a_dihedral_error():
    with pytest.raises(DihedralError, match="loss"):
        raise TrainingError("the loss became nan")


def test_a_typo_finds_the_name():
    assert close_matches("spose", ["parent", "spouse", "child"]) == "; did you mean 'spouse'?"


def test_the_nearest_name_comes_first():
    assert close_matches("parent", ["parent_in_law", "parents"]) == "; did you mean 'parents', 'parent_in_law'?"


def test_case_is_ignored():
    assert close_matches("wn18rr", ["WN18RR"]) == "; did you mean 'WN18RR'?"


def test_a_part_of_a_name_finds_it():
    assert close_matches("hyper", ["_instance_hypernym", "_part_of"]) == "; did you mean '_instance_hypernym'?"


def test_no_similar_name_gives_no_suggestion():
    assert close_matches("zebra", ["parent", "child"]) == ""
    assert close_matches("zebra", []) == ""


def test_an_empty_name_gives_no_suggestion():
    assert close_matches("", ["parent", "child"]) == ""


def test_the_number_of_suggestions_is_limited():
    names = [f"relation_{i}" for i in range(9)]
    assert close_matches("relation", names).count("relation_") == 3
    assert close_matches("relation", names, limit=5).count("relation_") == 5


def test_a_name_is_suggested_once():
    assert close_matches("parent", ["parent", "parent"]).count("parent") == 1
