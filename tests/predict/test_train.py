"""`train`: from a graph and a recipe to a measured model, in memory and on disk."""

from __future__ import annotations

import shutil
import time
from importlib import resources

import pytest
import torch

import dihedral as dh
from dihedral import DihedralError, Recipe
from dihedral.errors import TrainingError
from dihedral.learn import load_recipe

SMALL = {"dimension": 8, "batch_size": 64, "epochs": 3, "validate_every": 1, "progress": False}


def test_the_family_demo_learns_the_family_within_a_minute():
    started = time.process_time()  # seconds of this process, whatever else the machine does
    predictor = dh.train(dh.make_family(), "demo/family")
    assert time.process_time() - started < 60
    assert predictor.metrics["test"]["both"]["mrr"] >= 0.93


@pytest.mark.thorough
def test_the_umls_demo_learns_umls_within_a_minute(benchmark_graph):
    graph = benchmark_graph("umls")
    started = time.process_time()
    predictor = dh.train(graph, "demo/umls")
    assert time.process_time() - started < 60
    assert predictor.metrics["test"]["both"]["mrr"] >= 0.88


def test_settings_override_the_recipe(family):
    predictor = dh.train(family, "demo/family", dimension="12", epochs=2, relation_scale=True, progress=False)
    assert predictor.model.dimension == 12
    named = load_recipe("demo/family")
    assert predictor.recipe.about == f"{named.about}; here with dimension = 12, epochs = 2, relation_scale = True"
    changed = named.replace(dimension=12, epochs=2, relation_scale=True)
    assert predictor.recipe.replace(about=named.about) == changed


def test_a_recipe_may_be_an_object_a_name_or_a_file(family, tmp_path):
    (tmp_path / "mine.toml").write_text('model = "dihedral-ste"\ndimension = 8\nepochs = 2\nbatch_size = 64\n')
    from_file = dh.train(family, tmp_path / "mine.toml", progress=False)
    from_text = dh.train(family, str(tmp_path / "mine.toml"), progress=False)
    made = Recipe(model="dihedral-ste", dimension=8, epochs=2, batch_size=64)
    from_object = dh.train(family, made, progress=False)
    for other in (from_text, from_object):
        assert torch.equal(from_file.model.entities, other.model.entities)
    assert from_file.recipe.name == "mine"


def test_metrics_record_how_the_model_was_trained(family):
    metrics = dh.train(family, "demo/family", seed=5, **SMALL).metrics
    assert metrics["seed"] == 5 and metrics["epochs"] == 3 and metrics["device"] == "cpu"
    assert metrics["torch"] == torch.__version__ and metrics["train_seconds"] > 0
    for split in ("valid", "test"):
        assert metrics[split]["split"] == split and metrics[split]["triples"] == len(family.split(split))


def test_a_run_with_a_folder_stores_the_model_it_returns(family, tmp_path):
    predictor = dh.train(family, "demo/family", out=tmp_path / "a" / "run", **SMALL)
    stored = dh.load(tmp_path / "a" / "run")
    assert torch.equal(stored.model.entities, predictor.model.entities)
    assert torch.equal(stored.model.codes, predictor.model.codes)
    assert stored.recipe == predictor.recipe and stored.metrics == predictor.metrics


