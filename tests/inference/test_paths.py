"""Path questions: one product for the whole path, and the search step by step."""

from __future__ import annotations

import pytest
import torch

import dihedral as dh
from dihedral import DihedralError, paths
from dihedral.inference.paths import beam_search, path_queries, read_steps


@pytest.fixture(scope="module")
def predictor():
    return dh.train(dh.make_family(80, seed=1), "demo/family", epochs=8, progress=False, device="cpu")


@pytest.mark.parametrize("model", ["dihedral-gumbel", "complex", "rescal", "hole"])
def test_the_product_of_a_path_is_the_product_of_its_matrices(model):
    graph = dh.make_family(40)
    predictor = dh.train(graph, dh.Recipe(model=model, dimension=8, epochs=1), progress=False, device="cpu")
    units = torch.eye(8)

    def matrix(step: int) -> torch.Tensor:
        index = torch.full((8,), step % graph.num_relations)
        dense = predictor.model.relations.queries(predictor.operators, index, units, "tail")
        return dense if step < graph.num_relations else dense.T

    steps = read_steps(["spouse", "~parent", "sibling"], graph.relations)
    query = path_queries(predictor.model, predictor.operators, torch.tensor([5]), torch.tensor([steps]))
    product = matrix(steps[0]) @ matrix(steps[1]) @ matrix(steps[2])
    torch.testing.assert_close(query[0], predictor.model.entities[5] @ product, rtol=1e-4, atol=1e-5)


def test_a_path_of_one_step_is_a_prediction(predictor):
    expected = predictor.predict(head="man_0000", relation="spouse", top=3)
    assert [a.entity for a in predictor.query("man_0000", ["spouse"], top=3)] == [p.tail for p in expected]
    backwards = predictor.predict(tail="man_0000", relation="child", top=3)
    assert [a.entity for a in predictor.query("man_0000", ["~child"], top=3)] == [p.head for p in backwards]


@torch.no_grad()
def test_a_beam_of_all_entities_is_the_chance_that_any_way_leads_there(predictor):
    model, operators, graph = predictor.model, predictor.operators, predictor.graph
    steps = torch.tensor([read_steps(["spouse", "~child"], graph.relations)])
    beam = beam_search(
        model, operators, predictor.candidates, torch.tensor([3]), steps, facts=predictor.steps, width=10**6
    )

    def chances(entity: int, relation: str, side: str) -> torch.Tensor:
        """The definition, entity by entity."""
        r = graph.relations.id(relation)
        query = model.queries(torch.tensor([entity]), torch.tensor([r]), side, operators)
        softmax = torch.softmax(query @ predictor.candidates.T, 1)[0]
        here, there = (0, 2) if side == "tail" else (2, 0)
        known = [fact[there] for fact in graph.train.tolist() if fact[1] == r and fact[here] == entity]
        chance = (softmax * max(1, len(known))).clamp(max=0.9)
        chance[known] = 1.0
        return chance

    one = chances(3, "spouse", "tail")
    ways = torch.stack([one[m] * chances(m, "child", "head") for m in range(graph.num_entities)])  # [between, end]
    expected = 1 - (1 - ways.double()).prod(0)
    likely = expected > 1e-4
    torch.testing.assert_close(beam.scores[0].exp()[likely].double(), expected[likely], rtol=1e-3, atol=1e-5)
    answer = int(beam.scores[0].argmax())
    assert beam.through(0, answer) == [int(ways[:, answer].argmax())]


def test_many_questions_at_once_are_answered_as_one_by_one(predictor, monkeypatch):
    steps = torch.tensor([read_steps(["spouse", "parent"], predictor.graph.relations)] * 5)
    anchors = torch.arange(5)
    parts = (predictor.model, predictor.operators, predictor.candidates, anchors, steps)
    together = beam_search(*parts, facts=predictor.steps, width=4)
    monkeypatch.setattr(paths, "AT_ONCE", 1)
    apart = beam_search(*parts, facts=predictor.steps, width=4)
    torch.testing.assert_close(together.scores, apart.scores)
    assert [together.through(n, 7) for n in range(5)] == [apart.through(n, 7) for n in range(5)]


def test_a_beam_names_the_entities_between(predictor):
    found = predictor.query("man_0040", ["spouse", "parent"], top=2, mode="beam", width=4)
    assert all(len(answer.through) == 1 for answer in found)
    assert found[0].score >= found[1].score
    three = predictor.query("man_0040", ["spouse", "parent", "child"], top=1, mode="beam", width=4)
    assert len(three[0].through) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"via": []}, "the path has no steps"),
        ({"via": ["spouze"]}, "relation 'spouze' is not among"),
        ({"via": ["spouse"], "mode": "deep"}, "mode is 'deep'; choose product or beam"),
        ({"via": ["spouse"], "top": 0}, "top is 0; it must be 1 or more"),
        ({"via": ["spouse"], "width": 0}, "width is 0; it must be 1 or more"),
    ],
)
def test_bad_questions_are_refused_in_one_sentence(predictor, arguments, message):
    with pytest.raises(DihedralError, match=message):
        predictor.query("man_0000", **arguments)


def test_translations_do_not_compose_by_products():
    recipe = dh.Recipe(model="transe", dimension=8, epochs=1, relation_init=0.1)
    predictor = dh.train(dh.make_family(40), recipe, progress=False, device="cpu")
    with pytest.raises(DihedralError, match="do not compose by products"):
        predictor.query("man_0000", ["spouse"])


def test_every_answer_that_facts_lead_to_is_sure_however_narrow_the_beam():
    facts = [("hub", "has", f"m{i}") for i in range(40)] + [(f"m{i}", "in", f"e{i % 7}") for i in range(40)]
    graph = dh.Graph.from_labels(facts)
    predictor = dh.train(graph, dh.Recipe(dimension=8, epochs=1), progress=False, device="cpu")
    found = predictor.query("hub", ["has", "in"], top=7, mode="beam", width=2)
    assert {answer.entity for answer in found} == {f"e{i}" for i in range(7)}
    for answer in found:
        assert answer.score == 0 and (answer.through[0], "in", answer.entity) in facts


def test_a_relation_may_be_called_like_an_inverse():
    graph = dh.Graph.from_labels([("a", "~r", "b"), ("a", "r", "b")])
    assert read_steps(["~r", "r"], graph.relations) == [graph.relations.id("~r"), graph.relations.id("r")]
    with pytest.raises(DihedralError, match=r"give a list of relations, such as \['r'\]"):
        read_steps("r", graph.relations)
