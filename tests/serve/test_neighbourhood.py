"""The neighbourhood of an entity: the server's answer, compared with the facts of the graph."""

from __future__ import annotations

import hashlib
import re

import numpy as np
import pytest
from fastapi.testclient import TestClient

import dihedral as dh
from dihedral.graph.triples import Graph
from dihedral.graph.vocabulary import Vocabulary
from dihedral.serve.app import STATIC, create_app
from dihedral.serve.routes import entities
from dihedral.serve.schemas import NeighbourhoodRequest
from dihedral.serve.served_model import ServedModel

HUB = "entity_000"


@pytest.fixture(scope="module")
def hub(hub_folder):
    return ServedModel("hub", hub_folder)


@pytest.fixture(scope="module")
def hub_client(hub):
    with TestClient(create_app({"hub": hub}), raise_server_exceptions=False) as client:
        yield client


def asked(**options) -> NeighbourhoodRequest:
    """A request about the hub, which may ask for more than a client may."""
    return NeighbourhoodRequest.model_construct(name=HUB, **options)


def triples(found: dict) -> set[tuple[str, str, str]]:
    return {(fact["head"], fact["relation"], fact["tail"]) for fact in found["facts"]}


def between(graph: Graph, names: set[str]) -> set[tuple[str, str, str]]:
    return {fact for fact in graph.names_of(graph.known) if fact[0] in names and fact[2] in names}


def test_a_hub_shows_its_neighbours_with_the_most_facts_and_says_of_how_many(hub, hub_client):
    found = hub_client.get("/v1/neighbourhood", params={"name": HUB, "top": 100}).json()
    names = [entity["name"] for entity in found["entities"]]
    assert found["neighbours"] == 600 and found["drawn"] == 100 and names[0] == HUB and len(set(names)) == 101
    graph, degrees = hub.graph, hub.num_facts
    joined = {(h, t) for h, _, t in graph.known.tolist() if 0 in (h, t)}
    others = sorted({h + t for h, t in joined}, key=lambda i: (-degrees[i], i))
    assert names[1:] == [graph.entities[i] for i in others[:100]]
    assert [entity["facts"] for entity in found["entities"]] == degrees[[0, *others[:100]]].tolist()
    assert triples(found) == between(graph, set(names)) and found["complete"]
    assert found["num_facts"] == len(found["facts"])


def test_what_is_added_joins_with_what_is_shown(hub, hub_client):
    first = hub_client.get("/v1/neighbourhood", params={"name": HUB, "top": 30}).json()
    shown = [entity["name"] for entity in first["entities"]]
    body = {"name": shown[1], "top": 20, "shown": shown}
    second = hub_client.post("/v1/neighbourhood", json=body).json()
    added = {entity["name"] for entity in second["entities"]}
    assert not added & set(shown) and len(added) <= 20
    together = between(hub.graph, {*shown, *added})
    assert triples(second) == {fact for fact in together if {fact[0], fact[2]} & {*added, shown[1]}}
    assert triples(first) | triples(second) == together


def test_only_neighbours_through_a_relation(hub, hub_client):
    params = {"name": HUB, "top": 500, "relation": "relation_07"}
    found = hub_client.get("/v1/neighbourhood", params=params).json()
    expected = {
        name
        for h, r, t in hub.graph.names_of(hub.graph.known)
        if r == "relation_07" and HUB in (h, t)
        for name in (h, t)
    }
    assert {entity["name"] for entity in found["entities"]} == expected
    counts = {row["relation"]: row["facts"] for row in found["relations"]}
    assert counts["relation_07"] == found["neighbours"] == len(expected) - 1 and sum(counts.values()) == 600


def test_every_neighbour_is_joined_when_not_all_facts_fit(hub, monkeypatch):
    monkeypatch.setattr(entities, "MAX_FACTS", 600)
    found = entities.neighbourhood(hub, asked(top=600))
    assert found.num_facts > 600 == len(found.facts)
    joined = {name for fact in found.facts for name in (fact.head, fact.tail) if HUB in (fact.head, fact.tail)}
    assert joined == {entity.name for entity in found.entities} and len(joined) == 601


def test_hubs_are_not_looked_at_from_both_sides(hub, monkeypatch):
    """With a limit on edges, facts between two entities that are not looked at are missing, and the answer says so."""
    monkeypatch.setattr(entities, "MAX_EDGES", int(np.sort(hub.num_facts)[:-1].sum()))
    found = entities.neighbourhood(hub, asked(top=700, shown=hub.graph.entities[1:]))
    assert found.complete and found.num_facts == sum(0 in (h, t) for h, _, t in hub.graph.known.tolist())
    monkeypatch.setattr(entities, "MAX_EDGES", 10)
    assert not entities.neighbourhood(hub, asked(top=700)).complete


def test_a_fact_about_an_entity_and_itself_is_counted_once(tmp_path):
    facts = np.array([(0, 0, 0), (0, 0, 1), (1, 1, 2), (2, 1, 3)], np.int32)
    names = Vocabulary(["a", "b", "c", "d"]), Vocabulary(["r", "s"], "relation")
    graph = Graph(*names, facts, facts[:1], facts[:0])  # the loop is in two splits
    dh.train(graph, dh.Recipe(dimension=4, epochs=1), progress=False, device="cpu").save(tmp_path / "loop")
    served = ServedModel("loop", tmp_path / "loop")
    assert served.num_facts.tolist() == [2, 2, 2, 1] and served.busiest == [0, 1, 2, 3]
    with TestClient(create_app({"loop": served})) as client:
        found = client.get("/v1/neighbourhood", params={"name": "a"}).json()
        assert found["relations"] == [{"relation": "r", "facts": 2}] and found["entities"][0]["facts"] == 2
        assert triples(found) == {("a", "r", "a"), ("a", "r", "b")} and found["neighbours"] == 1
        found = client.get("/v1/entity", params={"name": "a"}).json()
        assert found["total"] == len(found["facts"]) == 2 and found["num_relations"] == 1


def test_labels_and_errors_are_those_of_other_endpoints(client, hub_client):
    assert hub_client.get("/v1/neighbourhood", params={"name": "entity_00"}).status_code == 404
    assert hub_client.get("/v1/neighbourhood", params={"name": HUB, "relation": "no"}).status_code == 404
    assert hub_client.get("/v1/neighbourhood", params={"name": HUB, "top": 501}).status_code == 422
    assert hub_client.post("/v1/neighbourhood", json={"name": HUB, "shown": ["x"]}).status_code == 404
    many = {"name": HUB, "shown": [HUB] * 1001}
    assert (
        hub_client.post("/v1/neighbourhood", json=many)
        .json()["detail"]
        .startswith("shown is a list of 1001; it must have at most 1000 items")
    )


def test_bundled_files_are_those_of_the_table():
    """The name, version and hash of each bundled file are in the table, with a licence."""
    folder = STATIC / "vendor"
    table = (folder / "README.md").read_text(encoding="utf-8")
    files = [path for path in folder.iterdir() if path.suffix == ".mjs"]
    assert files
    for path in files:
        (row,) = [line for line in table.splitlines() if line.startswith(f"| `{path.name}`")]
        assert hashlib.sha256(path.read_bytes()).hexdigest() in row
        (licence,) = re.findall(r"`([\w-]+LICENSE.txt)`", row)
        assert "Permission is hereby granted" in (folder / licence).read_text(encoding="utf-8")
        assert f"vendor/{path.name}" in (STATIC / "neighbourhood.js").read_text(encoding="utf-8")
