"""Patterns in the triples, against counts by loops over sets."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dihedral as dh
from dihedral import make_family
from dihedral.graph.patterns import RuleCounter, find_chains, find_reversals

ENTITIES, RELATIONS = 5, 3
facts = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))
some_triples = st.lists(facts, min_size=1, max_size=30).map(lambda rows: np.array(rows, dtype=np.int32))


def pairs_of(triples):
    """The set of (head, tail) of every relation."""
    pairs = defaultdict(set)
    for head, relation, tail in triples.tolist():
        pairs[relation].add((head, tail))
    return pairs


def reversals_by_loops(triples, num_relations):
    pairs = {r: {(h, t) for h, t in held if h != t} for r, held in pairs_of(triples).items()}
    support = np.zeros((num_relations, num_relations), dtype=int)
    for r1, first in pairs.items():
        for r2, second in pairs.items():
            support[r1, r2] = sum((tail, head) in second for head, tail in first)
    return support, [len(pairs.get(r, ())) for r in range(num_relations)]


def chains_by_loops(triples, num_relations, min_support):
    """{(r1, r2, r3): (support, body, pca body)}, and the pairs joined by every r1, r2."""
    pairs = pairs_of(triples)
    steps = defaultdict(set)
    for head, relation, tail in triples.tolist():
        steps[head].add((relation, tail))
    bodies = defaultdict(set)
    for head, relation, middle in triples.tolist():
        for second, tail in steps[middle]:
            bodies[relation, second].add((head, tail))
    joined = np.zeros((num_relations, num_relations), dtype=int)
    rules = {}
    for (r1, r2), body in bodies.items():
        joined[r1, r2] = len(body)
        for r3, held in pairs.items():
            support = len(body & held)
            if support >= min_support:
                subjects = {head for head, _ in held}
                rules[r1, r2, r3] = support, len(body), sum(head in subjects for head, _ in body)
    return rules, joined


def as_dict(chains):
    columns = (column.tolist() for column in (chains.support, chains.body, chains.pca_body))
    found = dict(zip(map(tuple, chains.rules.tolist()), zip(*columns, strict=True), strict=True))
    assert len(found) == len(chains)  # every rule once
    return found


def assert_reversals_are_right(triples, num_entities, num_relations):
    found = find_reversals(triples, num_entities, num_relations)
    support, size = reversals_by_loops(triples, num_relations)
    assert found.support.tolist() == support.tolist()
    assert found.size.tolist() == size
    for r1, count in enumerate(size):
        assert found.confidence[r1].tolist() == [s / count if count else 0.0 for s in support[r1].tolist()]


def assert_chains_are_right(triples, num_entities, num_relations, min_support):
    found = find_chains(triples, num_entities, num_relations, min_support=min_support)
    rules, joined = chains_by_loops(triples, num_relations, min_support)
    assert as_dict(found) == rules
    assert found.joined.tolist() == joined.tolist()
    for rule, confidence, pca in zip(found.rules.tolist(), found.confidence, found.pca_confidence, strict=True):
        support, body, pca_body = rules[tuple(rule)]
        assert confidence == support / body
        assert pca == support / pca_body


# --- equal to counting by loops --------------------------------------------------------------------


@given(some_triples)
def test_reversals_are_those_that_loops_count(triples):
    assert_reversals_are_right(triples, ENTITIES, RELATIONS)


@given(some_triples, st.integers(1, 4))
def test_chains_are_those_that_loops_count(triples, min_support):
    assert_chains_are_right(triples, ENTITIES, RELATIONS, min_support)


@given(some_triples)
@settings(max_examples=30)
def test_a_triple_told_twice_counts_once(triples):
    twice = np.concatenate([triples, triples[::-1]])
    one, other = (find_reversals(t, ENTITIES, RELATIONS) for t in (triples, twice))
    assert one.support.tolist() == other.support.tolist() and one.size.tolist() == other.size.tolist()
    one, other = (find_chains(t, ENTITIES, RELATIONS, min_support=1) for t in (triples, twice))
    assert as_dict(one) == as_dict(other) and one.joined.tolist() == other.joined.tolist()


def test_umls_holds_what_loops_count(benchmark_graph):
    graph = benchmark_graph("umls")
    assert_reversals_are_right(graph.train, graph.num_entities, graph.num_relations)
    assert_chains_are_right(graph.train, graph.num_entities, graph.num_relations, 10)


def test_a_family_holds_what_loops_count(family):
    assert_reversals_are_right(family.train, family.num_entities, family.num_relations)
    assert_chains_are_right(family.train, family.num_entities, family.num_relations, 1)


# --- by hand ---------------------------------------------------------------------------------------


def test_facts_of_an_entity_about_itself_are_no_reversals_but_are_steps_of_chains():
    loops = np.array([(0, 0, 0), (1, 0, 1)], dtype=np.int32)
    found = find_reversals(loops, 2, 1)
    assert found.support.tolist() == [[0]] and found.size.tolist() == [0]
    assert found.confidence.tolist() == [[0.0]] and found.symmetric(support=0) == []
    assert as_dict(find_chains(loops, 2, 1, min_support=1)) == {(0, 0, 0): (2, 2, 2)}


def test_pca_confidence_leaves_out_heads_of_which_nothing_is_known():
    # 0 and 1 reach a grandparent by parent · parent; only for 0 is any grandparent told, and the right one
    parent, grandparent = 0, 1
    rows = [(0, parent, 2), (2, parent, 4), (1, parent, 3), (3, parent, 4), (0, grandparent, 4)]
    found = find_chains(np.array(rows, dtype=np.int32), 5, 2, min_support=1)
    assert found.rules.tolist() == [[parent, parent, grandparent]]
    assert found.confidence.tolist() == [0.5] and found.pca_confidence.tolist() == [1.0]
    assert found.joined.tolist() == [[2, 0], [0, 0]]


def test_a_pair_joined_in_two_ways_counts_once():
    rows = [(0, 0, 1), (0, 0, 2), (1, 1, 3), (2, 1, 3), (0, 2, 3)]
    found = find_chains(np.array(rows, dtype=np.int32), 4, 3, min_support=1)
    assert as_dict(found) == {(0, 1, 2): (1, 1, 1)}


def test_inverse_pairs_hold_each_other_in_both_directions_and_the_best_supported_comes_first():
    forward = [(i, 0, i + 50) for i in range(20)]
    backward = [(t, 1, h) for h, _, t in forward]
    wider = [(i, 2, i + 50) for i in range(40)]  # 0 reversed is in 1, but most of 2 reversed is not
    best = [(i, 3, i + 50) for i in range(60, 90)] + [(i + 50, 4, i) for i in range(60, 90)]
    found = find_reversals(np.array(forward + backward + wider + best, dtype=np.int32), 140, 5)
    assert found.inverse_pairs() == [(3, 4), (0, 1)]
    assert found.inverse_pairs(confidence=0.5) == [(3, 4), (0, 1), (1, 2)]
    assert found.inverse_pairs(support=21) == [(3, 4)]
    assert found.symmetric() == []


def test_chains_are_chosen_by_a_mask_or_by_numbers():
    family = make_family(40)
    found = find_chains(family.train, family.num_entities, family.num_relations, min_support=2)
    sure = found[found.confidence >= 0.5]
    assert 0 < len(sure) < len(found) and (sure.confidence >= 0.5).all()
    first = found[np.array([0])]
    assert first.rules.tolist() == found.rules[:1].tolist() and first.joined is found.joined


@pytest.mark.parametrize("triple", [(0, 0, 1), (1, 0, 1)])
def test_a_graph_of_one_triple_has_no_patterns(triple):
    triples = np.array([triple], dtype=np.int32)
    reversals = find_reversals(triples, 2, 1)
    assert reversals.symmetric() == reversals.inverse_pairs() == []
    chains = find_chains(triples, 2, 1)
    assert len(chains) == 0 and chains.rules.shape == (0, 3)
    assert chains.confidence.tolist() == chains.pca_confidence.tolist() == []


# --- the benchmarks --------------------------------------------------------------------------------


def chains_at(graph, *confidences):
    found = find_chains(graph.train, graph.num_entities, graph.num_relations)
    return tuple(int((found.confidence >= confidence).sum()) for confidence in confidences)


def reversals_of(graph):
    found = find_reversals(graph.train, graph.num_entities, graph.num_relations)
    return len(found.symmetric()), len(found.inverse_pairs())


def test_patterns_of_umls(benchmark_graph):
    graph = benchmark_graph("umls")
    assert chains_at(graph, 0.5, 0.8) == (530, 83)
    assert reversals_of(graph) == (1, 0)


def test_patterns_of_the_family_benchmark(benchmark_graph):
    graph = benchmark_graph("family-neural-lp")
    assert chains_at(graph, 0.5, 0.8) == (47, 24)
    assert reversals_of(graph) == (0, 1)


def test_patterns_of_wn18(benchmark_graph):
    assert reversals_of(benchmark_graph("WN18")) == (3, 7)


@pytest.mark.slow
def test_patterns_of_fb15k_237(benchmark_graph):
    graph = benchmark_graph("FB15k-237")
    assert chains_at(graph, 0.5, 0.8) == (610, 223)
    assert reversals_of(graph) == (21, 0)


@pytest.mark.parametrize("inverses", [False, True])
def test_a_single_rule_is_counted_as_in_the_table_of_all(inverses):
    graph = dh.make_family(80, seed=6)
    chains = find_chains(graph.train, graph.num_entities, graph.num_relations, min_support=1, inverses=inverses)
    counter = RuleCounter(graph.train, graph.num_entities, graph.num_relations)
    for i in range(0, len(chains), 7):
        r1, r2, r3 = chains.rules[i].tolist()
        expected = int(chains.support[i]), int(chains.body[i]), int(chains.pca_body[i])
        assert counter.count([r1, r2], r3) == expected


def test_pairs_are_found_with_and_without_a_bitmap(monkeypatch):
    graph = dh.make_family(80, seed=7)
    size = graph.num_entities, graph.num_relations
    with_bits = find_chains(graph.train, *size, min_support=1)
    monkeypatch.setattr("dihedral.graph.patterns.MAX_BITS", 0)
    without = find_chains(graph.train, *size, min_support=1)
    assert (with_bits.rules == without.rules).all() and (with_bits.support == without.support).all()
