"""Checkpoints: a resumed run is bit-identical to an uninterrupted one."""

from __future__ import annotations

import json
import signal

import pytest
import torch
from safetensors.torch import load_file, save_file

import dihedral as dh
from dihedral import DihedralError, make_family
from dihedral.learn import Interrupted, Trainer

SETTINGS = {"dimension": 8, "batch_size": 32, "epochs": 7, "validate_every": 2, "relation_lr": 0.5}
TO_THE_LAST = {"validate_every": 0}  # the model of the last epoch is kept
KINDS = {
    "logistic": {"objective": "logistic"},
    "softmax": {"objective": "softmax"},
    "grouped questions": {"objective": "softmax", "group_questions": True, "dropout": 0.2},
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


class Stop(Exception):  # noqa: N818
    """A run stopped by its callback, as by a crash."""


def stop_at(epoch, step=2):
    def callback(event):
        if event["event"] == "step" and event["epoch"] == epoch and event["step"] == step:
            raise Stop

    return callback


def train(graph, out=None, **options):
    options = {"recipe": "demo/family", "checkpoint_minutes": 0, "progress": False} | SETTINGS | options
    return dh.train(graph, out=out, **options)


@pytest.fixture
def unfinished(family, tmp_path):
    """The folder of a run that stopped in its fourth epoch; its checkpoint is of the third."""
    with pytest.raises(Stop):
        train(family, tmp_path / "run", callback=stop_at(3))
    return tmp_path / "run"


def checkpoint_of(out):
    return out / "training" / "checkpoint.json"


def tensors_of(out):
    """The one file of tensors that a checkpoint of one process has."""
    (file,) = (out / "training").glob("state-*.safetensors")
    return file


def log_of(out):
    return [json.loads(line) for line in (out / "training" / "log.jsonl").read_text().splitlines()]


def assert_same(one, other):
    assert torch.equal(one.model.entities, other.model.entities)
    assert torch.equal(one.model.codes, other.model.codes)
    for key in ("seed", "epochs", "best_epoch", "valid", "test"):
        assert one.metrics[key] == other.metrics[key]


# --- kill and Ctrl-C --------------------------------------------------------------------------------

KILLED = """
import json, os, signal, sys
import dihedral as dh

plan = json.loads(sys.argv[1])

def callback(event):
    if event["event"] == "step" and [event["epoch"], event["step"]] == plan["at"]:
        os.kill(os.getpid(), signal.SIGKILL)

dh.train(dh.make_family(40, seed=1), callback=callback, **plan["train"])
"""


def train_and_kill(python, out, at, **options):
    """A run in another process that is killed in the middle of an epoch."""
    options = {"recipe": "demo/family", "out": str(out), **SETTINGS, **options}
    done = python("-c", KILLED, json.dumps({"at": at, "train": options}))
    assert done.returncode == -signal.SIGKILL, done.stderr


def press_ctrl_c(*at):
    """A callback that sends this process the signal of Ctrl-C at an epoch and step."""

    def callback(event):
        if event["event"] == "step" and (event["epoch"], event["step"]) == at:
            signal.raise_signal(signal.SIGINT)

    return callback


@each_kind
def test_a_killed_run_resumes_bit_identical(python, family, tmp_path, kind):
    out = tmp_path / "run"
    settings = kind | TO_THE_LAST
    train_and_kill(python, out, [4, 3], checkpoint_minutes=0, **settings)
    assert checkpoint_of(out).exists()
    assert len(log_of(out)) == 4
    assert_same(train(family, out, resume=True, **settings), train(family, **settings))
    assert [row["epoch"] for row in log_of(out)] == list(range(1, 8))


@each_kind
def test_a_run_stopped_by_ctrl_c_in_the_middle_of_an_epoch_resumes_bit_identical(family, tmp_path, kind):
    out = tmp_path / "run"
    settings = kind | TO_THE_LAST
    with pytest.raises(Interrupted):  # checkpoints every minute: only Ctrl-C's is there
        train(family, out, callback=press_ctrl_c(4, 3), checkpoint_minutes=1, **settings)
    assert checkpoint_of(out).exists()
    assert len(log_of(out)) == 4
    steps = []

    def callback(event):
        if event["event"] == "step":
            steps.append((event["epoch"], event["step"]))

    resumed = train(family, out, resume=True, callback=callback, **settings)
    assert steps[0] == (4, 4)  # the very next step
    assert_same(resumed, train(family, tmp_path / "whole", **settings))
    losses, expected = ([row["loss"] for row in log_of(folder)] for folder in (out, tmp_path / "whole"))
    assert losses == expected


@each_kind
def test_a_long_epoch_has_checkpoints_within_it(python, family, tmp_path, kind):
    settings = kind | TO_THE_LAST
    train_and_kill(python, tmp_path / "run", [0, 4], checkpoint_minutes=1e-9, **settings)
    steps = []

    def callback(event):
        if event["event"] == "step":
            steps.append((event["epoch"], event["step"]))

    resumed = train(family, tmp_path / "run", resume=True, callback=callback, **settings)
    assert steps[0] == (0, 4)  # after the third step of the first epoch
    assert_same(resumed, train(family, **settings))


def test_a_run_that_stopped_within_an_epoch_resumes_on_the_same_kind_of_device(family, tmp_path):
    with pytest.raises(Stop):
        train(family, tmp_path / "run", callback=stop_at(1), checkpoint_minutes=1e-9)
    content = json.loads(checkpoint_of(tmp_path / "run").read_text())
    content["progress"]["device"] = "cuda"
    checkpoint_of(tmp_path / "run").write_text(json.dumps(content))
    with pytest.raises(DihedralError, match=r"stopped within an epoch on cuda, .* resume with --device cuda"):
        train(family, tmp_path / "run", resume=True)


def test_ctrl_c_without_a_folder_just_stops(family):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted):
        train(family, callback=press_ctrl_c(1, 2))
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_may_be_stopped_again_and_again(family, tmp_path):
    out = tmp_path / "run"
    for number, epoch in enumerate((1, 2, 4, 6)):
        with pytest.raises(Stop):
            train(family, out, resume=number > 0, callback=stop_at(epoch), **TO_THE_LAST)
    assert_same(train(family, out, resume=True, **TO_THE_LAST), train(family, **TO_THE_LAST))


