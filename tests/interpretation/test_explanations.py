"""Explanations: real paths of known facts, never the triple itself, and a clear word where nothing supports it."""

from __future__ import annotations

import json

import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.interpretation.explanations import explain


@pytest.fixture(scope="module")
def predictor():
    graph = dh.make_family(120, seed=4)
    return dh.train(graph, "demo/family", epochs=25, progress=False, device="cpu", skew_probability=0.5)


def named_facts(predictor) -> set[tuple[str, str, str]]:
    return set(predictor.graph.labels(predictor.graph.train))


def test_paths_are_made_of_known_facts_from_head_to_tail(predictor):
    facts = named_facts(predictor)
    for triple in list(predictor.graph.labels(predictor.graph.test))[:10]:
        found = explain(predictor, *triple)
        for path in found.paths:
            assert (path.entities[0], path.entities[-1]) == (triple[0], triple[2])
            assert len(path.relations) == len(path.entities) - 1 == len(path.facts)
            assert set(path.facts) <= facts
        supports = [path.support for path in found.paths]
        assert supports == sorted(supports, reverse=True) and all(0.3 <= s <= 1.0001 for s in supports)


def test_a_triple_is_no_reason_for_itself(predictor):
    for triple in list(predictor.graph.labels(predictor.graph.train))[:40:4]:
        found = explain(predictor, *triple)
        assert found.known
        assert triple not in [fact for path in found.paths for fact in path.facts]
        assert triple not in [each.fact for each in found.alike]


def test_a_spouse_is_supported_by_the_same_fact_the_other_way(predictor):
    facts = named_facts(predictor)
    head, _, tail = next(f for f in sorted(facts) if f[1] == "spouse" and (f[2], "spouse", f[0]) in facts)
    best = explain(predictor, head, "spouse", tail).paths[0]
    assert best.relations in (("~spouse",), ("spouse",))


def test_the_elements_add_up_to_the_score(predictor):
    triple = next(iter(predictor.graph.labels(predictor.graph.test)))
    found = explain(predictor, *triple)
    assert sum(found.elements.values()) == pytest.approx(found.score, rel=1e-4)
    assert list(found.elements.values()) == sorted(found.elements.values(), reverse=True)


def test_what_nothing_supports_says_so(predictor):
    strangers = explain(predictor, "man_0000", "spouse", "man_0001")
    if not strangers.paths:
        assert not strangers.supported and "no path of known facts" in str(strangers)
    lonely = dh.Graph.from_labels([("a", "r", "b"), ("c", "r", "d")])
    alone = dh.train(lonely, dh.Recipe(dimension=4, epochs=1), progress=False, device="cpu")
    found = explain(alone, "a", "r", "d")
    assert not found.supported and not found.known and "no path of known facts" in str(found)


def test_models_without_elements_are_refused():
    recipe = dh.Recipe(model="complex", dimension=8, epochs=1)
    predictor = dh.train(dh.make_family(40), recipe, progress=False, device="cpu")
    with pytest.raises(DihedralError, match="no group elements"):
        explain(predictor, "man_0000", "spouse", "man_0001")


def test_the_command_prints_text_and_json_and_draws(cli, predictor, tmp_path):
    predictor.save(tmp_path / "model")
    triple = next(iter(predictor.graph.labels(predictor.graph.test)))
    figure = tmp_path / "why.svg"
    done = cli("explain", tmp_path / "model", *triple, "--figure", figure)
    assert done.code == 0 and "similar facts" in done.out and figure.stat().st_size > 1000
    content = json.loads(cli("explain", tmp_path / "model", *triple, "--json").out)
    assert content["triple"] == list(triple) and "supported" in content
    assert cli("explain", tmp_path / "model", *triple, "--figure", tmp_path / "why.gif").code == 2
    assert cli("explain", tmp_path / "model", "nobody", triple[1], triple[2]).code == 2


def test_a_fact_of_an_entity_and_itself_does_not_support_itself():
    graph = dh.Graph.from_labels([("a", "r", "a"), ("a", "s", "b"), ("b", "r", "b")])
    predictor = dh.train(graph, dh.Recipe(dimension=8, epochs=1), progress=False, device="cpu")
    found = dh.explain(predictor, "a", "r", "a", top=20)
    assert all(("a", "r", "a") not in path.facts for path in found.paths)


def test_ranks_of_predictions_are_whole_numbers_as_those_of_facts_are(predictor):
    """The best unknown answer, with known ones left out, is first."""
    for head in ("man_0000", "woman_0100"):
        best = predictor.predict(head=head, relation="sibling", top=1, known="exclude")[0]
        assert explain(predictor, head, "sibling", best.tail).ranks["tail"] == 1
