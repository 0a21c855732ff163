"""Horn rules: their variables, and the names that a graph has."""

from __future__ import annotations

import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.interpretation.horn import Atom, Constant, in_graph, make_rule, path_rule


def test_variables_and_atoms_have_one_order():
    one = make_rule([Atom("q", "s", "v"), Atom("q", "r", "u")], Atom("u", "t", "v"))
    assert one == path_rule(["~r", "s"], "t", dh.Graph.from_names([("a", r, "b") for r in "rst"]).relations)
    assert str(one) == "t(X,Y) <= r(A,X), s(A,Y)" and one.steps == ["~r", "s"]
    assert make_rule([Atom("X", "r", Constant("c"))], Atom("X", "t", Constant("d"))).steps is None


@pytest.mark.parametrize(
    ("body", "head", "message"),
    [
        ([], Atom("X", "r", "Y"), "the body is empty"),
        ([Atom("X", "r", "A")], Atom("X", "r", "X"), "needs one variable, or two different ones"),
        ([Atom("X", "r", "A")], Atom("X", "r", "Y"), "is not in the body"),
        ([Atom("X", "r", "Y"), Atom("A", "s", "B")], Atom("X", "r", "Y"), "shares no variable"),
    ],
)
def test_rules_that_derive_nothing_definite_are_refused(body, head, message):
    with pytest.raises(DihedralError, match=message):
        make_rule(body, head)


def test_names_in_brackets_are_found_and_unknown_names_reported():
    graph = dh.Graph.from_names([("ann", "knows", "bob")])
    known = make_rule([Atom("Y", "<knows>", "X")], Atom("X", "<knows>", "Y"))
    unknown = make_rule([Atom("X", "knows", Constant("eve"))], Atom("X", "knows", Constant("bob")))
    found, missing = in_graph([known, unknown], graph)
    assert [str(rule) for rule in found] == ["knows(X,Y) <= knows(Y,X)"] and missing == ["eve"]
