"""What an update trains, from the change of the graph."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dihedral as dh
from dihedral.graph.changes import change_graph
from dihedral.update.schedule import make_schedule, rows_that_start_over


def test_an_entity_without_facts_so_far_is_placed_as_a_new_one(predictor):
    grown = predictor.update(add=[("zoe", "sibling", "man_0001")], progress=False, calibrate=False)
    bare = grown.update(remove=[("zoe", "sibling", "man_0001")], progress=False, calibrate=False)
    plan = make_schedule(change_graph(bare.graph, [("zoe", "sibling", "man_0003")], []), bare.trained)
    assert [bare.graph.entities[i] for i in np.flatnonzero(plan.fresh)] == ["zoe"]


def test_entities_near_a_removed_fact_start_over_too(predictor):
    """They learned from it; entities with many other facts did not learn enough to matter."""
    chain = [(f"n{i}", "next", f"n{i + 1}") for i in range(6)]
    crowd = [("hub", "next", f"leaf{i}") for i in range(400)]
    graph = dh.Graph.from_names([*chain, *crowd, ("n6", "next", "hub"), ("n3", "other", "n0")])
    change = change_graph(graph, [], [("n3", "other", "n0")])
    over = {graph.entities[i] for i in np.flatnonzero(rows_that_start_over(change))}
    assert over == {f"n{i}" for i in range(6)}


def names(predictor: dh.Predictor, rows: np.ndarray) -> set[str]:
    return {predictor.graph.entities[i] for i in np.flatnonzero(rows)}


def test_known_entities_are_trained_on_the_added_facts_alone(predictor):
    change = change_graph(predictor.graph, [("man_0001", "sibling", "man_0003")], [])
    plan = make_schedule(change, predictor.trained)
    assert names(predictor, plan.known) == {"man_0001", "man_0003"} and not plan.fresh.any()
    assert plan.facts.tolist() == change.added.tolist()


def test_codes_of_new_relations_and_new_rows_are_trained_for_longer(predictor):
    trained = predictor.metrics["epochs"]
    pairs = {("man_0001", "sibling", "man_0003"): 8, ("man_0001", "sibling", "zoe"): max(8, round(trained / 2)),
             ("man_0001", "likes", "man_0003"): 2 * trained}  # fmt: skip
    for fact, epochs in pairs.items():
        assert make_schedule(change_graph(predictor.graph, [fact], []), predictor.trained).epochs == epochs


@given(seed=st.integers(0, 2**16), count=st.integers(1, 12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_added_fact_is_trained_on_once(predictor, seed, count):
    rng = np.random.default_rng(seed)
    people, relations = [*list(predictor.graph.entities)[:8], "zoe", "tom"], ["sibling", "parent", "likes", "mentors"]
    facts = [(*rng.choice(people, 2, replace=False), rng.choice(relations)) for _ in range(count)]
    facts = [(str(head), str(relation), str(tail)) for head, tail, relation in facts]
    change = change_graph(predictor.graph, facts, [])
    plan = make_schedule(change, predictor.trained)
    assert {tuple(fact) for fact in change.added.tolist()} <= {tuple(fact) for fact in plan.facts.tolist()}
    assert len(np.unique(plan.facts, axis=0)) == len(plan.facts) and not (plan.fresh & plan.known).any()


def test_a_new_relation_between_rows_that_learn_other_facts_finds_its_code(predictor):
    """Its entities gain more facts of known relations, so their rows learn these; its code is found all the same."""
    people = ["man_0001", "man_0002", "man_0003", "man_0004", "man_0005", "man_0006"]
    usual = [(a, "sibling", b) for a, b in itertools.permutations(people, 2)]
    new = [(people[i], "likes", people[(i + 1) % 6]) for i in range(6)]
    updated = predictor.update(add=[*usual, *new], progress=False, calibrate=False)
    ranks = [updated.predict(head=head, relation="likes", known="include", top=40) for head, _, _ in new]
    found = [[answer.tail for answer in answers].index(tail) for answers, (_, _, tail) in zip(ranks, new, strict=True)]
    assert np.mean(found) < 8  # of 40


def test_all_rows_start_over_if_most_of_them_would(predictor):
    """Rows cannot be placed by few others; training all of them has no need of a background."""
    chain = [(f"n{i}", "next", f"n{i + 1}") for i in range(40)]
    graph = dh.Graph.from_names([*chain, *((f"n{i}", "other", f"n{i + 2}") for i in range(0, 24, 2))])
    change = change_graph(graph, [], [(f"n{i}", "other", f"n{i + 2}") for i in range(0, 24, 2)])
    assert 0.5 < rows_that_start_over(change).mean() < 1
    plan = make_schedule(change, predictor.trained)
    assert plan.fresh.all() and not len(plan.others) and plan.facts.tolist() == change.after.train.tolist()
    assert plan.starts_over