@pytest.mark.parametrize("epoch", [1, 2, 3, 5])
def test_the_best_model_before_the_stop_is_not_forgotten(family, tmp_path, epoch):
    restless = {"objective": "softmax", "entity_lr": 3.0, "relation_lr": 1.0, "validate_every": 1}
    with pytest.raises(Stop):
        train(family, tmp_path / "run", callback=stop_at(epoch), **restless)
    assert_same(train(family, tmp_path / "run", resume=True, **restless), train(family, **restless))


def test_a_finished_run_leaves_a_model_and_a_log_but_no_checkpoint(family, tmp_path):
    train(family, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "training").iterdir()] == ["log.jsonl"]
    assert dh.load(tmp_path / "run").metrics["epochs"] == 7


# --- what may change on a resume --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"seed": 1}, "seed"),
        ({"dimension": 16}, r"recipe \(dimension\)"),
        ({"entity_lr": 0.2}, r"recipe \(entity_lr\)"),
        ({"objective": "softmax"}, r"recipe \(objective\)"),
        ({"model": "dihedral-ste"}, r"recipe \(model\)"),
        ({"batch_size": 64}, r"recipe \(batch_size\)"),
    ],
)
def test_a_run_resumes_only_with_the_same_recipe_and_seed(family, unfinished, change, key):
    before = checkpoint_of(unfinished).read_bytes()
    with pytest.raises(DihedralError, match=rf"checkpoint '.*' was made with another {key}; resume with the same"):
        train(family, unfinished, resume=True, **change)
    assert checkpoint_of(unfinished).read_bytes() == before
    assert_same(train(family, unfinished, resume=True), train(family))


def test_a_run_resumes_only_with_the_same_data(unfinished):
    with pytest.raises(DihedralError, match="was made with another graph; resume with the same graph, recipe and seed"):
        train(make_family(40, seed=2), unfinished, resume=True)


def test_a_resumed_run_may_have_more_epochs(family, unfinished):
    assert_same(train(family, unfinished, resume=True, epochs=9), train(family, epochs=9))


def test_an_unfinished_run_is_not_overwritten_by_accident(family, unfinished):
    before = checkpoint_of(unfinished).read_bytes()
    with pytest.raises(DihedralError, match="holds an unfinished run; add --resume to continue it or --overwrite"):
        train(family, unfinished)
    assert checkpoint_of(unfinished).read_bytes() == before


def test_an_unfinished_run_is_overwritten_on_request(family, unfinished):
    assert_same(train(family, unfinished, overwrite=True, seed=4), train(family, seed=4))
    assert [row["epoch"] for row in log_of(unfinished)] == list(range(1, 8))


