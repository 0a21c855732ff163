"""Facts that could be missing from a graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dihedral.probability import proposals
from dihedral.probability.additive import fit_additive
from dihedral.probability.evidence import CountedRules, Evidence
from dihedral.probability.proposals import draw, propose, sample_proposals, sides_of
from dihedral.scoring import path_scorer
from dihedral.scoring.path_scorer import PathScorer


@pytest.fixture
def evidence(predictor, family):
    return Evidence(predictor.scorer, family.train_index, CountedRules.count(family.train_index))


def best_by_hand(evidence, graph, relation, heads, tails, count):
    """The best unknown tails of each head and heads of each tail, one question at a time."""
    known = {tuple(pair) for pair in graph.train[graph.train[:, 1] == relation][:, [0, 2]].tolist()}
    triples = torch.tensor([[h, relation, t] for h in heads for t in tails])
    scores, found = evidence.scorer.score(triples).view(len(heads), len(tails)), set()
    for i, h in enumerate(heads):
        for j, t in enumerate(tails):
            if (h, t) in known:
                scores[i, j] = float("-inf")
    for matrix, turned in ((scores, False), (scores.T, True)):
        for i, row in enumerate(matrix):
            for j in row.topk(min(count, len(row))).indices.tolist():
                found.add((heads[j], tails[i]) if turned else (heads[i], tails[j]))
    return {pair for pair in found if pair not in known and pair[0] != pair[1]}


def test_proposals_are_the_best_unknown_pairs_and_those_that_rules_imply(evidence, family, monkeypatch):
    monkeypatch.setattr(proposals, "PER_ENTITY", 2)
    relation, everyone = family.relations.id("parent"), np.arange(family.num_entities)
    found, scores = propose(evidence, relation, everyone, everyone)
    assert scores.numpy() == pytest.approx(evidence.scorer.score(found).numpy(), abs=1e-4)
    pairs = {(h, t) for h, _, t in found.tolist()}
    assert len(pairs) == len(found) and set(found[:, 1].tolist()) == {relation}
    people = everyone.tolist()
    by_score = best_by_hand(evidence, family, relation, people, people, 2)
    keys, confidence = evidence.rules.implied(family.train_index, relation, everyone)
    known = {(h, t) for h, r, t in family.train.tolist() if r == relation}
    implied = {divmod(key, len(people)) for key in keys[confidence >= proposals.MIN_CONFIDENCE].tolist()}
    assert pairs == by_score | {(h, t) for h, t in implied if h != t and (h, t) not in known}


def test_proposals_stay_among_the_given_entities(evidence, family):
    relation, heads, tails = family.relations.id("parent"), np.array([1, 4, 9]), np.array([2, 5])
    found, _ = propose(evidence, relation, heads, tails)
    assert set(found[:, 0].tolist()) <= {1, 4, 9} and set(found[:, 2].tolist()) <= {2, 5}


def test_a_share_of_the_entities_is_drawn_at_random(evidence, family):
    relation, everyone = family.relations.id("parent"), np.arange(family.num_entities)
    full = {tuple(row) for row in propose(evidence, relation, everyone, everyone)[0].tolist()}
    part, _ = propose(evidence, relation, everyone, everyone, share=0.3)
    assert 0 < len(part) < len(full) and {tuple(row) for row in part.tolist()} <= full


@pytest.fixture
def asked(path_predictor, monkeypatch):
    """The questions that a path model is asked, as (entity, step)."""
    found, score = [], path_scorer.path_scores

    def counted(edges, questions, *others):
        found.extend(zip(questions.entities.tolist(), questions.steps.tolist(), strict=True))
        return score(edges, questions, *others)

    monkeypatch.setattr(path_scorer, "path_scores", counted)
    return found


@pytest.fixture
def path_evidence(path_predictor):
    facts = path_predictor.graph.train_index
    return Evidence(path_predictor.scorer, facts, CountedRules.count(facts))


def test_of_a_path_model_each_question_is_asked_once(path_evidence, path_predictor, asked):
    graph, relation = path_predictor.graph, path_predictor.graph.relations.id("sibling")
    heads, everyone = np.arange(0, 60, 2), np.arange(60)
    found, scores = propose(path_evidence, relation, heads, everyone)
    assert sorted(asked) == [(head, relation) for head in heads.tolist()]
    keys, confidence = path_evidence.rules.implied(graph.train_index, relation, heads)
    row, tail = np.divmod(keys[confidence >= proposals.MIN_CONFIDENCE], 60)
    known = {(h, t) for h, r, t in graph.train.tolist() if r == relation}
    implied = set(zip(heads[row].tolist(), tail.tolist(), strict=True)) - known
    assert implied and implied - {(h, h) for h in range(60)} <= {(h, t) for h, _, t in found.tolist()}
    torch.testing.assert_close(scores, path_predictor.scorer.score(found))


# --- proposals to fit on ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def umls(benchmark_graph):
    return benchmark_graph("umls")


@pytest.fixture(scope="module")
def umls_evidence(umls, umls_predictor):
    return Evidence(umls_predictor.scorer, umls.train_index, CountedRules.count(umls.train_index))


@pytest.fixture(scope="module")
def every(umls_evidence, umls):
    return sample_proposals(umls_evidence, umls)


def as_set(triples):
    return set(map(tuple, triples.tolist()))


def test_few_proposals_are_all_taken(umls_evidence, umls, every):
    triples, features, held = every
    sides = sides_of(umls_evidence)
    everything, scores = draw(umls_evidence, sides, dict.fromkeys(sides, 1.0))
    assert as_set(triples) == as_set(everything) and len(triples) == len(features)
    assert as_set(triples[held]) == as_set(everything) & as_set(umls.valid)
    assert scores.numpy() == pytest.approx(umls_evidence.scorer.score(everything).numpy(), abs=1e-4)


def test_of_many_proposals_a_share_and_the_best_are_taken(umls_evidence, umls, every, monkeypatch):
    monkeypatch.setattr(proposals, "MAX_PROPOSALS", len(every[0]) / 4)
    monkeypatch.setattr(proposals, "NUM_BEST", 800)
    triples, features, held = sample_proposals(umls_evidence, umls)
    assert len(as_set(triples)) == len(triples) == len(features)
    assert 0.1 * len(every[0]) < len(triples) < 0.5 * len(every[0])
    model, _ = fit_additive(features, triples[:, 1].numpy(), held, umls.num_relations, growth=1.3)
    z = model.logits(every[1], every[0][:, 1].numpy())
    best = every[0][np.argsort(-z)[:400].copy()]
    assert len(as_set(best) & as_set(triples)) > 0.7 * len(best)  # a share alone has 0.3 of them
    for cut in (50, 100, 200, 400):  # fitted on a share, measured on all
        top = np.argsort(-z)[:cut]
        assert model.at(z[top]).mean() == pytest.approx(every[2][top].mean(), abs=1.5 / cut**0.5)


def test_a_fit_asks_a_path_model_few_questions(path_evidence, path_predictor, asked, monkeypatch):
    graph = path_predictor.graph
    every, _, _ = sample_proposals(path_evidence, graph)
    count = len(set(asked))
    assert count == len(asked) == sum(len(heads) for heads, _ in sides_of(path_evidence).values())
    asked.clear()
    monkeypatch.setattr(PathScorer, "max_questions", count / 4)
    triples, features, held = sample_proposals(path_evidence, graph)
    assert 0.15 * count < len(asked) < 0.35 * count and len(set(asked)) == len(asked)
    assert {(h, r) for h, r, _ in triples.tolist()} <= set(asked)
    assert 0.1 * len(every) < len(triples) == len(features) < 0.4 * len(every)
    assert as_set(triples[held]) == as_set(triples) & as_set(graph.valid)
