"""The proposals that probabilities are fitted on."""

from __future__ import annotations

import numpy as np
import pytest

from dihedral.probability import sampling
from dihedral.probability.additive import fit_additive
from dihedral.probability.evidence import CountedRules, Evidence
from dihedral.probability.sampling import draw, sample_proposals, sides_of


@pytest.fixture(scope="module")
def umls(benchmark_graph):
    return benchmark_graph("umls")


@pytest.fixture(scope="module")
def evidence(umls, umls_predictor):
    return Evidence(umls_predictor.scorer, umls.train_index, CountedRules.count(umls.train_index))


@pytest.fixture(scope="module")
def every(evidence, umls):
    return sample_proposals(evidence, umls)


def as_set(triples):
    return set(map(tuple, triples.tolist()))


def test_few_proposals_are_all_taken_apart_from_those_of_test(evidence, umls, every):
    triples, features, held = every
    sides = sides_of(evidence)
    everything, scores = draw(evidence, sides, dict.fromkeys(sides, 1.0))
    assert as_set(triples) == as_set(everything) - as_set(umls.test) and len(triples) == len(features)
    assert as_set(triples[held]) == as_set(everything) & as_set(umls.valid)
    assert scores.numpy() == pytest.approx(evidence.scorer.score(everything).numpy(), abs=1e-4)


def test_of_many_proposals_a_share_and_the_best_are_taken(evidence, umls, every, monkeypatch):
    monkeypatch.setattr(sampling, "MAX_PROPOSALS", len(every[0]) / 4)
    monkeypatch.setattr(sampling, "BEST", 800)
    triples, features, held = sample_proposals(evidence, umls)
    assert len(as_set(triples)) == len(triples) == len(features)
    assert 0.1 * len(every[0]) < len(triples) < 0.5 * len(every[0])
    model, _ = fit_additive(features, triples[:, 1].numpy(), held, umls.num_relations, growth=1.3)
    z = model.logits(every[1], every[0][:, 1].numpy())
    best = every[0][np.argsort(-z)[:400].copy()]
    assert len(as_set(best) & as_set(triples)) > 0.7 * len(best)  # a share alone has 0.3 of them
    for cut in (50, 100, 200, 400):  # fitted on a share, measured on all
        top = np.argsort(-z)[:cut]
        assert model.at(z[top]).mean() == pytest.approx(every[2][top].mean(), abs=0.06)
