"""Rules that say nothing new are left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral.interpretation import find_rules
from dihedral.interpretation.mining import Pruning
from dihedral.models import Model
from dihedral.models.dihedral import CodeRelations
from dihedral.predict.predictor import Predictor
from dihedral.store.trained import TrainedModel

L = 24


def pruning(graph, min_support=2):
    return Pruning(graph.train_index, min_support)


def steps(graph, *names):
    relations = graph.relations
    return tuple(relations.id(n.removeprefix("~")) + len(relations) * n.startswith("~") for n in names)


@pytest.fixture(scope="module")
def family():
    return dh.make_family(80, seed=2)


def test_a_symmetric_relation_backwards_is_the_same_step(family):
    pruned, head = pruning(family), family.relations.id("parent_in_law")
    assert pruned.is_new(steps(family, "spouse", "parent"), head)
    assert not pruned.is_new(steps(family, "~spouse", "parent"), head)
    assert not pruned.is_new(steps(family, "spouse", "~child"), head)  # child is the inverse of parent
    assert pruned.is_new(steps(family, "spouse", "child"), head)
    assert pruned.is_new(steps(family, "~spouse", "parent"), family.relations.id("parent"))


def test_a_body_of_a_symmetric_head_may_be_read_from_its_end(family):
    pruned, head = pruning(family), family.relations.id("sibling")
    assert pruned.is_new(steps(family, "parent", "child"), head)
    assert not pruned.is_new(steps(family, "~child", "~parent"), head)
    assert not pruned.is_new(steps(family, "parent", "~parent"), head)


def test_a_longer_body_within_a_shorter_one_adds_nothing(family):
    pruned, head = pruning(family), family.relations.id("parent")
    pruned.keep(steps(family, "sibling", "parent"), head, 0.9)
    longer = steps(family, "sibling", "spouse", "parent_in_law")  # also the parents of siblings
    assert not pruned.adds(longer, head, 0.9)
    assert pruned.adds(longer, head, 0.95)  # it is more confident
    assert pruned.adds(longer, family.relations.id("child"), 0.5)  # another head
    assert pruned.adds(steps(family, "parent", "parent_in_law", "child"), head, 0.1)


def model_of(graph):
    generator = torch.Generator().manual_seed(0)
    entities = torch.randn(graph.num_entities, 2 * L, generator=generator)
    codes = np.zeros((graph.num_relations, L), np.uint8)
    return Predictor(TrainedModel(Model(entities, CodeRelations(torch.from_numpy(codes), 4)), graph))


def test_no_two_mined_rules_are_the_same_and_no_longer_one_is_covered(family):
    rules = find_rules(model_of(family), kinds="composition", min_support=2, min_score=0.0, length=3, top=300)
    pruned = pruning(family)
    for rule in rules:
        assert pruned.is_new(steps(family, *rule.body), family.relations.id(rule.head)), rule
    for rule in rules:
        if len(rule.body) == 2:
            pruned.keep(steps(family, *rule.body), family.relations.id(rule.head), rule.confidence)
    longer = [rule for rule in rules if len(rule.body) == 3]
    assert longer
    for rule in longer:
        assert pruned.adds(steps(family, *rule.body), family.relations.id(rule.head), rule.confidence), rule


def test_a_fact_does_not_imply_itself():
    """r · s · ~s ⇒ r holds trivially where s leads to one entity and back."""
    facts = [(f"a{i}", "r", f"b{i}") for i in range(30)] + [(f"b{i}", "s", f"c{i}") for i in range(30)]
    rules = find_rules(model_of(dh.Graph.from_names(facts)), min_support=1, min_score=0.0, length=3)
    assert [rule for rule in rules if len(rule.body) == 3] == []
