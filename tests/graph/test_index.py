"""The index of a graph against dictionaries of sets and dense arrays."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dihedral import Graph
from dihedral.graph import GraphIndex, KnownAnswers, Vocabulary, index
from dihedral.graph.triples import SPLITS

ENTITIES, RELATIONS = 7, 3
STEPS = 2 * RELATIONS
triple = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))
some_parts = st.lists(st.lists(triple, max_size=40), min_size=1, max_size=3)  # duplicates within and across parts


def as_array(triples) -> np.ndarray:
    return np.array(triples, np.int32).reshape(-1, 3)


def build(parts) -> GraphIndex:
    return GraphIndex.build([as_array(part) for part in parts], ENTITIES, RELATIONS)


def first_parts(parts) -> dict[tuple[int, int, int], int]:
    """Each distinct fact, and the first part that holds it."""
    found: dict[tuple[int, int, int], int] = {}
    for number, part in enumerate(parts):
        for fact in part:
            found.setdefault(tuple(fact), number)
    return found


def edges_in_order(parts, num_relations: int = RELATIONS) -> list[tuple[int, int, int, int]]:
    """(entity, step, end, part) in both directions, sorted."""
    facts = first_parts(parts).items()
    forwards = [(head, relation, tail, part) for (head, relation, tail), part in facts]
    backwards = [(tail, num_relations + relation, head, part) for (head, relation, tail), part in facts]
    return sorted(forwards + backwards)


def listed_edges(found: GraphIndex) -> list[tuple[int, int, int, int]]:
    columns = found.sources, found.steps, found.ends, found.splits
    return list(zip(*(column.tolist() for column in columns), strict=True))


def answers(found: GraphIndex, questions) -> list[list[int]]:
    """The answers to each question (entity, step)."""
    asked = torch.tensor(questions, dtype=torch.int64).reshape(-1, 2)
    rows, ends = found.answers(asked[:, 0], asked[:, 1])
    listed: list[list[int]] = [[] for _ in questions]
    for row, end in zip(rows.tolist(), ends.tolist(), strict=True):
        listed[row].append(end)
    return listed


def answer_sets(triples, num_relations: int) -> dict[tuple[int, int], set[int]]:
    known: dict[tuple[int, int], set[int]] = defaultdict(set)
    for head, relation, tail in triples:
        known[head, relation].add(tail)
        known[tail, num_relations + relation].add(head)
    return known


EVERY_QUESTION = [(entity, step) for entity in range(ENTITIES) for step in range(STEPS)]
EVERY_EDGE = torch.cartesian_prod(torch.arange(ENTITIES), torch.arange(STEPS), torch.arange(ENTITIES))


# --- edges ---------------------------------------------------------------------------------------


@given(some_parts)
def test_edges_are_distinct_sorted_and_carry_their_first_part(parts):
    assert listed_edges(build(parts)) == edges_in_order(parts)


@given(some_parts)
def test_both_ways_of_sorting_give_the_same_index(parts):
    """One 64-bit code per edge, or three keys where codes do not fit."""
    narrow = build(parts)
    wide = GraphIndex.build([as_array(part) for part in parts], ENTITIES, 2**58)
    expected = edges_in_order(parts, num_relations=2**58)
    steps = (wide.keys % 2**59)[wide.rows].tolist()
    assert list(zip(wide.sources.tolist(), steps, wide.ends.tolist(), wide.splits.tolist(), strict=True)) == expected
    assert narrow.ends.tolist() == wide.ends.tolist() and narrow.splits.tolist() == wide.splits.tolist()


@given(some_parts)
def test_facts_are_the_distinct_triples_in_order(parts):
    columns = build(parts).facts()
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == sorted(first_parts(parts))


@given(some_parts)
def test_edges_of_an_entity_and_degrees_are_those_of_a_list(parts):
    found, edges = build(parts), edges_in_order(parts)
    for entity in range(ENTITIES):
        columns = found.edges_of(entity)
        own = [edge[1:] for edge in edges if edge[0] == entity]
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == own
        assert found.degrees[entity] == len(own)
        first, last = found.entity_starts[entity : entity + 2].tolist()
        assert edges[first:last] == [edge for edge in edges if edge[0] == entity]


@given(some_parts)
def test_members_are_the_distinct_entities_that_a_step_leaves(parts):
    found, edges = build(parts), edges_in_order(parts)
    expected = [sorted({source for source, taken, *_ in edges if taken == step}) for step in range(STEPS)]
    assert [found.members(step).tolist() for step in range(STEPS)] == expected
    assert found.member_counts.tolist() == [len(members) for members in expected]


# --- lookups -------------------------------------------------------------------------------------


@given(parts=some_parts, order=st.randoms(use_true_random=False))
def test_answers_are_those_of_a_dictionary_of_sets(parts, order):
    questions = EVERY_QUESTION * 2
    order.shuffle(questions)
    known = answer_sets(first_parts(parts), RELATIONS)
    assert answers(build(parts), questions) == [sorted(known[question]) for question in questions]


def test_answers_are_those_of_a_dictionary_of_sets_on_umls(benchmark_graph):
    graph = benchmark_graph("umls")
    known = answer_sets(graph.known.tolist(), graph.num_relations)
    questions = [(e, step) for e in range(graph.num_entities) for step in range(2 * graph.num_relations)]
    assert answers(graph.index, questions) == [sorted(known[question]) for question in questions]


@given(some_parts)
def test_locate_gives_the_place_of_an_edge_or_minus_one(parts):
    edges = {edge[:3]: place for place, edge in enumerate(edges_in_order(parts))}
    places = build(parts).locate(*EVERY_EDGE.unbind(1))
    assert places.tolist() == [edges.get(tuple(edge), -1) for edge in EVERY_EDGE.tolist()]


@given(some_parts)
def test_a_fact_in_several_splits_belongs_to_the_first(parts):
    found, first = build(parts), first_parts(parts)
    for fact in EVERY_EDGE[EVERY_EDGE[:, 1] < RELATIONS].tolist():
        expected = first.get(tuple(fact))
        assert found.split_of(*fact) == (None if expected is None else SPLITS[expected])


# --- parts of an index ---------------------------------------------------------------------------


@given(some_parts, st.randoms(use_true_random=False))
def test_selected_edges_make_an_index_of_their_own(parts, random):
    whole = build(parts)
    edges = edges_in_order(parts)
    mask = [random.random() < 0.5 for _ in edges]
    found = whole.select(torch.tensor(mask, dtype=torch.bool))
    kept = [edge for edge, chosen in zip(edges, mask, strict=True) if chosen]
    assert listed_edges(found) == kept
    assert found.keys.tolist() == sorted({STEPS * source + step for source, step, *_ in kept})
    for step in range(STEPS):
        assert found.members(step).tolist() == sorted({edge[0] for edge in kept if edge[1] == step})
    known = {(source, step): [e[2] for e in kept if e[:2] == (source, step)] for source, step in EVERY_QUESTION}
    assert answers(found, EVERY_QUESTION) == list(known.values())


@given(some_parts, st.sets(st.integers(0, ENTITIES - 1)))
def test_an_index_about_some_entities_answers_only_questions_about_them(parts, chosen):
    mask = np.isin(np.arange(ENTITIES), list(chosen))
    found = build(parts).about(mask)
    known = answer_sets(first_parts(parts), RELATIONS)
    expected = [sorted(known[question]) if question[0] in chosen else [] for question in EVERY_QUESTION]
    assert answers(found, EVERY_QUESTION) == expected


@given(some_parts)
def test_the_training_index_is_that_of_the_training_triples(parts):
    names = Vocabulary([f"e{i}" for i in range(ENTITIES)]), Vocabulary([f"r{i}" for i in range(RELATIONS)], "relation")
    splits = [as_array(part) for part in [*parts, [], []][:3]]
    graph = Graph(*names, *splits)
    assert listed_edges(graph.train_index) == edges_in_order(parts[:1])
    assert listed_edges(graph.index) == edges_in_order(parts)


# --- limits --------------------------------------------------------------------------------------


def test_an_empty_index_knows_nothing():
    for found in (build([[]]), build([]), build([[(0, 0, 1)]]).select(torch.zeros(2, dtype=torch.bool))):
        assert answers(found, EVERY_QUESTION) == [[] for _ in EVERY_QUESTION]
        assert found.locate(*EVERY_EDGE.unbind(1)).unique().tolist() == [-1]
        assert found.split_of(0, 0, 1) is None
        assert found.degrees.tolist() == [0] * ENTITIES and found.member_counts.tolist() == [0] * STEPS
        assert [len(column) for column in (*found.facts(), *found.edges_of(0))] == [0] * 6
        assert listed_edges(found.about(np.ones(ENTITIES, bool))) == []


def test_no_questions_have_no_answers():
    assert answers(build([[(0, 0, 1)]]), []) == []


def test_ids_whose_codes_do_not_fit_in_64_bits_are_indexed():
    last = 2**31 - 2
    count = last + 1
    triples = [(last, last, 0), (last, last, last), (last, last, 0), (0, 1, last), (last, 0, 5)]
    found = GraphIndex.build([as_array(triples), as_array([(0, 1, last), (5, last, last)])], count, count)
    known = answer_sets([*triples, (5, last, last)], count)
    assert answers(found, list(known)) == [sorted(ends) for ends in known.values()]
    assert answers(found, [(last, 1), (5, 0), (last - 1, last)]) == [[], [], []]
    assert [found.split_of(*fact) for fact in [*triples, (5, last, last)]] == ["train"] * 5 + ["valid"]
    assert found.split_of(5, last, last - 1) is None and found.split_of(last, 1, 0) is None
    steps, ends, _ = found.edges_of(last)
    expected = [(step, end) for (entity, step), known_ends in known.items() if entity == last for end in known_ends]
    assert list(zip(steps.tolist(), ends.tolist(), strict=True)) == sorted(expected)


# --- known answers -------------------------------------------------------------------------------


def random_graph() -> Graph:
    rng = np.random.default_rng(5)
    rows = rng.integers(0, [ENTITIES, RELATIONS, ENTITIES], (90, 3)).astype(np.int32)
    names = Vocabulary([f"e{i}" for i in range(ENTITIES)]), Vocabulary([f"r{i}" for i in range(RELATIONS)], "relation")
    return Graph(*names, rows[:60], rows[60:75], rows[75:])


def test_a_scan_of_a_large_graph_gives_what_its_index_gives(monkeypatch):
    scanned, indexed = random_graph(), random_graph()
    expected = KnownAnswers(indexed)
    monkeypatch.setattr(index, "MANY_FACTS", 0)
    few = index.FEW_QUESTIONS
    scan = KnownAnswers(scanned)
    for start in range(0, len(EVERY_QUESTION), few):
        entities, steps = torch.tensor(EVERY_QUESTION[start : start + few]).T
        for one, other in zip(scan(entities, steps), expected.index.answers(entities, steps), strict=True):
            assert one.tolist() == other.tolist()
    assert "index" not in vars(scanned), "a few questions do not build the index"


def test_many_questions_and_an_index_that_exists_make_a_scan_unnecessary(monkeypatch):
    monkeypatch.setattr(index, "MANY_FACTS", 0)
    graph = random_graph()
    KnownAnswers(graph)(*torch.tensor(EVERY_QUESTION).T)
    assert graph.has_index
    built = []
    monkeypatch.setattr(GraphIndex, "build", lambda *arguments: built.append(arguments))
    known = KnownAnswers(graph)
    entities, steps = torch.tensor(EVERY_QUESTION[:1]).T
    assert known(entities, steps)[1].tolist() == graph.index.answers(entities, steps)[1].tolist()
    assert not built


def test_known_facts_are_contained_whatever_their_split():
    graph = random_graph()
    facts = set(map(tuple, graph.known.tolist()))
    triples = EVERY_EDGE[EVERY_EDGE[:, 1] < RELATIONS]
    found = KnownAnswers(graph).contains(*triples.unbind(1))
    assert found.tolist() == [tuple(fact) in facts for fact in triples.tolist()]
