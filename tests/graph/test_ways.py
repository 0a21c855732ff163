"""Ways along a body against counts by loops, and counts on a sample against exact ones."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dihedral as dh
from dihedral.graph import GraphIndex, patterns, ways
from dihedral.graph.patterns import count_rule, count_rules, find_chains, find_reversals
from dihedral.graph.ways import Body, tiles

ENTITIES, RELATIONS = 5, 2
facts = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))
some_facts = st.lists(facts, min_size=1, max_size=25, unique=True)
bodies = st.lists(st.integers(0, 2 * RELATIONS - 1), min_size=1, max_size=4)


def build(rows, num_entities=ENTITIES, num_relations=RELATIONS):
    return GraphIndex.build([np.array(rows, np.int32).reshape(-1, 3)], num_entities, num_relations)


def star(leaves):
    """A hub with many leaves; relation 1 joins a tenth of the leaves to the next leaf."""
    leaf = np.arange(1, leaves + 1)
    hub, next_leaf = np.zeros_like(leaf), leaf[:-1:10]
    spokes = np.stack([hub, hub, leaf], axis=1)
    chain = np.stack([next_leaf, np.ones_like(next_leaf), next_leaf + 1], axis=1)
    return build(np.concatenate([spokes, chain]), leaves + 1)


def steps_of(rows):
    """The pairs of each step, without facts about an entity and itself."""
    edges = [[], []]
    for head, relation, tail in rows:
        if head != tail:
            edges[relation].append((head, tail))
    return [*edges, *([(tail, head) for head, tail in each] for each in edges)]


def ways_by_loops(rows, body):
    """The entities along every way."""
    steps = steps_of(rows)
    found = list(steps[body[0]])
    for step in body[1:]:
        found = [(*way, tail) for way in found for source, tail in steps[step] if source == way[-1]]
    return found


@given(some_facts, bodies)
@settings(max_examples=60)
def test_ways_equal_counts_by_loops(rows, body):
    steps, every_way = Body(build(rows), body), ways_by_loops(rows, body)
    assert steps.num_ways == len(every_way)
    head, tail = (part.ravel() for part in np.indices((ENTITIES, ENTITIES)))
    expected = Counter((way[0], way[-1]) for way in every_way)
    assert steps.ways_between(head, tail).tolist() == [expected[pair] for pair in zip(head, tail, strict=True)]


@given(some_facts, bodies.filter(lambda body: len(body) < 4))
@settings(max_examples=60)
def test_a_body_joins_pairs_through_different_entities(rows, body):
    steps = Body(build(rows), body)
    expected = {(way[0], way[-1]) for way in ways_by_loops(rows, body) if len(set(way)) == len(way)}
    joined = [pair for part in steps.joined() for pair in zip(*(each.tolist() for each in part), strict=True)]
    assert sorted(joined) == sorted(expected)


@given(some_facts, bodies.filter(lambda body: len(body) < 4))
@settings(max_examples=15)
def test_every_way_is_drawn_equally_often(rows, body):
    every_way = ways_by_loops(rows, body)
    if not every_way:
        return
    expected = Counter((way[0], way[-1]) for way in every_way)
    heads, tails, again = Body(build(rows), body).draw(20_000, np.random.default_rng(0))
    share = np.mean([{way[0], way[-1]} & set(way[1:-1]) != set() for way in every_way])
    assert again.mean() == pytest.approx(share, abs=0.02)
    drawn, total = Counter(zip(heads.tolist(), tails.tolist(), strict=True)), sum(expected.values())
    assert set(drawn) <= set(expected)
    for pair, count in expected.items():
        assert drawn[pair] / 20_000 == pytest.approx(count / total, abs=0.02)


def test_tiles_cover_everything_once_and_respect_the_limit():
    costs = np.array([3, 0, 4, 9, 1, 1, 1, 7, 0])
    parts = list(tiles(costs, 5))
    assert parts[0].start == 0 and parts[-1].stop == len(costs)
    assert all(one.stop == other.start for one, other in pairwise(parts))
    assert all(costs[part].sum() <= 5 or part.stop - part.start == 1 for part in parts)


def test_counts_do_not_depend_on_the_size_of_tiles(monkeypatch):
    index = dh.make_family(60, seed=3).train_index
    whole, reversed_whole = find_chains(index, min_support=2, inverses=True), find_reversals(index)
    rules = count_rules(index, [0, 1], range(index.num_relations))
    for module in (patterns, ways):
        monkeypatch.setattr(module, "TILE", 50)
    tiled = find_chains(index, min_support=2, inverses=True)
    assert tiled.rules.tolist() == whole.rules.tolist() and tiled.counts() == whole.counts()
    assert (tiled.joined != whole.joined).nnz == 0 and (
        find_reversals(index).support != reversed_whole.support
    ).nnz == 0
    assert count_rules(index, [0, 1], range(index.num_relations)) == rules


def test_intervals_of_samples_contain_the_exact_confidence(monkeypatch):
    index = dh.make_family(160, seed=4).train_index
    exact = find_chains(index, min_support=20, inverses=True)
    monkeypatch.setattr(patterns, "MAX_WAYS", 1)
    monkeypatch.setattr(ways, "SAMPLES", 1000)
    sampled = find_chains(index, min_support=20, inverses=True)
    assert (exact.sample == 0).all() and (sampled.sample == 1000).all()
    expected = {tuple(rule): count for rule, count in zip(exact.rules.tolist(), exact.counts(), strict=True)}
    found = dict(zip(map(tuple, sampled.rules.tolist()), sampled.counts(), strict=True))
    assert found.keys() <= expected.keys() and len(found) > 0.7 * len(expected)
    inside = [each.interval.low <= expected[rule].confidence <= each.interval.high for rule, each in found.items()]
    assert np.mean(inside) >= 0.9
    for rule, each in found.items():
        assert each.pairs == pytest.approx(expected[rule].pairs, rel=0.25)


def test_a_sampled_rule_has_nearly_the_counts_of_an_exact_one():
    index = dh.make_family(160, seed=4).train_index
    r1, r2, _ = find_chains(index, inverses=True).rules[0].tolist()
    fact = tuple(int(part[0]) for part in index.facts())
    longer = next([r1, r2, step] for step in range(12) if Body(index, [r1, r2, step]).num_ways > 50)
    for body, without in (([r1, r2], None), (longer, None), ([r1, r2], fact)):
        exact = count_rules(index, body, range(index.num_relations), without=without)
        sampled = count_rules(index, body, range(index.num_relations), without=without, max_ways=1)
        for one, other in zip(exact, sampled, strict=True):
            assert one.interval is None and other.interval.sample == ways.SAMPLES
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
    exact = [count for rule, count in zip(found.rules.tolist(), found.counts(), strict=True) if rule != [2, 0, 1]]
    assert exact and all(count.interval is None for count in exact)
