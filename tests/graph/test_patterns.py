"""Patterns of a graph against counts by loops over sets, and counts on a sample of paths against exact ones."""

from __future__ import annotations

import tracemalloc
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dihedral as dh
from dihedral import make_family
from dihedral.graph import GraphIndex, patterns
from dihedral.graph.joins import Body
from dihedral.graph.patterns import count_rule, count_rules, draw_paths, find_chains, find_reversals, skew_relations
from tests.loops import bodies, paths_by_loops, some_facts
from tests.loops import build as build_graph

ENTITIES, RELATIONS = 5, 3
facts = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))
some_triples = st.lists(facts, min_size=1, max_size=30).map(lambda rows: np.array(rows, dtype=np.int32))


def build(rows, num_entities=ENTITIES, num_relations=RELATIONS):
    return GraphIndex.build([np.array(rows, np.int32).reshape(-1, 3)], num_entities, num_relations)


def pairs_of(triples):
    """The set of (head, tail) of each relation."""
    pairs = defaultdict(set)
    for head, relation, tail in triples.tolist():
        pairs[relation].add((head, tail))
    return pairs


def reversals_by_loops(triples, num_relations, backwards=True):
    pairs = {r: {(h, t) for h, t in held if h != t} for r, held in pairs_of(triples).items()}
    support = np.zeros((num_relations, num_relations), dtype=int)
    for r1, first in pairs.items():
        for r2, second in pairs.items():
            support[r1, r2] = sum((pair[::-1] if backwards else pair) in second for pair in first)
    return support, [len(pairs.get(r, ())) for r in range(num_relations)]


def chains_by_loops(triples, num_relations, min_support):
    """{(r1, r2, r3): (support, body)}, and the number of pairs joined by each (r1, r2)."""
    triples = triples[triples[:, 0] != triples[:, 2]]
    pairs = pairs_of(triples)
    steps = defaultdict(set)
    for head, relation, tail in triples.tolist():
        steps[head].add((relation, tail))
    bodies = defaultdict(set)
    for head, relation, middle in triples.tolist():
        for second, tail in steps[middle]:
            if head != tail:
                bodies[relation, second].add((head, tail))
    joined = np.zeros((num_relations, num_relations), dtype=int)
    rules = {}
    for (r1, r2), body in bodies.items():
        joined[r1, r2] = len(body)
        for r3, held in pairs.items():
            support = len(body & held)
            if support >= min_support:
                rules[r1, r2, r3] = support, len(body)
    return rules, joined


def as_dict(chains):
    counts = zip(chains.support.tolist(), chains.body.tolist(), strict=True)
    found = dict(zip(map(tuple, chains.rules.tolist()), counts, strict=True))
    assert len(found) == len(chains), "each rule is listed once"
    return found


def assert_reversals_are_right(triples, num_entities, num_relations):
    found = find_reversals(build(triples, num_entities, num_relations))
    support, size = reversals_by_loops(triples, num_relations)
    assert found.support.toarray().tolist() == support.tolist()
    assert found.size.tolist() == size
    parallel, _ = reversals_by_loops(triples, num_relations, backwards=False)
    assert found.parallel.toarray().tolist() == (parallel - np.diag(size)).tolist()
    for r1, count in enumerate(size):
        assert found.confidence[r1].tolist() == [s / count if count else 0.0 for s in support[r1].tolist()]


def assert_chains_are_right(triples, num_entities, num_relations, min_support):
    found = find_chains(build(triples, num_entities, num_relations), min_support=min_support)
    rules, joined = chains_by_loops(triples, num_relations, min_support)
    assert as_dict(found) == rules
    assert found.joined.toarray().tolist() == np.where(joined >= min_support, joined, 0).tolist()
    for rule, confidence in zip(found.rules.tolist(), found.confidence, strict=True):
        support, body = rules[tuple(rule)]
        assert confidence == support / body


# --- equal to counting by loops --------------------------------------------------------------------


@given(some_triples)
def test_reversals_equal_counts_by_loops(triples):
    assert_reversals_are_right(triples, ENTITIES, RELATIONS)


@given(some_triples, st.integers(1, 4))
def test_chains_equal_counts_by_loops(triples, min_support):
    assert_chains_are_right(triples, ENTITIES, RELATIONS, min_support)


