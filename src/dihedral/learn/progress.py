"""Progress of training: a bar in a terminal, a line per validation elsewhere."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from dihedral.learn.loop import Callback, Event


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
