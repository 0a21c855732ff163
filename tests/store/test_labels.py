"""Labels in a model folder: stored beside the vocabulary, replaced without another change, refused if damaged."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.graph.name_search import NameSearch
from dihedral.io.files import lock_folder
from dihedral.store.folder import relabel_model
from dihedral.store.graph_files import load_words

LABELS = {f"man_{i:04d}": {"label": f"Mister {i}", "description": f"number {i}"} for i in range(5)} | {
    "spouse": "married to"
}


@pytest.fixture
def folder(predictor, tmp_path):
    """A new model folder for this test, with labels."""
    predictor.save(tmp_path / "model")
    relabel_model(tmp_path / "model", LABELS, "en")
    return tmp_path / "model"


def content_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and not path.is_symlink()}


def test_labels_are_stored_and_nothing_else_changes(predictor, tmp_path):
    predictor.save(tmp_path / "model")
    before = content_of(tmp_path / "model")
    graph = relabel_model(tmp_path / "model", LABELS, "en")
    after = content_of(tmp_path / "model")
    changed = {name.partition(".save-")[0] for name in after if after[name] != before.get(name)}
    assert changed == {"model.json", "entities.labels", "relations.labels", "words"}
    loaded = dh.load(tmp_path / "model")
    assert loaded.graph.fingerprint == predictor.graph.fingerprint == graph.fingerprint
    assert loaded.graph.entities.shown("man_0003") == "Mister 3 (man_0003)"
    assert loaded.graph.entities.labels.about(loaded.graph.entities.id("man_0003")) == "number 3"
    assert loaded.predict(head="Mister 3", relation="married to", top=2) == predictor.predict(
        head="man_0003", relation="spouse", top=2
    )


def test_labels_are_saved_with_a_model(folder, tmp_path):
    dh.load(folder).save(tmp_path / "again")
    assert dh.load(tmp_path / "again").graph.relations.label("spouse") == "married to"


def test_labels_are_replaced_and_no_old_file_stays(folder):
    relabel_model(folder, {"spouse": "wed to"}, "en")
    assert dh.load(folder).graph.relations.shown("spouse") == "wed to (spouse)"
    assert dh.load(folder).graph.entities.label("man_0001") == "Mister 1"
    assert len(list(folder.glob("*.labels*.arrow"))) == 2 and len(list(folder.glob("words*.arrow"))) == 1


def test_the_stored_words_find_names_and_labels(folder):
    graph = dh.load(folder).graph
    search = NameSearch(graph.entities, graph.by_degree, load_words(folder))
    built = NameSearch(graph.entities, graph.by_degree)
    for text in ("mister 3", "man", "0003", "wom"):
        assert search.search(text, 5) == built.search(text, 5) != []


def test_a_model_without_words_is_read(folder):
    manifest = json.loads((folder / "model.json").read_text())
    del manifest["bytes"][manifest["files"].pop("words")]
    (folder / "model.json").write_text(json.dumps(manifest))
    assert load_words(folder) is None and dh.load(folder).graph.num_entities


def test_a_folder_that_is_being_written_is_left_alone(folder):
    before = content_of(folder)
    with lock_folder(folder, "taken"), pytest.raises(DihedralError, match="being written by another process"):
        relabel_model(folder, LABELS, "en")
    assert content_of(folder) == before


def use(folder):
    """Read labels and words in every way."""
    graph = dh.load(folder).graph
    for names in (graph.entities, graph.relations):
        for name in list(names)[:30]:
            names.shown(name)
        names.labels.find("Mister 3")
        names.labels.about(0)
    NameSearch(graph.entities, graph.by_degree, load_words(folder)).search("mister man", 5)


@pytest.mark.parametrize("lazily", [False, True])
@pytest.mark.parametrize("role", ["entity_labels", "relation_labels", "words"])
def test_a_changed_byte_gives_a_one_sentence_error_or_a_model(folder, monkeypatch, role, lazily):
    if lazily:  # as for a model that is too large to be checked when it is opened
        monkeypatch.setattr("dihedral.store.graph_files.MAX_CHECKED_ON_OPEN", 0)
    path = folder / json.loads((folder / "model.json").read_text())["files"][role]
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = []
    for place in rng.integers(len(whole), size=25):
        damaged = bytearray(whole)
        damaged[place] ^= int(rng.integers(1, 256))
        path.unlink()
        path.write_bytes(damaged)
        try:
            use(folder)
        except DihedralError as error:
            refused.append(str(error))
    assert not any("\n" in message for message in refused)


def test_labels_of_another_vocabulary_are_refused(folder):
    files = json.loads((folder / "model.json").read_text())["files"]
    one, two = folder / files["entity_labels"], folder / files["relation_labels"]
    content = two.read_bytes()
    two.write_bytes(one.read_bytes())
    one.write_bytes(content)
    manifest = json.loads((folder / "model.json").read_text())
    manifest["bytes"] |= {path.name: path.stat().st_size for path in (one, two)}
    (folder / "model.json").write_text(json.dumps(manifest))
    with pytest.raises(DihedralError, match=r"does not hold \d+ labels"):
        dh.load(folder)


@pytest.mark.parametrize("text", ["label", "description"])
def test_labels_have_a_greatest_length(folder, text):
    before = content_of(folder)
    with pytest.raises(DihedralError, match="a label, description or type has 10,001 characters; it may have 10,000"):
        relabel_model(folder, {"man_0001": {"label": "Mister", text: "x" * 10_001}}, "en")
    assert content_of(folder) == before


@pytest.mark.parametrize("target", ["home", "home/known.arrow"])
def test_labels_are_not_stored_beside_files_that_are_links(folder, tmp_path, target):
    (tmp_path / "home").mkdir()
    (known,) = folder.glob("known*.arrow")
    known.rename(tmp_path / "home" / "known.arrow")
    known.symlink_to(tmp_path / target)
    with pytest.raises(DihedralError, match="is a symbolic link; the files of a model must be in its folder"):
        relabel_model(folder, LABELS, "en")
