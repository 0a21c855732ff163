"""Belief scores of path models: products of gates and elements along a body, and rules from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import Graph, Recipe
from dihedral.interpretation.beliefs import PathBeliefs
from dihedral.models.dihedral import ArgmaxRelations
from dihedral.models.path_model import PathModel
from dihedral.predict.predictor import Predictor
from dihedral.scoring.path_scorer import PathScorer

RELATIONS, L = 3, 4
STEPS = 2
RECIPE = Recipe(
    model="dihedral-argmax", objective="paths", K=8, dimension=8, steps=2, batch_size=8, epochs=12, relation_lr=0.01,
    relation_init=0.5,
)  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> Graph:
    facts = np.random.default_rng(0).integers(0, [20, RELATIONS, 20], (40, 3))
    return Graph.from_names([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in facts])


@pytest.fixture(scope="module")
def linear(graph) -> PathScorer:
    generator = torch.Generator().manual_seed(0)
    model = PathModel(ArgmaxRelations(RELATIONS, 2 * L, 8, generator=generator), STEPS, generator=generator)
    model.shared.data = torch.rand(4, STEPS, L, generator=generator)
    model.bias.data.normal_(generator=generator)
    return PathScorer(model.requires_grad_(False), graph.train_index)


@pytest.fixture(scope="module")
def composed() -> Predictor:
    """A model of a graph in which r0 · r1 = r2, and each relation leads from an entity to one other."""
    rng, names = np.random.default_rng(0), [f"e{number}" for number in range(60)]
    first, second = rng.permutation(60), rng.permutation(60)
    steps = {"r0": first, "r1": second, "r2": second[first]}
    facts = [(names[i], relation, names[to[i]]) for relation, to in steps.items() for i in range(60)]
    return dh.train(Graph.from_names(facts), RECIPE, progress=False)


@pytest.mark.parametrize("body", [(0, 1), (2, 2), (RELATIONS + 1, 0), (RELATIONS + 2, RELATIONS + 1)])
def test_a_belief_is_read_from_products_of_gates_and_elements_along_the_body(graph, linear, body):
    model = linear.model
    found = PathBeliefs(linear, graph).score(np.array([body]))[0]
    blocks = model.relations.exact().view(RELATIONS, 2, 2, L).double()
    elements = torch.cat([blocks, blocks.transpose(1, 2)])
    gates, exponents = model.gates(torch.arange(RELATIONS)).double(), model.shared[2].double()
    for question in range(RELATIONS):
        state = model.vectors[question].double().view(2, L)
        for t, (step, degree) in enumerate(zip(body, (2, 1), strict=True)):  # edges at the middle and at the end
            state = torch.einsum("ijl,il->jl", elements[step], state) * gates[question, t, step]
            state = state * (1.0 + degree) ** -exponents[t]
        length = state.norm(dim=0)
        w, omega = model.reading[question, :2].double(), model.reading[question, 2].double()
        score = model.bias[question] + (((w * state).sum(0) + omega * length) / (1 + length).sqrt()).sum()
        expected = score.exp() / (score.exp() + graph.num_entities - 1)
        assert found[question] == pytest.approx(float(expected), rel=1e-4)


def test_beliefs_do_not_depend_on_what_is_scored_together(graph, linear):
    beliefs, bodies = PathBeliefs(linear, graph), np.argwhere(np.ones((2 * RELATIONS, 2 * RELATIONS)))
    together, done = np.tile(bodies, (3, 1)), []
    found = beliefs.score(together, on_progress=done.append)
    assert done[-1] == len(together) == 3 * len(bodies)
    single = np.concatenate([beliefs.score(body[None]) for body in bodies])
    np.testing.assert_allclose(found, np.tile(single, (3, 1)), rtol=1e-5)


def test_a_path_model_believes_most_in_the_rules_that_hold(composed):
    rules = dh.find_rules(composed, kinds="composition", min_support=1, min_score=0.0, sort="belief", top=1000)
    best = {rule.head: rule for rule in reversed(rules)}
    assert {head: rule.body for head, rule in best.items()} == {
        "r0": ("r2", "~r1"), "r1": ("~r0", "r2"), "r2": ("r0", "r1")
    }  # fmt: skip
    assert all(rule.confidence == 1 and rule.order_matters for rule in best.values())


def test_a_path_model_shows_no_rule_that_it_does_not_believe_in(composed):
    rules = dh.find_rules(composed, min_support=1, min_score=0.5)
    assert {rule.head for rule in rules if rule.kind == "composition"} == {"r0", "r1", "r2"}
    assert all(rule.score >= 0.5 for rule in rules)


def test_the_rows_of_a_path_model_combine(composed):
    a = dh.algebra(composed)
    first, second, _ = composed.scorer.model.relations.codes.numpy()
    assert ((a["r0"] @ ~a["r1"]).codes == a.monoid.product(first, a.monoid.transpose(second))).all()
