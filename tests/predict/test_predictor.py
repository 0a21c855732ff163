"""The predictor against brute force: triples scored one at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError, Graph, Prediction, Predictor
from dihedral.models import MODELS, build_model
from dihedral.store.trained import TrainedModel


@pytest.fixture(scope="module", params=["dihedral", "complex", "transe"])
def any_predictor(request, predictor, family):
    """The trained DihEdral model, and two untrained models."""
    if request.param == "dihedral":
        return predictor
    model = build_model(request.param, family.num_entities, family.num_relations, dimension=6, entity_init=1.0, seed=2)
    return Predictor(TrainedModel(model, family))


def facts_of(graph):
    return set(graph.names_of(graph.known))


def brute_force(predictor, head, relation, tail, known):
    """All completions, scored one at a time, best first."""
    graph = predictor.graph
    if head is None:
        triples = [(name, relation, tail) for name in graph.entities]
    elif relation is None:
        triples = [(head, name, tail) for name in graph.relations]
    else:
        triples = [(head, relation, name) for name in graph.entities]
    facts = facts_of(graph)
    found = [Prediction(*triple, predictor.score(*triple), triple in facts) for triple in triples]
    return sorted((p for p in found if known == "include" or not p.known), key=lambda p: -p.score)


def assert_best(found, everything, top):
    """`found` holds the best completions, best first, up to the rounding of scores."""
    assert [p.score for p in found] == pytest.approx([p.score for p in everything[:top]], abs=1e-5)
    scores = {p[:3]: (p.score, p.known) for p in everything}
    for p in found:
        score, known = scores[p[:3]]
        assert p.score == pytest.approx(score, abs=1e-5) and p.known == known
    assert len({p[:3] for p in found}) == len(found)


def test_the_score_is_the_sum_over_components_of_h_times_the_matrix_times_t(predictor, family):
    """φ(h, r, t) = Σ_l h⁽ˡ⁾ᵀ R⁽ˡ⁾ t⁽ˡ⁾ with the matrices of Eq. 1."""
    entities, codes, K = predictor.model.entities.detach().double().numpy(), predictor.model.codes.numpy(), 4
    L = codes.shape[1]
    for h, r, t in family.known[:: len(family.known) // 40].tolist():
        expected = 0.0
        for i in range(L):
            turn, reflects = int(codes[r, i]) % K, int(codes[r, i]) >= K
            c, s = math.cos(2 * math.pi * turn / K), math.sin(2 * math.pi * turn / K)
            matrix = np.array([[c, s], [s, -c]] if reflects else [[c, -s], [s, c]])
            expected += entities[h, [i, L + i]] @ matrix @ entities[t, [i, L + i]]
        names = family.entities[h], family.relations[r], family.entities[t]
        assert predictor.score(*names) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("known", ["include", "exclude"])
@pytest.mark.parametrize("top", [1, 5, 40])
def test_tails_equal_brute_force(any_predictor, family, known, top):
    for head, relation, _ in list(family.names_of(family.test))[:6]:
        found = any_predictor.predict(head=head, relation=relation, top=top, known=known, order="score")
        assert_best(found, brute_force(any_predictor, head, relation, None, known), top)


@pytest.mark.parametrize("known", ["include", "exclude"])
@pytest.mark.parametrize("top", [1, 5, 40])
def test_heads_equal_brute_force(any_predictor, family, known, top):
    for _, relation, tail in list(family.names_of(family.test))[:6]:
        found = any_predictor.predict(relation=relation, tail=tail, top=top, known=known, order="score")
        assert_best(found, brute_force(any_predictor, None, relation, tail, known), top)


@pytest.mark.parametrize("known", ["include", "exclude"])
@pytest.mark.parametrize("top", [1, 3, 6])
def test_relations_equal_brute_force(any_predictor, family, known, top):
    for head, _, tail in list(family.names_of(family.test))[:6]:
        found = any_predictor.predict(head=head, tail=tail, top=top, known=known)
        assert_best(found, brute_force(any_predictor, head, None, tail, known), top)


def test_known_facts_are_marked_or_left_out(predictor, family):
    facts = facts_of(family)
    head, relation, tail = next(family.names_of(family.train))
    included = predictor.predict(head=head, relation=relation, top=40)
    excluded = predictor.predict(head=head, relation=relation, top=40, known="exclude")
    assert {p[:3] for p in included if p.known} == {fact for fact in facts if fact[:2] == (head, relation)}
    assert not any(p.known for p in excluded)
    assert [p for p in included if not p.known] == excluded
    assert (head, relation, tail) not in {p[:3] for p in excluded}


def test_facts_of_valid_and_test_are_known_too(predictor, family):
    for split in (family.valid, family.test):
        head, relation, tail = next(family.names_of(split))
        assert all(p.tail != tail for p in predictor.predict(head=head, relation=relation, top=40, known="exclude"))


def test_a_top_beyond_all_answers_gives_all_answers(predictor, family):
    assert len(predictor.predict(head="man_0000", relation="spouse", top=10**6)) == family.num_entities
    assert len(predictor.predict(head="man_0000", tail="woman_0010", top=10**6)) == family.num_relations
    assert len(predictor.predict(head="man_0000", relation="spouse", top=10**6, known="exclude")) == 39


def test_a_question_whose_answers_are_all_known_has_no_new_answers():
    graph = Graph.from_names([("a", "r", "a"), ("a", "r", "b")])
    small = Predictor(TrainedModel(build_model("distmult", 2, 1, dimension=4), graph))
    assert small.predict(head="a", relation="r", known="exclude") == []
    assert small.predict(head="a", tail="b", known="exclude") == []


def test_predictions_read_as_triples(predictor):
    prediction = predictor.predict(head="man_0000", relation="spouse", top=1)[0]
    assert prediction.head == "man_0000" and prediction.relation == "spouse"
    assert prediction._fields == ("head", "relation", "tail", "score", "known", "probability")
    assert type(prediction.score) is float and type(prediction.known) is bool


def test_predictions_do_not_change_the_model(predictor):
    before = predictor.model.entities.clone(), predictor.model.codes.clone()
    assert predictor.predict(head="man_0000", relation="spouse") == predictor.predict(
        head="man_0000", relation="spouse"
    )
    assert torch.equal(before[0], predictor.model.entities) and torch.equal(before[1], predictor.model.codes)


# --- invalid questions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "count"),
    [
        ({}, 0),
        ({"head": "man_0000"}, 1),
        ({"relation": "spouse"}, 1),
        ({"head": "man_0000", "relation": "spouse", "tail": "woman_0010"}, 3),
    ],
)
def test_exactly_two_parts_of_a_triple_must_be_given(predictor, question, count):
    with pytest.raises(DihedralError, match=f"{count} of head, relation and tail given; give two"):
        predictor.predict(**question)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"head": "man_00", "relation": "spouse"}, r"entity 'man_00' is not among the 40 .*did you mean 'man_00\d\d'"),
        ({"head": "Man_0000", "relation": "spouse"}, r"entity 'Man_0000' .*did you mean 'man_0000'"),
        ({"head": "man_0000", "relation": "spose"}, r"relation 'spose' is not among the 6 .*did you mean 'spouse'"),
        ({"relation": "parnt", "tail": "man_0000"}, r"relation 'parnt' .*did you mean 'parent'"),
        ({"head": "man_0000", "tail": "womn_0010"}, r"entity 'womn_0010' .*did you mean 'woman_0010'"),
        ({"head": "man_0000", "relation": "in_law"}, r"relation 'in_law' .*did you mean .*'parent_in_law'"),
    ],
)
def test_errors_about_unknown_names_suggest_close_ones(predictor, question, message):
    with pytest.raises(DihedralError, match=message):
        predictor.predict(**question)


def test_errors_about_unknown_names_in_scores_suggest_close_ones(predictor):
    with pytest.raises(DihedralError, match="did you mean 'spouse'"):
        predictor.score("man_0000", "spous", "woman_0010")


@pytest.mark.parametrize("top", [0, -1])
def test_top_must_be_positive(predictor, top):
    with pytest.raises(DihedralError, match=f"top is {top}; ask for at least 1 answer"):
        predictor.predict(head="man_0000", relation="spouse", top=top)


def test_known_must_be_include_or_exclude(predictor):
    with pytest.raises(DihedralError, match="known is 'only'; choose include or exclude"):
        predictor.predict(head="man_0000", relation="spouse", known="only")


# --- other graphs -------------------------------------------------------------------------------------


def shuffled(graph, seed=0):
    """The same facts with other ids."""
    rng = np.random.default_rng(seed)
    splits = [list(graph.names_of(graph.split(split))) for split in ("train", "valid", "test")]
    return Graph.from_names(*([part[i] for i in rng.permutation(len(part))] for part in splits), name="shuffled")


def test_align_renumbers_another_graph(predictor, family):
    other = shuffled(family)
    assert list(other.entities) != list(family.entities)
    aligned = predictor.align(other)
    assert aligned.name == "shuffled"
    for split in ("train", "valid", "test"):
        assert list(aligned.names_of(aligned.split(split))) == list(other.names_of(other.split(split)))
    assert dh.evaluate(predictor, aligned).mrr == pytest.approx(dh.evaluate(predictor).mrr)


def test_align_accepts_graphs_with_fewer_names(predictor):
    few = Graph.from_names([("woman_0010", "spouse", "man_0000")])
    aligned = predictor.align(few)
    assert list(aligned.names_of(aligned.train)) == [("woman_0010", "spouse", "man_0000")]
    assert aligned.entities == predictor.graph.entities


@pytest.mark.parametrize(
    ("triple", "message"),
    [
        (("man_0000", "spouse", "stranger"), "entity 'stranger' is not among"),
        (("man_0000", "spouze", "man_0001"), "relation 'spouze' is not among .*; did you mean 'spouse'"),
    ],
)
def test_align_raises_an_error_for_unknown_names(predictor, triple, message):
    with pytest.raises(DihedralError, match=message):
        predictor.align(Graph.from_names([triple]))


def test_graphs_with_other_ids_are_evaluated_by_name(predictor, family):
    assert dh.evaluate(predictor, shuffled(family)).mrr == dh.evaluate(predictor).mrr


def test_answers_of_another_graph_are_also_filtered_by_the_facts_of_the_model(predictor, family):
    head, relation, tail = next(family.names_of(family.test))
    other = Graph.from_names([(head, relation, head)], test=[(head, relation, tail)])
    found = dh.evaluate(predictor, other)
    place = family.test.tolist().index(predictor.align(other).test[0].tolist())
    assert found.ranks["tail"].greater[0] <= dh.evaluate(predictor).ranks["tail"].greater[place]
    assert found.seen.all()


def test_repr_names_the_model_and_the_graph(predictor):
    assert repr(predictor).startswith("Predictor(dihedral, 2L=16, Graph('family': 40 entities")


@pytest.mark.parametrize("name", MODELS)
def test_all_kinds_of_models_predict(name, family):
    model = build_model(name, family.num_entities, family.num_relations, dimension=8, entity_init=1.0)
    made = Predictor(TrainedModel(model, family))
    best = made.predict(head="man_0000", relation="spouse", top=3)
    assert_best(best, brute_force(made, "man_0000", "spouse", None, "include"), 3)


# --- many questions -----------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["head", "tail"])
def test_many_questions_at_once_have_the_answers_of_single_questions(any_predictor, family, side):
    facts = list(family.names_of(family.test))[:8]
    anchors, relations = [fact[0 if side == "tail" else 2] for fact in facts], [fact[1] for fact in facts]
    together = any_predictor.predict_many(side, anchors, relations, top=4, known="exclude")
    for anchor, relation, found in zip(anchors, relations, together, strict=True):
        question = {"head" if side == "tail" else "tail": anchor}
        expected = any_predictor.predict(relation=relation, top=4, known="exclude", **question)
        assert [p[:3] for p in found] == [p[:3] for p in expected]
        assert [p.score for p in found] == pytest.approx([p.score for p in expected], abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("relation", ["man_0000"], ["spouse"]), "side is 'relation'; choose head or tail"),
        (("tail", ["man_0000"], ["spouse", "child"]), "1 entities and 2 relations are given; give as many"),
    ],
)
def test_invalid_questions_are_named_in_the_error(predictor, arguments, message):
    with pytest.raises(DihedralError, match=message):
        predictor.predict_many(*arguments)


def test_similar_entities_have_the_highest_cosines(predictor, family):
    vectors = predictor.model.entities.detach().double().numpy()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    own = family.entities.id("man_0003")
    cosines = {name: float(unit[i] @ unit[own]) for i, name in enumerate(family.entities) if i != own}
    found = predictor.similar("man_0003", top=5)
    assert [each.entity for each in found] == sorted(cosines, key=lambda name: -cosines[name])[:5]
    assert [each.similarity for each in found] == pytest.approx(sorted(cosines.values(), reverse=True)[:5], abs=1e-5)
    assert len(predictor.similar("man_0003", top=10**6)) == family.num_entities - 1
    with pytest.raises(DihedralError, match="top is 0; ask for at least 1 entity"):
        predictor.similar("man_0003", top=0)


def test_entities_of_a_path_model_are_compared_by_their_facts_of_each_step(path_predictor):
    graph = path_predictor.graph
    counts = np.zeros((graph.num_entities, 2 * graph.num_relations))
    for head, relation, tail in graph.train.tolist():
        counts[head, relation] += 1
        counts[tail, relation + graph.num_relations] += 1
    profiles = np.log1p(counts) * np.log1p(graph.num_entities / (counts > 0).sum(0))
    profiles /= np.linalg.norm(profiles, axis=1, keepdims=True)
    own = graph.entities.id("man_0003")
    cosines = dict(zip(graph.entities, profiles @ profiles[own], strict=True))
    found = path_predictor.similar("man_0003", top=5)
    assert [each.similarity for each in found] == pytest.approx([cosines[each.entity] for each in found], abs=1e-5)
    del cosines["man_0003"]
    assert found[0].similarity == pytest.approx(max(cosines.values()), abs=1e-5)


# --- other graphs ---------------------------------------------------------------------------------

OTHERS = [("ann", "spouse", "bob"), ("bob", "parent", "cid"), ("cid", "child", "bob"), ("dan", "sibling", "bob")]


def test_a_path_model_gives_other_entities_with_the_same_facts_the_same_answers(path_predictor, tmp_path):
    graph = path_predictor.graph
    renamed = [
        (f"{head}'", relation, f"{tail}'") for head, relation, tail in reversed(list(graph.names_of(graph.train)))
    ]
    path_predictor.save(tmp_path / "model")
    for other in (path_predictor.with_graph(renamed), dh.load(tmp_path / "model", graph=renamed)):
        for name in list(graph.entities)[:10]:
            found = other.predict(head=f"{name}'", relation="parent", top=3)
            expected = path_predictor.predict(head=name, relation="parent", top=3)
            assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-4)
            assert found[0].tail == f"{expected[0].tail}'"
    with pytest.raises(DihedralError, match="fitted on another graph"):
        other.classify(renamed[:1])


def test_relations_that_the_model_does_not_know_are_an_error(path_predictor):
    facts = [*OTHERS, ("ann", "likes", "bob"), ("ann", "hates", "cid")]
    with pytest.raises(DihedralError, match="has relations that the model does not know: 'likes', "):
        path_predictor.with_graph(facts)


def test_a_model_with_vectors_has_none_for_another_graph(predictor):
    with pytest.raises(DihedralError, match="vectors for the entities of its own graph only; give a path model"):
        predictor.with_graph(OTHERS)
