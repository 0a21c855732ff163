"""Exports: common readers restore the content of the model."""

from __future__ import annotations

from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq
import pytest

import dihedral as dh
from dihedral import DihedralError, DihedralGroup, Graph, Predictor
from dihedral.models import MODELS, build_model
from dihedral.store.trained import TrainedModel


@pytest.fixture
def codes(predictor):
    return predictor.model.codes.numpy()


@pytest.fixture
def vectors(predictor):
    return predictor.model.entities.detach().numpy()


def read_text(path):
    """A word2vec text file: names and the words after each."""
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" ") for line in lines]
    assert first == f"{len(rows)} {len(rows[0]) - 1}"
    return [unquote(row[0]) for row in rows], [row[1:] for row in rows]


def test_npz_holds_everything_in_one_file(predictor, family, vectors, codes, tmp_path):
    assert predictor.export(tmp_path / "model.npz") == [tmp_path / "model.npz"]
    with np.load(tmp_path / "model.npz", allow_pickle=False) as stored:
        assert np.array_equal(stored["entities"], vectors) and stored["entities"].dtype == np.float32
        assert stored["entity_names"].tolist() == list(family.entities)
        assert stored["relation_names"].tolist() == list(family.relations)
        assert np.array_equal(stored["codes"], codes) and stored["codes"].dtype == np.uint8
        assert stored["element_names"].tolist() == DihedralGroup(4).names


def test_parquet_holds_entities_and_relations_in_two_files(predictor, family, vectors, codes, tmp_path):
    files = predictor.export(str(tmp_path / "model.parquet"))
    assert files == [tmp_path / "model.parquet", tmp_path / "model.relations.parquet"]
    entities, relations = (pq.read_table(file) for file in files)
    assert entities.column("name").to_pylist() == list(family.entities)
    assert np.array_equal(np.array(entities.column("vector").to_pylist(), np.float32), vectors)
    assert relations.column("name").to_pylist() == list(family.relations)
    assert relations.column("codes").to_pylist() == codes.tolist()
    group = DihedralGroup(4)
    assert relations.column("elements").to_pylist() == [[group.name(code) for code in row] for row in codes]


@pytest.mark.parametrize("suffix", ["txt", "vec"])
def test_word2vec_text_restores_every_number_exactly(predictor, family, vectors, codes, tmp_path, suffix):
    files = predictor.export(tmp_path / f"model.{suffix}")
    assert [file.name for file in files] == [f"model.{suffix}", f"model.relations.{suffix}"]
    names, rows = read_text(files[0])
    assert names == list(family.entities) and np.array_equal(np.array(rows, np.float32), vectors)
    names, rows = read_text(files[1])
    group = DihedralGroup(4)
    assert names == list(family.relations)
    assert [[group.element(word) for word in row] for row in rows] == codes.tolist()


@pytest.mark.parametrize("suffix", ["npz", "parquet", "txt"])
@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_exports_the_operators_that_evaluation_uses(name, suffix, family, tmp_path):
    predictor = Predictor(TrainedModel(build_model(name, 40, 6, dimension=8, seed=3), family))
    files = predictor.export(tmp_path / f"model.{suffix}")
    if predictor.model.codes is not None:
        return
    expected = predictor.scorer.operators.flatten(1).numpy()
    if suffix == "npz":
        found = np.load(files[0])["operators"]
    elif suffix == "parquet":
        found = np.array(pq.read_table(files[1]).column("operators").to_pylist(), np.float32)
    else:
        found = np.array(read_text(files[1])[1], np.float32)
    assert np.array_equal(found, expected)


def test_learned_scales_of_relations_are_exported(family, tmp_path):
    predictor = Predictor(TrainedModel(build_model("dihedral-ste", 40, 6, dimension=8, scaled=True), family))
    predictor.export(tmp_path / "model.npz")
    predictor.export(tmp_path / "model.parquet")
    scales = predictor.model.relations.scales.tolist()
    assert np.load(tmp_path / "model.npz")["scales"].tolist() == scales
    assert pq.read_table(tmp_path / "model.relations.parquet").column("scales").to_pylist() == scales
    files = predictor.export(tmp_path / "model.txt")
    assert [file.name for file in files] == ["model.txt", "model.relations.txt", "model.scales.txt"]
    names, rows = read_text(files[2])
    assert names == list(family.relations) and np.array(rows, np.float32)[:, 0].tolist() == scales


NAMES = ["New York", "50%", "a%20b", "a b", "é日本🙂", "tab\tand\nline", "no-break\u00a0space", "http://x.y/%C3%A9"]


@pytest.mark.parametrize("suffix", ["npz", "parquet", "txt"])
def test_unusual_names_round_trip(tmp_path, suffix):
    graph = Graph.from_names([(name, "works for", "x") for name in NAMES])
    predictor = Predictor(TrainedModel(build_model("dihedral-ste", graph.num_entities, 1, dimension=4), graph))
    files = predictor.export(tmp_path / f"model.{suffix}")
    if suffix == "npz":
        names = [np.load(files[0])[key].tolist() for key in ("entity_names", "relation_names")]
    elif suffix == "parquet":
        names = [pq.read_table(file).column("name").to_pylist() for file in files]
    else:
        names = [read_text(file)[0] for file in files]
    assert names == [list(graph.entities), list(graph.relations)]


@pytest.mark.parametrize("name", ["model.pt", "model", "model.csv"])
def test_an_unsupported_suffix_is_refused(predictor, tmp_path, name):
    with pytest.raises(DihedralError, match=r"export to one of \.npz, \.parquet, \.txt, \.vec"):
        predictor.export(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_stored_model_exports_the_same_as_the_trained_one(predictor, model_folder, tmp_path):
    predictor.export(tmp_path / "trained.npz")
    dh.load(model_folder).export(tmp_path / "new" / "stored.npz")
    one, other = np.load(tmp_path / "trained.npz"), np.load(tmp_path / "new" / "stored.npz")
    assert one.files == other.files and all(np.array_equal(one[key], other[key]) for key in one.files)
