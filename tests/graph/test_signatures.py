"""Which entities fit which side of which relation."""

from __future__ import annotations

import numpy as np
import pytest

import dihedral as dh
from dihedral.graph import signatures
from dihedral.graph.signatures import Signatures


@pytest.fixture
def company(monkeypatch):
    """Thirty people, each with a home, and the last ten without the employer that the others have."""
    monkeypatch.setattr(signatures, "ALL", 0)
    people = [f"person{i}" for i in range(30)]
    facts = [(name, "lives_in", f"city{i % 5}") for i, name in enumerate(people)]
    facts += [(name, "works_for", f"firm{i % 3}") for i, name in enumerate(people[:20])]
    facts += [(f"firm{i}", "based_in", f"city{i}") for i in range(3)]
    return dh.load_graph(facts, valid=0, test=0)


def names(graph, ids):
    return {graph.entities[i] for i in ids}


def test_entities_without_a_relation_are_candidates_if_their_other_facts_fit(company):
    found = Signatures(company.train_index)
    heads = names(company, found.candidates(company.relations.id("works_for")))
    assert heads == {f"person{i}" for i in range(30)}  # the ten without an employer too, but no city and no firm
    tails = names(company, found.candidates(company.num_relations + company.relations.id("lives_in")))
    assert {f"city{i}" for i in range(5)} <= tails and not tails & {f"person{i}" for i in range(20)}


def test_the_relation_itself_has_no_say_in_the_fit(company):
    step = company.relations.id("works_for")
    fit = Signatures(company.train_index).fit(step)
    with_home = [company.entities.id(f"person{i}") for i in (0, 5, 25)]  # the same city; the last has no employer
    assert fit[with_home] == pytest.approx(fit[with_home[0]], abs=1e-6)


def test_an_entity_without_facts_is_always_a_candidate(company):
    index = company.train_index
    found = Signatures(index.select((index.sources != 0) & (index.ends != 0)))
    for step in range(2 * company.num_relations):
        assert 0 in found.candidates(step)


def test_nearly_all_held_out_facts_are_among_the_candidates(benchmark_graph):
    graph = benchmark_graph("family-neural-lp")
    found, count = Signatures(graph.train_index), graph.num_relations
    allowed = np.zeros((2 * count, graph.num_entities), bool)
    for step in range(2 * count):
        allowed[step, found.candidates(step)] = True
    head, relation, tail = graph.test.T
    reached = (allowed[relation, head] & allowed[relation + count, tail]).mean()
    inside = np.zeros_like(allowed)
    for step in range(2 * count):
        inside[step, graph.train_index.members(step)] = True
    in_range = (inside[relation, head] & inside[relation + count, tail]).mean()
    assert reached > 0.98 and in_range < 0.7  # most heads of held-out facts do not have the relation yet
    assert allowed.mean() < 0.6
