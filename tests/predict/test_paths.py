"""Path queries: one product for a path, and the search step by step."""

from __future__ import annotations

import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.graph.steps import parse_steps
from dihedral.models import build_model
from dihedral.predict.paths import path_vectors
from dihedral.scoring.embedding import EmbeddingScorer


@pytest.fixture(scope="module")
def predictor():
    return dh.train(dh.make_family(80, seed=1), "demo/family", epochs=8, progress=False, device="cpu")


@pytest.mark.parametrize("model", ["dihedral-gumbel", "complex", "rescal", "hole"])
def test_the_vector_of_a_path_is_the_product_of_its_matrices(family, model):
    scorer = EmbeddingScorer(
        build_model(model, family.num_entities, family.num_relations, dimension=8, entity_init=1.0)
    )
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
    predictor = dh.Predictor(
        dh.TrainedModel(build_model("transe", family.num_entities, family.num_relations, dimension=8), family)
    )
    with pytest.raises(DihedralError, match="do not compose by products"):
        predictor.query("man_0000", ["spouse"], mode="product")
    assert len(predictor.query("man_0000", ["spouse", "parent"], top=3)) == 3  # steps need no products


def test_answers_along_facts_are_certain_however_narrow_the_beam():
    facts = [("hub", "has", f"m{i}") for i in range(40)] + [(f"m{i}", "in", f"e{i % 7}") for i in range(40)]
    graph = dh.Graph.from_names(facts)
    predictor = dh.Predictor(dh.TrainedModel(build_model("dihedral-ste", graph.num_entities, 2, dimension=8), graph))
    found = predictor.query("hub", ["has", "in"], top=7, mode="beam", width=2)
    assert {answer.entity for answer in found} == {f"e{i}" for i in range(7)}
    for answer in found:
        assert answer.score == 0 and (answer.through[0], "in", answer.entity) in facts


def test_beams_follow_facts_as_walks_over_sets_do(predictor):
    """The certain answers are exactly the entities that known facts lead to."""
    graph = predictor.graph
    facts = graph.known.tolist()
    path = ["spouse", "~child", "sibling"]
    for start in range(0, graph.num_entities, 7):
        here = {start}
        for name in path:
            relation = graph.relations.id(name.removeprefix("~"))
            source, end = (2, 0) if name.startswith("~") else (0, 2)
            here = {fact[end] for fact in facts if fact[1] == relation and fact[source] in here}
        found = predictor.query(graph.entities[start], path, top=graph.num_entities, width=3)
        assert {graph.entities.id(answer.entity) for answer in found if answer.score == 0} == here
