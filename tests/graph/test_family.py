"""The synthetic FAMILY graph: its logic holds exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError, load_graph, make_family

settings_of_families = {"people": st.integers(2, 30).map(lambda n: 4 * n), "seed": st.integers(0, 1000)}


def kinship(people, parents, seed):
    """relation -> set of (head, tail), over all splits."""
    graph = make_family(people, parents=parents, seed=seed)
    pairs = {relation: set() for relation in graph.relations}
    for head, relation, tail in graph.names_of(graph.known):
        pairs[relation].add((head, tail))
    return pairs


def reverse(pairs):
    return {(tail, head) for head, tail in pairs}


def compose(first, second):
    """(h, t) where (h, m) is in the first and (m, t) in the second."""
    steps = {}
    for middle, tail in second:
        steps.setdefault(middle, set()).add(tail)
    return {(head, tail) for head, middle in first for tail in steps.get(middle, ())}


@given(parents=st.sampled_from([1, 2]), **settings_of_families)
def test_the_rules_of_kinship_hold(people, parents, seed):
    kin = kinship(people, parents, seed)
    assert kin["spouse"] == reverse(kin["spouse"])
    assert kin["sibling"] == reverse(kin["sibling"])
    assert kin["child"] == reverse(kin["parent"])
    assert kin["child_in_law"] == reverse(kin["parent_in_law"])
    assert kin["parent_in_law"] == compose(kin["spouse"], kin["parent"])
    assert kin["child_in_law"] == compose(kin["child"], kin["spouse"])


@given(**settings_of_families)
def test_in_the_other_order_a_spouse_of_a_parent_is_a_parent(people, seed):
    kin = kinship(people, 2, seed)
    swapped = compose(kin["parent"], kin["spouse"])
    assert swapped == kin["parent"]
    assert not swapped & kin["parent_in_law"]


@given(**settings_of_families)
def test_with_one_parent_the_spouse_of_a_parent_is_not_related(people, seed):
    kin = kinship(people, 1, seed)
    assert not compose(kin["parent"], kin["spouse"]) & (kin["parent"] | kin["parent_in_law"])


@given(parents=st.sampled_from([1, 2]), **settings_of_families)
def test_nobody_marries_a_sibling_or_themselves(people, parents, seed):
    kin = kinship(people, parents, seed)
    assert not kin["spouse"] & kin["sibling"]
    assert all(head != tail for pairs in kin.values() for head, tail in pairs)


@given(parents=st.sampled_from([1, 2]), **settings_of_families)
def test_everyone_has_one_spouse_of_the_other_sex_and_half_have_parents(people, parents, seed):
    kin = kinship(people, parents, seed)
    assert sorted(head for head, _ in kin["spouse"]) == sorted(make_family(people, seed=seed).entities)
    assert all({head.split("_")[0], tail.split("_")[0]} == {"man", "woman"} for head, tail in kin["spouse"])
    assert len(kin["parent"]) == parents * people // 2
    assert len({head for head, _ in kin["parent"]}) == people // 2


@given(parents=st.sampled_from([1, 2]), **settings_of_families)
def test_siblings_are_those_who_share_a_parent(people, parents, seed):
    kin = kinship(people, parents, seed)
    share = {(head, tail) for head, tail in compose(kin["parent"], kin["child"]) if head != tail}
    assert kin["sibling"] == share


@pytest.mark.parametrize("parents", [1, 2])
def test_parents_of_one_person_are_a_couple(parents):
    kin = kinship(400, parents, 0)
    for person in {head for head, _ in kin["parent"]}:
        found = [tail for head, tail in kin["parent"] if head == person]
        assert len(found) == parents
        assert parents == 1 or tuple(found) in kin["spouse"]


def test_there_are_as_many_men_as_women():
    names = list(make_family().entities)
    assert sum(name.startswith("man") for name in names) == sum(name.startswith("woman") for name in names) == 600


def test_the_graph_of_the_case_studies_has_1200_people_and_six_relations():
    graph = load_graph("family")
    assert graph.num_entities == 1200
    assert list(graph.relations) == ["spouse", "child", "parent", "sibling", "parent_in_law", "child_in_law"]
    assert 7000 < len(graph.known) < 7600
    assert graph.notes == ()
    assert graph.fingerprint == make_family(1200, parents=2, seed=0).fingerprint


def test_every_held_out_entity_occurs_in_train():
    graph = make_family()
    trained = set(graph.train[:, [0, 2]].ravel())
    assert len(graph.valid) == len(graph.test) == round(0.05 * len(graph.known))
    assert trained == set(range(1200))


def test_the_seed_determines_the_family():
    assert make_family(80, seed=5).fingerprint == make_family(80, seed=5).fingerprint
    assert make_family(80, seed=5).fingerprint != make_family(80, seed=6).fingerprint
    assert load_graph("family", seed=5).fingerprint == make_family(seed=5).fingerprint


def test_a_family_without_held_out_triples():
    graph = make_family(40, valid=0, test=0)
    assert len(graph.valid) == len(graph.test) == 0
    assert len(graph.train) == len(np.unique(graph.train, axis=0))


@pytest.mark.parametrize("people", [-4, 0, 4, 10, 1201])
def test_people_come_in_two_generations_of_couples(people):
    with pytest.raises(DihedralError, match=f"people is {people}; .* multiple of 4, 8 or more"):
        make_family(people)


@pytest.mark.parametrize("parents", [0, 3])
def test_a_person_has_one_or_two_parents(parents):
    with pytest.raises(DihedralError, match=f"parents is {parents}; a person is linked to 1 or 2 parents"):
        make_family(40, parents=parents)


def test_a_family_cannot_be_held_out_completely():
    with pytest.raises(DihedralError, match="their sum less than 1"):
        make_family(40, valid=0.5, test=0.5)