def test_there_is_nothing_to_resume_in_an_empty_folder(family, tmp_path):
    with pytest.raises(DihedralError, match="holds no checkpoint to resume; start without --resume"):
        train(family, tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_there_is_nothing_to_resume_without_a_folder(family):
    with pytest.raises(DihedralError, match="no output folder to resume from; give one with `out`"):
        train(family, resume=True)


def test_resuming_a_finished_run_gives_its_model(family, tmp_path):
    trained = train(family, tmp_path / "run")
    again = train(family, tmp_path / "run", resume=True, callback=stop_at(0, 1))  # without a step
    assert torch.equal(again.model.entities, trained.model.entities)
    assert again.metrics == trained.metrics


# --- damaged checkpoints ----------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_a_truncated_checkpoint_is_refused(family, unfinished, keep):
    path = tensors_of(unfinished)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DihedralError, match=r"safetensors' cannot be read: .*; start over with --overwrite"):
        train(family, unfinished, resume=True)


def test_a_checkpoint_with_a_damaged_header_is_refused(family, unfinished):
    path = tensors_of(unfinished)
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    with pytest.raises(DihedralError, match=r"safetensors' cannot be read: "):
        train(family, unfinished, resume=True)


@pytest.mark.parametrize("change", [{"progress": {}}, {"progress": None}, {"identity": 3}])
def test_a_checkpoint_with_missing_parts_is_refused(family, unfinished, change):
    content = json.loads(checkpoint_of(unfinished).read_text())
    checkpoint_of(unfinished).write_text(json.dumps(content | change))
    with pytest.raises(DihedralError, match=r"cannot be read: |is damaged: "):
        train(family, unfinished, resume=True)


def test_a_checkpoint_of_another_shape_is_refused(family, unfinished):
    path = tensors_of(unfinished)
    stored = load_file(path)
    for change in ({}, {"entities": torch.zeros(3)}, {"entities": stored["entities"].double()}):
        save_file({name: tensor for name, tensor in stored.items() if name != "entities"} | change, path)
        with pytest.raises(DihedralError, match=r"state-.*' is damaged: it has no entities of shape \[\d+, 8\]"):
            train(family, unfinished, resume=True)


def test_another_file_in_the_place_of_a_checkpoint_is_refused(family, unfinished):
    checkpoint_of(unfinished).write_text("{}")
    with pytest.raises(DihedralError, match="is not of version 3, which this library reads"):
        train(family, unfinished, resume=True)


def test_a_deleted_best_model_is_one_clear_error(family, unfinished):
    (best,) = (unfinished / "training").glob("best-*.safetensors")
    best.unlink()
    with pytest.raises(DihedralError, match=rf"{best.name}' cannot be read: .*No such file"):
        train(family, unfinished, resume=True)


def test_a_run_that_was_killed_while_it_saved_leaves_nothing_in_the_way(family, unfinished):
    training = unfinished / "training"
    (training / "state-000005-000000.safetensors").write_bytes(b"half")
    (training / ".abcd_123.partial-dihedral").mkdir()
    (training / ".abcd_123.partial-dihedral" / "state-000004-000000.safetensors").write_bytes(b"half")
    assert_same(train(family, unfinished, resume=True), train(family))
    assert [path.name for path in training.iterdir()] == ["log.jsonl"]


# --- two runs in one folder -----------------------------------------------------------------------


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_run_into_one_folder_is_refused(family, tmp_path, resume):
    refused = []

    def callback(event):
        if event["event"] == "epoch" and event["epoch"] == 3:
            with pytest.raises(DihedralError) as error:
                train(family, tmp_path / "run", resume=resume, overwrite=True)
            refused.append(str(error.value))

    first = train(family, tmp_path / "run", callback=callback)
    assert "is in use by another training run or update; wait until it finishes" in refused[0]
    assert_same(first, train(family))


def test_the_lock_of_a_killed_run_is_released(python, family, tmp_path):
    train_and_kill(python, tmp_path / "run", [2, 1], checkpoint_minutes=0)
    assert_same(train(family, tmp_path / "run", resume=True), train(family))


def test_a_checkpoint_that_cannot_be_written_is_one_clear_error(python, tmp_path):
    script = (
        "import resource, sys; import dihedral as dh\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "options = dict(dimension=8, epochs=3, out=sys.argv[1], checkpoint_minutes=0)\n"
        "try: dh.train(dh.make_family(40), 'demo/family', **options)\n"
        "except dh.DihedralError as error: print(error)\n"
    )
    done = python("-c", script, tmp_path / "run", DIHEDRAL_COMPILED="0")  # numba could not write its cache
    assert done.returncode == 0, done.stderr
    assert "' cannot be written: " in done.stdout and "File too large" in done.stdout


