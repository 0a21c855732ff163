"""Loggers: what TensorBoard and MLflow hold after a run, read back with their own readers."""

from __future__ import annotations

import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.learn.loggers import Logger, MLflowLogger, TensorBoardLogger

QUICK = {"dimension": 8, "epochs": 4, "batch_size": 64, "validate_every": 2, "progress": False, "device": "cpu"}


def read_scalars(folder):
    """{name: [(epoch, value), …]} of an event folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {name: [(each.step, each.value) for each in found.Scalars(name)] for name in found.Tags()["scalars"]}


def test_tensorboard_holds_the_curves_the_settings_and_the_metrics(family, tmp_path):
    events = []
    with TensorBoardLogger(tmp_path / "logs") as logger:
        predictor = dh.train(family, "demo/umls", callback=[logger, events.append], seed=3, **QUICK)
    scalars = read_scalars(tmp_path / "logs")
    epochs = [event for event in events if event["event"] == "epoch"]
    assert scalars["loss"] == [(event["epoch"], pytest.approx(event["loss"])) for event in epochs]
    assert [epoch for epoch, _ in scalars["valid_mrr"]] == [2, 4]
    assert scalars["temperature"][0] == (1, pytest.approx(3.0)) and scalars["temperature"][3][1] < 3.0
    assert all(value > 0 for _, value in scalars["triples_per_second"])
    assert scalars["test/mrr"][0][1] == pytest.approx(predictor.metrics["test"]["both"]["mrr"])
    assert "test/hits_at_10" in scalars
    assert hyperparameters(tmp_path / "logs").items() >= {"dimension": 8, "seed": 3, "regulariser": "n3"}.items()


def hyperparameters(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found = EventAccumulator(str(folder))
    found.Reload()
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    values = HParamsPluginData.FromString(content).session_start_info.hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in values.items()}


def test_a_resumed_run_is_drawn_once(family, tmp_path):
    with TensorBoardLogger(tmp_path / "logs") as logger, pytest.raises(RuntimeError):
        dh.train(
            family, "demo/umls", out=tmp_path / "run", callback=[logger, raise_at(3)], checkpoint_minutes=0, **QUICK
        )
    with TensorBoardLogger(tmp_path / "logs") as logger:
        dh.train(family, "demo/umls", out=tmp_path / "run", callback=logger, resume=True, **QUICK)
    assert [epoch for epoch, _ in read_scalars(tmp_path / "logs")["loss"]] == [1, 2, 3, 4]


def raise_at(epoch):
    def callback(event):
        if event["event"] == "epoch" and event["epoch"] == epoch:
            raise RuntimeError

    return callback


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


def runs_of(store, experiment):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(store)
    return client, client.search_runs([client.get_experiment_by_name(experiment).experiment_id])


def test_mlflow_holds_the_curves_the_settings_and_the_metrics(family, store):
    events = []
    with MLflowLogger("people", store) as logger:
        predictor = dh.train(family, "demo/umls", callback=[logger, events.append], seed=3, **QUICK)
    client, (run,) = runs_of(store, "people")
    assert run.info.status == "FINISHED"
    assert run.data.params.items() >= {"dimension": "8", "seed": "3", "graph": "family"}.items()
    assert run.data.metrics["test/mrr"] == predictor.metrics["test"]["both"]["mrr"]
    curve = client.get_metric_history(run.info.run_id, "loss")
    assert [(each.step, each.value) for each in curve] == [
        (event["epoch"], event["loss"]) for event in events if event["event"] == "epoch"
    ]
    assert [each.step for each in client.get_metric_history(run.info.run_id, "valid_mrr")] == [2, 4]


@pytest.mark.parametrize(("error", "status"), [(RuntimeError, "FAILED"), (KeyboardInterrupt, "KILLED")])
def test_mlflow_knows_how_a_run_ended(family, store, error, status):
    def fail(event):
        if event["event"] == "epoch":
            raise error

    with pytest.raises(error), MLflowLogger(status, store) as logger:
        dh.train(family, "demo/umls", callback=[logger, fail], **QUICK)
    _, (run,) = runs_of(store, status)
    assert run.info.status == status and "loss" in run.data.metrics


def test_an_mlflow_store_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(DihedralError, match="MLflow cannot open experiment 'people'"):
        MLflowLogger("people", "nowhere://x")


def test_a_logger_of_ones_own_writes_four_methods(family):
    class Notes(Logger):
        def __init__(self):
            self.lines = []

        def start(self, settings, epoch):
            self.lines.append(("start", settings["dimension"], epoch))

        def log(self, values, epoch):
            self.lines.append(sorted(values))

        def measured(self, metrics):
            self.lines.append(sorted(metrics)[:2])

        def close(self, error):
            self.lines.append(error)

    with Notes() as notes:
        dh.train(family, "demo/umls", callback=notes, model="distmult", **QUICK)
    assert notes.lines == [
        ("start", 8, 0),
        *(["loss", "triples_per_second"], ["loss", "triples_per_second", "valid_mrr"]) * 2,
        ["test/hits_at_1", "test/hits_at_10"],
        None,
    ]


@pytest.mark.parametrize("extra", ["tensorboard", "mlflow"])
def test_a_missing_extra_is_named(python, extra):
    script = (
        f"import sys; sys.modules[{extra!r}] = None\n"
        "import dihedral\n"
        "from dihedral.learn.loggers import MLflowLogger, TensorBoardLogger\n"
        "try: MLflowLogger('x'); TensorBoardLogger('x')\n"
        "except dihedral.DihedralError as error: print(error)"
    ).replace("MLflowLogger('x'); " if extra == "tensorboard" else "never", "")
    assert "pip install 'dihedral[tracking]'" in python("-c", script).stdout


@pytest.mark.thorough
@pytest.mark.parametrize(("given", "after"), [(None, "true"), ("false", "false")])
def test_mlflows_telemetry_is_off_unless_the_user_turned_it_on(python, tmp_path, monkeypatch, given, after):
    program = (
        "import os, sys\n"
        "from dihedral.learn.loggers import MLflowLogger\n"
        "assert 'mlflow' not in sys.modules\n"
        "MLflowLogger('x', sys.argv[1])\n"
        "from mlflow.environment_variables import MLFLOW_DISABLE_TELEMETRY\n"
        "print(str(MLFLOW_DISABLE_TELEMETRY.get()).lower())\n"
    )
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)  # other tests set it
    env = {} if given is None else {"MLFLOW_DISABLE_TELEMETRY": given}
    done = python("-c", program, f"sqlite:///{tmp_path}/mlflow.db", **env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == after