@given(some_triples)
def test_a_repeated_triple_counts_once(triples):
    indexes = build(triples), build(np.concatenate([triples, triples[::-1]]))
    one, other = map(find_reversals, indexes)
    assert (one.support != other.support).nnz == 0 and one.size.tolist() == other.size.tolist()
    one, other = (find_chains(index, min_support=1) for index in indexes)
    assert as_dict(one) == as_dict(other) and one.joined.toarray().tolist() == other.joined.toarray().tolist()


def test_patterns_of_umls_equal_counts_by_loops(benchmark_graph):
    graph = benchmark_graph("umls")
    assert_reversals_are_right(graph.train, graph.num_entities, graph.num_relations)
    assert_chains_are_right(graph.train, graph.num_entities, graph.num_relations, 10)


def test_patterns_of_a_family_equal_counts_by_loops(family):
    assert_reversals_are_right(family.train, family.num_entities, family.num_relations)
    assert_chains_are_right(family.train, family.num_entities, family.num_relations, 1)


@given(some_triples)
def test_a_relation_is_skew_if_it_has_pairs_and_none_of_them_reversed(triples):
    pairs = {r: {(h, t) for h, t in held if h != t} for r, held in pairs_of(triples).items()}
    expected = [bool(pairs.get(r)) and not any((t, h) in pairs[r] for h, t in pairs[r]) for r in range(RELATIONS)]
    assert skew_relations(build(triples)).tolist() == expected


def test_skew_relations_of_umls_have_no_reversals(benchmark_graph):
    graph = benchmark_graph("umls")
    found, reversals = skew_relations(graph.train_index), find_reversals(graph.train_index)
    assert found.tolist() == ((reversals.support.diagonal() == 0) & (reversals.size > 0)).tolist()
    assert 0 < found.sum() < graph.num_relations


# --- by hand ---------------------------------------------------------------------------------------


def test_facts_with_equal_head_and_tail_are_not_counted():
    loops = build([(0, 0, 0), (1, 0, 1)], 2, 1)
    found = find_reversals(loops)
    assert found.support.toarray().tolist() == [[0]] and found.size.tolist() == [0]
    assert found.confidence.tolist() == [[0.0]] and found.symmetric(support=0) == []
    assert as_dict(find_chains(loops, min_support=1)) == {}
    assert count_rule(loops, [0, 0], 0) == count_rule(loops, [1], 0) == (0, 0, 0, None)


def test_a_body_that_leads_back_to_its_start_joins_no_pair():
    there_and_back = build([(0, 0, 1), (1, 1, 0), (0, 2, 0)], 2, 3)
    assert count_rule(there_and_back, [0, 1], 2)[:3] == (0, 0, 0)
    assert find_chains(there_and_back, min_support=1).joined.sum() == 0


def test_a_triple_left_out_is_neither_a_fact_of_the_body_nor_a_pair():
    rows = [(0, 0, 1), (1, 0, 2), (0, 0, 2), (2, 0, 3), (0, 0, 3)]
    assert count_rule(build(rows, 4, 1), [0, 0], 0)[:3] == (2, 3, 3)  # joins 0-2, 0-3 and 1-3
    assert count_rule(build(rows, 4, 1), [0, 0], 0, without=(0, 0, 2))[:3] == (0, 1, 1)  # 0-3 went through 0-2
    assert count_rule(build(rows, 4, 1), [1], 0, without=(0, 0, 2))[:3] == (0, 4, 2)


def test_pca_confidence_leaves_out_heads_without_any_fact_of_the_head_relation():
    # 0 and 1 reach a grandparent by parent · parent; the graph names a grandparent only for 0, and it is that one
    parent, grandparent = 0, 1
    rows = [(0, parent, 2), (2, parent, 4), (1, parent, 3), (3, parent, 4), (0, grandparent, 4)]
    found = find_chains(build(rows, 5, 2), min_support=1)
    assert found.rules.tolist() == [[parent, parent, grandparent]]
    assert found.confidence.tolist() == [0.5]
    assert count_rule(build(rows, 5, 2), [parent, parent], grandparent) == (1, 2, 1, None)
    assert found.joined.toarray().tolist() == [[2, 0], [0, 0]]


