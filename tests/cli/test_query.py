"""`dihedral query`."""

from __future__ import annotations

import pytest

import dihedral as dh
from dihedral.ask.tree import path_query


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("query") / "model"
    dh.train(dh.make_family(40), "demo/family", epochs=2, progress=False, device="cpu").save(folder)
    return folder


def test_answers_equal_those_of_the_library(cli, model):
    words = ("--from", "man_0020", "--via", "spouse", "--via", "~child", "--top", "3", "--json")
    found = cli("query", model, *words).rows
    predictor = dh.load(model)
    expected = predictor.ask(path_query("man_0020", ["spouse", "~child"], predictor.graph.relations), top=3)
    assert [row["entity"] for row in found] == [answer.entity for answer in expected]


def test_the_entities_between_are_shown(cli, model):
    done = cli("query", model, "--from", "man_0020", "--via", "spouse", "--via", "parent")
    assert done.code == 0 and "?step1" in done.out


def test_an_unknown_relation_is_rejected(cli, model):
    done = cli("query", model, "--from", "man_0020", "--via", "spouze")
    assert done.code == 2 and "relation 'spouze' is not among" in done.err
