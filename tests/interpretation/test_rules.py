"""Rules: the algebra's scores on hand-made models, and exact counts beside them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError, DihedralGroup
from dihedral.inference.predictor import Predictor
from dihedral.interpretation import find_rules
from dihedral.interpretation.beliefs import Beliefs
from dihedral.models import Model
from dihedral.models.dihedral import CodeRelations

L = 24


def exact_model(graph: dh.Graph, codes: np.ndarray, seed: int = 0) -> Predictor:
    generator = torch.Generator().manual_seed(seed)
    entities = torch.randn(graph.num_entities, 2 * L, generator=generator)
    return Predictor(Model(entities, CodeRelations(torch.from_numpy(codes), 4)), graph)


@pytest.fixture(scope="module")
def kin() -> Predictor:
    """spouse · parent is parent_in_law exactly, child inverts parent, spouse is an involution."""
    graph = dh.make_family(80, seed=2)
    d4, rng = DihedralGroup(4), np.random.default_rng(0)
    of = {"spouse": rng.choice([0, 2, 4, 5, 6, 7], L), "parent": rng.choice(8, L), "sibling": rng.choice(8, L)}
    of["child"] = d4.inverse(of["parent"])
    of["parent_in_law"] = d4.product(of["spouse"], of["parent"])
    of["child_in_law"] = d4.inverse(of["parent_in_law"])
    return exact_model(graph, np.stack([of[name] for name in graph.relations]).astype(np.uint8))


@torch.no_grad()
def test_a_score_is_the_mean_belief_where_a_body_leads(kin):
    graph, entities = kin.graph, kin.model.entities
    r1, r2, r3 = (graph.relations.id(name) for name in ("sibling", "parent", "parent_in_law"))
    dense = [kin.model.relations.queries(kin.operators, torch.full((2 * L,), r), torch.eye(2 * L), "tail")
             for r in range(graph.num_relations)]  # fmt: skip

    def members(relation: int, column: int) -> torch.Tensor:
        return entities[np.unique(graph.train[graph.train[:, 1] == relation, column])]

    facts = torch.from_numpy(graph.train[graph.train[:, 1] == r3]).long()
    level = ((entities[facts[:, 0]] @ dense[r3]) * entities[facts[:, 2]]).sum(1).mean()

    def one_way(starts: torch.Tensor, ends: torch.Tensor, body: torch.Tensor, head: torch.Tensor) -> float:
        total = mass = 0.0
        for start in starts:
            chance = torch.softmax(start @ body @ ends.T, dim=0)
            best = chance.topk(4).indices
            belief = (start @ head @ ends[best].T - level).clamp(max=0).exp()
            total, mass = total + float(chance[best] @ belief), mass + float(chance[best].sum())
        return total / mass

    body = dense[r1] @ dense[r2]
    expected = one_way(members(r1, 0), members(r2, 2), body, dense[r3])
    expected *= one_way(members(r2, 2), members(r1, 0), body.T, dense[r3].T)
    everyone = Beliefs(kin, starts=graph.num_entities, ends=4)
    assert everyone.score(np.array([[r1, r2]]))[0, r3] == pytest.approx(expected**0.5, rel=1e-4)


def test_what_holds_exactly_scores_best(kin):
    rules = find_rules(kin, min_support=5, inverses=False)
    chains = [rule for rule in rules if rule.kind == "composition" and len({*rule.body, rule.head}) == 3]
    best = {(rule.body, rule.head): rule for rule in chains[:4]}  # in-laws and spouses make four such rules
    assert all(rule.count == 1.0 for rule in best.values())
    assert best[("spouse", "parent"), "parent_in_law"].order_matters
    pairs = [rule for rule in rules if rule.kind == "inverse"]
    assert {frozenset((rule.body[0].removeprefix("~"), rule.head)) for rule in pairs[:2]} == {
        frozenset(("parent", "child")),
        frozenset(("parent_in_law", "child_in_law")),
    }
    assert "spouse" in [rule.head for rule in rules if rule.kind == "symmetric"]


@pytest.mark.parametrize("inverses", [False, True])
def test_counts_are_those_of_the_graph(kin, inverses):
    graph = kin.graph
    pairs: dict[str, set[tuple[int, int]]] = {name: set() for name in graph.relations}
    for h, r, t in graph.train.tolist():
        pairs[graph.relations[r]].add((h, t))
    for name in list(pairs):
        pairs[f"~{name}"] = {(t, h) for h, t in pairs[name]}
    rules = find_rules(kin, kinds=("composition",), min_support=1, top=60, inverses=inverses)
    assert any(step.startswith("~") for rule in rules for step in rule.body) == inverses
    for rule in rules:
        first, second = (pairs[step] for step in rule.body)
        joined = {(h, t) for (h, m), (n, t) in itertools.product(first, second) if m == n}
        held = joined & pairs[rule.head]
        has_any = {h for h, _ in pairs[rule.head]}
        assert (rule.body_pairs, rule.support) == (len(joined), len(held))
        assert rule.confidence == pytest.approx(len(held) / len(joined))
        among = sum(h in has_any for h, _ in joined)
        assert rule.pca_confidence == pytest.approx(len(held) / among if held else 0.0)
        for start, *between, end in rule.examples:
            walk = [graph.entities.id(name) for name in (start, *between, end)]
            assert all(step in pairs[name] for step, name in zip(itertools.pairwise(walk), rule.body, strict=True))
            assert (walk[0], walk[-1]) in pairs[rule.head]


def test_bodies_of_three_are_counted_exactly_too(kin):
    graph = kin.graph
    pairs: dict[str, set[tuple[int, int]]] = {name: set() for name in graph.relations}
    for h, r, t in graph.train.tolist():
        pairs[graph.relations[r]].add((h, t))
    rules = find_rules(kin, kinds=("composition",), min_support=2, top=40, inverses=False, length=3)
    longer = [rule for rule in rules if len(rule.body) == 3]
    assert longer
    for rule in longer[:10]:
        joined = pairs[rule.body[0]]
        for step in rule.body[1:]:
            joined = {(h, t) for (h, m), (n, t) in itertools.product(joined, pairs[step]) if m == n}
        assert (rule.body_pairs, rule.support) == (len(joined), len(joined & pairs[rule.head]))
        assert all(len(example) == 4 for example in rule.examples)


def test_a_chain_whose_parts_do_not_meet_is_not_proposed(kin):
    joined = {rule.body for rule in find_rules(kin, kinds=("composition",), min_support=1, top=10_000, inverses=False)}
    assert ("parent", "parent") not in joined  # two generations only


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"min_support": 0}, "must be 1 or more"),
        ({"top": 0}, "must be 1 or more"),
        ({"length": 4}, "length is 4; bodies have 2 or 3 steps"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(kin, bad, message):
    with pytest.raises(DihedralError, match=message):
        find_rules(kin, **bad)


def test_the_command_prints_tables_json_and_csv(cli, kin, tmp_path):
    kin.save(tmp_path / "model")
    done = cli("rules", tmp_path / "model", "--top", "3")
    assert done.code == 0 and "compositions" in done.out and "order matters" in done.out
    assert cli("rules", tmp_path / "model", "--top", "2", "--csv").out.startswith("kind,body,head,score")
    assert '"pca_confidence"' in cli("rules", tmp_path / "model", "--top", "2", "--json").out
    refused = cli("rules", tmp_path / "model", "--kind", "odd")
    assert refused.code == 2 and "kind is 'odd'; choose symmetric" in refused.err


def test_nothing_is_believed_of_a_relation_without_training_facts(kin):
    graph = kin.graph
    without = kin.graph.train[kin.graph.train[:, 1] != graph.relations.id("sibling")]
    bare = Predictor(kin.model, graph.replace(train=without))
    assert all(rule.head != "sibling" for rule in find_rules(bare, min_support=1, min_score=0.01, top=1000))


def test_rules_under_the_least_score_are_left_out_whatever_their_kind(kin):
    rules = find_rules(kin, min_support=1, min_score=0.9)
    assert rules and all(rule.score >= 0.9 for rule in rules)


def test_a_kind_may_be_given_by_name_and_must_exist(kin):
    assert {rule.kind for rule in find_rules(kin, kinds="symmetric", min_support=1)} <= {"symmetric"}
    with pytest.raises(DihedralError, match="kind is 'foo'; choose symmetric"):
        find_rules(kin, kinds=("foo",))


def test_facts_about_an_entity_and_itself_do_not_lower_the_confidence_of_a_symmetry():
    facts = [(f"a{i}", "like", f"b{i}") for i in range(12)] + [(f"b{i}", "like", f"a{i}") for i in range(12)]
    graph = dh.Graph.from_labels(facts + [(f"a{i}", "like", f"a{i}") for i in range(12)])
    rule = find_rules(exact_model(graph, np.zeros((1, L), np.uint8)), kinds=("symmetric",), min_score=0.0)[0]
    assert rule.confidence == rule.pca_confidence == 1.0