def test_a_pair_joined_in_two_ways_counts_once():
    rows = [(0, 0, 1), (0, 0, 2), (1, 1, 3), (2, 1, 3), (0, 2, 3)]
    found = find_chains(build(rows, 4, 3), min_support=1)
    assert as_dict(found) == {(0, 1, 2): (1, 1)}


def test_inverse_pairs_hold_in_both_directions_and_are_sorted_by_support():
    forward = [(i, 0, i + 50) for i in range(20)]
    backward = [(t, 1, h) for h, _, t in forward]
    wider = [(i, 2, i + 50) for i in range(40)]  # 0 reversed is in 1, but most of 2 reversed is not
    best = [(i, 3, i + 50) for i in range(60, 90)] + [(i + 50, 4, i) for i in range(60, 90)]
    found = find_reversals(build(forward + backward + wider + best, 140, 5))
    assert found.inverse_pairs() == [(3, 4), (0, 1)]
    assert found.inverse_pairs(confidence=0.5) == [(3, 4), (0, 1), (1, 2)]
    assert found.inverse_pairs(support=21) == [(3, 4)]
    assert found.symmetric() == []


@pytest.mark.parametrize("triple", [(0, 0, 1), (1, 0, 1)])
def test_a_graph_of_one_triple_has_no_patterns(triple):
    index = build([triple], 2, 1)
    reversals = find_reversals(index)
    assert reversals.symmetric() == reversals.inverse_pairs() == []
    chains = find_chains(index)
    assert len(chains) == 0 and chains.rules.shape == (0, 3)
    assert chains.confidence.tolist() == []


# --- the benchmarks --------------------------------------------------------------------------------


def chains_at(graph, *confidences):
    found = find_chains(graph.train_index)
    return tuple(int((found.confidence >= confidence).sum()) for confidence in confidences)


def reversals_of(graph):
    found = find_reversals(graph.train_index)
    return len(found.symmetric()), len(found.inverse_pairs())


def test_patterns_of_umls(benchmark_graph):
    graph = benchmark_graph("umls")
    assert chains_at(graph, 0.5, 0.8) == (553, 142)
    assert reversals_of(graph) == (1, 0)


def test_patterns_of_the_family_benchmark(benchmark_graph):
    graph = benchmark_graph("family-neural-lp")
    assert chains_at(graph, 0.5, 0.8) == (54, 34)
    assert reversals_of(graph) == (0, 1)


def test_patterns_of_wn18(benchmark_graph):
    assert reversals_of(benchmark_graph("WN18")) == (3, 7)


@pytest.mark.slow
def test_patterns_of_fb15k_237(benchmark_graph):
    graph = benchmark_graph("FB15k-237")
    assert chains_at(graph, 0.5, 0.8) == (365, 42)
    assert reversals_of(graph) == (21, 0)


@pytest.mark.parametrize("inverses", [False, True])
def test_a_single_rule_has_the_counts_of_the_table_of_all_rules(inverses):
    index = dh.make_family(80, seed=6).train_index
    chains = find_chains(index, min_support=1, inverses=inverses)
    for i in range(0, len(chains), 7):
        r1, r2, r3 = chains.rules[i].tolist()
        support, pairs, _, interval = count_rule(index, [r1, r2], r3)
        assert (support, pairs, interval) == (int(chains.support[i]), int(chains.body[i]), None)


@given(some_triples, st.lists(st.integers(0, 2 * RELATIONS - 1), min_size=1, max_size=3))
def test_rules_of_any_length_have_the_counts_of_ways_through_different_entities(triples, body):
    index = build(triples)
    pairs = [set() for _ in range(2 * RELATIONS)]
    for head, relation, tail in triples.tolist():
        pairs[relation].add((head, tail))
        pairs[RELATIONS + relation].add((tail, head))
    ways = [(entity,) for entity in range(ENTITIES)]
    for step in body:
        ways = [(*way, tail) for way in ways for head, tail in pairs[step] if head == way[-1] and tail not in way]
    joined = {(way[0], way[-1]) for way in ways}
    for head in range(RELATIONS):
        has_any = {one for one, other in pairs[head] if one != other}
        expected = len(joined & pairs[head]), len(joined), sum(one in has_any for one, _ in joined)
        assert count_rule(index, body, head) == (*expected, None)


