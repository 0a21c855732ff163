"""What an update trains, from the change of the graph."""

from __future__ import annotations

import numpy as np
import pytest

import dihedral as dh
from dihedral.graph.changes import change_graph
from dihedral.training.update_plan import forgetful, make_plan


def test_an_entity_without_facts_so_far_is_placed_as_a_new_one(predictor):
    grown = predictor.update(add=[("zoe", "sibling", "man_0001")], progress=False, calibrate=False)
    bare = grown.update(remove=[("zoe", "sibling", "man_0001")], progress=False, calibrate=False)
    plan = make_plan(change_graph(bare.graph, [("zoe", "sibling", "man_0003")], []), bare, None)
    assert [bare.graph.entities[i] for i in np.flatnonzero(plan.fresh)] == ["zoe"]


def test_entities_near_a_removed_fact_start_over_too(predictor):
    """They learned from it; entities with many other facts did not learn enough to matter."""
    chain = [(f"n{i}", "next", f"n{i + 1}") for i in range(6)]
    crowd = [("hub", "next", f"leaf{i}") for i in range(400)]
    graph = dh.Graph.from_labels([*chain, *crowd, ("n6", "next", "hub"), ("n3", "other", "n0")])
    change = change_graph(graph, [], [("n3", "other", "n0")])
    over = {graph.entities[i] for i in np.flatnonzero(forgetful(change))}
    assert over == {f"n{i}" for i in range(6)}


@pytest.mark.parametrize(("replay", "anchored"), [(10**6, False), (0, True)])
def test_known_entities_are_trained_on_all_of_their_facts_if_these_are_few(predictor, replay, anchored, monkeypatch):
    monkeypatch.setattr("dihedral.training.update_plan.REPLAY", replay)
    change = change_graph(predictor.graph, [("man_0001", "sibling", "man_0003")], [])
    plan = make_plan(change, predictor, None)
    mine = set(np.flatnonzero(plan.known).tolist())
    assert {predictor.graph.entities[i] for i in mine} == {"man_0001", "man_0003"} and not plan.fresh.any()
    expected = change.added if anchored else change.after.train
    wanted = {tuple(fact) for fact in expected.tolist() if mine & {fact[0], fact[2]}}
    assert plan.anchored == anchored and {tuple(fact) for fact in plan.known_facts.tolist()} == wanted


def test_a_new_relation_is_learned_from_its_facts_alone(predictor):
    change = change_graph(predictor.graph, [("man_0001", "likes", "man_0003")], [])
    plan = make_plan(change, predictor, None)
    assert plan.anchored and plan.known_facts.tolist() == change.added.tolist()
