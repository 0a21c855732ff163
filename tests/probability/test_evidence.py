"""What the known facts say about a proposed fact."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral.models import build_model
from dihedral.probability import evidence as evidence_module
from dihedral.probability.evidence import FEATURES, MAX_FURTHER, CountedRules, Evidence
from dihedral.scoring.embedding import EmbeddingScorer

PEOPLE = 12


@pytest.fixture(scope="module")
def graph():
    """Couples with a home each: `spouse` holds both ways, everyone has one home, and spouses live together."""
    facts = []
    for i in range(0, PEOPLE, 2):
        facts += [(f"p{i}", "spouse", f"p{i + 1}"), (f"p{i + 1}", "spouse", f"p{i}")]
        facts += [(f"p{i}", "lives_in", f"c{i // 4}"), (f"p{i + 1}", "lives_in", f"c{i // 4}")]
    facts += [(f"p{i}", "parent", f"p{i + 2}") for i in range(0, PEOPLE - 2)]
    return dh.load_graph(facts, valid=0, test=0)


@pytest.fixture(scope="module")
def evidence(graph):
    model = build_model("distmult", graph.num_entities, graph.num_relations, dimension=4)
    return Evidence(EmbeddingScorer(model), graph.train_index, CountedRules.count(graph.train_index))


def of(evidence, graph, *triples):
    ids = [[graph.entities.id(h), graph.relations.id(r), graph.entities.id(t)] for h, r, t in triples]
    rows = evidence.features(torch.tensor(ids))
    return [dict(zip(FEATURES, row.tolist(), strict=True)) for row in rows]


def test_rules_agree_with_counting_by_hand(graph):
    rules = CountedRules.count(graph.train_index)
    spouse, lives_in = graph.relations.id("spouse"), graph.relations.id("lives_in")
    bodies = [tuple(body) for body, head in zip(rules.bodies.tolist(), rules.heads, strict=True) if head == lives_in]
    assert (spouse, lives_in) in bodies  # the home of the spouse
    place = [i for i, (head, body) in enumerate(zip(rules.heads, rules.bodies.tolist(), strict=True))
             if head == lives_in and body == [spouse, lives_in]]  # fmt: skip
    assert rules.confidence[place[0]] == pytest.approx(PEOPLE / (PEOPLE + 5))


def test_a_relation_with_the_same_pairs_is_evidence(graph):
    with_partner = [(h, "partner", t) for h, r, t in graph.names_of(graph.train) if r == "spouse"]
    more = dh.load_graph([*graph.names_of(graph.train), *with_partner[1:]], valid=0, test=0)
    rules, (spouse, partner) = CountedRules.count(more.train_index), map(more.relations.id, ("spouse", "partner"))
    confidence = {tuple(body): value for body, value in rules.of(partner)}
    assert confidence[spouse,] == pytest.approx((PEOPLE - 1) / (PEOPLE + 5))
    assert (partner,) not in confidence  # that would say nothing
    model = build_model("distmult", more.num_entities, more.num_relations, dimension=4)
    (found,) = of(Evidence(EmbeddingScorer(model), more.train_index, rules), more, with_partner[0])
    assert found["rule"] == pytest.approx(np.log(0.001 + max(confidence.values())), abs=1e-5)


def test_a_fact_is_no_evidence_for_itself_through_a_loop():
    facts = [(f"p{i}", "lives_in", f"{kind}{i}") for i in range(20) for kind in ("town", "region")]
    facts += [(f"town{i}", "part_of", f"region{i}") for i in range(20)]
    fact, loop = ("q", "lives_in", "city"), ("city", "part_of", "city")
    rows = []
    for known in ([fact], []):
        graph = dh.load_graph([*facts, *known, loop, ("q", "knows", "p0")], valid=0, test=0)
        model = build_model("distmult", graph.num_entities, graph.num_relations, dimension=4)
        rules = CountedRules.count(graph.train_index)
        assert [graph.relations.id("lives_in"), graph.relations.id("part_of")] in rules.bodies.tolist()
        rows += of(Evidence(EmbeddingScorer(model), graph.train_index, rules), graph, fact)
    assert rows[0]["rule"] == rows[1]["rule"] == pytest.approx(np.log(0.001))


def test_implied_answers_equal_walks_in_the_graph(graph):
    rules, facts = CountedRules.count(graph.train_index), graph.train_index
    lives_in = graph.relations.id("lives_in")
    entities = np.arange(graph.num_entities)
    forwards, confidence = rules.implied(facts, lives_in, entities)
    assert (np.diff(forwards) > 0).all()
    best: dict[tuple[int, int], float] = {}
    for head, body, value in zip(rules.heads, rules.bodies.tolist(), rules.confidence, strict=True):
        if head == lives_in:
            paths = np.eye(graph.num_entities)
            for step in (step for step in body if step >= 0):
                taken = facts.steps == step
                matrix = np.zeros_like(paths)
                matrix[facts.sources[taken], facts.ends[taken].long()] = 1
                paths = paths @ matrix
            for pair in zip(*paths.nonzero(), strict=True):
                best[pair] = max(best.get(pair, 0.0), value)
    assert {divmod(key, graph.num_entities) for key in forwards.tolist()} == set(best)
    assert [best[divmod(key, graph.num_entities)] for key in forwards.tolist()] == pytest.approx(confidence.tolist())
    backwards, _ = rules.implied(facts, lives_in + graph.num_relations, entities)
    assert {divmod(key, graph.num_entities)[::-1] for key in backwards.tolist()} == set(best)


@pytest.mark.parametrize("at_once", [1, 50, 10_000])
def test_the_rule_of_a_pair_is_the_most_confident_of_those_that_imply_it(evidence, graph, monkeypatch, at_once):
    monkeypatch.setattr(evidence_module, "CHUNK", at_once)
    lives_in, count = graph.relations.id("lives_in"), graph.num_entities
    keys, confidence = evidence.rules.implied(evidence.between, lives_in, np.arange(count))
    expected = np.zeros(count * count)
    expected[keys] = confidence
    assert len(np.unique(confidence)) > 1
    pairs = torch.cartesian_prod(torch.arange(count), torch.tensor([lives_in]), torch.arange(count))
    found = np.concatenate([evidence.features(part)[:, FEATURES.index("rule")] for part in pairs.split(40)])
    np.testing.assert_allclose(found, np.log(0.001 + expected), atol=1e-5)


def test_a_second_home_is_less_likely_than_a_first_one(evidence, graph):
    second, known = of(evidence, graph, ("p0", "lives_in", "c1"), ("p0", "lives_in", "c0"))
    assert second["further tail"] < -2  # nobody has two
    assert known["further tail"] == MAX_FURTHER  # as if it were not known: every person has one


@pytest.mark.parametrize("genres", [5, 8])
def test_one_more_popular_genre_does_not_change_the_odds_of_a_further_film(genres):
    facts = [(f"f{film}", "genre", f"g{genre}") for genre in range(genres) for film in range(60)]
    graph = dh.load_graph([*facts, ("f60", "genre", "g0")], valid=0, test=0)
    model = build_model("distmult", graph.num_entities, graph.num_relations, dimension=4)
    (found,) = of(
        Evidence(EmbeddingScorer(model), graph.train_index, CountedRules.none()), graph, ("f60", "genre", "g1")
    )
    assert found["further head"] == MAX_FURTHER


def test_a_reversed_fact_counts_for_a_symmetric_relation_and_against_a_directed_one(evidence, graph):
    triples = ("p1", "spouse", "p0"), ("p2", "parent", "p0"), ("p4", "parent", "p0")
    spouse, parent, neither = of(evidence, graph, *triples)
    assert spouse["reverse"] > 2 and parent["reverse"] < -2 and neither["reverse"] == 0


def test_a_fact_about_an_entity_and_itself_counts_as_seldom_as_it_occurs(evidence, graph):
    (loop,) = of(evidence, graph, ("p0", "parent", "p0"))
    assert loop["reverse"] < -2


def test_features_do_not_depend_on_the_company(evidence, graph):
    triples = [("p1", "spouse", "p0"), ("p0", "lives_in", "c1"), ("p3", "lives_in", "c2"), ("p5", "parent", "p1")]
    together = of(evidence, graph, *triples)
    assert together == [of(evidence, graph, triple)[0] for triple in triples]


def test_an_entity_of_another_type_has_no_further_answer(benchmark_graph):
    graph = benchmark_graph("family-neural-lp")
    model = build_model("distmult", graph.num_entities, graph.num_relations, dimension=4)
    found = Evidence(EmbeddingScorer(model), graph.train_index, CountedRules.none())
    outside = np.setdiff1d(np.arange(graph.num_entities), found.signatures.candidates(0))[:1]
    inside = found.signatures.candidates(0)[:1]
    triples = torch.tensor([[int(outside[0]), 0, 5], [int(inside[0]), 0, 5]])
    first, second = found.features(triples)[:, FEATURES.index("further tail")]
    assert first < -5 < second
