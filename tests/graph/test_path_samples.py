"""Random paths along a body, and counts on a sample against exact ones."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

import dihedral as dh
from dihedral.graph import path_samples, patterns
from dihedral.graph.joins import Body
from dihedral.graph.path_samples import draw_paths
from dihedral.graph.patterns import count_rule, count_rules, find_chains
from tests.loops import bodies, build, paths_by_loops, some_facts


def star(leaves):
    """A hub with many leaves; relation 1 joins a tenth of the leaves to the next leaf."""
    leaf = np.arange(1, leaves + 1)
    hub, next_leaf = np.zeros_like(leaf), leaf[:-1:10]
    spokes = np.stack([hub, hub, leaf], axis=1)
    chain = np.stack([next_leaf, np.ones_like(next_leaf), next_leaf + 1], axis=1)
    return build(np.concatenate([spokes, chain]), leaves + 1)


@given(some_facts, bodies.filter(lambda body: len(body) < 4))
@settings(max_examples=15)
def test_every_path_is_drawn_equally_often(rows, body):
    every_path = paths_by_loops(rows, body)
    if not every_path:
        return
    expected = Counter((path[0], path[-1]) for path in every_path)
    heads, tails, again = draw_paths(Body(build(rows), body), 20_000, np.random.default_rng(0))
    share = np.mean([{path[0], path[-1]} & set(path[1:-1]) != set() for path in every_path])
    assert again.mean() == pytest.approx(share, abs=0.02)
    drawn, total = Counter(zip(heads.tolist(), tails.tolist(), strict=True)), sum(expected.values())
    assert set(drawn) <= set(expected)
    for pair, count in expected.items():
        assert drawn[pair] / 20_000 == pytest.approx(count / total, abs=0.02)


def test_intervals_of_samples_contain_the_exact_confidence(monkeypatch):
    index = dh.make_family(160, seed=4).train_index
    exact = find_chains(index, min_support=20, inverses=True)
    monkeypatch.setattr(patterns, "MAX_PATHS", 1)
    monkeypatch.setattr(path_samples, "SAMPLES", 1000)
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
    longer = next([r1, r2, step] for step in range(12) if Body(index, [r1, r2, step]).num_paths > 50)
    for body, without in (([r1, r2], None), (longer, None), ([r1, r2], fact)):
        exact = count_rules(index, body, range(index.num_relations), without=without)
        sampled = count_rules(index, body, range(index.num_relations), without=without, max_paths=1)
        for one, other in zip(exact, sampled, strict=True):
            assert one.interval is None and other.interval.sample == path_samples.SAMPLES
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
