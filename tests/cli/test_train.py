"""`dihedral train`."""

from __future__ import annotations

import json

import pytest
import torch

import dihedral as dh
from dihedral.graph.readers import write_folder
from dihedral.learn import choose_recipe

QUICK = ("--recipe", "demo/family", "--set", "dimension=8", "--set", "batch_size=32")


@pytest.fixture
def data(family, tmp_path):
    write_folder(family, tmp_path / "people")
    return tmp_path / "people"


def test_json_equals_the_metrics_of_the_stored_model(cli, data, tmp_path):
    done = cli("train", data, *QUICK, "--set", "epochs=2", "--seed", 3, "--out", tmp_path / "run", "--json")
    assert done.code == 0
    content = json.loads(done.out, parse_constant=pytest.fail)
    stored = dh.load(tmp_path / "run")
    assert content.pop("out") == str(tmp_path / "run")
    assert content == stored.metrics and content["seed"] == 3
    assert stored.recipe.dimension == 8 and stored.recipe.epochs == 2 and stored.recipe.name == "demo/family"
    assert set(content["test"]["both"]) == {"mrr", "hits@1", "hits@3", "hits@10", "mr"}


def test_prints_tables(cli, data, tmp_path):
    done = cli("train", data, *QUICK, "--set", "epochs=2", "--out", tmp_path / "run", "-v")
    assert done.code == 0
    assert "both sides" in done.out
    assert "valid, filtered by train and valid" in done.out and "test, filtered by all splits" in done.out
    assert "facts of 40 entities, seed 0" in done.err
    assert "Graph('people': 40 entities" in done.err and "recipe demo/family" in done.err
    assert "wrote the model to" in done.err and "(best epoch 2 of 2)" in done.err


def test_the_first_training_of_a_path_model_says_that_it_compiles(cli, data, tmp_path, monkeypatch):
    options = "--recipe", "paths/inductive", "--set", "epochs=1", "--set", "steps=2", "--set", "dimension=8"
    for number, before in enumerate((False, True)):
        monkeypatch.setattr("dihedral.cli.training.is_compiled", lambda before=before: before)
        done = cli("train", data, *options, "--out", tmp_path / str(number), "--device", "cpu")
        assert done.code == 0 and ("compiling the kernels" in done.err) != before


def test_the_command_trains_the_same_model_as_the_library(cli, data, tmp_path):
    cli("train", data, *QUICK, "--set", "epochs=3", "--seed", 5, "--out", tmp_path / "run", "--device", "cpu")
    made = dh.train(dh.load_graph(data), "demo/family", dimension=8, batch_size=32, epochs=3, seed=5)
    assert torch.equal(dh.load(tmp_path / "run").model.entities, made.model.entities)


def test_storage_options_are_applied(cli, data, tmp_path):
    more = ("--dtype", "float16", "--shard-mb", "0.0041")
    assert cli("train", data, *QUICK, "--set", "epochs=1", "--out", tmp_path / "run", *more).code == 0
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert "entities-00001-of-00004.safetensors" in names
    assert json.loads((tmp_path / "run" / "model.json").read_text())["dtype"] == "float16"