def test_chains_do_not_depend_on_the_number_of_threads(set_threads):
    index, found = make_family(100, seed=1).train_index, []
    for count in (1, 3):
        set_threads(count)
        found.append(find_chains(index, min_support=2, inverses=True))
    assert as_dict(found[0]) == as_dict(found[1])
    assert (found[0].joined != found[1].joined).nnz == 0


# --- samples of paths -----------------------------------------------------------------------------


def star(leaves):
    """A hub with many leaves; relation 1 joins a tenth of the leaves to the next leaf."""
    leaf = np.arange(1, leaves + 1)
    hub, next_leaf = np.zeros_like(leaf), leaf[:-1:10]
    spokes = np.stack([hub, hub, leaf], axis=1)
    chain = np.stack([next_leaf, np.ones_like(next_leaf), next_leaf + 1], axis=1)
    return build_graph(np.concatenate([spokes, chain]), leaves + 1)


@given(some_facts, bodies.filter(lambda body: len(body) < 4))
def test_every_path_is_drawn_equally_often(rows, body):
    every_path = paths_by_loops(rows, body)
    if not every_path:
        return
    expected = Counter((path[0], path[-1]) for path in every_path)
    heads, tails, again = draw_paths(Body(build_graph(rows), body), 20_000, np.random.default_rng(0))
    share = np.mean([{path[0], path[-1]} & set(path[1:-1]) != set() for path in every_path])
    assert again.mean() == pytest.approx(share, abs=0.02)
    drawn, total = Counter(zip(heads.tolist(), tails.tolist(), strict=True)), sum(expected.values())
    assert set(drawn) <= set(expected)
    for pair, count in expected.items():
        assert drawn[pair] / 20_000 == pytest.approx(count / total, abs=0.02)


def test_intervals_of_samples_contain_the_exact_confidence(monkeypatch):
    index = dh.make_family(160, seed=4).train_index
    expected = as_dict(find_chains(index, min_support=20, inverses=True))
    monkeypatch.setattr(patterns, "MAX_PATHS", 1)
    monkeypatch.setattr(patterns, "SAMPLES", 1000)
    found = as_dict(find_chains(index, min_support=20, inverses=True))
    assert found.keys() <= expected.keys() and len(found) > 0.7 * len(expected)
    inside = []
    for (r1, r2, r3), (support, pairs) in found.items():
        exact_support, exact_pairs = expected[r1, r2, r3]
        single = count_rules(index, [r1, r2], [r3], max_paths=1)[0]
        assert single[:2] == (support, pairs) and single.interval.sample == 1000
        assert pairs == pytest.approx(exact_pairs, rel=0.25)
        inside.append(single.interval.low <= exact_support / exact_pairs <= single.interval.high)
    assert np.mean(inside) >= 0.9


def test_a_sampled_rule_has_nearly_the_counts_of_an_exact_one():
    index = dh.make_family(160, seed=4).train_index
    r1, r2, _ = find_chains(index, inverses=True).rules[0].tolist()
    fact = tuple(int(part[0]) for part in index.facts())
    longer = next([r1, r2, step] for step in range(12) if Body(index, [r1, r2, step]).num_paths > 50)
    for body, without in (([r1, r2], None), (longer, None), ([r1, r2], fact)):
        exact = count_rules(index, body, range(index.num_relations), without=without)
        sampled = count_rules(index, body, range(index.num_relations), without=without, max_paths=1)
        for one, other in zip(exact, sampled, strict=True):
            assert one.interval is None and other.interval.sample == patterns.SAMPLES
            assert other.pairs == pytest.approx(one.pairs, rel=0.02)
            assert other.interval.low - 1e-9 <= one.confidence <= other.interval.high + 1e-9


def test_rules_through_a_hub_take_little_memory():
    index = star(200_000)
    tracemalloc.start()
    found = find_chains(index, inverses=True)
    single = count_rule(index, [2, 0], 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400e6
    assert single.interval.sample > 0 and single.pairs == pytest.approx(200_000**2, rel=0.01)
    assert found.joined[2, 0] == single.pairs
    exact = [rule for rule in found.rules.tolist() if rule != [2, 0, 1]]
    assert exact and all(count_rule(index, rule[:2], rule[2]).interval is None for rule in exact)
