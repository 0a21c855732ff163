"""Rules with constants in one argument."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.interpretation.constants import find_constant_rules
from dihedral.models import Model
from dihedral.models.dihedral import CodeRelations
from dihedral.predict.predictor import Predictor
from dihedral.store.trained import TrainedModel

L = 16
FACTS = [(f"p{i}", "lives_in", "paris") for i in range(12)] + [(f"p{i}", "speaks", "french") for i in range(10)]
FACTS += [(f"q{i}", "lives_in", "rome") for i in range(12)] + [(f"q{i}", "speaks", "italian") for i in range(12)]
FACTS += [("q0", "speaks", "french"), ("school", "teaches", "french"), ("paris", "lives_in", "paris")]
FACTS += [("club", "has_member", f"p{i}") for i in range(8)]


@pytest.fixture(scope="module")
def people():
    graph = dh.Graph.from_names(FACTS)
    entities = torch.randn(graph.num_entities, 2 * L, generator=torch.Generator().manual_seed(0))
    codes = np.zeros((graph.num_relations, L), np.uint8)
    return Predictor(TrainedModel(Model(entities, CodeRelations(torch.from_numpy(codes), 4)), graph))


def by_text(rules):
    return {str(rule): rule for rule in rules}


def test_every_pair_of_properties_with_enough_support_is_counted(people):
    found = by_text(find_constant_rules(people, min_support=5, min_score=0.0, inverses=False))
    assert set(found) == {
        "speaks(X,french) <= lives_in(X,paris)", "lives_in(X,paris) <= speaks(X,french)",
        "speaks(X,italian) <= lives_in(X,rome)", "lives_in(X,rome) <= speaks(X,italian)",
    }  # fmt: skip
    rule = found["speaks(X,french) <= lives_in(X,paris)"]
    assert rule.counts[:3] == (10, 12, 10) and rule.head_size == 11
    assert len(rule.examples) == 2 and all(fact[0][1:] == ("lives_in", "paris") for fact in rule.examples)
    with_inverses = by_text(find_constant_rules(people, min_support=5, min_score=0.0))
    assert with_inverses["lives_in(X,paris) <= has_member(club,X)"].confidence == 1.0


def test_the_constant_may_be_in_the_other_argument(people):
    found = by_text(find_constant_rules(people, side="head", min_support=5, min_score=0.0))
    assert set(found) == {"has_member(club,Y) <= lives_in(Y,paris)", "has_member(club,Y) <= speaks(Y,french)"}
    assert found["has_member(club,Y) <= lives_in(Y,paris)"].counts[:2] == (8, 12)


def test_a_rule_without_constants_is_not_repeated_for_each_entity():
    facts = [(f"a{i}", "like", "hub") for i in range(20)] + [("hub", "like", f"a{i}") for i in range(20)]
    graph = dh.Graph.from_names(facts)
    model = Model(torch.randn(graph.num_entities, 2 * L), CodeRelations(torch.zeros(1, L, dtype=torch.uint8), 4))
    assert find_constant_rules(Predictor(TrainedModel(model, graph)), min_support=5, min_score=0.0) == []


def test_the_score_is_the_mean_belief_in_the_head(people):
    graph, scorer = people.graph, people.scorer
    rule = by_text(find_constant_rules(people, min_support=5, min_score=0.0))["speaks(X,italian) <= lives_in(X,rome)"]
    r, c = graph.relations.id("speaks"), graph.entities.id("italian")

    def scores(triples):
        return scorer.score(torch.tensor(triples))

    level = scores([triple for triple in graph.train.tolist() if triple[1] == r]).mean()
    beliefs = (scores([[graph.entities.id(f"q{i}"), r, c] for i in range(12)]) - level).clamp(max=0).exp()
    assert rule.score == pytest.approx(float(beliefs.mean()), rel=1e-4)


def test_an_unknown_argument_is_refused(people):
    with pytest.raises(DihedralError, match="constants is 'both'; choose head or tail"):
        find_constant_rules(people, side="both")


def test_the_command_prints_rules_with_constants(cli, model_folder):
    done = cli("rules", model_folder, "--constants", "tail", "--min-support", 1, "--top", 3)
    assert done.code == 0 and "rules with constants" in done.out
    rules = json.loads(cli("rules", model_folder, "--constants", "tail", "--min-support", 1, "--json").out)
    assert all("entity" in rule["head"]["object"] for rule in rules) and rules
    refused = cli("rules", model_folder, "--constants", "tail", "--kind", "inverse")
    assert refused.code == 2 and "--constants is given with --kind" in refused.err
