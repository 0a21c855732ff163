"""The map of entities over HTTP: which entities it holds, their points, types and labels.

The axes are the principal components as numpy finds them; UMAP is offered only where it is installed.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

import dihedral as dh
from dihedral import DihedralError
from dihedral.serve.app import create_app
from dihedral.serve.routes import entity_map
from dihedral.serve.routes.entity_map import available_methods, project
from dihedral.serve.served_model import ServedModel

ANIMALS = [(f"{kind}{i}", "isa", kind) for kind, count in (("dog", 9), ("cat", 6)) for i in range(count)]
ANIMALS += [(name, "rdf:type", "animal") for name, _, _ in ANIMALS] + [("dog0", "chases", f"cat{i}") for i in range(6)]


@pytest.fixture(scope="module")
def animals(tmp_path_factory):
    graph = dh.Graph.from_names(ANIMALS)
    recipe = dh.Recipe(dimension=8, epochs=1)
    folder = tmp_path_factory.mktemp("animals")
    dh.train(graph, recipe, progress=False, device="cpu").save(folder)
    with TestClient(create_app({"animals": ServedModel("animals", folder)}), raise_server_exceptions=False) as client:
        yield client


def test_all_entities_are_on_the_map_of_a_small_graph(client, models):
    found, served = client.get("/v1/map").json(), models["family"]
    graph = served.graph
    assert found["method"] == "pca" and "pca" in found["methods"] and found["total"] == graph.num_entities
    order = graph.by_degree.tolist()
    assert found["names"] == [graph.entities[i] for i in order]
    assert found["facts"] == served.num_facts[order].tolist()
    expected, variance = project(served.predictor.scorer.entities[order])
    assert np.stack([found["x"], found["y"]], axis=1) == pytest.approx(expected, abs=1e-4)
    assert found["variance"] == pytest.approx(variance)
    assert found["types"] == [] and set(found["type"]) == {-1}


def test_a_large_graph_has_its_entities_with_the_most_facts(family_folder, monkeypatch):
    monkeypatch.setitem(entity_map.MAX_POINTS, "pca", 10)
    served = ServedModel("few", family_folder)
    found = entity_map.map_(served, "pca")
    assert found.total == 80 and len(found.names) == len(found.x) == len(found.y) == len(found.type) == 10
    assert found.names == [served.graph.entities[i] for i in served.graph.by_degree[:10].tolist()]
    assert entity_map.map_(served, "pca") is found  # computed once


def test_an_entity_has_its_most_special_type(animals):
    found = animals.get("/v1/map").json()
    kinds = dict(zip(found["names"], found["type"], strict=True))
    types = {row["name"]: row["entities"] for row in found["types"]}
    assert types == {"animal": 0, "dog": 9, "cat": 6}
    names = [row["name"] for row in found["types"]]
    assert names[kinds["dog3"]] == "dog" and names[kinds["cat1"]] == "cat" and kinds["animal"] == -1


def test_the_map_has_labels(labelled_folder):
    found = entity_map.map_(ServedModel("labelled", labelled_folder), "pca")
    assert found.labels == {"man_0000": "Jürgen Müller", "man_0001": "José", "man_0002": "José"}


def test_a_method_that_is_not_there_is_an_error(client):
    answer = client.get("/v1/map", params={"method": "umap"})
    if "umap" not in client.get("/v1/map").json()["methods"]:
        assert answer.status_code == 422 and "umap-learn" in answer.json()["detail"]
    assert client.get("/v1/map", params={"method": "tsne"}).status_code == 422


def vectors(count: int = 300, dimension: int = 12) -> torch.Tensor:
    spread = torch.linspace(3, 0.1, dimension)
    return torch.randn(count, dimension, generator=torch.Generator().manual_seed(0)) * spread + 5


def test_the_axes_are_the_principal_components():
    table = vectors()
    found, variance = project(table)
    centred = table.numpy() - table.numpy().mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    expected = left[:, :2] * values[:2]
    expected /= np.abs(expected).max()
    for axis in range(2):
        sign = np.sign(found[0, axis] * expected[0, axis])
        assert found[:, axis] == pytest.approx(sign * expected[:, axis], abs=1e-3)
    assert variance == pytest.approx(values[:2] ** 2 / (values**2).sum(), rel=1e-4)


def test_the_same_vectors_give_the_same_points_in_half_precision_too():
    table = vectors()
    assert np.array_equal(project(table)[0], project(table.clone())[0])
    assert project(table.half())[0] == pytest.approx(project(table)[0], abs=0.02)


@pytest.mark.parametrize("shape", [(1, 4), (2, 1), (5, 2)])
def test_few_entities_and_dimensions_have_points(shape):
    found, _ = project(torch.randn(shape, generator=torch.Generator().manual_seed(1)))
    assert found.shape == (shape[0], 2) and np.isfinite(found).all()
    assert np.abs(found).max() <= 1 + 1e-6


def test_equal_vectors_are_at_the_centre():
    found, variance = project(torch.ones(7, 4))
    assert not found.any() and variance == (0, 0)


def test_umap_is_offered_only_where_it_is_installed(tmp_path, monkeypatch):
    if "umap" not in available_methods():
        with pytest.raises(DihedralError, match="needs the package umap-learn; install it, or use 'pca'"):
            project(vectors(), "umap")
    (tmp_path / "umap.py").write_text(  # stands for the library, with the part of its interface that is used
        "class UMAP:\n"
        "    def __init__(self, n_components, metric, random_state): self.columns = slice(n_components)\n"
        "    def fit_transform(self, table): return table[:, self.columns]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "umap", raising=False)
    assert available_methods() == ["pca", "umap"]
    found, variance = project(vectors(), "umap")
    assert found.shape == (300, 2) and variance == ()
