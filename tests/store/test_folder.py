"""Models on disk: a loaded model equals the saved one, and an incomplete folder is refused."""

from __future__ import annotations

import json
import os
import re
import shutil

import numpy as np
import pyarrow as pa
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError, Graph, Predictor
from dihedral.io.files import lock_folder, write_tensors
from dihedral.models import MODELS, build_model
from dihedral.scoring.embedding import EmbeddingScorer
from dihedral.store import folder as folder_module
from dihedral.store.folder import describe, save_model
from dihedral.store.graph_files import load_words
from dihedral.store.trained import TrainedModel


def same_model(one: Predictor, other: Predictor) -> None:
    assert torch.equal(one.model.entities, other.model.entities)
    assert torch.equal(one.scorer.operators, other.scorer.operators)
    assert one.graph.fingerprint == other.graph.fingerprint


def files_of(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(predictor, tmp_path):
    """A new model folder for this test."""
    predictor.save(tmp_path / "model")
    return tmp_path / "model"


# --- round trips ------------------------------------------------------------------------------------


def test_a_loaded_model_scores_exactly_like_the_saved_one(predictor, folder, family):
    loaded = dh.load(folder)
    triples = torch.from_numpy(family.known)
    assert torch.equal(loaded.scorer.score(triples), predictor.scorer.score(triples))
    head, relation, tail = next(family.names_of(family.test))
    assert loaded.score(head, relation, tail) == predictor.score(head, relation, tail)
    assert dh.evaluate(loaded).to_dict() == dh.evaluate(predictor).to_dict()


def test_a_loaded_model_knows_its_graph_recipe_and_metrics(predictor, folder, family):
    loaded = dh.load(folder)
    assert loaded.graph.fingerprint == family.fingerprint and loaded.graph.name == family.name
    for split in ("train", "valid", "test"):
        assert np.array_equal(loaded.graph.split(split), family.split(split))
    assert loaded.recipe == predictor.recipe
    assert loaded.metrics == predictor.metrics
    assert torch.equal(loaded.model.codes, predictor.model.codes) and loaded.model.codes.dtype == torch.uint8


def test_a_loaded_model_can_be_saved_again(folder, tmp_path):
    dh.load(folder).save(str(tmp_path / "again"))
    same_model(dh.load(folder), dh.load(tmp_path / "again"))
    for name in files_of(folder):
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_round_trips(name, family, tmp_path):
    model = build_model(name, family.num_entities, family.num_relations, dimension=8, seed=3)
    made = Predictor(TrainedModel(model, family))
    made.save(tmp_path / "model")
    same_model(made, dh.load(tmp_path / "model"))
    triples = torch.from_numpy(family.test)
    assert torch.equal(dh.load(tmp_path / "model").scorer.score(triples), EmbeddingScorer(model).score(triples))


@pytest.mark.parametrize(
    "K",
    [
        *(1, 2, 3, 6, 127),
        128,
    ],
)
def test_every_group_round_trips(K, family, tmp_path):
    model = build_model("dihedral-argmax", family.num_entities, family.num_relations, dimension=64, K=K, seed=3)
    Predictor(TrainedModel(model, family)).save(tmp_path / "model")
    assert torch.equal(dh.load(tmp_path / "model").model.codes, model.codes)


def test_unusual_names_round_trip(tmp_path):
    names = ["", " ", "é日本🙂", "a\nb", "q\"uo'te", "[/b]", "../up", "NA"]
    graph = Graph.from_names([(a, a, b) for a, b in zip(names, names[1:] + names[:1], strict=True)], name="odd/é")
    Predictor(TrainedModel(build_model("distmult", 8, 8, dimension=2), graph)).save(tmp_path / "model")
    loaded = dh.load(tmp_path / "model")
    assert list(loaded.graph.entities) == list(loaded.graph.relations) == names
    assert loaded.graph.name == "odd/é"


def test_half_precision_halves_the_table_and_rounds_it(predictor, tmp_path):
    predictor.save(tmp_path / "half", dtype="float16")
    predictor.save(tmp_path / "full")
    loaded = dh.load(tmp_path / "half")
    assert loaded.model.entities.dtype == torch.float32
    assert torch.equal(loaded.model.entities, predictor.model.entities.half().float())
    assert torch.equal(loaded.model.codes, predictor.model.codes)
    sizes = [(tmp_path / name / "entities.safetensors").stat().st_size for name in ("half", "full")]
    assert sizes[1] - sizes[0] == predictor.model.entities.numel() * 2


def test_an_unsupported_precision_is_refused(predictor, tmp_path):
    with pytest.raises(DihedralError, match="dtype is 'int8'; entities are stored as float32 or float16"):
        predictor.save(tmp_path / "model", dtype="int8")
    assert not (tmp_path / "model").exists()


# --- shards -----------------------------------------------------------------------------------------


def big_predictor(rows=60_000, dimension=200):
    graph = Graph.from_names([(f"e{i}", "r", f"e{i + 1}") for i in range(rows - 1)])
    return Predictor(TrainedModel(build_model("dihedral-argmax", rows, 1, dimension=dimension), graph))


def test_no_shard_is_larger_than_requested(tmp_path):
    made = big_predictor()
    made.save(tmp_path / "model", shard_mb=15)
    shards = sorted((tmp_path / "model").glob("entities-*.safetensors"))
    assert [shard.name for shard in shards] == [f"entities-0000{i}-of-00004.safetensors" for i in (1, 2, 3, 4)]
    assert all(shard.stat().st_size <= 15 * 2**20 for shard in shards)
    assert torch.equal(dh.load(tmp_path / "model").model.entities, made.model.entities)


@pytest.mark.parametrize("shard_mb", [0.0001, 0.0041, 0.005, 0.006])
def test_small_shards_round_trip(predictor, tmp_path, shard_mb):
    predictor.save(tmp_path / "model", shard_mb=shard_mb)
    assert len(list((tmp_path / "model").glob("entities-*.safetensors"))) > 1
    same_model(dh.load(tmp_path / "model"), predictor)


def test_a_table_that_fits_is_not_split(predictor, tmp_path):
    predictor.save(tmp_path / "model", shard_mb=1)
    assert "entities.safetensors" in files_of(tmp_path / "model")


@pytest.mark.parametrize("shard_mb", [0, -1])
def test_a_shard_size_must_be_positive(predictor, tmp_path, shard_mb):
    with pytest.raises(DihedralError, match=f"shard_mb is {shard_mb}; a shard needs more than 0 MiB"):
        predictor.save(tmp_path / "model", shard_mb=shard_mb)


def test_a_missing_shard_is_named(predictor, tmp_path):
    predictor.save(tmp_path / "model", shard_mb=0.005)
    name = "entities-00002-of-00003.safetensors"
    (tmp_path / "model" / name).unlink()
    with pytest.raises(DihedralError, match=f"lacks the file '{name}'; copy the folder again"):
        dh.load(tmp_path / "model")


# --- overwriting ------------------------------------------------------------------------------------


@pytest.fixture
def other(family):
    """Another model of the same graph."""
    return Predictor(
        TrainedModel(build_model("complex", family.num_entities, family.num_relations, dimension=12, seed=9), family)
    )


def test_a_folder_that_holds_a_model_is_not_overwritten_by_accident(predictor, other, folder):
    with pytest.raises(DihedralError, match="already holds a model; choose another or pass --overwrite"):
        other.save(folder)
    same_model(dh.load(folder), predictor)


def test_overwriting_leaves_only_the_new_model(other, folder, tmp_path):
    for shard_mb in (None, 0.0041, None, None):
        other.save(folder, overwrite=True, shard_mb=shard_mb)
        same_model(dh.load(folder), other)
    other.save(tmp_path / "fresh")
    assert len(files_of(folder)) == len(files_of(tmp_path / "fresh"))


def test_a_loaded_model_survives_being_overwritten(predictor, other, folder):
    loaded = dh.load(folder)
    other.save(folder, overwrite=True)
    same_model(loaded, predictor)
    loaded.save(folder, overwrite=True)
    same_model(dh.load(folder), predictor)


def test_a_load_that_spans_two_saves_gives_one_model(family, tmp_path, monkeypatch):
    """The folder is saved twice after its entities are read; the files of these models have equal sizes."""
    models = [build_model("complex", family.num_entities, family.num_relations, dimension=12, seed=i) for i in range(3)]
    first, *later = (Predictor(TrainedModel(model, family)) for model in models)
    first.save(tmp_path / "model")
    last, read_entities = later[-1], folder_module._load_entities

    def load_entities(*arguments):
        entities = read_entities(*arguments)
        while later:
            later.pop(0).save(tmp_path / "model", overwrite=True)
        return entities

    monkeypatch.setattr(folder_module, "_load_entities", load_entities)
    same_model(dh.load(tmp_path / "model"), last)


def test_no_save_uses_the_name_of_a_file_again(other, folder):
    names = set()
    for _ in range(3):
        here = set(json.loads((folder / "model.json").read_text())["bytes"])
        assert not here & names
        names |= here
        other.save(folder, overwrite=True)


def test_the_next_save_removes_the_files_of_one_that_was_killed_before_its_manifest(other, folder):
    other.save(folder, overwrite=True)
    (folder / "metrics.save-0123abcd.json").write_text("{}")
    (folder / "metrics.20240101.json").write_text("a file of the user")
    other.save(folder, overwrite=True)
    left = [name for name in files_of(folder) if name.startswith("metrics")]
    assert len(left) == 2 and left[0] == "metrics.20240101.json" and left[1] != "metrics.save-0123abcd.json"


def test_a_file_of_the_user_with_the_name_of_a_replaced_one_stays(other, folder):
    other.save(folder, overwrite=True)
    other.save(folder, overwrite=True)
    (folder / "metrics.json").write_text('{"mine": 1}')
    dh.load(folder)
    other.save(folder, overwrite=True)
    assert (folder / "metrics.json").read_text() == '{"mine": 1}'


@pytest.mark.parametrize("name", ["../mine.json", "mine.txt", "metrics.json"])
def test_a_manifest_that_has_other_files_replaced_is_refused(folder, name):
    edit_manifest(folder, lambda content: content.update(replaced={name: 1}))
    with pytest.raises(DihedralError, match=r"names a file|does not give"):
        dh.load(folder)


def test_other_files_in_the_folder_are_left_alone(predictor, other, tmp_path):
    (tmp_path / "model" / "training").mkdir(parents=True)
    (tmp_path / "model" / "notes.txt").write_text("mine")
    predictor.save(tmp_path / "model")
    other.save(tmp_path / "model", overwrite=True)
    assert (tmp_path / "model" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "model" / "training").is_dir()


SAVE_WITH_LITTLE_ROOM = """
import resource, sys
import dihedral as dh

predictor = dh.load(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    predictor.save(sys.argv[2], overwrite=True)
except dh.DihedralError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("room", "stops_at"),
    [(100, "entities"), pytest.param(3000, "known", marks=pytest.mark.thorough), (4500, "metrics")],
)
def test_a_save_that_fails_midway_keeps_the_previous_model(python, other, model_folder, tmp_path, room, stops_at):
    other.save(tmp_path / "model")
    done = python("-c", SAVE_WITH_LITTLE_ROOM, model_folder, tmp_path / "model", room)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"'{tmp_path / 'model'}/{stops_at}") and "cannot be written: " in done.stdout
    assert done.stdout.endswith("nothing stored before was changed\n")
    same_model(dh.load(tmp_path / "model"), other)
    dh.load(model_folder).save(tmp_path / "model", overwrite=True)
    same_model(dh.load(tmp_path / "model"), dh.load(model_folder))


def test_a_save_that_fails_midway_in_an_empty_folder_leaves_no_model(python, model_folder, tmp_path):
    done = python("-c", SAVE_WITH_LITTLE_ROOM, model_folder, tmp_path / "model", 4500)
    assert "cannot be written: " in done.stdout, done.stderr
    with pytest.raises(DihedralError, match="is not a model folder"):
        dh.load(tmp_path / "model")


def test_a_file_where_the_folder_should_be_is_refused(predictor, tmp_path):
    (tmp_path / "model").write_text("")
    with pytest.raises(DihedralError, match=r"folder '.*model' cannot be created: File exists"):
        predictor.save(tmp_path / "model")


def test_a_second_save_into_a_folder_is_refused_while_the_first_writes(other, predictor, tmp_path):
    other.save(tmp_path / "model")
    with (
        lock_folder(tmp_path / "model", "taken"),
        pytest.raises(DihedralError, match="is being written by another process"),
    ):
        predictor.save(tmp_path / "model", overwrite=True)
    same_model(dh.load(tmp_path / "model"), other)
    predictor.save(tmp_path / "model", overwrite=True)


def test_the_next_save_removes_the_partial_files_of_a_killed_one(predictor, tmp_path):
    predictor.save(tmp_path / "model")
    kept = files_of(tmp_path / "model")
    (tmp_path / "model" / ".0a_b1c2d.partial-dihedral").mkdir()
    others = (".entities.safetensors.123.partial", ".tmpAb3dE6", ".gitattributes")  # of other programs
    for name in (".0a_b1c2d.partial-dihedral/entities.safetensors", *others):
        (tmp_path / "model" / name).write_text("half")
    predictor.save(tmp_path / "model", overwrite=True)
    left = {path.name for path in (tmp_path / "model").glob(".*")}
    assert left == set(others) and len(files_of(tmp_path / "model")) == len(kept) + 3


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_save_that_fails_leaves_no_files(predictor, tmp_path, monkeypatch, overwrite):
    if overwrite:
        predictor.save(tmp_path / "model")
    before = files_of(tmp_path / "model") if overwrite else []

    def full(*arguments):
        raise DihedralError("no space left on device")

    monkeypatch.setattr("dihedral.store.folder.write_manifest", full)
    with pytest.raises(DihedralError, match="no space left"):
        predictor.save(tmp_path / "model", overwrite=overwrite)
    assert files_of(tmp_path / "model") == before


@pytest.mark.parametrize("read", [dh.load, describe, load_words])
def test_a_model_that_is_replaced_while_it_is_read_is_read_again(predictor, tmp_path, monkeypatch, read):
    predictor.save(tmp_path / "model")
    real, replaced = folder_module.read_manifest, []

    def read_manifest(folder):
        found = real(folder)
        if not replaced:
            replaced.append(folder)
            predictor.save(folder, overwrite=True)  # after this, no file of the manifest exists
        return found

    monkeypatch.setattr("dihedral.store.manifest.read_manifest", read_manifest)
    read(tmp_path / "model")
    assert replaced


@pytest.mark.parametrize("name", ["model.json", "reviews.jsonl", "README.md"])
def test_a_manifest_names_only_files_of_a_model(predictor, tmp_path, name):
    predictor.save(tmp_path)
    (tmp_path / name).touch()
    edit_manifest(tmp_path, lambda content: content["files"].update(history=name) or content["bytes"].update({name: 0}))
    with pytest.raises(DihedralError, match=f"names a file that no model has: '{name}'"):
        predictor.save(tmp_path, overwrite=True)
    assert (tmp_path / name).exists()


# --- format version 1, always readable ----------------------------------------------------------------


def test_a_model_of_format_version_1_scores_as_before(fixtures):
    expected = json.loads((fixtures / "model-v1.expected.json").read_text())
    loaded = dh.load(fixtures / "model-v1")
    assert len(expected["scores"]) == 12
    for row in expected["scores"]:
        assert loaded.score(row["head"], row["relation"], row["tail"]) == pytest.approx(row["score"], abs=1e-5)
    assert loaded.graph.fingerprint == expected["fingerprint"]
    assert dh.evaluate(loaded).mrr == pytest.approx(expected["test_mrr"], abs=1e-9)
    assert loaded.recipe.dimension == 8 and loaded.metrics["test"]["both"]["mrr"] == expected["test_mrr"]


def test_the_files_of_format_version_1_match_its_manifest(fixtures):
    manifest = json.loads((fixtures / "model-v1" / "model.json").read_text())
    assert (manifest["format"], manifest["version"]) == ("dihedral-model", 1)
    assert set(manifest["bytes"]) | {"model.json"} == set(files_of(fixtures / "model-v1"))


# --- incomplete folders ---------------------------------------------------------------------


def edit_manifest(folder, edit):
    manifest = json.loads((folder / "model.json").read_text())
    edit(manifest)
    (folder / "model.json").write_text(json.dumps(manifest))


def refusal(folder):
    with pytest.raises(DihedralError) as refused:
        dh.load(folder)
    message = str(refused.value)
    assert str(folder) in message and "\n" not in message
    return message


def test_a_folder_without_a_model_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        assert refusal(path) == f"'{path}' is not a model folder: it has no model.json"


@pytest.mark.parametrize("version", [0, 2, 99, None])
def test_an_unsupported_version_is_refused(folder, version):
    edit_manifest(folder, lambda manifest: manifest.update(version=version))
    assert f"has format version {version}; this library reads version 1" in refusal(folder)


def test_a_version_of_any_length_is_refused_in_a_short_message(folder):
    edit_manifest(folder, lambda manifest: manifest.update(version="x" * 5000))
    assert "has format version 'xxx" in (message := refusal(folder)) and len(message) < 500


def test_an_unknown_format_is_refused(folder):
    edit_manifest(folder, lambda manifest: manifest.update(format="something else"))
    assert "model.json' does not describe a dihedral-model" in refusal(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"\x80\x04K\x01.", b"\xff\xfe"])
def test_a_manifest_that_is_not_json_is_refused(folder, content):
    (folder / "model.json").write_bytes(content)
    assert "model.json' cannot be read: " in refusal(folder)


def test_a_manifest_that_is_not_an_object_is_refused(folder):
    (folder / "model.json").write_text("[]")
    assert "model.json' does not hold a JSON object" in refusal(folder)


@pytest.mark.parametrize("key", ["model", "settings", "entities", "relations", "dimension", "graph", "files", "bytes"])
def test_a_manifest_without_a_required_key_is_refused(folder, key):
    edit_manifest(folder, lambda manifest: manifest.pop(key))
    message = refusal(folder)
    assert "model.json'" in message and re.search(rf"\b{key}\b", message)


FILES = [
    "calibration.json",
    "entities.arrow",
    "entities.safetensors",
    "known.arrow",
    "metrics.json",
    "recipe.json",
    "relations.arrow",
    "relations.safetensors",
    "words.arrow",
]


def test_a_model_folder_holds_these_files(folder):
    assert files_of(folder) == sorted([*FILES, "model.json", "README.md"])


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    assert f"lacks the file '{name}'; copy the folder again" in refusal(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_named(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1])
    message = refusal(folder)
    assert f"{name}' has {len(content) - 1} bytes, expected {len(content)}" in message
    assert message.endswith("the file is damaged or cut short")


@pytest.mark.parametrize("name", FILES[:-1])  # words are read when they are searched
def test_a_file_with_the_right_size_and_wrong_content_is_named(folder, name):
    (folder / name).write_bytes(b"\xff" * (folder / name).stat().st_size)
    assert f"{name}' cannot be read: " in refusal(folder)


@pytest.mark.parametrize("name", ["../known.arrow", "/etc/hostname", "sub/known.arrow", "../model/known.arrow", "."])
@pytest.mark.parametrize("place", ["role", "shard", "bytes"])
def test_a_file_name_that_leaves_the_folder_is_refused(folder, name, place):
    def edit(manifest):
        if place == "role":
            manifest["files"]["known"] = name
        elif place == "shard":
            manifest["files"]["entities"].append(name)
        else:
            manifest["bytes"][name] = 1

    shutil.copy(folder / "known.arrow", folder.parent / "known.arrow")
    edit_manifest(folder, edit)
    assert refusal(folder).endswith(f"model.json' names a file outside its folder: '{name}'")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("entities", 39, "holds the rows of 40 entities; expected 39"),
        ("dimension", 8, "holds float32 [40, 16]; expected float32 [rows, 8]"),
        ("relations", 5, "do not fit its model"),
        ("model", "quaternion", "holds a model of kind 'quaternion', unknown to this version"),
    ],
)
def test_a_manifest_that_does_not_fit_its_files_is_refused(folder, key, value, message):
    edit_manifest(folder, lambda manifest: manifest.update({key: value}))
    assert message in refusal(folder)


def test_codes_outside_the_group_are_refused(folder):
    edit_manifest(folder, lambda manifest: manifest.update(settings={"K": 1}))
    with pytest.raises(DihedralError, match=r"codes hold the element \d; D_1 has ids 0 to 1"):
        dh.load(folder)


NOT_ALL_FILES = "model.json' does not name all the files of a model"
NO_SIZES = "model.json' does not give the size of each of its files"


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        pytest.param("files", {"known": None}, NOT_ALL_FILES, id="no known"),
        pytest.param("files", {"entities": None}, NOT_ALL_FILES, id="no entities"),
        pytest.param("files", {"entities": []}, NO_SIZES, id="no shards"),
        pytest.param("files", {"known": 5}, NOT_ALL_FILES, id="a number as name"),
        pytest.param("files", "x", NOT_ALL_FILES, id="a string as files"),
        pytest.param("bytes", [], "model.json' is damaged: bytes is []; copy the folder again", id="a list as bytes"),
        pytest.param("settings", {"K": None}, "is damaged: KeyError('K')", id="no K"),
        pytest.param("files", {"known": "entities.arrow"}, NO_SIZES, id="another table"),
        pytest.param("files", {"relations": "entities.safetensors"}, NO_SIZES, id="other tensors"),
    ],
)
def test_a_manifest_with_the_wrong_content_is_refused(folder, part, content, message):
    """None stands for a key that is left out."""

    def edit(manifest):
        if not isinstance(content, dict):
            manifest[part] = content
        else:
            merged = manifest[part] | content
            manifest[part] = {key: value for key, value in merged.items() if value is not None}

    edit_manifest(folder, edit)
    assert refusal(folder).endswith(message)


def test_known_facts_with_unknown_entities_are_refused(folder):
    table = pa.ipc.open_file(str(folder / "known.arrow")).read_all()
    heads = table.column("head").to_numpy().copy()
    heads[0] = 1000
    with pa.ipc.new_file(str(folder / "known.arrow"), table.schema) as writer:
        writer.write_table(table.set_column(0, "head", pa.array(heads)))
    size = os.path.getsize(folder / "known.arrow")
    edit_manifest(folder, lambda manifest: manifest["bytes"].update({"known.arrow": size}))
    assert "known.arrow' has entity id 1000 in train; valid ids are 0 <= id < " in refusal(folder)


@pytest.mark.parametrize("device", ["gpu", pytest.param("cuda", marks=pytest.mark.skipif("torch.cuda.is_available()"))])
def test_an_unavailable_device_is_refused(folder, device):
    with pytest.raises(DihedralError, match=device):
        dh.load(folder, device=device)


# --- opening --------------------------------------------------------------------------------------------


def lies_in_a_file(array):
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


def test_an_opened_graph_is_a_view_of_its_file(folder, family):
    graph = dh.load(folder).graph
    for split in ("train", "valid", "test"):
        assert lies_in_a_file(graph.split(split)) and np.array_equal(graph.split(split), family.split(split))
    assert graph.entities.order.base is not None and not graph.entities.order.flags.owndata


def test_changing_an_opened_model_does_not_change_its_files(folder):
    before = {name: (folder / name).read_bytes() for name in files_of(folder)}
    loaded = dh.load(folder)
    loaded.graph.train[0, 0] += 1
    loaded.model.entities.zero_()
    assert {name: (folder / name).read_bytes() for name in files_of(folder)} == before


@pytest.mark.parametrize("objective", ["logistic", "softmax"])
def test_training_on_an_opened_graph_gives_the_same_model(tmp_path, family, objective):
    rows = len(family.known) // 16 * 16  # a multiple of 16 rows: no padding between the columns of the file
    plain = Graph(family.entities, family.relations, family.known[: rows - 32], *np.split(family.known[-32:], 2))
    Predictor(
        TrainedModel(build_model("distmult", family.num_entities, family.num_relations, dimension=2), plain)
    ).save(tmp_path / "m")
    settings = {"model": "dihedral-argmax", "dimension": 8, "epochs": 2, "batch_size": 50, "objective": objective}
    one, other = (
        dh.train(graph, dh.Recipe(**settings), progress=False) for graph in (plain, dh.load(tmp_path / "m").graph)
    )
    same_model(one, other)
    assert one.metrics["test"] == other.metrics["test"]


def test_names_are_found_in_a_folder_without_a_stored_order(fixtures):
    names = dh.load(fixtures / "model-v1").graph.entities
    assert [names.id(name) for name in names] == list(range(len(names)))


OPEN = """
import re, sys, time
from pathlib import Path
import dihedral as dh

def anonymous():
    return 1024 * int(re.search("RssAnon:(.*)kB", Path("/proc/self/status").read_text())[1])

load = dh.load  # imports modules
before, started = anonymous(), time.process_time()
predictor = load(sys.argv[1])
print(time.process_time() - started, anonymous() - before)
assert predictor.graph.entities.id("e199999") == 199_999
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_a_large_model_opens_in_a_second_and_stays_in_its_files(python, tmp_path):
    big_predictor(200_000, 64).save(tmp_path / "model")
    size = (tmp_path / "model" / "entities.safetensors").stat().st_size
    seconds, memory = map(float, python("-c", OPEN, tmp_path / "model").stdout.split())
    assert seconds < 0.5 and memory < size / 16, (seconds, memory, size)  # without imports


def use(folder):
    """Read names and facts in every way."""
    loaded = dh.load(folder)
    names = list(loaded.graph.entities)
    loaded.predict(head=names[0], relation=loaded.graph.relations[0], top=3)
    assert len(loaded.graph.fingerprint) == 64
    return [loaded.graph.entities.id(name) for name in names]


@pytest.mark.parametrize("lazily", [False, True])
@pytest.mark.parametrize("name", ["entities.arrow", "relations.arrow", "known.arrow"])
def test_a_changed_byte_gives_a_one_sentence_error_or_a_model(folder, monkeypatch, name, lazily):
    if lazily:  # as for a model that is too large to be checked when it is opened
        monkeypatch.setattr("dihedral.store.graph_files.MAX_CHECKED_ON_OPEN", 0)
    whole = (folder / name).read_bytes()
    rng = np.random.default_rng(0)
    refused = []
    for place in rng.integers(len(whole), size=40):
        damaged = bytearray(whole)
        damaged[place] ^= int(rng.integers(1, 256))
        (folder / name).unlink()
        (folder / name).write_bytes(damaged)
        try:
            use(folder)
        except DihedralError as error:
            refused.append(str(error))
    assert len(refused) > 5 and all(str(folder) in message and "\n" not in message for message in refused)


def test_an_arrow_file_that_ends_before_its_schema_is_refused(folder):
    path = next(folder.glob("entities*.arrow"))
    path.write_bytes(b"ARROW1\0\0" + b"\xff\xff\xff\xff" + bytes(path.stat().st_size - 12))  # the mark of the end
    assert f"{path.name}' cannot be read: " in refusal(folder)


def test_damaged_name_offsets_are_refused(folder):
    path = next(folder.glob("entities*.arrow"))
    content = bytearray(path.read_bytes())
    at = content.find(np.array([0, 8, 16], "<i4").tobytes())  # man_0000, man_0001, …
    content[at + 4 : at + 8] = (2**31 - 1).to_bytes(4, "little")  # where the second name begins
    path.write_bytes(content)
    assert "cannot be read" in refusal(folder)


def test_a_name_that_is_not_utf8_is_refused(folder):
    path = next(folder.glob("entities*.arrow"))
    path.write_bytes(path.read_bytes().replace(b"man_0000", b"man_\xff\xfe00", 1))
    assert "cannot be read" in refusal(folder)


DAMAGED_PROBABILITIES = [[], [3], {"models": []}, {"models": 3}, {"models": {"features": []}}, {"reason": 3}]


@pytest.mark.parametrize("broken", DAMAGED_PROBABILITIES)
@pytest.mark.parametrize("older", [True, False])
def test_damaged_probabilities_are_refused_in_one_sentence(folder, broken, older):
    path, content = folder / "calibration.json", broken
    if older:  # they were among the metrics
        edit_manifest(folder, lambda manifest: (manifest["files"].pop("calibration"), manifest["bytes"].pop(path.name)))
        path = folder / "metrics.json"
        content = json.loads(path.read_text()) | {"calibration": broken}
    rewrite(folder, path.name, json.dumps(content).encode())
    with pytest.raises(DihedralError, match=r"the model.s probabilities are damaged: |does not hold a JSON object$"):
        dh.load(folder)


def test_probabilities_among_the_metrics_of_an_older_folder_are_read(folder):
    before = dh.load(folder)
    path = folder / "metrics.json"
    content = json.loads(path.read_text()) | {"calibration": json.loads((folder / "calibration.json").read_text())}
    edit_manifest(folder, lambda manifest: manifest["files"].pop("calibration"))
    edit_manifest(folder, lambda manifest: manifest["bytes"].pop("calibration.json"))
    rewrite(folder, path.name, json.dumps(content).encode())
    found = dh.load(folder)
    assert found.calibration.to_dict() == before.calibration.to_dict() and "calibration" not in found.metrics


def test_probabilities_of_the_first_version_must_be_fitted_again(folder):
    rewrite(folder, "calibration.json", json.dumps({"curves": {"slope": []}}).encode())
    found = dh.load(folder)
    assert found.calibration is None
    with pytest.raises(DihedralError, match="fitted by another version"):
        found.classify([("man_0000", "spouse", "man_0001")])


# --- hostile files --------------------------------------------------------------------------------------


def rewrite(folder, name, content):
    """Replace a file of a model, with its size in the manifest."""
    (folder / name).write_bytes(content) if isinstance(content, bytes) else content(folder / name)
    size = (folder / name).stat().st_size
    edit_manifest(folder, lambda manifest: manifest["bytes"].update({name: size}))


def rewrite_names(folder, **changes):
    file = "entities.arrow"
    table = pa.ipc.open_file(pa.py_buffer((folder / file).read_bytes())).read_all()
    columns = {column: table.column(column).combine_chunks() for column in table.column_names} | changes

    def write(path):
        with pa.ipc.new_file(str(path), pa.table(columns).schema) as writer:
            writer.write_table(pa.table(columns))

    rewrite(folder, file, write)


@pytest.mark.parametrize("name", ["model.json", "entities.safetensors", "entities.arrow", "known.arrow", "recipe.json"])
def test_a_symbolic_link_in_a_model_folder_is_refused(folder, tmp_path, name):
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in refusal(folder)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_names_are_refused_before_they_are_decompressed(folder, codec):
    count = dh.load(folder).graph.num_entities
    table = pa.table({"name": ["x" * (1 << 18) + str(i) for i in range(count)]})

    def write(path):
        with pa.ipc.new_file(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(table)

    rewrite(folder, "entities.arrow", write)
    before = pa.default_memory_pool().max_memory()
    assert "model files are not compressed" in refusal(folder)
    assert pa.default_memory_pool().max_memory() - before < 1 << 20


def test_a_table_with_other_columns_is_refused(folder):
    rewrite_names(folder, order=pa.array(["a"] * dh.load(folder).graph.num_entities))
    assert "its column 'order' has type string" in refusal(folder)


@pytest.mark.parametrize("order", [[0] * 40, [*range(39), 40], [-1, *range(1, 40)], list(range(40))[::-1]])
def test_an_order_of_names_that_is_not_theirs_is_refused(folder, order):
    rewrite_names(folder, order=pa.array(order, pa.int32()))
    assert re.search("its entity names (repeat or are not in their order|are damaged)", refusal(folder))


def test_names_that_repeat_are_refused(folder):
    names = list(dh.load(folder).graph.entities)
    names[1] = names[0]
    order = sorted(range(len(names)), key=lambda i: names[i])
    rewrite_names(folder, name=pa.array(names), order=pa.array(order, pa.int32()))
    assert "its entity names repeat" in refusal(folder)


@pytest.mark.parametrize(
    ("file", "tensors", "message"),
    [
        ("entities", {"entities": torch.zeros(40, 16, dtype=torch.float64)}, "holds float64 [40, 16]; expected"),
        ("entities", {"entities": torch.zeros(640)}, "holds float32 [640]; expected float32 [rows, 16]"),
        ("entities", {"other": torch.zeros(40, 16)}, "is damaged: KeyError('entities')"),
        ("relations", {"codes": torch.zeros(6, 4, dtype=torch.uint8)}, "codes are uint8 [6, 4]; expected uint8"),
        ("relations", {"codes": torch.zeros(6, 8)}, "codes are float32 [6, 8]; expected uint8"),
        ("relations", {"codes": torch.zeros(6, 8, dtype=torch.uint8), "scales": torch.ones(5)},
         "scales are float32 [5]; expected float32 [6]"),
        ("relations", {"codes": torch.zeros(6, 8, dtype=torch.uint8), "scales": torch.full((6,), torch.nan)},
         "scales hold NaN"),
        ("relations", {"codes": torch.zeros(6, 8, dtype=torch.uint8), "x": torch.ones(5)}, "relations hold 'x'"),
    ],
)  # fmt: skip
def test_tensors_of_another_shape_or_type_are_refused(folder, file, tensors, message):
    manifest = json.loads((folder / "model.json").read_text())
    assert (manifest["entities"], manifest["relations"], manifest["dimension"]) == (40, 6, 16)
    rewrite(folder, f"{file}.safetensors", lambda path: write_tensors(path, tensors))
    assert message in refusal(folder)


def test_weights_of_another_shape_are_refused_before_memory_is_taken(family, tmp_path):
    graph, model = family, build_model("rescal", 40, 6, dimension=16)
    save_model(tmp_path / "model", TrainedModel(model, graph))
    rewrite(tmp_path / "model", "relations.safetensors", lambda path: write_tensors(path, {"weights": torch.zeros(6)}))
    assert "weights are float32 [6]; expected float32 [6, 16, 16]" in refusal(tmp_path / "model")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_diverged_model_is_not_saved(family, tmp_path, value):
    model = build_model("dihedral-ste", 40, 6, dimension=16)
    with torch.no_grad():
        model.entities[3, 2] = value
    with pytest.raises(DihedralError, match="hold NaN or infinity, so training diverged; it is not saved"):
        save_model(tmp_path / "model", TrainedModel(model, family))
    assert not (tmp_path / "model").exists()


def test_half_precision_refuses_values_that_it_cannot_hold(family, tmp_path):
    model = build_model("dihedral-ste", 40, 6, dimension=16)
    with torch.no_grad():
        model.entities[3, 2] = -70_000
    stored = TrainedModel(model, family)
    with pytest.raises(DihedralError, match=r"entities of the model hold 7e\+04, and float16 ends at 6\.55e\+04"):
        save_model(tmp_path / "model", stored, dtype="float16")
    save_model(tmp_path / "model", stored)


@pytest.mark.parametrize(
    ("role", "change", "message"),
    [
        ("metrics", {"test": {"both": {}}}, "metrics in .* are damaged: KeyError"),
        ("metrics", {"valid": None}, "metrics in .* are damaged: TypeError"),
        ("metrics", {"seed": "\ud800"}, "cannot be read: .*surrogates not allowed"),
        ("history", {"versions": [{"version": 10**400, "facts": 1}]}, "versions are damaged: version is 10000"),
    ],
)  # fmt: skip
def test_values_that_no_file_of_a_model_holds_are_refused(predictor, tmp_path, role, change, message):
    predictor.save(tmp_path)
    path = tmp_path / f"{role}.json"
    text = json.dumps((json.loads(path.read_text()) if path.exists() else {}) | change)
    path.write_text(text)
    files, sizes = {role: path.name}, {path.name: len(text)}
    edit_manifest(tmp_path, lambda content: content["files"].update(files) or content["bytes"].update(sizes))
    for read in (dh.load, describe):
        with pytest.raises(DihedralError, match=message) as refused:
            read(tmp_path)
        assert len(str(refused.value)) < 400