def test_a_resume_with_fewer_epochs_than_were_trained_is_refused(tmp_path, family):
    recipe = dh.Recipe(dimension=8, epochs=4, validate_every=0)
    trainer = Trainer(family, recipe, out=tmp_path, checkpoint_minutes=0)
    trainer.run()
    shorter = Trainer(family, recipe.replace(epochs=2), out=tmp_path)
    with pytest.raises(DihedralError, match="epochs is 2, but the checkpoint has 4; resume with more"):
        shorter.resume()


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1}, {"epoch": "3"}, {"epoch": 2.5}, {"epoch": True}, {"step": 10**12}, {"best_epoch": 99},
        {"seconds": None}, {"history": [3]}, {"history": {}}, {"device": 5},
    ],
)  # fmt: skip
def test_progress_that_no_run_can_have_is_refused(family, unfinished, change):
    content = json.loads(checkpoint_of(unfinished).read_text())
    content["progress"] |= change
    checkpoint_of(unfinished).write_text(json.dumps(content))
    with pytest.raises(DihedralError, match=r"checkpoint '.*checkpoint\.json' is damaged: ") as refused:
        train(family, unfinished, resume=True)
    assert "\n" not in str(refused.value)


def test_tensors_of_a_checkpoint_are_not_read_through_a_link(family, unfinished):
    path = tensors_of(unfinished)
    path.rename(unfinished / "elsewhere")
    path.symlink_to(unfinished / "elsewhere")
    with pytest.raises(DihedralError, match="is a symbolic link, which is not followed"):
        train(family, unfinished, resume=True)


def test_a_training_folder_that_is_a_link_is_not_followed(family, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".keep").write_text("kept")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "training").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DihedralError, match="out/training' is a symbolic link, which is not followed; remove it"):
        train(family, tmp_path / "out")
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [".keep"]


@pytest.mark.parametrize(
    "name", ["state-000001-000000.safetensors", "state-of-art.txt", "best-000001.safetensors", ".profile", ".tmpAb3dE6"]
)
def test_checkpoints_neither_follow_links_nor_delete_files_of_others(family, tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    (tmp_path / "out" / "training").mkdir(parents=True)
    (tmp_path / "out" / "training" / name).symlink_to(elsewhere)
    train(family, tmp_path / "out")
    assert [path.name for path in elsewhere.iterdir()] == ["kept"]
    assert (tmp_path / "out" / "training" / name).is_symlink() != name.endswith(".safetensors")


def test_a_run_deletes_nothing_in_its_folder_that_no_run_created(family, tmp_path):
    mine = ("notes.partial", ".mail.partial", "training/state-of-art/a")
    for name in mine:
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("mine")
    train(family, tmp_path / "out")
    assert all((tmp_path / "out" / name).read_text() == "mine" for name in mine)


def test_a_run_follows_no_link_below_its_folder(family, tmp_path):
    (tmp_path / "home" / "training").mkdir(parents=True)
    (tmp_path / "home" / "training" / "log.jsonl").write_text("mine")
    (tmp_path / "home" / "checkpoint.json").write_text("mine")
    place = tmp_path / "out" / "training"
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "home")
    with pytest.raises(DihedralError, match="out/training' is a symbolic link, which is not followed; remove it"):
        train(family, tmp_path / "out")
    assert {path.read_text() for path in (tmp_path / "home").rglob("*") if path.is_file()} == {"mine"}
    assert sum(path.is_file() for path in (tmp_path / "home").rglob("*")) == 2


def test_a_run_whose_time_was_up_goes_on_like_one_without_a_limit(family, tmp_path):
    out = tmp_path / "run"
    settings = {"resume": True, **TO_THE_LAST}
    first = train(family, out, minutes=1e-9, **TO_THE_LAST)
    assert first.metrics["epochs"] == 1  # the first epoch is trained whatever the time
    more = train(family, out, minutes=1e-9, **settings)
    assert (more.metrics["epochs"], more.metrics["stopped_by"]) == (2, "minutes")
    with pytest.raises(Stop):  # an epoch after the first stop, interrupted
        train(family, out, minutes=60, **settings, callback=stop_at(3))
    last = train(family, out, minutes=60, **settings)
    straight = train(family, tmp_path / "other", **TO_THE_LAST)
    assert last.metrics["stopped_by"] == "epochs" and not checkpoint_of(out).exists()
    assert torch.equal(last.model.entities, straight.model.entities)
    assert torch.equal(dh.load(out).model.entities, straight.model.entities)


def test_the_time_of_a_resume_is_what_the_limit_left_unless_it_stopped_the_run(family, tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr("dihedral.learn.loop.Clock.begin", lambda clock, seconds: begun.append(seconds))
    with pytest.raises(Stop):
        train(family, tmp_path / "run", callback=stop_at(3), minutes=60)
    train(family, tmp_path / "run", resume=True, minutes=60)
    monkeypatch.setattr("dihedral.learn.loop.Clock.is_up", lambda clock, seconds: True)
    train(family, tmp_path / "other", minutes=60)
    train(family, tmp_path / "other", minutes=60, resume=True)
    assert begun[0] == 0 < begun[1] and begun[2:] == [0, 0]
