"""Explanations: paths of training facts, never the triple itself, and a clear message where nothing supports it."""

from __future__ import annotations

import itertools

import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.interpretation import explanations
from dihedral.interpretation.explanations import explain
from dihedral.models import build_model


@pytest.fixture(scope="module")
def predictor():
    graph = dh.make_family(120, seed=4)
    return dh.train(graph, "demo/family", epochs=25, progress=False, device="cpu", skew_probability=0.5)


def named_facts(predictor) -> set[tuple[str, str, str]]:
    return set(predictor.graph.names_of(predictor.graph.train))


def untrained(graph: dh.Graph, kind: str = "dihedral-ste") -> dh.Predictor:
    return dh.Predictor(dh.TrainedModel(build_model(kind, graph.num_entities, graph.num_relations, dimension=8), graph))


def connections(predictor, triple: tuple[str, str, str]) -> set[tuple[str, ...]]:
    """The signed relations of one or two training facts, other than the triple, that lead from its head to its tail."""
    head, _, tail = triple
    facts = named_facts(predictor) - {triple}
    edges = facts | {(t, f"~{r}", h) for h, r, t in facts}
    direct = {(r,) for h, r, t in edges if (h, t) == (head, tail)}
    out, into = ([edge for edge in edges if edge[place] == name] for place, name in ((0, head), (2, tail)))
    joined = [pair for pair in itertools.product(out, into) if pair[0][2] == pair[1][0] not in (head, tail)]
    return direct | {(first[1], last[1]) for first, last in joined}


def test_paths_consist_of_training_facts_from_head_to_tail(predictor):
    facts = named_facts(predictor)
    explained = [explain(predictor, *triple) for triple in list(predictor.graph.names_of(predictor.graph.test))[:10]]
    assert any(found.paths for found in explained)
    for found in explained:
        triple = found.triple
        for path in found.paths:
            assert (path.entities[0], path.entities[-1]) == (triple[0], triple[2])
            assert len(path.relations) == len(path.entities) - 1 == len(path.facts)
            assert set(path.facts) <= facts
        supports = [path.support for path in found.paths]
        assert supports == sorted(supports, reverse=True) and all(0.3 <= s <= 1.0001 for s in supports)


@torch.no_grad()
def test_all_connections_are_paths_with_the_defined_support_and_counts(predictor, monkeypatch):
    monkeypatch.setattr(explanations, "MIN_SUPPORT", -2.0)
    graph, scorer = predictor.graph, predictor.scorer
    units = torch.eye(scorer.entities.shape[1])
    dense = {
        name: scorer.model.relations.queries(scorer.operators, torch.full((len(units),), number), units, "tail")
        for number, name in enumerate(graph.relations)
    }
    dense |= {f"~{name}": matrix.T for name, matrix in dense.items()}
    for triple in list(graph.names_of(graph.train))[:40:10]:
        facts = named_facts(predictor) - {triple}
        pairs = {name: {(h, t) for h, r, t in facts if r == name} for name in graph.relations}
        pairs |= {f"~{name}": {(t, h) for h, t in held} for name, held in pairs.items()}
        h, t = (scorer.entities[graph.entities.id(name)] for name in (triple[0], triple[2]))
        relation = dense[triple[1]]
        paths = explain(predictor, *triple, top=100).paths
        assert len(paths) > 1 and {path.relations for path in paths} == connections(predictor, triple)
        for path in paths:
            product, joined = dense[path.relations[0]], pairs[path.relations[0]]
            for step in path.relations[1:]:
                product = product @ dense[step]
                joined = {(a, d) for (a, b), (c, d) in itertools.product(joined, pairs[step]) if b == c}
            forwards = torch.cosine_similarity(h @ product, h @ relation, dim=0)
            backwards = torch.cosine_similarity(product @ t, relation @ t, dim=0)
            assert path.support == pytest.approx(float(forwards + backwards) / 2, abs=1e-4)
            joined = {(a, b) for a, b in joined if a != b and (a, b) != (triple[0], triple[2])}
            assert path.pairs == len(joined)
            expected = pytest.approx(len(joined & pairs[triple[1]]) / len(joined)) if joined else None
            assert path.confidence == expected


def test_a_triple_is_not_counted_in_the_confidence_of_its_own_paths(monkeypatch):
    monkeypatch.setattr(explanations, "MIN_SUPPORT", -2.0)
    graph = dh.Graph.from_names([("a", "r", "b"), ("a", "s", "b"), ("c", "q", "d"), ("c", "r", "d")])
    found = explain(untrained(graph), "a", "r", "b")
    assert [(path.relations, path.confidence, path.pairs) for path in found.paths] == [(("s",), None, 0)]
    assert "joins no other pair" in str(found)


def test_a_triple_is_not_evidence_for_itself(predictor):
    for triple in list(predictor.graph.names_of(predictor.graph.train))[:40:4]:
        found = explain(predictor, *triple)
        assert found.known and found.split == "train"
        assert triple not in [fact for path in found.paths for fact in path.facts]
        assert triple not in [each.fact for each in found.similar_facts]


