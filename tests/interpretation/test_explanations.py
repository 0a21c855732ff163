"""Explanations: paths of known facts, never the triple itself, and a clear message where nothing supports it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.graph.patterns import Reversals, count_rule, wilson_interval
from dihedral.graph.steps import parse_steps
from dihedral.interpretation import path_reasons
from dihedral.interpretation.explanations import explain
from dihedral.io.display import probability_text
from dihedral.models import build_model
from dihedral.models.path_model import PathModel
from dihedral.models.registry import build_relations
from dihedral.probability.evidence import CountedRules
from dihedral.scoring.path_scorer import PathScorer


@pytest.fixture(scope="module")
def predictor():
    graph = dh.make_family(120, seed=4)
    return dh.train(graph, "demo/family", epochs=25, progress=False, device="cpu", skew_probability=0.5)


def named_facts(predictor) -> set[tuple[str, str, str]]:
    """Facts that may be evidence: those of train and valid."""
    return {fact for rows in (predictor.graph.train, predictor.graph.valid) for fact in predictor.graph.names_of(rows)}


def untrained(graph: dh.Graph, kind: str = "dihedral-ste") -> dh.Predictor:
    return dh.Predictor(dh.TrainedModel(build_model(kind, graph.num_entities, graph.num_relations, dimension=8), graph))


def untrained_path_model(graph: dh.Graph) -> dh.Predictor:
    model = PathModel(
        build_relations("dihedral-argmax", graph.num_relations, 8, generator=torch.Generator(), K=8), 2
    ).requires_grad_(False)
    return dh.Predictor(dh.TrainedModel(PathScorer(model, graph.train_index), graph))


def connections(predictor, triple: tuple[str, str, str]) -> set[tuple[str, ...]]:
    """The signed relations of one or two known facts, other than the triple, that lead from its head to its tail."""
    head, _, tail = triple
    facts = named_facts(predictor) - {triple}
    edges = facts | {(t, f"~{r}", h) for h, r, t in facts}
    direct = {(r,) for h, r, t in edges if (h, t) == (head, tail)}
    out, into = ([edge for edge in edges if edge[place] == name] for place, name in ((0, head), (2, tail)))
    joined = [pair for pair in itertools.product(out, into) if pair[0][2] == pair[1][0] not in (head, tail)]
    return direct | {(first[1], last[1]) for first, last in joined}


def test_paths_consist_of_known_facts_from_head_to_tail(predictor):
    facts = named_facts(predictor)
    explained = [explain(predictor, *triple) for triple in list(predictor.graph.names_of(predictor.graph.test))[:10]]
    assert any(found.paths for found in explained)
    for found in explained:
        triple = found.triple
        for path in found.paths:
            assert (path.entities[0], path.entities[-1]) == (triple[0], triple[2])
            assert len(path.relations) == len(path.entities) - 1 == len(path.facts)
            assert set(path.facts) <= facts
        least = [float(wilson_interval(np.array(path.confidence), path.pairs)[0]) for path in found.paths]
        assert least == sorted(least, reverse=True) and all(0 < path.confidence <= 1 for path in found.paths)


@torch.no_grad()
def test_all_connections_that_hold_elsewhere_are_paths_with_the_defined_match_and_counts(predictor, monkeypatch):
    monkeypatch.setattr(Reversals, "same_steps", lambda self: np.arange(2 * len(self.size)))
    graph, scorer = predictor.graph, predictor.scorer
    units = torch.eye(scorer.entities.shape[1])
    dense = {
        name: scorer.model.relations.queries(scorer.operators, torch.full((len(units),), number), units, "tail")
        for number, name in enumerate(graph.relations)
    }
    dense |= {f"~{name}": matrix.T for name, matrix in dense.items()}
    for triple in list(graph.names_of(graph.train))[:40:10]:
        facts = set(graph.names_of(graph.train)) - {triple}
        pairs = {name: {(h, t) for h, r, t in facts if r == name} for name in graph.relations}
        pairs |= {f"~{name}": {(t, h) for h, t in held} for name, held in pairs.items()}
        h, t = (scorer.entities[graph.entities.id(name)] for name in (triple[0], triple[2]))
        relation = dense[triple[1]]
        found = explain(predictor, *triple, top=100)
        paths = {path.relations: path for path in found.paths}
        assert len(paths) > 1 and found.kinds == len(connections(predictor, triple))
        for relations in connections(predictor, triple):
            joined = pairs[relations[0]]
            for step in relations[1:]:
                joined = {(a, d) for (a, b), (c, d) in itertools.product(joined, pairs[step]) if b == c}
            joined = {(a, b) for a, b in joined if a != b and (a, b) != (triple[0], triple[2])}
            assert (relations in paths) == bool(joined & pairs[triple[1]])
            if relations in paths:
                path = paths[relations]
                assert path.pairs == len(joined)
                assert path.confidence == pytest.approx(len(joined & pairs[triple[1]]) / len(joined))
        for path in paths.values():
            product = dense[path.relations[0]]
            for step in path.relations[1:]:
                product = product @ dense[step]
            forwards = torch.cosine_similarity(h @ product, h @ relation, dim=0)
            backwards = torch.cosine_similarity(product @ t, relation @ t, dim=0)
            assert path.match == pytest.approx(float(forwards + backwards) / 2, abs=1e-4)


def test_a_triple_is_not_counted_in_the_confidence_of_its_own_paths():
    graph = dh.Graph.from_names([("a", "r", "b"), ("a", "s", "b"), ("c", "q", "d"), ("c", "r", "d")])
    found = explain(untrained(graph), "a", "r", "b")
    assert not found.supported and found.kinds == 1
    said = "the one kind of path of up to 2 known facts between the two holds for no other pair"
    assert said in str(found) and said in found._repr_html_()


def test_paths_of_a_symmetric_relation_that_differ_in_direction_are_one():
    pairs = [(f"a{i}", f"b{i}") for i in range(12)]
    both_ways = [(x, "knows", y) for pair in pairs for x, y in (pair, pair[::-1])]
    graph = dh.Graph.from_names([*both_ways, *((a, "likes", b) for a, b in pairs)])
    found = explain(untrained(graph), "a0", "likes", "b0")
    assert found.kinds == 2 and [path.relations[0].removeprefix("~") for path in found.paths] == ["knows"]
    assert "holds for 48 % of 23: a0" in str(found)


@pytest.mark.parametrize(("likely", "note"), [(0.02, "is lower"), (0.5, ""), (0.95, "is higher")])
def test_a_probability_that_differs_from_the_best_path_is_explained(predictor, likely, note):
    triple = next(t for t in predictor.graph.names_of(predictor.graph.test) if explain(predictor, *t).paths)
    found = explain(predictor, *triple)
    best = replace(found.paths[0], confidence=0.5, pairs=100, interval=None)
    shown = replace(found, paths=(best,), probability=likely)
    assert note in shown.note and bool(note) == bool(shown.note) and shown.note in str(shown)
    assert ("rests on the score" in replace(shown, paths=()).note) == (likely > 0.05)


@pytest.mark.parametrize("name", ["umls", "family-neural-lp"])
def test_a_proposal_that_a_counted_rule_implies_shows_its_path(benchmark_graph, name):
    graph = benchmark_graph(name)
    predictor = untrained(graph)
    rules = CountedRules.count(graph.train_index)
    rng = np.random.default_rng(0)
    implied = 0
    for head, relation, _ in graph.train[rng.permutation(len(graph.train))[:15]].tolist():
        found, values = rules.implied(graph.evidence_index, relation, np.array([head]))
        tails = [tail for tail in found[np.argsort(-values)].tolist() if tail != head]
        for tail in tails[:2]:
            triple = next(graph.names_of(np.array([[head, relation, tail]])))
            assert explain(predictor, *triple).paths, triple
            implied += 1
    assert implied >= 20


def test_facts_of_test_are_no_evidence(predictor):
    graph = predictor.graph
    without = dh.Predictor(replace(predictor.trained, graph=graph.replace(test=graph.test[:0])))
    for triple in list(graph.names_of(graph.train))[:60]:
        assert explain(predictor, *triple, top=50).paths == explain(without, *triple, top=50).paths


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
    assert unknown.split is None and not unknown.known and "a known fact" not in str(unknown)


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
    paths = explain(predictor, head, "spouse", tail).paths
    assert paths[0].relations in (("~spouse",), ("spouse",)) and ("spouse",) not in [p.relations for p in paths[1:]]


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
    said = "no path of up to 2 known facts joins the two"
    assert said in str(found) and said in found._repr_html_() and found.kinds == 0


def test_a_list_of_paths_says_how_many_more_there_are(predictor):
    found = (explain(predictor, *triple, top=100) for triple in predictor.graph.names_of(predictor.graph.test))
    every = next(each for each in found if len(each.paths) > 2)
    short = explain(predictor, *every.triple, top=1)
    assert short.paths == every.paths[:1] and short.more == len(every.paths) - 1 and every.more == 0
    assert f"{short.more} more kind" in str(short) and "for other pairs; a higher top shows more" in str(short)


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
    assert f"probability {probability_text(expected)}, score" in str(found)
    bare = explain(dh.Predictor(dh.TrainedModel(predictor.model, predictor.graph)), head, relation, tail)
    assert bare.probability is None and "probability" not in str(bare)


# --- path models --------------------------------------------------------------------------------------


def test_the_paths_of_a_path_model_are_known_facts_with_exact_counts(path_predictor):
    graph = path_predictor.graph
    facts = set(graph.names_of(graph.train))
    for triple in list(graph.names_of(graph.known))[::40]:
        found = explain(path_predictor, *triple)
        assert found.score == pytest.approx(path_predictor.score(*triple))
        for path in found.paths:
            assert (path.entities[0], path.entities[-1]) == (triple[0], triple[2])
            assert set(path.facts) <= facts - {triple} and path.main_fact in path.facts
            ids = tuple(path_predictor.triple_ids([triple])[0].tolist())
            body = parse_steps(path.relations, graph.relations)
            counts = count_rule(graph.train_index, body, ids[1], without=ids)
            assert (path.pairs, path.confidence) == (counts.pairs, counts.confidence or 0.0)
    assert found.to_dict()["paths"][0]["main_fact"] and "adds" in found._repr_html_()


def test_an_answer_without_a_fact_has_the_rank_that_the_smaller_graph_gives(path_predictor):
    graph, triple = path_predictor.graph, next(path_predictor.graph.names_of(path_predictor.graph.test))
    path = explain(path_predictor, *triple).paths[0]
    ids = {tuple(row) for row in path_predictor.triple_ids([path.main_fact]).tolist()}
    smaller = graph.replace(train=np.array([row for row in graph.train.tolist() if tuple(row) not in ids], np.int32))
    scorer = PathScorer(path_predictor.scorer.model, smaller.train_index)
    greater, equal = scorer.rank_counts(path_predictor.triple_ids([triple]), "tail", path_predictor.known)
    assert path.rank_without_fact == 1 + int(greater) + int(equal) / 2


def test_entities_that_no_path_joins_are_not_supported():
    graph = dh.Graph.from_names([("a", "r", "b"), ("c", "r", "d"), ("b", "r", "a")])
    found = explain(untrained_path_model(graph), "a", "r", "c")
    assert not found.paths and "no path of up to 2 known facts joins the two" in str(found)
    assert found.added == 0 and found.complete


def test_a_search_for_paths_that_ended_early_says_so(path_predictor, monkeypatch):
    triple = next(path_predictor.graph.names_of(path_predictor.graph.test))
    monkeypatch.setattr(path_reasons, "MAX_NUMBERS", 0)
    found = explain(path_predictor, *triple)
    assert not found.complete and not found.paths
    shown = str(found)
    assert "no path of up to 3 known facts was found that adds to the score" in shown
    assert "the search ended early; other paths may add more" in shown and "in common" not in shown


def test_paths_that_add_more_than_all_of_them_say_that_others_subtract(path_predictor):
    found = explain(path_predictor, *next(path_predictor.graph.names_of(path_predictor.graph.test)))
    (path,) = found.paths[:1]
    shown = replace(found, paths=(replace(path, share=2.0), replace(path, share=1.5)), added=3.0)
    assert "that add most to the score; all paths together add 3.00, because others subtract:" in str(shown)
    assert "all paths together add 3.50:" in str(replace(shown, added=3.5))
    assert "that add to the score; all paths together add -0.03, because others subtract more:" in str(
        replace(shown, added=-0.03)
    )


def test_ranks_are_by_score_and_brackets_read_as_sentences(path_predictor):
    found = explain(path_predictor, *next(path_predictor.graph.names_of(path_predictor.graph.test)))
    assert "among heads by score" in str(found) and "among tails by score" in found._repr_html_()
    path = replace(found.paths[0], main_fact=("a", "r", "b"), rank_without_fact=3.0, num_paths=2, rank_without=4.0)
    assert "one of 2; without (a, r, b): rank 3, without both: rank 4;" in path.shown()[2]
    assert "without all 12: rank 4;" in replace(path, num_paths=12).shown()[2]


def test_a_path_that_returns_to_an_entity_is_called_a_walk(path_predictor):
    path = explain(path_predictor, *next(path_predictor.graph.names_of(path_predictor.graph.test))).paths[0]
    once, twice = (replace(path, entities=each, relations=("r", "~r", "r")) for each in (tuple("abcd"), tuple("abab")))
    assert "a walk that returns to a; " in twice.shown()[2] and "a walk" not in once.shown()[2]
