"""Callbacks: progress on stderr, and logs of a run in TensorBoard or MLflow."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from dihedral.errors import DihedralError, optional_module
from dihedral.evaluation.metrics import METRICS
from dihedral.learn.loop import Callback, Event

LOGGED = ("loss", "valid_mrr", "triples_per_second", "temperature")  # from epoch events

Scalars = dict[str, float]


class Logger(AbstractContextManager[Any]):
    """A callback and context manager that turns events into four calls; subclasses implement these."""

    def start(self, settings: dict[str, Any], epoch: int) -> None:
        """A run starts, or resumes after `epoch`; settings are the recipe, the seed and the graph's name."""

    def log(self, values: Scalars, epoch: int) -> None:
        """Log the values of an epoch."""

    def measured(self, metrics: Scalars) -> None:
        """Log the metrics of the finished model on valid and test."""

    def close(self, error: BaseException | None) -> None:
        """The run has ended, possibly with an error."""

    def __call__(self, event: Event) -> None:
        if event["event"] == "start":
            self.start({**event["recipe"], "graph": event["graph"], "seed": event["seed"]}, event["epoch"])
        elif event["event"] == "epoch":
            self.log({name: event[name] for name in LOGGED if name in event}, event["epoch"])
        elif event["event"] == "measured":
            found = {split: each["both"] for split, each in event["metrics"].items() if split in ("valid", "test")}
            # MLflow does not allow @ in names
            short = {name: name.replace("@", "_at_") for name in METRICS}
            self.measured({f"{split}/{short[name]}": both[name] for split, both in found.items() for name in METRICS})

    def __exit__(self, *failure: Any) -> None:
        self.close(failure[1])  # the exception, between its type and its traceback


class TensorBoardLogger(Logger):
    """Event files in a folder, shown by `tensorboard --logdir FOLDER`.

    with TensorBoardLogger("out/logs/umls") as logger:
        dh.train(graph, callback=logger)
    """

    def __init__(self, folder: str | Path) -> None:
        need = "TensorBoardLogger needs tensorboard: pip install 'dihedral[tracking]'"
        self.folder, self.open = Path(folder), optional_module("torch.utils.tensorboard", need).SummaryWriter
        self.writer: Any = None  # opened when a run starts

    def start(self, settings: dict[str, Any], epoch: int) -> None:
        self.settings = settings
        # epochs after the checkpoint of a resumed run were logged before it stopped: log them once
        self.writer = self.open(str(self.folder), purge_step=epoch + 1 if epoch else None)
        self.writer.add_text("settings", "\n".join(f"    {key} = {value}" for key, value in settings.items()))

    def log(self, values: Scalars, epoch: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, epoch)

    def measured(self, metrics: Scalars) -> None:
        self.writer.add_hparams(self.settings, metrics, run_name=".")

    def close(self, error: BaseException | None) -> None:
        if self.writer is not None:
            self.writer.close()


class MLflowLogger(Logger):
    """A run in an MLflow experiment, which is created if it does not exist, by default without MLflow's telemetry.

    tracking_uri: a server or a database, such as sqlite:///mlflow.db; by default MLFLOW_TRACKING_URI.
    """

    def __init__(self, experiment: str, tracking_uri: str | None = None) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the import, which starts it
        mlflow = optional_module("mlflow.tracking", "MLflowLogger needs mlflow: pip install 'dihedral[tracking]'")
        errors = optional_module("mlflow.exceptions", "")
        self.run: Any = None  # the id of the run, once it has started
        try:
            self.client = mlflow.MlflowClient(tracking_uri)
            found = self.client.get_experiment_by_name(experiment)
            self.experiment = found.experiment_id if found else self.client.create_experiment(experiment)
        except (errors.MlflowException, ImportError) as error:  # a database needs sqlalchemy, which mlflow-skinny lacks
            reason = str(error).strip().split(". ")[0]
            raise DihedralError(f"MLflow cannot open experiment {experiment!r}: {reason}") from None

    def start(self, settings: dict[str, Any], epoch: int) -> None:
        run_name = f"{settings['graph']}, {settings['name']}"
        self.run = self.client.create_run(self.experiment, run_name=run_name).info.run_id
        for key, value in settings.items():
            self.client.log_param(self.run, key, value)

    def log(self, values: Scalars, epoch: int) -> None:
        for name, value in values.items():
            self.client.log_metric(self.run, name, value, step=epoch)

    def measured(self, metrics: Scalars) -> None:
        for name, value in metrics.items():
            self.client.log_metric(self.run, name, value)

    def close(self, error: BaseException | None) -> None:
        if self.run is not None:
            stopped = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
            self.client.set_terminated(self.run, stopped if error else "FINISHED")


def show_progress() -> AbstractContextManager[Callback]:
    """The progress display that fits where this process runs."""
    return ProgressBar() if sys.stderr.isatty() else nullcontext(print_progress)


def print_progress(event: Event) -> None:
    """Print a line on stderr per validation."""
    if event["event"] == "epoch" and "valid_mrr" in event:
        line = f"epoch {event['epoch']} of {event['epochs']}: loss {event['loss']:.4f}"
        mrr = f"valid MRR {event['valid_mrr']:.4f} (best {event['best_mrr']:.4f})"
        print(f"{line}, {mrr}", file=sys.stderr, flush=True)


class ProgressBar(Progress):
    """A callback and context manager that shows the run on stderr."""

    def __init__(self, console: Console | None = None) -> None:
        metrics = "loss {task.fields[loss]}  valid MRR {task.fields[mrr]}  {task.fields[speed]} triples/s"
        columns = "epoch {task.fields[epoch]}", BarColumn(bar_width=24), metrics
        times = TimeElapsedColumn(), "left", TimeRemainingColumn()
        super().__init__(*columns, *times, console=console or Console(stderr=True), refresh_per_second=4)

    def __call__(self, event: Event) -> None:
        if event["event"] == "start":
            self.task = self.add_task(
                "", total=event["epochs"], completed=event["epoch"], epoch=event["epoch"], loss="-", mrr="-", speed="-"
            )
        elif event["event"] == "step":
            self.update(self.task, completed=event["epoch"] + event["step"] / event["steps"])
        elif event["event"] == "epoch":
            shown: dict[str, Any] = {"loss": f"{event['loss']:.4f}", "speed": f"{event['triples_per_second']:,}"}
            if "valid_mrr" in event:
                shown["mrr"] = f"{event['valid_mrr']:.4f} (best {event['best_mrr']:.4f})"
            self.update(self.task, completed=event["epoch"], epoch=f"{event['epoch']}/{event['epochs']}", **shown)
        elif event["event"] == "end":
            self.update(self.task, total=event["epoch"], completed=event["epoch"])