def test_a_file_with_named_columns_is_split_with_the_split_seed(cli, family, tmp_path):
    lines = ["s,o,p", *(f"{head},{tail},{relation}" for head, relation, tail in family.names_of(family.known))]
    (tmp_path / "facts.csv").write_text("\n".join(lines))
    words = ("--columns", "s,p,o", "--split-seed", 2, "--set", "epochs=1", "--out", tmp_path / "run")
    done = cli("train", tmp_path / "facts.csv", *QUICK, *words)
    assert done.code == 0 and "note: split with seed 2" in done.err
    assert (
        dh.load(tmp_path / "run").graph.fingerprint
        == dh.load_graph(tmp_path / "facts.csv", columns=["s", "p", "o"], seed=2).fingerprint
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "epochs"], "--set got 'epochs'; write KEY=VALUE, such as epochs=40"),
        (["--set", "lr=3"], "recipe setting 'lr' does not exist; set entity_lr and relation_lr"),
        (["--set", "epoch=3"], "recipe setting 'epoch' does not exist; did you mean 'epochs', 'facts_per_epoch'?"),
        (["--set", "epochs=x"], "epochs is 'x'; it must be a whole number"),
        (["--set", "epochs=1.5"], "epochs is '1.5'; it must be a whole number"),
        (["--set", "epochs=-1"], "epochs is -1; it must be more than 0"),
        (["--set", "relation_scale=maybe"], "relation_scale is 'maybe'; it must be true or false"),
        (["--set", "dimension=7"], "dimension is 7; it must be even, because it is 2L"),
        (["--set", "model=dihedral-ste", "--set", "K=5"], "K is 5 with model 'dihedral-ste'"),
        (["--recipe", "demo/famly"], "recipe 'demo/famly' is unknown; did you mean 'demo/family'"),
        (["--device", "tpu"], "device is 'tpu'; choose auto, cpu, cuda or mps"),
        (["--columns", "a,b"], "columns are ['a', 'b']; name three: head, relation, tail"),
        (["--resume"], "holds no checkpoint to resume; start without --resume"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_calls_exit_with_2_and_write_nothing(cli, data, tmp_path, options, message):
    done = cli("train", data, *QUICK, "--out", tmp_path / "run", *options)
    assert done.code == 2 and done.out == ""
    assert message in done.err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_a_folder_with_a_model_requires_overwrite(cli, data, tmp_path):
    words = ("train", data, *QUICK, "--set", "epochs=1", "--out", tmp_path / "run")
    assert cli(*words).code == 0
    refused = cli(*words, "--seed", 1)
    assert refused.code == 2 and "already holds a model; choose another or pass --overwrite" in refused.err
    assert dh.load(tmp_path / "run").metrics["seed"] == 0
    assert cli(*words, "--seed", 1, "--overwrite").code == 0
    assert dh.load(tmp_path / "run").metrics["seed"] == 1


def test_ctrl_c_writes_a_checkpoint_and_resume_is_bit_identical(cli, interrupted, data, tmp_path):
    out = tmp_path / "run"
    words = [str(word) for word in ("train", data, *QUICK, "--out", out)]
    log = out / "training" / "log.jsonl"
    done = interrupted([*words, "--set", "epochs=100000"], lambda: log.exists() and log.read_text().count("\n") >= 3)
    assert done.returncode == 1 and done.stdout == "" and "Traceback" not in done.stderr
    assert f"interrupted; a checkpoint is in {out}/training: resume with the same command and --resume" in done.stderr
    epochs = 3 + log.read_text().count("\n")
    more = ("--set", f"epochs={epochs}")
    refused = cli(*words, *more)
    assert refused.code == 2 and "holds an unfinished run" in refused.err
    assert "--resume" in refused.err and "--overwrite" in refused.err
    assert cli(*words, *more, "--resume").code == 0
    assert cli(*words, *more, "--out", tmp_path / "uninterrupted").code == 0
    resumed, expected = dh.load(out), dh.load(tmp_path / "uninterrupted")
    assert torch.equal(resumed.model.entities, expected.model.entities)
    assert torch.equal(resumed.model.codes, expected.model.codes)


def test_a_run_that_diverges_exits_with_1(cli, data, tmp_path):
    done = cli("train", data, *QUICK, "--set", "entity_lr=1e20", "--out", tmp_path / "run")
    assert done.code == 1 and "error: the loss became nan in epoch 1" in done.err


# --- without a recipe; logs -------------------------------------------------------------------------


def test_the_recipe_by_size_names_another_model(cli, data, tmp_path):
    done = cli("train", data, "--set", "epochs=1", "--set", "model=complex", "--out", tmp_path / "run", "-v")
    assert done.code == 0 and "no --recipe: complex, 2L = 400, full softmax" in done.err


def test_without_a_recipe_one_is_chosen_by_size_and_printed(cli, data, tmp_path):
    done = cli("train", data, "--set", "epochs=1", "--out", tmp_path / "run")
    chosen = "settings for this graph and these options: a path model (an embedding: --set model=dihedral-gumbel)\n"
    assert done.code == 0 and chosen in done.err
    assert "D8" not in done.err and "2L" not in done.err and "% of the test questions" in done.err
    detailed = cli("train", data, "--set", "epochs=1", "--out", tmp_path / "run", "--overwrite", "--verbose").err
    assert "no --recipe: path model of D8, 2L = 32, paths of up to 4 steps" in detailed and "recipe by size" in detailed
    assert "at most 1 epochs and 10 minutes\n" in done.err
    stored = dh.load(tmp_path / "run").recipe
    assert stored.objective == "paths" and stored.epochs == 1


def test_an_embedding_by_size_may_stop_early_and_names_the_setting_for_a_path_model(cli, data, tmp_path):
    done = cli("train", data, "--set", "epochs=1", "--set", "dimension=8", "--out", tmp_path / "run")
    assert "options: an embedding (a path model: --set objective=paths)\n" in done.err
    assert "at most 1 epochs and 10 minutes, or less if valid MRR stops improving\n" in done.err


def test_training_ends_after_the_given_minutes_and_says_so(cli, data, tmp_path):
    words = ("train", data, "--set", "epochs=100000", "--set", "patience=0", "--minutes", "0.01")
    done = cli(*words, "--out", tmp_path / "run")
    assert done.code == 0 and "at most 100000 epochs and 0.01 minutes" in done.err
    assert "the time was up: --resume --minutes 5 gives 5 more" in done.err


def test_a_run_whose_time_was_up_goes_on_if_it_is_resumed(cli, data, tmp_path, monkeypatch):
    words = ("train", data, "--set", "epochs=3", "--out", tmp_path / "run", "--json")
    first = json.loads(cli(*words, "--minutes", "1e-9").out)
    monkeypatch.setattr("dihedral.cli.training.choose_recipe", chosen_for(128))  # for other minutes
    second = json.loads(cli(*words, "--minutes", "1e-9", "--resume").out)
    assert (first["epochs"], second["epochs"]) == (1, 2) and first["stopped_by"] == second["stopped_by"] == "minutes"
    done = cli(*words, "--minutes", 60, "--resume")  # enough for a path model
    monkeypatch.undo()
    assert "options: an embedding" in done.err
    assert json.loads(done.out)["stopped_by"] == "epochs" and "complete; nothing" not in done.err
    assert "complete; nothing was trained" in cli(*words, "--resume").err


def chosen_for(batch_size):
    return lambda *args, **options: choose_recipe(*args, **options).replace(batch_size=batch_size)


def test_complex_is_trained_beside_the_model_to_compare(cli, data, tmp_path):
    done = cli("train", data, *QUICK, "--compare", "--out", tmp_path / "run", "--json")
    found = json.loads(done.out)
    assert done.code == 0 and found["complex"]["epochs"] == found["epochs"]
    done = cli("train", data, *QUICK, "--compare", "--out", tmp_path / "again")
    assert f"ComplEx has a test MRR of {found['complex']['test']['both']['mrr']:.4f}" in done.err
    assert dh.load(tmp_path / "run").recipe.model != "complex"


def test_a_path_model_is_compared_with_an_embedding_of_complex(cli, data, tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr("dihedral.cli.training.train", lambda *words, **options: trained.append(words[1]) or made)
    made = dh.train(dh.load_graph(data), objective="paths", epochs=1, progress=False)
    done = cli("train", data, "--compare", "--set", "epochs=1", "--out", tmp_path / "run")
    assert [(each.model, each.objective) for each in trained] == [("dihedral-argmax", "paths"), ("complex", "softmax")]
    assert "\nComplEx has a test MRR of " in done.err


def test_several_processes_do_not_compare(cli, data, tmp_path, monkeypatch):
    monkeypatch.setattr("dihedral.cli.training.world_size", lambda: 2)
    done = cli("train", data, *QUICK, "--compare", "--out", tmp_path / "run")
    assert done.code == 2 and "this run has 2 processes" in done.err and not (tmp_path / "run").exists()


def test_a_tuned_recipe_for_the_benchmark_is_suggested_but_not_used(cli, family, tmp_path):
    write_folder(family, tmp_path / "umls")
    done = cli("train", tmp_path / "umls", "--set", "epochs=1", "--out", tmp_path / "run", "-v")
    assert "; tuned: --recipe paths/umls\n" in done.err and "recipe by size" in done.err
    done = cli("train", tmp_path / "umls", "--set", "epochs=1", "--set", "model=complex", "--out", tmp_path / "again")
    assert "; tuned: --recipe best/umls-d8-graded\n" in done.err


def test_a_run_is_logged_to_tensorboard_and_mlflow(cli, data, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    words = ("--tensorboard", tmp_path / "logs", "--mlflow", "people", "--set", "epochs=2")
    done = cli("train", data, *QUICK, *words, "--out", tmp_path / "run", "--json")
    assert done.code == 0 and json.loads(done.out)["epochs"] == 2
    assert list((tmp_path / "logs").glob("events.out.tfevents.*"))
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("people").experiment_id])
    assert run.info.status == "FINISHED" and run.data.params["epochs"] == "2"


@pytest.mark.thorough
def test_a_model_in_a_folder_with_the_name_of_its_benchmark_is_resumed(cli, benchmark_path, tmp_path, monkeypatch):
    benchmark_path("umls")
    monkeypatch.chdir(tmp_path)
    words = ("train", "umls", "--out", "umls", "--recipe", "demo/umls", "--set", "dimension=8", "--set", "epochs=1")
    assert cli(*words).code == 0
    done = cli(*words, "--resume")
    assert done.code == 0 and "umls already holds this run, complete; nothing was trained" in done.err
