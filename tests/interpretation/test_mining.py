"""Rules: belief scores of models made by hand, and exact counts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import sparse

import dihedral as dh
from dihedral import DihedralError, DihedralGroup
from dihedral.graph.patterns import wilson_interval
from dihedral.interpretation import find_rules
from dihedral.interpretation.beliefs import Beliefs
from dihedral.models import Model, build_model
from dihedral.models.dihedral import CodeRelations
from dihedral.predict.predictor import Predictor
from dihedral.store.trained import TrainedModel

L = 24


def exact_model(graph: dh.Graph, codes: np.ndarray, seed: int = 0) -> Predictor:
    generator = torch.Generator().manual_seed(seed)
    entities = torch.randn(graph.num_entities, 2 * L, generator=generator)
    return Predictor(TrainedModel(Model(entities, CodeRelations(torch.from_numpy(codes), 4)), graph))


@pytest.fixture(scope="module")
def kin() -> Predictor:
    """A model in which spouse · parent = parent_in_law, child inverts parent and spouse is an involution."""
    graph = dh.make_family(80, seed=2)
    d4, rng = DihedralGroup(4), np.random.default_rng(0)
    of = {"spouse": rng.choice([0, 2, 4, 5, 6, 7], L), "parent": rng.choice(8, L), "sibling": rng.choice(8, L)}
    of["child"] = d4.inverse(of["parent"])
    of["parent_in_law"] = d4.product(of["spouse"], of["parent"])
    of["child_in_law"] = d4.inverse(of["parent_in_law"])
    return exact_model(graph, np.stack([of[name] for name in graph.relations]).astype(np.uint8))


@torch.no_grad()
@pytest.mark.parametrize("rule", [("sibling", "parent", "parent_in_law"), ("sibling", "sibling", "spouse")])
def test_a_score_is_the_mean_belief_in_the_answers_of_a_body(kin, rule):
    graph, entities = kin.graph, kin.model.entities
    r1, r2, r3 = map(graph.relations.id, rule)
    dense = [kin.model.relations.queries(kin.scorer.operators, torch.full((2 * L,), r), torch.eye(2 * L), "tail")
             for r in range(graph.num_relations)]  # fmt: skip

    def members(relation: int, column: int) -> list[int]:
        return np.unique(graph.train[graph.train[:, 1] == relation, column]).tolist()

    facts = torch.from_numpy(graph.train[graph.train[:, 1] == r3]).long()
    level = ((entities[facts[:, 0]] @ dense[r3]) * entities[facts[:, 2]]).sum(1).mean()

    def one_way(starts: list[int], ends: list[int], body: torch.Tensor, head: torch.Tensor) -> float:
        total = mass = 0.0
        for number in starts:
            start, candidates = entities[number], entities[ends]
            likely = torch.softmax(start @ body @ candidates.T, dim=0) * (torch.tensor(ends) != number)
            best = likely.topk(4).indices
            belief = (start @ head @ candidates[best].T - level).clamp(max=0).exp()
            total, mass = total + float(likely[best] @ belief), mass + float(likely[best].sum())
        return total / mass

    body = dense[r1] @ dense[r2]
    expected = one_way(members(r1, 0), members(r2, 2), body, dense[r3])
    expected *= one_way(members(r2, 2), members(r1, 0), body.T, dense[r3].T)
    everyone = Beliefs(kin.scorer, graph, starts=graph.num_entities, ends=4)
    assert everyone.score(np.array([[r1, r2]]))[0, r3] == pytest.approx(expected**0.5, rel=1e-4)


@pytest.fixture(scope="module")
def bodies(kin) -> np.ndarray:
    steps = range(2 * kin.graph.num_relations)
    return np.array(list(itertools.product(steps, steps)))


def test_scores_of_wanted_heads_are_those_of_all_heads(kin, bodies):
    beliefs = Beliefs(kin.scorer, kin.graph)
    scores = beliefs.score(bodies)
    wanted = np.random.default_rng(0).random(scores.shape) < 0.2
    np.testing.assert_allclose(beliefs.score(bodies, sparse.csr_array(wanted)), scores * wanted, atol=1e-6)


def test_scores_from_the_minimum_on_are_not_changed_by_it(kin, bodies):
    beliefs = Beliefs(kin.scorer, kin.graph)
    scores, fewer = beliefs.score(bodies), beliefs.score(bodies, min_score=0.3)
    np.testing.assert_allclose(np.where(scores >= 0.3, scores - fewer, 0), 0, atol=1e-6)
    assert ((fewer == 0) & (scores > 0)).any()


def test_scores_do_not_depend_on_the_number_of_threads(kin, bodies, set_threads):
    found = []
    for count in (1, 3):
        set_threads(count)
        found.append(Beliefs(kin.scorer, kin.graph).score(bodies))
    np.testing.assert_array_equal(*found)


def test_rules_that_hold_exactly_have_the_best_scores(kin):
    rules = find_rules(kin, min_support=5, inverses=False, sort="belief")
    chains = [rule for rule in rules if rule.kind == "composition" and len({*rule.body, rule.head}) == 3]
    best = {(rule.body, rule.head): rule for rule in chains[:4]}  # in-laws and spouses make four such rules
    assert all(rule.agreement.kappa == 1.0 and rule.agreement.significant for rule in best.values())
    assert best[("spouse", "parent"), "parent_in_law"].order_matters
    pairs = [rule for rule in rules if rule.kind == "inverse"]
    assert {frozenset((rule.body[0].removeprefix("~"), rule.head)) for rule in pairs[:2]} == {
        frozenset(("parent", "child")),
        frozenset(("parent_in_law", "child_in_law")),
    }
    assert "spouse" in [rule.head for rule in rules if rule.kind == "symmetric"]


@pytest.mark.parametrize("inverses", [False, True])
def test_counts_of_rules_equal_counts_by_sets(kin, inverses):
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
        joined = {(h, t) for (h, m), (n, t) in itertools.product(first, second) if m == n and h != t}
        held = joined & pairs[rule.head]
        has_any = {h for h, _ in pairs[rule.head]}
        assert (rule.body_pairs, rule.support) == (len(joined), len(held))
        assert rule.confidence == pytest.approx(len(held) / len(joined))
        among = sum(h in has_any for h, _ in joined)
        assert rule.pca_confidence == pytest.approx(len(held) / among)
        assert rule.head_coverage == pytest.approx(len(held) / len(pairs[rule.head]))
        for start, *between, end in rule.examples:
            walk = [graph.entities.id(name) for name in (start, *between, end)]
            assert all(step in pairs[name] for step, name in zip(itertools.pairwise(walk), rule.body, strict=True))
            assert (walk[0], walk[-1]) in pairs[rule.head]


def test_counts_of_bodies_of_three_steps_equal_counts_by_sets(kin):
    graph = kin.graph
    pairs: dict[str, set[tuple[int, int]]] = {name: set() for name in graph.relations}
    for h, r, t in graph.train.tolist():
        pairs[graph.relations[r]].add((h, t))
    rules = find_rules(kin, kinds=("composition",), min_support=2, top=40, inverses=False, length=3)
    longer = [rule for rule in rules if len(rule.body) == 3]
    assert longer
    for rule in longer[:10]:
        ways = set(pairs[rule.body[0]])
        for step in rule.body[1:]:
            ways = {(*way, t) for way, (n, t) in itertools.product(ways, pairs[step]) if way[-1] == n and t not in way}
        joined = {(way[0], way[-1]) for way in ways}
        assert (rule.body_pairs, rule.support) == (len(joined), len(joined & pairs[rule.head]))
        assert all(len(set(example)) == 4 for example in rule.examples)


@pytest.mark.parametrize("kind", ["symmetric", "skew-symmetric", "inverse", "composition"])
def test_no_rule_has_less_than_the_minimum_support(kin, kind):
    for least in (1, 20):
        rules = find_rules(kin, kinds=kind, min_support=least, min_score=0.0, top=10_000)
        assert all(rule.support >= least for rule in rules)
        assert all(rule.head_coverage == pytest.approx(rule.support / size_of(kin, rule.head)) for rule in rules)
        assert kind != "composition" or rules


def size_of(predictor, relation):
    return int((predictor.graph.train[:, 1] == predictor.graph.relations.id(relation)).sum())


def test_a_relation_without_mutual_facts_is_not_symmetric_whatever_the_model_says():
    graph = dh.Graph.from_names([(f"a{i}", "under", f"b{i}") for i in range(30)])
    identity = exact_model(graph, np.zeros((1, L), np.uint8))  # hᵀRt = tᵀRh
    assert find_rules(identity, kinds="symmetric", min_support=1, min_score=0.0) == []


def test_a_relation_and_its_inverse_make_a_body():
    """Two people with one employer are colleagues; nobody is a colleague of herself."""
    works = [(f"p{i}", "works_for", f"firm{i // 4}") for i in range(24)]
    same = [(f"p{i}", "colleague", f"p{j}") for i in range(24) for j in range(24) if i // 4 == j // 4 and i != j]
    graph = dh.Graph.from_names(works + same)
    predictor = exact_model(graph, np.zeros((2, L), np.uint8))
    vectors = torch.randn(6, 2 * L, generator=torch.Generator().manual_seed(1))
    for name in graph.entities:  # a person is near the firm
        firm = int(name[1:]) // 4 if name.startswith("p") else int(name[4:])
        predictor.scorer.entities[graph.entities.id(name)] = vectors[firm]
    rules = find_rules(predictor, kinds="composition", min_support=1)
    own = {(rule.body, rule.head): rule for rule in rules}[("works_for", "~works_for"), "colleague"]
    assert (own.support, own.body_pairs, own.confidence, own.head_coverage) == (72, 72, 1.0, 1.0)
    assert all(start != end for start, _, end in own.examples)


@torch.no_grad()
def test_a_body_that_leads_only_to_its_start_has_no_score():
    facts = [(f"a{i}", "has", f"b{i}") for i in range(20)] + [(f"a{i}", "is", f"a{i}") for i in range(20)]
    graph = dh.Graph.from_names(facts)
    predictor = exact_model(graph, np.zeros((2, L), np.uint8))
    predictor.scorer.entities.mul_(3)  # every entity is far nearer to itself than to the others
    bodies = np.array([[graph.relations.id("has"), 2 + graph.relations.id("has")]])
    own = Beliefs(predictor.scorer, graph).score(bodies)[0, graph.relations.id("is")]
    assert own < 0.01
    assert find_rules(predictor, kinds="composition", min_support=1, min_score=0.0) == []


def test_chains_whose_steps_never_meet_are_not_proposed(kin):
    joined = {rule.body for rule in find_rules(kin, kinds=("composition",), min_support=1, top=10_000, inverses=False)}
    assert ("parent", "parent") not in joined  # two generations only


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"min_support": 0}, "min_support is 0; it must be 1 or more"),
        ({"top": 0}, "top is 0; it must be 1 or more"),
        ({"min_score": 2}, "min_score is 2; it must be between 0 and 1"),
        ({"min_confidence": -1}, "min_confidence is -1; it must be between 0 and 1"),
        ({"sort": "score"}, "sort is 'score'; choose confidence, belief, support"),
        ({"kinds": ("foo",)}, "kind is 'foo'; choose symmetric"),
        ({"length": 4}, "length is 4; bodies have 2 or 3 steps"),
    ],
)
def test_invalid_options_are_named_in_the_error(kin, bad, message):
    with pytest.raises(DihedralError, match=message):
        find_rules(kin, **bad)


def test_no_rule_implies_a_relation_without_training_facts(kin):
    graph = kin.graph
    without = kin.graph.train[kin.graph.train[:, 1] != graph.relations.id("sibling")]
    bare = Predictor(TrainedModel(kin.model, graph.replace(train=without)))
    rules = find_rules(bare, min_support=1, min_score=0.01, top=1000)
    assert rules and all(rule.head != "sibling" for rule in rules)


def test_rules_below_the_minimum_score_are_left_out(kin):
    rules, fewer = (find_rules(kin, min_support=1, min_score=score) for score in (0.5, 0.9))
    assert fewer == [rule for rule in rules if rule.score >= 0.9]
    assert 0 < len(fewer) < len(rules)


def test_rules_below_the_minimum_confidence_are_left_out(kin):
    rules, fewer = (find_rules(kin, min_support=1, min_confidence=least, top=10_000) for least in (0.0, 0.8))
    assert 0 < len(fewer) < len(rules) and all(rule.confidence >= 0.8 for rule in fewer)
    longer = find_rules(kin, kinds="composition", min_support=1, min_confidence=0.9, length=3)
    assert any(len(rule.body) == 3 for rule in longer) and all(rule.confidence >= 0.9 for rule in longer)


@pytest.mark.parametrize("relation", ["parent", "spouse", "parent_in_law"])
def test_the_rules_for_a_relation_are_those_of_all_rules_that_imply_it(kin, relation):
    options = {"min_support": 1, "min_score": 0.0, "top": 10_000, "examples": 0}
    every, found = find_rules(kin, **options), find_rules(kin, relation=relation, **options)
    assert {str(rule) for rule in found if rule.kind != "inverse"} == {
        str(rule) for rule in every if rule.kind != "inverse" and rule.head == relation
    }
    pairs = {(rule.body[0].removeprefix("~"), rule.head) for rule in every if rule.kind == "inverse"}
    assert {rule.body[0] for rule in found if rule.kind == "inverse"} == {
        f"~{next(name for name in pair if name != relation)}" for pair in pairs if relation in pair
    }
    assert {rule.head for rule in find_rules(kin, relation=relation, kinds="composition", length=3)} == {relation}


@pytest.mark.parametrize(("sort", "length"), [("confidence", 2), ("belief", 2), ("support", 2), ("confidence", 3)])
def test_rules_come_in_the_order_asked_for(kin, sort, length):
    rules = find_rules(kin, min_support=1, sort=sort, length=length)
    low = {id(rule): wilson_interval(np.array(rule.confidence), rule.body_pairs)[0] for rule in rules}
    value = {"confidence": lambda rule: low[id(rule)], "belief": lambda rule: rule.score}
    values = [value.get(sort, lambda rule: rule.support)(rule) for rule in rules if rule.kind != "skew-symmetric"]
    assert len(values) > 10 and values == sorted(values, reverse=True)
    kinds = [rule.kind == "skew-symmetric" for rule in rules]
    assert kinds == sorted(kinds)  # what they exclude comes last
    few, every = (find_rules(kin, kinds="composition", min_support=1, sort=sort, top=top) for top in (5, 10_000))
    same = [(rule.body, rule.head) for rule in few] == [(rule.body, rule.head) for rule in every[:5]]
    assert same or sort == "belief"  # whose last digits depend on what is scored together


@pytest.mark.parametrize("name", ["umls", "family-neural-lp"])
def test_the_first_rules_of_a_real_graph_hold(benchmark_graph, name):
    graph = benchmark_graph(name)
    model = build_model("dihedral-ste", graph.num_entities, graph.num_relations, dimension=16)
    rules = find_rules(Predictor(TrainedModel(model, graph)), min_score=0.0, top=20)
    implied = [rule for rule in rules if rule.kind != "skew-symmetric"]
    assert np.mean([rule.confidence for rule in implied[:20]]) >= 0.8


def test_a_single_kind_may_be_given_as_a_string(kin):
    assert {rule.kind for rule in find_rules(kin, kinds="symmetric", min_support=1)} == {"symmetric"}


def test_facts_with_equal_head_and_tail_do_not_lower_the_confidence_of_a_symmetry():
    facts = [(f"a{i}", "like", f"b{i}") for i in range(12)] + [(f"b{i}", "like", f"a{i}") for i in range(12)]
    graph = dh.Graph.from_names(facts + [(f"a{i}", "like", f"a{i}") for i in range(12)])
    rule = find_rules(exact_model(graph, np.zeros((1, L), np.uint8)), kinds=("symmetric",), min_score=0.0)[0]
    assert rule.confidence == rule.pca_confidence == 1.0
