"""Joins against loops in plain Python."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dihedral as dh
from dihedral.graph import joins
from dihedral.graph.joins import (
    Body,
    are_joined,
    bodies_between,
    distinct,
    facts_among,
    follow,
    paths_between,
    ranges,
    reach,
    tiles,
)
from dihedral.graph.patterns import count_rules, find_chains, find_reversals
from tests.loops import ENTITIES, RELATIONS, bodies, build, paths_by_loops, some_facts

starts = st.lists(st.integers(0, ENTITIES - 1), max_size=8).map(lambda ids: np.array(ids, np.int64))
EVERY_PAIR = tuple(part.ravel() for part in np.indices((ENTITIES, ENTITIES)))


@pytest.fixture(params=[1 << 20, 3], ids=["one tile", "small tiles"], autouse=True)
def tile(request, monkeypatch):
    monkeypatch.setattr(joins, "TILE", request.param)


def test_tiles_cover_everything_once_and_respect_the_limit():
    costs = np.array([3, 0, 4, 9, 1, 1, 1, 7, 0])
    parts = list(tiles(costs, 5))
    assert parts[0].start == 0 and parts[-1].stop == len(costs)
    assert all(one.stop == other.start for one, other in pairwise(parts))
    assert all(costs[part].sum() <= 5 or part.stop - part.start == 1 for part in parts)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=6))
def test_ranges_list_the_numbers_of_each_row(parts):
    first, counts = np.array(parts, np.int64).reshape(-1, 2).T
    row, number = ranges(first, counts)
    expected = [(i, start + j) for i, (start, count) in enumerate(parts) for j in range(count)]
    assert list(zip(row.tolist(), number.tolist(), strict=True)) == expected


@given(st.lists(st.integers(0, 5), max_size=9))
def test_distinct_numbers_are_those_of_a_set(values):
    assert distinct(np.array(values, np.int64)).tolist() == sorted(set(values))


@given(some_facts, starts, st.integers(0, 2 * RELATIONS - 1))
def test_a_step_leads_where_its_facts_do(rows, entities, step):
    expected = [
        (row, end)
        for row, entity in enumerate(entities)
        for end in sorted(path[1] for path in paths_by_loops(rows, [step], loops=True) if path[0] == entity)
    ]
    for groups in (None, np.arange(len(entities)) // 2):
        parts = list(follow(build(rows), entities, step, groups))
        found = [pair for row, ends in parts for pair in zip(row.tolist(), ends.tolist(), strict=True)]
        assert found == expected
    together = [set((row // 2).tolist()) for row, _ in parts]
    assert sum(map(len, together)) == len(set().union(*together))  # a group stays in one tile


@given(some_facts, bodies, starts)
def test_a_body_reaches_the_ends_of_its_paths(rows, body, entities):
    paths = paths_by_loops(rows, body, loops=True)
    expected = {row * ENTITIES + path[-1] for row, entity in enumerate(entities) for path in paths if path[0] == entity}
    assert reach(build(rows), body, entities).tolist() == sorted(expected)


@given(some_facts, bodies)
def test_paths_are_counted_between_all_pairs(rows, body):
    index = build(rows)
    steps, paths = Body(index, body), paths_by_loops(rows, body)
    assert steps.num_paths == len(paths)
    expected = Counter((path[0], path[-1]) for path in paths)
    assert steps.count_paths(*EVERY_PAIR).tolist() == [expected[pair] for pair in zip(*EVERY_PAIR, strict=True)]
    with_loops = {(path[0], path[-1]) for path in paths_by_loops(rows, body, loops=True)}
    if len(body) <= 2:
        joined = are_joined(index, np.tile([*body, -1][:2], (len(EVERY_PAIR[0]), 1)), *EVERY_PAIR).tolist()
        assert joined == [pair in with_loops for pair in zip(*EVERY_PAIR, strict=True)]


@given(some_facts, bodies)
def test_paths_between_all_pairs_visit_no_entity_twice(rows, body):
    expected = {path for path in paths_by_loops(rows, body) if len(set(path)) == len(path)}
    found = paths_between(build(rows), body, *EVERY_PAIR, max_answers=ENTITIES, max_paths=10_000)
    assert len(found) == len(expected) and set(map(tuple, found.tolist())) == expected
    fewer = paths_between(build(rows), body, *EVERY_PAIR, max_answers=1, max_paths=7)
    assert len(fewer) <= len(EVERY_PAIR[0]) and set(map(tuple, fewer.tolist())) <= expected


@given(some_facts, bodies.filter(lambda body: len(body) < 4))
def test_a_body_joins_pairs_through_different_entities(rows, body):
    expected = {(path[0], path[-1]) for path in paths_by_loops(rows, body) if len(set(path)) == len(path)}
    parts = Body(build(rows), body).joined()
    joined = [pair for part in parts for pair in zip(*(each.tolist() for each in part), strict=True)]
    assert sorted(joined) == sorted(expected)


@given(some_facts, st.integers(0, ENTITIES - 1), st.integers(0, ENTITIES - 1))
def test_bodies_between_two_entities_are_those_of_the_paths_between_them(rows, head, tail):
    without = rows[0]
    left = [row for row in rows if row != without]
    every = [(step,) for step in range(2 * RELATIONS)] + [tuple(divmod(i, 2 * RELATIONS)) for i in range(16)]
    expected = {}
    for body in every:
        paths = [path for path in paths_by_loops(left, body, loops=True) if (path[0], path[-1]) == (head, tail)]
        middle = [path[1:-1] for path in paths if not {head, tail} & set(path[1:-1])]
        if middle:
            expected[body] = min(middle)
    found, complete = bodies_between(build(rows), head, tail, without=without, max_paths=1000)
    assert found == expected and complete
    fewer, complete = bodies_between(build(rows), head, tail, without=without, max_paths=0)
    assert fewer == {body: between for body, between in expected.items() if not between}
    assert complete == (len(fewer) == len(expected))


@given(some_facts, st.sets(st.integers(0, ENTITIES - 1), min_size=1))
def test_facts_among_entities_have_both_ends_there(rows, entities):
    among = np.array(sorted(entities), np.int64)
    found, splits, complete = facts_among(build(rows), among, max_edges=1000)
    assert list(map(tuple, found.tolist())) == sorted(row for row in rows if {row[0], row[2]} <= entities)
    assert complete and splits.tolist() == [0] * len(found)
    fewer, _, complete = facts_among(build(rows), among, max_edges=4)
    assert set(map(tuple, fewer.tolist())) <= set(map(tuple, found.tolist()))
    assert not complete or len(fewer) == len(found)


def test_counts_do_not_depend_on_the_size_of_tiles(monkeypatch):
    index = dh.make_family(60, seed=3).train_index
    monkeypatch.undo()
    whole, reversed_whole = find_chains(index, min_support=2, inverses=True), find_reversals(index)
    rules = count_rules(index, [0, 1], range(index.num_relations))
    monkeypatch.setattr(joins, "TILE", 50)
    tiled = find_chains(index, min_support=2, inverses=True)
    assert tiled.rules.tolist() == whole.rules.tolist()
    assert tiled.support.tolist() == whole.support.tolist() and tiled.body.tolist() == whole.body.tolist()
    assert (tiled.joined != whole.joined).nnz == 0 and (
        find_reversals(index).support != reversed_whole.support
    ).nnz == 0
    assert count_rules(index, [0, 1], range(index.num_relations)) == rules