def test_a_run_without_a_folder_writes_nothing(family, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dh.train(family, "demo/family", checkpoint_minutes=0, **SMALL)
    assert list(tmp_path.iterdir()) == []


def test_storage_options_reach_the_folder(family, tmp_path):
    predictor = dh.train(family, "demo/family", out=tmp_path / "run", dtype="float16", shard_mb=0.0041, **SMALL)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert "entities-00001-of-00004.safetensors" in names
    stored = dh.load(tmp_path / "run")
    assert torch.equal(stored.model.entities, predictor.model.entities.half().float())
    assert torch.equal(stored.model.codes, predictor.model.codes)


@pytest.mark.parametrize("option", [{"dtype": "int8"}, {"shard_mb": -1}])
def test_bad_storage_options_are_refused_before_training(family, tmp_path, option):
    events = []
    with pytest.raises(DihedralError, match=next(iter(option))):
        dh.train(family, "demo/family", out=tmp_path / "run", callback=events.append, **SMALL, **option)
    assert events == []


# --- folders ----------------------------------------------------------------------------------------


def test_a_folder_that_holds_a_model_is_not_overwritten_by_accident(family, tmp_path):
    first = dh.train(family, "demo/family", out=tmp_path / "run", **SMALL)
    with pytest.raises(DihedralError, match="already holds a model; choose another or pass --overwrite"):
        dh.train(family, "demo/family", out=tmp_path / "run", seed=1, **SMALL)
    assert torch.equal(dh.load(tmp_path / "run").model.entities, first.model.entities)


def test_a_folder_that_holds_a_model_is_overwritten_on_request(family, tmp_path):
    dh.train(family, "demo/family", out=tmp_path / "run", **SMALL)
    second = dh.train(family, "demo/family", out=tmp_path / "run", seed=1, overwrite=True, **SMALL)
    assert torch.equal(dh.load(tmp_path / "run").model.entities, second.model.entities)


def test_a_run_that_fails_keeps_the_model_it_was_to_replace(family, tmp_path):
    first = dh.train(family, "demo/family", out=tmp_path / "run", **SMALL)
    with pytest.raises(TrainingError):
        dh.train(family, "demo/family", out=tmp_path / "run", overwrite=True, entity_lr=1e20, **SMALL)
    assert torch.equal(dh.load(tmp_path / "run").model.entities, first.model.entities)


def test_a_file_where_the_folder_should_be_is_refused(family, tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(DihedralError, match="run"):
        dh.train(family, "demo/family", out=tmp_path / "run", **SMALL)


THREADS = """
import torch
torch.set_num_threads(1)
import dihedral as dh
dh.train(dh.make_family(40), "demo/family", dimension=8, epochs=1)
print(torch.get_num_threads())
"""


def test_training_leaves_torchs_number_of_threads_alone(python):
    """numba's OpenMP layer would raise it to NUMBA_NUM_THREADS behind torch's back."""
    done = python("-c", THREADS, NUMBA_NUM_THREADS="2")
    assert done.stdout == "1\n", done.stderr


def test_training_works_where_no_cache_can_be_written(python, tmp_path):
    """As in a container: the package cannot be written to, and there is no home folder."""
    pytest.importorskip("numba")
    package = tmp_path / "dihedral"
    shutil.copytree(str(resources.files("dihedral")), package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "engine" / "__pycache__").write_text("")
    nowhere = str(package / "engine" / "__pycache__" / "home")
    script = (
        "import dihedral as dh; dh.train(dh.make_family(40), 'demo/family', dimension=8, epochs=1); print(dh.__file__)"
    )
    done = python(
        "-c", script, PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1", HOME=nowhere, XDG_CACHE_HOME=nowhere
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(package))


# --- bad calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch": 3}, "recipe setting 'epoch' does not exist; did you mean 'epochs'"),
        ({"epochs": "many"}, "epochs is 'many'; it must be a whole number"),
        ({"epochs": 0}, "epochs is 0; it must be more than 0"),
        ({"model": "dihedrl-ste"}, "model is 'dihedrl-ste'; choose one of .*did you mean 'dihedral-ste'"),
        ({"device": "tpu"}, "device is 'tpu'; choose auto, cpu, cuda or mps"),
        (
            {"component_weight": 1.0, "model": "transe"},
            "component_weight is 1.0 with model 'transe'; it applies only to models of 2x2",
        ),
    ],
)
def test_bad_settings_are_refused(family, tmp_path, options, message):
    with pytest.raises(DihedralError, match=message):
        dh.train(family, "demo/family", out=tmp_path / "run", **{**SMALL, **options})
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused(family):
    with pytest.raises(DihedralError, match="device is 'cuda', but this machine or this build of torch has none"):
        dh.train(family, "demo/family", device="cuda", **SMALL)


def test_a_seed_beyond_what_generators_take_is_refused(family):
    with pytest.raises(DihedralError, match="seed"):
        dh.train(family, "demo/family", seed=2**63, **SMALL)


def test_an_unknown_recipe_is_answered_with_close_ones(family):
    with pytest.raises(DihedralError, match=r"recipe 'demo/famly' is unknown; did you mean 'demo/family'"):
        dh.train(family, "demo/famly")


@pytest.mark.parametrize(("count", "message"), [(1, "one fact to train on"), (4, "4 facts to train on"), (5, "")])
def test_training_on_a_handful_of_facts_warns_that_nothing_is_learned(capsys, count, message):
    graph = dh.Graph.from_names([(f"e{i}", "knows", f"e{i + 1}") for i in range(count)])
    dh.train(graph, "demo/family", progress=False, epochs=1, dimension=8)
    printed = capsys.readouterr().err
    assert (f"warning: {message}; a model needs hundreds" in printed) if message else not printed
