"""The API: answers that the library gives, errors that help, limits, the key, counts."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import dihedral as dh
from dihedral.graph.triples import Graph
from dihedral.inference.completion import missing_facts
from dihedral.serving.app import STATIC, create_app
from dihedral.serving.messages import MAX_QUESTIONS, MAX_STEPS, MAX_TOP
from dihedral.serving.served import ServedModel, read_models


@pytest.fixture(scope="module")
def predictor(models):
    return models["family"].predictor


# --- predictions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        {"head": "man_0000", "relation": "spouse", "top": 3},
        {"tail": "man_0000", "relation": "parent", "top": 3, "known": "exclude"},
        {"head": "man_0000", "tail": "woman_0020", "top": 2},
        {"head": "man_0000", "relation": "spouse", "top": 80, "among": "range"},
    ],
)
def test_get_and_post_answer_as_the_library_does(client, predictor, asked):
    expected = predictor.predict(**asked)
    got = client.get("/v1/predict", params=asked)
    posted = client.post("/v1/predict", json=asked)
    assert got.status_code == posted.status_code == 200 and got.json() == posted.json()
    found = got.json()["predictions"]
    assert [(p["head"], p["relation"], p["tail"], p["known"]) for p in found] == [
        (p.head, p.relation, p.tail, p.known) for p in expected
    ]
    assert [p["score"] for p in found] == pytest.approx([p.score for p in expected], rel=1e-4)


def test_a_batch_is_answered_in_its_order(client, predictor):
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


def test_triples_are_called_true_or_false_as_the_library_does(client, predictor):
    triples = [*predictor.graph.labels(predictor.graph.test[:5]), ("man_0000", "spouse", "man_0000")]
    asked = [dict(zip(("head", "relation", "tail"), triple, strict=True)) for triple in triples]
    found = client.post("/v1/classify", json={"triples": asked}).json()["judgements"]
    for each, expected in zip(found, predictor.classify(triples), strict=True):
        assert (each["head"], each["true"]) == (expected.head, expected.true)
        assert each["probability"] == pytest.approx(expected.probability, rel=1e-4)
    wrong = client.post("/v1/classify", json={"triples": [asked[0], asked[1] | {"tail": "nobody"}]})
    assert wrong.status_code == 404 and wrong.json()["detail"] == "triple 2: entity 'nobody' is not known"
    assert client.post("/v1/classify", json={"triples": asked * MAX_QUESTIONS}).status_code == 422


def test_missing_facts_are_those_of_the_library(client, predictor):
    for relation in (None, "parent"):
        found = client.get("/v1/missing", params={"top": 7} | ({"relation": relation} if relation else {})).json()
        expected = missing_facts(predictor, relations=[relation] if relation else (), top=7).to_pylist()
        assert [(p["head"], p["relation"], p["tail"]) for p in found["predictions"]] == [
            (p["head"], p["relation"], p["tail"]) for p in expected
        ]
        assert not any(p["known"] for p in found["predictions"])


def test_missing_facts_of_all_relations_are_refused_where_that_is_too_much(client, models, monkeypatch):
    served = models["family"]
    monkeypatch.setattr("dihedral.serving.served.MAX_SCORES", int(served.heads.max()) * 80)
    refused = client.get("/v1/missing")
    assert refused.status_code == 422 and "name a relation" in refused.json()["detail"]
    assert client.get("/v1/missing?relation=parent").status_code == 200


def test_an_explanation_is_that_of_the_library(client, predictor):
    triple = next(iter(predictor.graph.labels(predictor.graph.test)))
    asked = dict(zip(("head", "relation", "tail"), triple, strict=True))
    found = client.get("/v1/explain", params=asked).json()
    expected = dh.explain(predictor, *triple)
    assert found["score"] == pytest.approx(expected.score, rel=1e-4) and found["ranks"] == expected.ranks
    assert [path["entities"] for path in found["paths"]] == [list(path.entities) for path in expected.paths]
    assert found["elements"].keys() == expected.elements.keys()
    predicted = predictor.predict(head=triple[0], tail=triple[2], top=6)
    same = next(each for each in predicted if each.relation == triple[1])
    assert same.probability is not None and found["probability"] == pytest.approx(same.probability, rel=1e-4)
    assert client.post("/v1/explain", json=asked).json() == found


def test_an_explanation_names_the_split_that_holds_the_triple(client, predictor):
    graph = predictor.graph
    for split in ("train", "valid", "test"):
        head, relation, tail = next(iter(graph.labels(graph.split(split))))
        found = client.get("/v1/explain", params={"head": head, "relation": relation, "tail": tail}).json()
        assert found["known"] and found["split"] == split
    found = client.get("/v1/explain?head=man_0000&relation=spouse&tail=man_0000").json()
    assert found["split"] is None and not found["known"]


@pytest.mark.parametrize("mode", ["product", "beam"])
def test_a_path_question_is_answered_by_both_modes(client, predictor, mode):
    asked = {"start": "man_0000", "via": ["spouse", "~parent"], "top": 3, "mode": mode}
    expected = predictor.query("man_0000", ["spouse", "~parent"], top=3, mode=mode)
    found = client.get("/v1/query", params=asked).json()
    assert found == client.post("/v1/query", json=asked).json()
    assert [each["entity"] for each in found["answers"]] == [each.entity for each in expected]
    assert [tuple(each["through"]) for each in found["answers"]] == [each.through for each in expected]


# --- the algebra ----------------------------------------------------------------------------------


def test_relations_are_listed_with_facts_symmetry_and_inverse(client, predictor):
    found = {row["name"]: row for row in client.get("/v1/relations").json()["relations"]}
    assert list(found) == list(predictor.graph.relations)
    a, graph = dh.algebra(predictor), predictor.graph
    for number, name in enumerate(graph.relations):
        assert found[name]["facts"] == (graph.known[:, 1] == number).sum()
        assert found[name]["symmetry"]["weighted"] == pytest.approx(float(a[name].symmetry()))
        assert found[name]["inverses"][0]["share"]["weighted"] == pytest.approx(float((~a[name]).nearest(1)[0].share))


def test_one_relation_has_its_elements_and_its_rules(client, predictor):
    found = client.get("/v1/relations/parent").json()
    assert found["elements"] == dh.algebra(predictor)["parent"].elements() and found["K"] == 4
    assert len(found["inverses"]) == 5
    for rule in found["compositions"]:
        assert "parent" in [rule["head"], *(step.lstrip("~") for step in rule["body"])]


def test_a_product_is_that_of_the_algebra(client, predictor):
    a = dh.algebra(predictor)
    product = a["spouse"] @ ~a["parent"]
    found = client.get("/v1/compose", params={"steps": ["spouse", "~parent"], "top": 2}).json()
    assert found["elements"] == product.elements()
    assert [match["relation"] for match in found["nearest"]] == [match.relation for match in product.nearest(2)]
    assert client.post("/v1/compose", json={"steps": ["spouse", "~parent"], "top": 2}).json() == found


def test_rules_are_those_of_the_library(client, predictor):
    found = client.get("/v1/rules", params={"kind": "composition", "top": 3}).json()["rules"]
    expected = dh.find_rules(predictor, kinds=("composition",), top=3)
    assert found == json.loads(json.dumps([asdict(rule) for rule in expected]))


def test_a_model_without_elements_predicts_and_says_that_it_has_no_algebra(client):
    model = {"model": "other"}
    assert client.get("/v1/predict", params={"head": "man_0000", "relation": "spouse"} | model).status_code == 200
    relations = client.get("/v1/relations", params=model).json()["relations"]
    assert relations[0]["symmetry"] is None and relations[0]["inverses"] == []
    assert client.get("/v1/relations/spouse", params=model).json()["elements"] == {}
    for path in ("/v1/rules", "/v1/compose"):
        refused = client.get(path, params=model | ({"steps": "spouse"} if path == "/v1/compose" else {}))
        assert refused.status_code == 422 and "without group elements" in refused.json()["detail"]


# --- entities and models --------------------------------------------------------------------------


def test_entities_are_found_by_a_part_of_their_name(client):
    found = client.get("/v1/entities", params={"search": "AN_000", "top": 3}).json()
    assert [each["name"] for each in found["entities"]] == ["man_0000", "man_0001", "man_0002"]
    assert found["total"] == 80


def test_without_a_search_the_entities_with_most_facts_come_first(client):
    counts = [each["facts"] for each in client.get("/v1/entities", params={"top": 80}).json()["entities"]]
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]


def test_the_facts_of_an_entity_have_a_direction(client, predictor):
    found = client.get("/v1/entities/man_0000").json()
    facts = {tuple(fact) for fact in predictor.graph.labels(predictor.graph.known)}
    assert found["total"] == len(found["facts"]) > 0
    for fact in found["facts"]:
        out = ("man_0000", fact["relation"], fact["entity"])
        assert (out if fact["direction"] == "out" else out[::-1]) in facts


def test_names_with_slashes_and_spaces_are_names(tmp_path):
    graph = Graph.from_labels([("/m/a b", "/people/born?", "ü%#/.."), ("ü%#/..", "/people/born?", "/m/a b")])
    predictor = dh.train(graph, dh.Recipe(dimension=4, epochs=1), progress=False, device="cpu")
    with TestClient(create_app({"odd": ServedModel("odd", predictor)})) as client:
        assert client.get("/v1/entities/%2Fm%2Fa%20b").json()["total"] == 2
        assert client.get("/v1/entities/%C3%BC%25%23%2F..").json()["total"] == 2
        assert client.get("/v1/relations/%2Fpeople%2Fborn%3F").json()["facts"] == 2
        found = client.get("/v1/info").json()
        assert found["curve"] == [] and found["graph"] == "unnamed"


@pytest.fixture(scope="module")
def odd_client(odd_folder):
    with TestClient(create_app(read_models([f"odd={odd_folder}"]))) as client:
        yield client


def test_a_prefix_stands_for_its_namespace_everywhere(odd_client):
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


def test_a_model_without_thresholds_says_so(odd_client):
    refused = odd_client.post("/v1/classify", json={"triples": [{"head": "..", "relation": "..", "tail": ".."}]})
    assert refused.status_code == 422 and "no thresholds" in refused.json()["detail"]


def test_a_name_that_no_path_can_hold_is_asked_for_by_a_parameter(odd_client):
    assert odd_client.get("/v1/entity", params={"name": ".."}).json()["total"] == 8
    assert odd_client.get("/v1/relation", params={"name": ".."}).json()["facts"] == 4


def test_a_long_name_is_a_name(odd_client):
    long = "n" * 3000
    assert odd_client.get("/v1/entity", params={"name": long}).json()["name"] == long
    assert odd_client.post("/v1/predict", json={"head": long, "relation": "back"}).status_code == 200


def test_a_relation_that_is_called_like_an_inverse_is_meant_before_the_inverse(odd_client):
    one = odd_client.get("/v1/compose", params={"steps": "~back"}).json()
    assert one["elements"] == odd_client.get("/v1/relation", params={"name": "~back"}).json()["elements"]
    both = odd_client.get("/v1/compose", params={"steps": ["~~back", "~back"]}).json()
    assert both["identity"]["count"] == 1


def test_models_are_named_and_chosen_by_name(client):
    found = client.get("/v1/models").json()
    assert found["default"] == "family" and [each["name"] for each in found["models"]] == ["family", "other"]
    assert client.get("/v1/entities", params={"model": "other"}).json()["total"] == 40
    posted = client.post("/v1/predict", params={"model": "other"}, json={"head": "man_0000", "relation": "spouse"})
    assert posted.json()["model"] == "other"


def test_info_has_recipe_metrics_and_the_curve_of_the_training(client):
    found = client.get("/v1/info").json()
    assert found["recipe"]["name"] == "demo/family" and 0 < found["metrics"]["test"]["both"]["mrr"] <= 1
    assert [row["epoch"] for row in found["curve"]] == list(range(1, 21))


def test_a_curve_cut_off_in_the_middle_of_a_line_is_read_up_to_there(family_folder, models):
    served = ServedModel("copy", models["family"].predictor, family_folder)
    assert len(served.curve) == 20
    log = family_folder / "training" / "log.jsonl"
    whole = log.read_text()
    try:
        log.write_text(whole + '{"epoch": 21, "lo')
        again = ServedModel("copy", models["family"].predictor, family_folder)
        assert len(again.curve) == 20
    finally:
        log.write_text(whole)


@pytest.mark.parametrize(
    ("folders", "message"),
    [([], "no model"), (["a={0}", "a={0}"], "two models"), (["={0}"], "no name"), (["nowhere"], "not a model folder")],
)
def test_wrong_model_arguments_are_refused(family_folder, folders, message):
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
def test_an_unknown_name_is_404_with_close_ones(client, path, suggestion):
    refused = client.get(path)
    assert refused.status_code == 404
    assert suggestion in refused.json()["suggestions"] and "is not known" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/predict", {"head": "man_0000"}),
        ("/v1/predict", {"head": "man_0000", "relation": "spouse", "tail": "man_0001"}),
        ("/v1/predict", {"head": "man_0000", "relation": "spouse", "top": 0}),
        ("/v1/predict", {"head": "man_0000", "relation": "spouse", "top": MAX_TOP + 1}),
        ("/v1/predict", {"head": "man_0000", "relation": "spouse", "known": "maybe"}),
        ("/v1/predict", {"head": "man_0000", "relation": "spouse", "among": "all"}),
        ("/v1/predict", {"head": "man_0000", "tail": "man_0001", "among": "range"}),
        ("/v1/classify", {"triples": []}),
        ("/v1/predict", {"head": "man_0000", "relation": "spouse", "tpo": 3}),
        ("/v1/predict", {"head": 5, "relation": "spouse"}),
        ("/v1/predict", {"questions": []}),
        ("/v1/predict", {"questions": [{"head": "man_0000", "relation": "spouse"}] * (MAX_QUESTIONS + 1)}),
        ("/v1/predict", [1, 2]),
        ("/v1/query", {"start": "man_0000", "via": []}),
        ("/v1/query", {"start": "man_0000", "via": ["spouse"] * (MAX_STEPS + 1)}),
        ("/v1/compose", {"steps": "spouse"}),
        ("/v1/explain", {"head": "man_0000", "relation": "spouse"}),
    ],
)
def test_what_makes_no_sense_is_422_with_one_line(client, path, body):
    refused = client.post(path, json=body)
    assert refused.status_code == 422
    assert isinstance(refused.json()["detail"], str) and "\n" not in refused.json()["detail"]


@pytest.mark.parametrize(
    "body", [b"{", b"\xff\xfe", b'{"\\ud800": 1}', b'{"head": "\\ud800", "relation": "spouse"}', b""]
)
def test_a_body_that_is_no_json_is_refused(client, body):
    refused = client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
    assert refused.status_code in (400, 422) and refused.json()["detail"]


def test_broken_json_is_400_and_says_so(client):
    refused = client.post("/v1/predict", content=b'{"head": ', headers={"content-type": "application/json"})
    assert refused.status_code == 400 and refused.json()["detail"].startswith("the body is not JSON: ")


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"head": "man_0000", "relation": "spouse", "top": 0}, "top: "),
        ({"questions": [{"head": "man_0000", "relation": "spouse"}, {"head": 5}]}, "question 2: head: "),
        ([1, 2], "the body: "),
    ],
)
def test_a_wrong_field_is_called_by_its_name(client, body, detail):
    found = client.post("/v1/predict", json=body).json()["detail"]
    assert found.startswith(detail) and "body." not in found and "one" not in found


def test_an_unknown_name_in_a_batch_says_in_which_question(client):
    questions = [{"head": "man_0000", "relation": "spouse"}, {"head": "man_000", "relation": "spouse"}]
    refused = client.post("/v1/predict", json={"questions": questions})
    assert refused.status_code == 404 and refused.json()["detail"] == "question 2: entity 'man_000' is not known"
    assert "man_0000" in refused.json()["suggestions"]


def test_an_unknown_model_is_told_which_there_are(client):
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


def test_monitors_may_ask_for_the_head_only(client):
    assert client.head("/healthz").status_code == 200 and client.head("/healthz").content == b""


def test_a_large_body_is_413_with_or_without_its_length(models):
    with TestClient(create_app(models, body_limit=1000)) as client:
        body = json.dumps({"questions": [{"head": "man_0000", "relation": "spouse"}] * 100}).encode()
        headers = {"content-type": "application/json"}
        assert client.post("/v1/predict", content=body, headers=headers).status_code == 413
        parts = (body[i : i + 100] for i in range(0, len(body), 100))
        refused = client.post("/v1/predict", content=parts, headers=headers)
        assert refused.status_code == 413 and "1000 bytes" in refused.json()["detail"]


def test_a_batch_may_not_ask_for_too_many_answers(client):
    questions = [{"head": "man_0000", "relation": "spouse", "top": MAX_TOP}] * 26
    refused = client.post("/v1/predict", json={"questions": questions})
    assert refused.status_code == 422 and "26,000 answers together" in refused.json()["detail"]


def test_the_key_is_asked_for_everywhere_but_for_health_and_the_page(models):
    with TestClient(create_app(models, api_key="sesame")) as client:
        for path in ("/v1/models", "/metrics", "/openapi.json"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"X-API-Key": "sesam"}).status_code == 401
            assert client.get(path, headers={"X-API-Key": "sésame".encode()}).status_code == 401
            assert client.get(path, headers={"X-API-Key": "sesame"}).status_code == 200
        for path in ("/healthz", "/", "/docs", "/static/explorer.js"):
            assert client.get(path).status_code == 200


def test_a_wrong_key_of_any_length_is_refused_and_no_key_is_logged(models, caplog, capfd):
    caplog.set_level("DEBUG")
    with TestClient(create_app(models, api_key="open-sesame-47")) as client:
        for wrong in ("", "o", "open-sesame-4", "open-sesame-48", "open-sesame-477", "x" * 10_000, "OPEN-SESAME-47"):
            refused = client.get("/v1/models", headers={"X-API-Key": wrong})
            assert refused.status_code == 401 and "open-sesame-47" not in refused.text
        assert client.get("/v1/models", headers={"X-API-Key": "open-sesame-47"}).status_code == 200
        assert client.get("/v1/predict?head=nobody", headers={"X-API-Key": "open-sesame-47"}).status_code == 422
    assert "open-sesame-47" not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize("key", ["sésame", "open\nsesame", " sesame"])
def test_a_key_that_no_header_can_carry_is_refused_at_the_start(models, key):
    with pytest.raises(dh.DihedralError, match="ASCII") as refused:
        create_app(models, api_key=key)
    assert key not in str(refused.value)


def test_metrics_count_requests_by_pattern_status_and_time(models):
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


def test_every_answer_forbids_scripts_from_elsewhere(client):
    for path in ("/", "/docs", "/v1/models", "/v1/nothing", "/static/explorer.css"):
        assert client.get(path).headers["content-security-policy"].startswith("default-src 'self'")
    assert "access-control-allow-origin" not in client.get("/v1/models", headers={"Origin": "http://x"}).headers


def test_no_asset_names_another_host():
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


def test_the_api_describes_itself(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {"get", "post"} <= paths["/v1/predict"].keys()
    assert "/v1/relations/{name}" in paths and "/healthz" in paths
