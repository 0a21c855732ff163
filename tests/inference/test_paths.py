"""Path queries: one product for a path, and the search step by step."""

from __future__ import annotations

import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.graph.steps import parse_steps, question_steps
from dihedral.inference import paths
from dihedral.inference.paths import beam_search, path_vectors
from dihedral.inference.scorer import Scorer
from dihedral.models import build_model


@pytest.fixture(scope="module")
def predictor():
    return dh.train(dh.make_family(80, seed=1), "demo/family", epochs=8, progress=False, device="cpu")


@pytest.mark.parametrize("model", ["dihedral-gumbel", "complex", "rescal", "hole"])
def test_the_vector_of_a_path_is_the_product_of_its_matrices(family, model):
    scorer = Scorer(build_model(model, family.num_entities, family.num_relations, dimension=8, entity_init=1.0))
    units = torch.eye(8)

    def matrix(step: int) -> torch.Tensor:
        index = torch.full((8,), step % family.num_relations)
        dense = scorer.model.relations.queries(scorer.operators, index, units, "tail").detach()
        return dense if step < family.num_relations else dense.T

    steps = parse_steps(["spouse", "~parent", "sibling"], family.relations)
    query = path_vectors(scorer, torch.tensor([5]), torch.tensor([steps]))
    product = matrix(steps[0]) @ matrix(steps[1]) @ matrix(steps[2])
    torch.testing.assert_close(query[0], scorer.entities[5] @ product, rtol=1e-4, atol=1e-5)


def test_a_path_of_one_step_equals_a_prediction(predictor):
    expected = predictor.predict(head="man_0000", relation="spouse", top=3, order="score")
    assert [a.entity for a in predictor.query("man_0000", ["spouse"], top=3, mode="product")] == [
        p.tail for p in expected
    ]
    backwards = predictor.predict(tail="man_0000", relation="child", top=3, order="score")
    assert [a.entity for a in predictor.query("man_0000", ["~child"], top=3, mode="product")] == [
        p.head for p in backwards
    ]


@torch.no_grad()
@pytest.mark.parametrize("path", [["spouse", "~child"], ["spouse", "~child", "sibling"]])
def test_a_beam_of_all_entities_gives_the_probability_that_any_way_leads_there(predictor, path):
    scorer, graph = predictor.scorer, predictor.graph
    steps = torch.tensor([parse_steps(path, graph.relations)])
    beam = beam_search(scorer, torch.tensor([3]), steps, facts=graph.train_index, width=10**6)

    def probabilities(entity: int, step: str) -> torch.Tensor:
        """The definition, entity by entity."""
        r, side = graph.relations.id(step.removeprefix("~")), "head" if step.startswith("~") else "tail"
        query = scorer.queries(torch.tensor([entity]), torch.tensor([question_steps(r, side, graph.num_relations)]))
        softmax = torch.softmax(query @ scorer.candidates.T, 1)[0]
        here, there = (0, 2) if side == "tail" else (2, 0)
        known = [fact[there] for fact in graph.train.tolist() if fact[1] == r and fact[here] == entity]
        likely = (softmax * max(1, len(known))).clamp(max=0.9)
        likely[known] = 1.0
        return likely.double()

    expected, best = probabilities(3, path[0]), []
    for step in path[1:]:
        ways = torch.stack([expected[m] * probabilities(m, step) for m in range(graph.num_entities)])
        expected = 1 - (1 - ways).prod(0)
        best.append(ways.argmax(0))
    likely = expected > 1e-4
    torch.testing.assert_close(beam.scores[0].exp()[likely].double(), expected[likely], rtol=1e-3, atol=1e-5)
    answer = way = int(expected.argmax())
    between = [way := int(places[way]) for places in reversed(best)]
    assert beam.through(0, answer) == between[::-1]


def test_many_questions_at_once_have_the_answers_of_single_questions(predictor, monkeypatch):
    graph = predictor.graph
    questions = torch.arange(5), torch.tensor([parse_steps(["spouse", "parent"], graph.relations)] * 5)
    together = beam_search(predictor.scorer, *questions, facts=graph.train_index, width=4)
    monkeypatch.setattr(paths, "MAX_AT_ONCE", 1)
    apart = beam_search(predictor.scorer, *questions, facts=graph.train_index, width=4)
    torch.testing.assert_close(together.scores, apart.scores)
    assert [together.through(n, 7) for n in range(5)] == [apart.through(n, 7) for n in range(5)]


def test_a_beam_names_the_entities_between(predictor):
    found = predictor.query("man_0040", ["spouse", "parent"], top=2, width=4)
    assert found == predictor.query("man_0040", ["spouse", "parent"], top=2, width=4, mode="beam")  # the default
    assert all(len(answer.through) == 1 for answer in found)
    assert found[0].score >= found[1].score
    three = predictor.query("man_0040", ["spouse", "parent", "child"], top=1, mode="beam", width=4)
    assert len(three[0].through) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"via": []}, "the path has no steps"),
        ({"via": ["spouze"]}, "relation 'spouze' is not among"),
        ({"via": ["spouse"], "mode": "deep"}, "mode is 'deep'; choose beam or product"),
        ({"via": ["spouse"], "top": 0}, "top is 0; it must be 1 or more"),
        ({"via": ["spouse"], "width": 0}, "width is 0; it must be 1 or more"),
    ],
)
def test_invalid_queries_are_named_in_the_error(predictor, arguments, message):
    with pytest.raises(DihedralError, match=message):
        predictor.query("man_0000", **arguments)


def test_translations_do_not_compose_by_products(family):
    predictor = dh.Predictor(build_model("transe", family.num_entities, family.num_relations, dimension=8), family)
    with pytest.raises(DihedralError, match="do not compose by products"):
        predictor.query("man_0000", ["spouse"])


def test_answers_along_facts_are_certain_however_narrow_the_beam():
    facts = [("hub", "has", f"m{i}") for i in range(40)] + [(f"m{i}", "in", f"e{i % 7}") for i in range(40)]
    graph = dh.Graph.from_labels(facts)
    predictor = dh.Predictor(build_model("dihedral-ste", graph.num_entities, 2, dimension=8), graph)
    found = predictor.query("hub", ["has", "in"], top=7, mode="beam", width=2)
    assert {answer.entity for answer in found} == {f"e{i}" for i in range(7)}
    for answer in found:
        assert answer.score == 0 and (answer.through[0], "in", answer.entity) in facts


def test_beams_follow_facts_as_walks_over_sets_do(predictor):
    """The certain answers are exactly the entities that training facts lead to."""
    graph = predictor.graph
    facts = graph.train.tolist()
    path = ["spouse", "~child", "sibling"]
    for start in range(0, graph.num_entities, 7):
        here = {start}
        for name in path:
            relation = graph.relations.id(name.removeprefix("~"))
            source, end = (2, 0) if name.startswith("~") else (0, 2)
            here = {fact[end] for fact in facts if fact[1] == relation and fact[source] in here}
        steps = torch.tensor([parse_steps(path, graph.relations)])
        beam = beam_search(predictor.scorer, torch.tensor([start]), steps, facts=graph.train_index, width=3)
        assert {entity for _, entity in beam.certain[-1]} == here
        assert (beam.scores[0, list(here)] == 0).all()
