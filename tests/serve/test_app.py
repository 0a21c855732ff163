"""The HTTP API: responses match the library, errors help, and limits, API key and metrics work."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

import dihedral as dh
from dihedral.ask.tree import path_query
from dihedral.graph.name_search import NameSearch
from dihedral.graph.patterns import count_rule
from dihedral.graph.steps import parse_steps
from dihedral.graph.triples import Graph
from dihedral.graph.vocabulary import Vocabulary
from dihedral.predict.completion import missing_facts
from dihedral.serve.app import STATIC, create_app
from dihedral.serve.schemas import MAX_BATCH_ITEMS, MAX_STEPS, MAX_TOP
from dihedral.serve.served_model import ServedModel, _unknown_name, read_models


@pytest.fixture(scope="module")
def predictor(models):
    return models["family"].predictor


# --- predictions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        {"head": "man_0000", "relation": "spouse", "top": 3},
        {"tail": "man_0000", "relation": "parent", "top": 3, "known": "exclude"},
        {"head": "man_0000", "tail": "woman_0020", "top": 2},
        {"head": "man_0000", "relation": "spouse", "top": 80, "among": "range"},
        {"head": "man_0000", "relation": "sibling", "top": 5, "order": "probability"},
        {"head": "man_0000", "relation": "sibling", "top": 5, "order": "score"},
    ],
)
def test_get_and_post_return_the_predictions_of_the_library(client, predictor, query):
    expected = predictor.predict(**query)
    got = client.get("/v1/predict", params=query)
    posted = client.post("/v1/predict", json=query)
    assert got.status_code == posted.status_code == 200 and got.json() == posted.json()
    found = got.json()["predictions"]
    assert [(p["head"], p["relation"], p["tail"], p["known"]) for p in found] == [
        (p.head, p.relation, p.tail, p.known) for p in expected
    ]
    assert [p["score"] for p in found] == pytest.approx([p.score for p in expected], rel=1e-4)


def test_a_batch_keeps_its_order(client, predictor):
    questions = [
        {"head": "man_0000", "relation": "spouse", "top": 1},
        {"head": "man_0000", "tail": "woman_0020", "top": 6},
        {"tail": "man_0001", "relation": "child", "top": 2, "known": "exclude"},
        {"head": "man_0000", "relation": "spouse", "top": 80, "among": "range"},
        {"head": "man_0000", "relation": "parent", "top": 80, "among": "range"},
        {"head": "man_0000", "relation": "parent", "top": 80},
    ]
    answers = client.post("/v1/predict", json={"questions": questions}).json()["answers"]
    for question, found in zip(questions, answers, strict=True):
        expected = predictor.predict(**question)
        assert [(p["head"], p["relation"], p["tail"]) for p in found] == [
            (p.head, p.relation, p.tail) for p in expected
        ]


def test_questions_about_entities_that_are_not_stored_are_answered(client, predictor):
    facts = [{"head": "zoe", "relation": "sibling", "tail": "man_0001"}]
    body = {"entities": ["zoe"], "facts": facts, "questions": [{"head": "zoe", "relation": "parent", "top": 3}]}
    found = client.post("/v1/fold-in", json=body).json()
    grown = predictor.update(add=[("zoe", "sibling", "man_0001")])
    expected = grown.predict(head="zoe", relation="parent", top=3)
    assert [each["tail"] for each in found["answers"][0]] == [each.tail for each in expected]
    assert client.get("/v1/entity", params={"name": "zoe"}).status_code == 404  # nothing is stored
    unknown = client.post("/v1/fold-in", json=body | {"facts": [facts[0] | {"tail": "man_1"}]})
    assert unknown.status_code == 404 and unknown.json()["detail"].startswith("fact 1: entity 'man_1' is not known")
    known = client.post("/v1/fold-in", json=body | {"entities": ["man_0002"]})
    assert known.status_code in (404, 422)
    question = client.post("/v1/fold-in", json=body | {"questions": [{"head": "bob", "relation": "parent"}]})
    assert question.status_code == 404 and "question 1" in question.json()["detail"]


def test_classify_matches_the_library(client, predictor):
    triples = [*predictor.graph.names_of(predictor.graph.test[:5]), ("man_0000", "spouse", "man_0000")]
    body = [dict(zip(("head", "relation", "tail"), triple, strict=True)) for triple in triples]
    found = client.post("/v1/classify", json={"triples": body}).json()["judgements"]
    for each, expected in zip(found, predictor.classify(triples), strict=True):
        assert (each["head"], each["true"]) == (expected.head, expected.true)
        assert each["probability"] == pytest.approx(expected.probability, rel=1e-4)
    wrong = client.post("/v1/classify", json={"triples": [body[0], body[1] | {"tail": "nobody"}]})
    assert wrong.status_code == 404 and wrong.json()["detail"] == "triple 2: entity 'nobody' is not known"
    assert client.post("/v1/classify", json={"triples": body * MAX_BATCH_ITEMS}).status_code == 422


def test_missing_facts_match_the_library(client, predictor):
    for relation in (None, "parent"):
        found = client.get("/v1/missing", params={"top": 7} | ({"relation": relation} if relation else {})).json()
        expected = missing_facts(predictor, relations=[relation] if relation else (), top=7).to_pylist()
        assert [(p["head"], p["relation"], p["tail"]) for p in found["facts"]] == [
            (p["head"], p["relation"], p["tail"]) for p in expected
        ]
        for each, row in zip(found["facts"], expected, strict=True):
            for name in ("probability", "precision", "precision_low", "precision_high"):
                assert each[name] == pytest.approx(row[name], abs=1e-5)
    limited = client.get("/v1/missing", params={"top": 7, "min_precision": 1.0}).json()
    assert limited["facts"] == []
    found = client.get("/v1/missing", params={"top": 500, "per_relation": 1}).json()
    relations = [each["relation"] for each in found["facts"]]
    assert len(relations) == len(set(relations)) > 3


def test_missing_facts_of_all_relations_are_rejected_above_the_limit(client, models, monkeypatch):
    monkeypatch.setattr("dihedral.serve.served_model.MAX_SCORES", 2 * models["family"].graph.num_entities ** 2)
    rejected = client.get("/v1/missing")
    assert rejected.status_code == 422 and "name a relation" in rejected.json()["detail"]
    assert client.get("/v1/missing?relation=parent").status_code == 200


def test_explain_matches_the_library(client, predictor):
    triple = next(iter(predictor.graph.names_of(predictor.graph.test)))
    query = dict(zip(("head", "relation", "tail"), triple, strict=True))
    found = client.get("/v1/explain", params=query).json()
    expected = dh.explain(predictor, *triple)
    assert found["score"] == pytest.approx(expected.score, rel=1e-4) and found["ranks"] == expected.ranks
    assert [(each["head"], each["relation"], each["tail"]) for each in found["similar_facts"]] == [
        each.fact for each in expected.similar_facts
    ]
    assert found["similar_facts"] and all(-1 <= each["similarity"] <= 1 for each in found["similar_facts"])
    shares = [(path["entities"], path["confidence"], path["pairs"]) for path in found["paths"]]
    assert shares == [(list(path.entities), path.confidence, path.pairs) for path in expected.paths]
    assert (found["kinds"], found["more"], found["note"]) == (expected.kinds, expected.more, expected.note)
    assert found["elements"].keys() == expected.elements.keys()
    predicted = predictor.predict(head=triple[0], tail=triple[2], top=6)
    same = next(each for each in predicted if each.relation == triple[1])
    assert same.probability is not None and found["probability"] == pytest.approx(same.probability, rel=1e-4)
    assert client.post("/v1/explain", json=query).json() == found


def test_explain_names_the_split_of_the_triple(client, predictor):
    graph = predictor.graph
    for split in ("train", "valid", "test"):
        head, relation, tail = next(iter(graph.names_of(graph.split(split))))
        found = client.get("/v1/explain", params={"head": head, "relation": relation, "tail": tail}).json()
        assert found["known"] and found["split"] == split
    found = client.get("/v1/explain?head=man_0000&relation=spouse&tail=man_0000").json()
    assert found["split"] is None and not found["known"]


def test_path_queries_match_the_library(client, predictor):
    query = {"start": "man_0000", "via": ["spouse", "~parent"], "top": 3}
    expected = predictor.ask(path_query("man_0000", ["spouse", "~parent"], predictor.graph.relations), top=3)
    found = client.get("/v1/query", params=query).json()
    assert found == client.post("/v1/query", json=query).json()
    assert [each["entity"] for each in found["answers"]] == [each.entity for each in expected]
    assert [each["variables"] for each in found["answers"]] == [each.variables for each in expected]


# --- algebra ----------------------------------------------------------------------------------


def test_relations_have_facts_symmetry_and_inverses(client, predictor):
    found = {row["name"]: row for row in client.get("/v1/relations").json()["relations"]}
    assert list(found) == list(predictor.graph.relations)
    a, graph = dh.algebra(predictor), predictor.graph
    for number, name in enumerate(graph.relations):
        assert found[name]["facts"] == (graph.known[:, 1] == number).sum()
        symmetry, nearest = a[name].symmetry().among(6), (~a[name]).nearest(1)[0]
        assert found[name]["symmetry"] == pytest.approx(symmetry.to_dict())
        inverse = found[name]["inverses"][0]
        assert inverse["relation"] == nearest.relation
        assert inverse["agreement"] == pytest.approx(nearest.share.among(21).to_dict())
        pairs = {(h, t) for h, r, t in graph.train.tolist() if r == number}
        other = {(h, t) for h, r, t in graph.train.tolist() if graph.relations[r] == nearest.relation}
        for counted, held in ((found[name]["mutual"], pairs), (inverse["counted"], other)):
            support = sum((t, h) in held for h, t in pairs)
            assert counted == {
                "support": support,
                "pairs": len(pairs),
                "confidence": support / len(pairs),
                "interval": None,
            }


def test_a_relation_has_elements_and_compositions(client, predictor):
    found = client.get("/v1/relations/parent").json()
    assert Counter(found["components"]) == Counter(found["elements"])
    assert sum(found["carried"]) == pytest.approx(1, abs=1e-3) and len(found["carried"]) == 32
    assert found["elements"] == dh.algebra(predictor)["parent"].elements() and found["K"] == 4
    assert len(found["inverses"]) == 5
    assert found["compositions"]
    for rule in found["compositions"]:
        assert "parent" in [rule["head"], *(step.lstrip("~") for step in rule["body"])]


def test_compose_matches_the_algebra(client, predictor):
    a = dh.algebra(predictor)
    product = a["spouse"] @ ~a["parent"]
    found = client.get("/v1/compose", params={"steps": ["spouse", "~parent"], "top": 2}).json()
    assert found["elements"] == product.elements()
    assert [match["relation"] for match in found["nearest"]] == [match.relation for match in product.nearest(2)]
    assert client.post("/v1/compose", json={"steps": ["spouse", "~parent"], "top": 2}).json() == found
    steps = parse_steps(["spouse", "~parent"], predictor.graph.relations)
    for match, expected in zip(found["nearest"], product.nearest(2), strict=True):
        assert match["agreement"] == expected.share.to_dict()
        head = predictor.graph.relations.id(match["relation"])
        support, pairs, _, _ = count_rule(predictor.graph.train_index, steps, head)
        assert (match["counted"]["support"], match["counted"]["pairs"]) == (support, pairs)
    longer = client.get("/v1/compose", params={"steps": ["spouse", "~parent", "sibling"]}).json()
    assert all(match["counted"] is None for match in longer["nearest"])


def test_rules_match_the_library(client, predictor):
    found = client.get("/v1/rules", params={"kind": "composition", "top": 3}).json()["rules"]
    expected = dh.find_rules(predictor, kinds=("composition",), top=3)
    assert found == json.loads(json.dumps([rule.to_dict() for rule in expected]))
    query = {"kind": "composition", "sort": "support", "min_confidence": 0.5}
    rules = client.get("/v1/rules", params=query).json()["rules"]
    supports = [rule["support"] for rule in rules]
    assert len(rules) > 1 and supports == sorted(supports, reverse=True)
    assert all(rule["confidence"] >= 0.5 for rule in rules)
    assert client.get("/v1/rules", params={"sort": "score"}).status_code == 422


def test_a_model_without_elements_predicts_but_has_no_algebra(client):
    model = {"model": "other"}
    assert client.get("/v1/predict", params={"head": "man_0000", "relation": "spouse"} | model).status_code == 200
    relations = client.get("/v1/relations", params=model).json()["relations"]
    assert relations[0]["symmetry"] is None and relations[0]["inverses"] == []
    assert client.get("/v1/relations/spouse", params=model).json()["elements"] == {}
    for path in ("/v1/rules", "/v1/compose"):
        rejected = client.get(path, params=model | ({"steps": "spouse"} if path == "/v1/compose" else {}))
        assert rejected.status_code == 422 and "without group elements" in rejected.json()["detail"]


# --- entities and models --------------------------------------------------------------------------


def test_entities_are_found_by_a_part_of_their_name(client):
    found = client.get("/v1/entities", params={"search": "AN_000", "top": 50}).json()
    names = [each["name"] for each in found["entities"]]
    assert sorted(names) == [f"man_{i:04}" for i in range(10)] and found["total"] == 80
    counts = [each["facts"] for each in found["entities"]]
    assert counts == sorted(counts, reverse=True)


def test_without_a_search_entities_are_sorted_by_facts(client):
    counts = [each["facts"] for each in client.get("/v1/entities", params={"top": 80}).json()["entities"]]
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]


def test_the_facts_of_an_entity_have_a_direction(client, predictor):
    found = client.get("/v1/entities/man_0000").json()
    facts = {tuple(fact) for fact in predictor.graph.names_of(predictor.graph.known)}
    assert found["total"] == len(found["facts"]) > 0
    for fact in found["facts"]:
        out = ("man_0000", fact["relation"], fact["entity"])
        assert (out if fact["direction"] == "out" else out[::-1]) in facts


def test_names_may_contain_slashes_and_spaces(tmp_path):
    graph = Graph.from_names([("/m/a b", "/people/born?", "ü%#/.."), ("ü%#/..", "/people/born?", "/m/a b")])
    dh.train(graph, dh.Recipe(dimension=4, epochs=1), progress=False, device="cpu").save(tmp_path / "odd")
    with TestClient(create_app({"odd": ServedModel("odd", tmp_path / "odd")})) as client:
        assert client.get("/v1/entities/%2Fm%2Fa%20b").json()["total"] == 2
        assert client.get("/v1/entities/%C3%BC%25%23%2F..").json()["total"] == 2
        assert client.get("/v1/relations/%2Fpeople%2Fborn%3F").json()["facts"] == 2
        found = client.get("/v1/info").json()
        assert found["curve"] == [] and found["graph"] == "unnamed"


@pytest.fixture(scope="module")
def labelled_client(labelled_folder):
    with TestClient(create_app(read_models([f"family={labelled_folder}"]))) as client:
        yield client


def test_answers_come_with_the_labels_of_their_names(labelled_client):
    found = labelled_client.get("/v1/predict", params={"head": "Jürgen Müller", "relation": "married to"}).json()
    assert found["predictions"][0]["head"] == "man_0000"
    assert found["labels"].items() >= {"man_0000": "Jürgen Müller", "spouse": "married to"}.items()
    requests = [
        ("/v1/entity", {"name": "man_0000"}),
        ("/v1/relation", {"name": "married to", "mine": False}),
        ("/v1/relations", {}),
        ("/v1/compose", {"steps": "~spouse"}),
        ("/v1/explain", {"head": "man_0000", "relation": "spouse", "tail": "woman_0020"}),
        ("/v1/query", {"start": "man_0000", "via": "spouse"}),
        ("/v1/missing", {"relation": "spouse"}),
        ("/v1/rules", {}),
    ]
    for path, params in requests:
        labels = labelled_client.get(path, params=params).json()["labels"]
        assert "man_0000" in labels or "spouse" in labels, path
    assert labelled_client.get("/v1/entity", params={"name": "Jürgen Müller"}).json()["about"] == "the first"


def test_a_label_of_several_entities_is_422_with_their_names(labelled_client):
    rejected = labelled_client.get("/v1/predict", params={"head": "José", "relation": "spouse"})
    assert rejected.status_code == 422 and "is the label of 2 entities: man_0001, man_0002" in rejected.json()["detail"]
    assert rejected.json()["suggestions"] == ["man_0001", "man_0002"]


def test_an_unknown_name_suggests_labels_and_names_that_begin_otherwise(labelled_client):
    for name, suggested in (("Yürgen Muller", "Jürgen Müller"), ("wan_0001", "man_0001")):
        found = labelled_client.get("/v1/predict", params={"head": name, "relation": "spouse"})
        assert found.status_code == 404 and found.json()["suggestions"][0] == suggested
    names = Vocabulary([f"{letter}_{number}" for number in range(150) for letter in ("ann", "bea", "eve")])
    search = NameSearch(names, np.arange(len(names), dtype=np.int32))
    assert _unknown_name(search, "xea_149").suggestions[0] == "bea_149"


def test_a_search_finds_entities_and_relations(labelled_client):
    def found(text):
        matches = labelled_client.get("/v1/search", params={"text": text}).json()["matches"]
        return [(match["kind"], match["name"]) for match in matches]

    assert found("muller JURGEN") == [("entity", "man_0000")]
    assert found("married") == [("relation", "spouse")] and ("relation", "spouse") in found("spou")
    assert labelled_client.get("/v1/search").status_code == 422


@pytest.fixture(scope="module")
def odd_client(odd_folder):
    with TestClient(create_app(read_models([f"odd={odd_folder}"]))) as client:
        yield client


def test_prefixes_are_expanded_by_all_endpoints(odd_client):
    n1, n2, knows = "http://example.org/n1", "http://example.org/n2", "http://example.org/knows"
    found = odd_client.get("/v1/predict?head=ex:n1&relation=ex:knows&top=1").json()["predictions"][0]
    assert (found["head"], found["relation"]) == (n1, knows)
    explained = odd_client.get("/v1/explain?head=ex:n1&relation=ex:knows&tail=ex:n2").json()
    assert (explained["head"], explained["relation"], explained["tail"]) == (n1, knows, n2)
    assert odd_client.get("/v1/entities/ex:n1").json()["name"] == n1
    assert odd_client.get("/v1/relations/ex:knows").json()["name"] == knows
    assert odd_client.get("/v1/compose?steps=ex:knows&steps=~ex:knows").json()["identity"]["count"] == 1
    assert odd_client.get("/v1/query?start=ex:n1&via=~ex:knows").status_code == 200
    assert [each["name"] for each in odd_client.get("/v1/entities?search=ex:n").json()["entities"]] == [n1, n2]
    assert odd_client.get("/v1/info").json()["prefixes"]["ex"] == "http://example.org/"
    assert odd_client.get("/v1/entities/ex:n7").status_code == 404


def test_classify_rejects_a_model_without_thresholds(odd_client):
    rejected = odd_client.post("/v1/classify", json={"triples": [{"head": "..", "relation": "..", "tail": ".."}]})
    assert rejected.status_code == 422
    assert rejected.json()["detail"].startswith("model 'odd' has no probabilities: the graph has 0 valid triples")


def test_a_name_that_cannot_be_part_of_a_path_is_a_query_parameter(odd_client):
    assert odd_client.get("/v1/entity", params={"name": ".."}).json()["total"] == 8
    assert odd_client.get("/v1/relation", params={"name": ".."}).json()["facts"] == 4


def test_names_may_be_long(odd_client):
    long = "n" * 3000
    assert odd_client.get("/v1/entity", params={"name": long}).json()["name"] == long
    assert odd_client.post("/v1/predict", json={"head": long, "relation": "back"}).status_code == 200


def test_a_relation_named_like_an_inverse_takes_precedence(odd_client):
    one = odd_client.get("/v1/compose", params={"steps": "~back"}).json()
    assert one["elements"] == odd_client.get("/v1/relation", params={"name": "~back"}).json()["elements"]
    both = odd_client.get("/v1/compose", params={"steps": ["~~back", "~back"]}).json()
    assert both["identity"]["count"] == 1


def test_models_are_listed_and_selected_by_name(client):
    found = client.get("/v1/models").json()
    assert found["default"] == "family" and [each["name"] for each in found["models"]] == ["family", "other"]
    assert client.get("/v1/entities", params={"model": "other"}).json()["total"] == 40
    posted = client.post("/v1/predict", params={"model": "other"}, json={"head": "man_0000", "relation": "spouse"})
    assert posted.json()["model"] == "other"


def test_info_has_recipe_metrics_and_training_curve(client):
    found = client.get("/v1/info").json()
    assert found["recipe"]["name"] == "demo/family" and 0 < found["metrics"]["test"]["both"]["mrr"] <= 1
    assert [row["epoch"] for row in found["curve"]] == list(range(1, 21))


def test_an_incomplete_last_line_of_the_training_log_is_ignored(family_folder):
    served = ServedModel("copy", family_folder)
    assert len(served.curve) == 20
    log = family_folder / "training" / "log.jsonl"
    content = log.read_text()
    try:
        log.write_text(content + '{"epoch": 21, "lo')
        again = ServedModel("copy", family_folder)
        assert len(again.curve) == 20
    finally:
        log.write_text(content)


@pytest.mark.parametrize(
    ("folders", "message"),
    [([], "no model"), (["a={0}", "a={0}"], "two models"), (["={0}"], "no name"), (["nowhere"], "not a model folder")],
)
def test_invalid_model_arguments_are_rejected(family_folder, folders, message):
    with pytest.raises(dh.DihedralError, match=message):
        read_models([folder.format(family_folder) for folder in folders])


# --- errors and limits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "suggestion"),
    [
        ("/v1/predict?head=man_000&relation=spouse", "man_0000"),
        ("/v1/predict?head=man_0000&relation=spose", "spouse"),
        ("/v1/explain?head=man_0000&relation=spouse&tail=womann_0020", "woman_0020"),
        ("/v1/query?start=man_0000&via=~parnt", "parent"),
        ("/v1/compose?steps=parnt", "parent"),
        ("/v1/entities/Man_0000", "man_0000"),
        ("/v1/relations/Spouse", "spouse"),
        ("/v1/info?model=famly", "family"),
    ],
)
def test_an_unknown_name_is_404_with_suggestions(client, path, suggestion):
    rejected = client.get(path)
    assert rejected.status_code == 404
    assert suggestion in rejected.json()["suggestions"] and "is not known" in rejected.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/predict", {"head": "man_0000"}),
        ("/v1/predict", {"head": "man_0000", "relation": "spouse", "tail": "man_0001"}),
        ("/v1/predict", {"head": "man_0000", "relation": "spouse", "top": 0}),
        ("/v1/predict", {"head": "man_0000", "relation": "spouse", "top": MAX_TOP + 1}),
        ("/v1/predict", {"head": "man_0000", "relation": "spouse", "known": "maybe"}),
        ("/v1/predict", {"head": "man_0000", "relation": "spouse", "among": "domain"}),
        ("/v1/predict", {"head": "man_0000", "tail": "man_0001", "among": "range"}),
        ("/v1/classify", {"triples": []}),
        ("/v1/predict", {"head": "man_0000", "relation": "spouse", "tpo": 3}),
        ("/v1/predict", {"head": 5, "relation": "spouse"}),
        ("/v1/predict", {"questions": []}),
        ("/v1/predict", {"questions": [{"head": "man_0000", "relation": "spouse"}] * (MAX_BATCH_ITEMS + 1)}),
        ("/v1/predict", [1, 2]),
        ("/v1/query", {"start": "man_0000", "via": []}),
        ("/v1/query", {"start": "man_0000", "via": ["spouse"] * (MAX_STEPS + 1)}),
        ("/v1/compose", {"steps": "spouse"}),
        ("/v1/explain", {"head": "man_0000", "relation": "spouse"}),
    ],
)
def test_an_invalid_request_is_422_with_one_line(client, path, body):
    rejected = client.post(path, json=body)
    assert rejected.status_code == 422
    assert isinstance(rejected.json()["detail"], str) and "\n" not in rejected.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"\\ud800": 1}', 422),
        (b'{"head": "\\ud800", "relation": "spouse"}', 422),
        (b"", 422),
    ],
)
def test_an_unreadable_body_is_rejected(client, body, status):
    rejected = client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
    assert rejected.status_code == status and rejected.json()["detail"]


def test_invalid_json_is_400_with_the_position(client):
    rejected = client.post("/v1/predict", content=b'{"head": ', headers={"content-type": "application/json"})
    assert rejected.status_code == 400 and rejected.json()["detail"].startswith("the body is not JSON: ")


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"head": "man_0000", "relation": "spouse", "top": 0}, "top is 0; it must be greater than or equal to 1"),
        (
            {"questions": [{"head": "man_0000", "relation": "spouse"}, {"head": 5}]},
            "question 2: head is 5; it must be a valid string",
        ),
        ([1, 2], "the body is a list of 2; it must be an object"),
        ({"head": "a", "relation": "b", "tops": 1}, "field 'tops' is not known; head, relation, tail, top"),
        ({"questions": [{"heads": "a"}]}, "question 1: field 'heads' is not known; head"),
        ({"head": "a", "relation": "b", "top": 1.5}, "top is 1.5; it must be a valid integer"),
        ({"head": "a", "relation": "b", "known": "no"}, "known is 'no'; it must be 'include' or 'exclude'"),
        ({"questions": []}, "questions is a list of 0; it must have at least 1 item"),
    ],
)
def test_an_invalid_field_is_named_as_in_the_request(client, body, detail):
    found = client.post("/v1/predict", json=body).json()["detail"]
    assert found.startswith(detail) and "body." not in found and "single" not in found and "batch" not in found


def test_a_fact_to_fold_in_that_is_a_list_is_named_by_its_number(client):
    question = {"head": "new", "relation": "spouse"}
    body = {"entities": ["new"], "facts": [["new", "spouse", "man_0000"]], "questions": [question]}
    found = client.post("/v1/fold-in", json=body)
    assert found.status_code == 422 and found.json()["detail"] == "fact 1 is a list of 3; it must be an object"


def test_an_unknown_name_in_a_batch_names_the_question(client):
    questions = [{"head": "man_0000", "relation": "spouse"}, {"head": "man_000", "relation": "spouse"}]
    rejected = client.post("/v1/predict", json={"questions": questions})
    assert rejected.status_code == 404 and rejected.json()["detail"] == "question 2: entity 'man_000' is not known"
    assert "man_0000" in rejected.json()["suggestions"]


def test_an_unknown_model_lists_the_models(client):
    detail = client.get("/v1/info?model=zzz").json()["detail"]
    assert detail == "model 'zzz' is not known; this server has 'family', 'other'"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("predict", {"head": "man_0000", "relation": "spouse"}),
        ("predict", {"questions": [{"head": "man_0000", "relation": "spouse"}]}),
        ("query", {"start": "man_0000", "via": ["spouse"]}),
    ],
)
def test_a_body_may_name_the_model(client, path, body):
    assert client.post(f"/v1/{path}", json=body | {"model": "other"}).json()["model"] == "other"


def test_healthz_supports_head(client):
    assert client.head("/healthz").status_code == 200 and client.head("/healthz").content == b""


def test_a_large_body_is_413_with_and_without_a_content_length(models, monkeypatch):
    monkeypatch.setattr("dihedral.serve.guard.MAX_BODY_BYTES", 1000)
    with TestClient(create_app(models)) as client:
        body = json.dumps({"questions": [{"head": "man_0000", "relation": "spouse"}] * 100}).encode()
        headers = {"content-type": "application/json"}
        assert client.post("/v1/predict", content=body, headers=headers).status_code == 413
        parts = (body[i : i + 100] for i in range(0, len(body), 100))
        rejected = client.post("/v1/predict", content=parts, headers=headers)
        assert rejected.status_code == 413 and "1000 bytes" in rejected.json()["detail"]


def test_the_total_number_of_answers_is_limited(client):
    questions = [{"head": "man_0000", "relation": "spouse", "top": MAX_TOP}] * 26
    rejected = client.post("/v1/predict", json={"questions": questions})
    assert rejected.status_code == 422 and "26,000 answers in total" in rejected.json()["detail"]


def test_the_key_is_required_except_for_health_and_pages(models):
    with TestClient(create_app(models, api_key="sesame")) as client:
        for path in ("/v1/models", "/metrics", "/openapi.json"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"X-API-Key": "sesam"}).status_code == 401
            assert client.get(path, headers={"X-API-Key": "sésame".encode()}).status_code == 401
            assert client.get(path, headers={"X-API-Key": "sesame"}).status_code == 200
        for path in ("/healthz", "/", "/docs", "/static/explorer.js"):
            assert client.get(path).status_code == 200


def test_a_wrong_key_of_any_length_is_rejected_and_no_key_is_logged(models, caplog, capfd):
    caplog.set_level("DEBUG")
    with TestClient(create_app(models, api_key="open-sesame-47")) as client:
        for wrong in ("", "o", "open-sesame-4", "open-sesame-48", "open-sesame-477", "x" * 10_000, "OPEN-SESAME-47"):
            rejected = client.get("/v1/models", headers={"X-API-Key": wrong})
            assert rejected.status_code == 401 and "open-sesame-47" not in rejected.text
        assert client.get("/v1/models", headers={"X-API-Key": "open-sesame-47"}).status_code == 200
        assert client.get("/v1/predict?head=nobody", headers={"X-API-Key": "open-sesame-47"}).status_code == 422
    assert "open-sesame-47" not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize("key", ["sésame", "open\nsesame", " sesame"])
def test_a_key_that_a_header_cannot_carry_is_rejected_at_startup(models, key):
    with pytest.raises(dh.DihedralError, match="ASCII") as rejected:
        create_app(models, api_key=key)
    assert key not in str(rejected.value)


def test_metrics_count_requests_by_route_and_status(models):
    with TestClient(create_app(models)) as client:
        for name in ("man_0000", "man_0001", "nobody"):
            client.get(f"/v1/entities/{name}")
        client.get("/v1/predict?head=man_0000&relation=spouse")
        client.request("BREW", "/v1/nothing")
        text = client.get("/metrics").text
    assert 'dihedral_requests_total{method="GET",path="/v1/entities/{name:path}",status="200"} 2.0' in text
    assert 'dihedral_requests_total{method="GET",path="/v1/entities/{name:path}",status="404"} 1.0' in text
    assert 'dihedral_request_seconds_count{path="/v1/predict"} 1.0' in text
    assert "dihedral_batch_questions_count 1.0" in text
    assert 'method="other",path="other"' in text and "nobody" not in text


# --- pages ----------------------------------------------------------------------------------------


def test_every_response_forbids_scripts_of_other_hosts(client):
    for path in ("/", "/docs", "/v1/models", "/v1/nothing", "/static/explorer.css"):
        assert client.get(path).headers["content-security-policy"].startswith("default-src 'self'")
    assert "access-control-allow-origin" not in client.get("/v1/models", headers={"Origin": "http://x"}).headers


def test_no_asset_refers_to_another_host():
    files = [path for path in STATIC.iterdir() if path.is_file()]
    assert {path.suffix for path in files} == {".html", ".css", ".js", ".svg"}
    for path in files:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text, path.name


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.js")), ids=lambda path: Path(path).name)
def test_names_never_become_markup(path):
    text = path.read_text(encoding="utf-8")
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in text


def test_the_openapi_schema_lists_the_endpoints(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {"get", "post"} <= paths["/v1/predict"].keys()
    assert "/v1/relations/{name}" in paths and "/healthz" in paths
    assert paths["/v1/predict"]["post"]["responses"]["422"]["description"] == "The request is invalid."
    assert [each["name"] for each in paths["/v1/explain"]["post"]["parameters"]] == ["model"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("explain", {"head": "man_0000", "relation": "spouse", "tail": "woman_0020"}),
        ("query", {"start": "man_0000", "via": ["spouse"]}),
        ("compose", {"steps": ["spouse"]}),
    ],
)
def test_get_and_post_accept_the_model_in_the_query(client, path, body):
    for model in ("family", "nobody"):
        statuses = [
            client.get(f"/v1/{path}", params=body | {"model": model}).status_code,
            client.post(f"/v1/{path}", params={"model": model}, json=body).status_code,
        ]
        assert statuses == [200 if model == "family" else 404] * 2


def test_a_path_model_is_served_as_others_are(tmp_path):
    recipe = dh.Recipe(
        model="dihedral-argmax", objective="paths", K=8, dimension=8, steps=2, epochs=8, relation_init=0.5,
        relation_lr=0.01, batch_size=32,
    )  # fmt: skip
    predictor = dh.train(dh.make_family(100), recipe, progress=False, out=tmp_path / "model")
    with TestClient(create_app(read_models([str(tmp_path / "model")])), raise_server_exceptions=False) as client:
        found = client.post("/v1/predict", json={"head": "man_0000", "relation": "spouse", "top": 2})
        expected = predictor.predict(head="man_0000", relation="spouse", top=2)
        assert [each["tail"] for each in found.json()["predictions"]] == [each.tail for each in expected]
        entity = client.get("/v1/entity", params={"name": "man_0000"})
        assert [each["entity"] for each in entity.json()["similar"]] == [
            each.entity for each in predictor.similar("man_0000", top=8)
        ]
        assert len(client.get("/v1/map").json()["names"]) == 100
        rules = client.get("/v1/rules", params={"kind": "inverse"}).json()["rules"]
        assert [rule["body"] for rule in rules] == [
            list(rule.body) for rule in dh.find_rules(predictor, kinds="inverse")
        ]
        assert rules and client.get("/v1/compose", params={"steps": "spouse"}).json()["K"] == 8
        explained = client.get(
            "/v1/explain", params=dict(zip(("head", "relation", "tail"), expected[0][:3], strict=True))
        )
        shares = [path["share"] for path in explained.json()["paths"]]
        assert shares and shares == sorted(shares, reverse=True) and explained.json()["added"] is not None
        body = {"entities": ["zoe"], "facts": [{"head": "zoe", "relation": "sibling", "tail": "man_0001"}]}
        body |= {"questions": [{"head": "zoe", "relation": "sibling"}]}
        (predicted,) = client.post("/v1/fold-in", json=body).json()["answers"]
        assert predicted and predicted[0]["head"] == "zoe"


def test_an_answer_that_fails_is_json_without_what_failed(family_folder, monkeypatch):
    def fail(*_):
        raise ValueError("a secret")

    app = create_app(read_models([str(family_folder)]))
    monkeypatch.setattr("dihedral.serve.served_model.ServedModel.check_cost", fail)
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.get("/v1/missing")
    assert answer.status_code == 500 and answer.json()["detail"] == "the server failed to answer; its log says why"