def test_the_split_of_a_known_triple_is_named(predictor):
    graph = predictor.graph
    for split in ("train", "valid", "test"):
        found = explain(predictor, *next(graph.names_of(graph.split(split))))
        assert found.split == split and found.known and f"a known fact ({split})" in str(found)
        assert found.to_dict()["known"] is True and found.to_dict()["split"] == split
    unknown = explain(predictor, "man_0000", "spouse", "man_0001")
    assert unknown.split is None and not unknown.known and "known fact" not in str(unknown)


def test_similar_facts_have_the_highest_products_of_cosines(predictor):
    graph, entities = predictor.graph, predictor.scorer.entities.double()
    head, relation, tail = triple = next(graph.names_of(graph.test))
    cosine = lambda a, b: max(0.0, float(torch.cosine_similarity(entities[a], entities[b], dim=0)))  # noqa: E731
    h, t = graph.entities.id(head), graph.entities.id(tail)
    facts = [fact for fact in graph.train.tolist() if graph.relations[fact[1]] == relation]
    expected = sorted((cosine(a, h) * cosine(b, t) for a, _, b in facts), reverse=True)[:5]
    found = explain(predictor, *triple, top=5).similar_facts
    assert [each.similarity for each in found] == pytest.approx(expected, abs=1e-5)
    assert all(each.fact in named_facts(predictor) and each.fact[1] == relation for each in found)


def test_a_spouse_is_supported_by_the_same_fact_backwards(predictor):
    facts = named_facts(predictor)
    head, _, tail = next(f for f in sorted(facts) if f[1] == "spouse" and (f[2], "spouse", f[0]) in facts)
    best = explain(predictor, head, "spouse", tail).paths[0]
    assert best.relations in (("~spouse",), ("spouse",))


def test_the_elements_add_up_to_the_score(predictor):
    triple = next(iter(predictor.graph.names_of(predictor.graph.test)))
    found = explain(predictor, *triple)
    assert sum(found.elements.values()) == pytest.approx(found.score, rel=1e-4)
    assert list(found.elements.values()) == sorted(found.elements.values(), reverse=True)


def test_a_triple_without_support_says_so(predictor):
    pairs = itertools.combinations(predictor.graph.entities, 2)
    strangers = next((a, "spouse", b) for a, b in pairs if not connections(predictor, (a, "spouse", b)))
    found = explain(predictor, *strangers)
    assert not found.paths and not found.supported
    assert "no path of training facts between the two supports it" in str(found)
    assert "no path of one or two training facts joins the two" in str(found) and "joins the two" in found._repr_html_()
    assert found.kinds == 0 and found.best_support is None


def test_a_triple_with_too_little_support_says_what_was_looked_at(predictor, monkeypatch):
    triple = next(iter(predictor.graph.names_of(predictor.graph.test)))
    best = explain(predictor, *triple, top=1000)
    monkeypatch.setattr(explanations, "MIN_SUPPORT", 1.1)
    found = explain(predictor, *triple)
    assert not found.paths and found.best_support == best.paths[0].support
    assert found.kinds == len(connections(predictor, triple)) > 1
    said = f"the best of {found.kinds} kinds of paths of one or two training facts between the two has support"
    assert f"{said} {found.best_support:.2f}, and at least 1.10 is needed" in str(found)


def test_models_without_elements_have_no_explanations(family):
    predictor = untrained(family, "complex")
    with pytest.raises(DihedralError, match="no group elements"):
        explain(predictor, "man_0000", "spouse", "man_0001")


def test_a_fact_with_equal_head_and_tail_does_not_support_itself():
    graph = dh.Graph.from_names([("a", "r", "a"), ("a", "s", "b"), ("b", "r", "b")])
    found = dh.explain(untrained(graph), "a", "r", "a", top=20)
    assert all(("a", "r", "a") not in path.facts for path in found.paths)


def test_the_best_unknown_answer_has_rank_one(predictor):
    for head in ("man_0000", "woman_0100"):
        best = predictor.predict(head=head, relation="sibling", top=1, known="exclude", order="score")[0]
        assert explain(predictor, head, "sibling", best.tail).ranks["tail"] == 1


def test_an_explanation_has_the_probability_of_the_prediction(predictor):
    head, relation, tail = next(iter(predictor.graph.names_of(predictor.graph.test)))
    answers = predictor.predict(head=head, relation=relation, top=predictor.graph.num_entities)
    (expected,) = [answer.probability for answer in answers if answer.tail == tail]
    found = explain(predictor, head, relation, tail)
    assert found.probability == pytest.approx(expected)
    assert f"probability {expected:.2f}, rank" in str(found)
    bare = explain(dh.Predictor(dh.TrainedModel(predictor.model, predictor.graph)), head, relation, tail)
    assert bare.probability is None and "probability" not in str(bare)
