"""Progress of training: a bar in a terminal, a line that changes in a notebook, a line per validation elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from dihedral.learn.loop import Callback, Event

NOTEBOOK_SECONDS = 0.5  # between two changes of the line in a notebook


def show_progress() -> AbstractContextManager[Callback]:
    """The progress display that fits where this process runs."""
    if in_notebook():
        return nullcontext(NotebookProgress())
    return ProgressBar() if sys.stderr.isatty() else nullcontext(print_progress)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def print_progress(event: Event) -> None:
    """Print a line on stderr per validation."""
    if event["event"] == "epoch" and "valid_mrr" in event:
        print(_line(event), file=sys.stderr, flush=True)


def _line(event: Event) -> str:
    mrr = f", valid MRR {event['valid_mrr']:.4f} (best {event['best_mrr']:.4f})" if "valid_mrr" in event else ""
    return f"epoch {event['epoch']} of {event['epochs']}: loss {event['loss']:.4f}{mrr}"


class NotebookProgress:
    """One output of a notebook's cell: the last epoch, and at the end the last validation."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.shown, self.last = 0.0, ""

    def __call__(self, event: Event) -> None:
        if event["event"] == "epoch":
            validated = "valid_mrr" in event
            self.last = _line(event) if validated or not self.last else self.last
            if validated or time.monotonic() - self.shown >= NOTEBOOK_SECONDS:
                self._show(_line(event))
        elif event["event"] == "end" and self.last:
            self._show(self.last)

    def _show(self, line: str) -> None:
        from IPython.display import display

        self.shown = time.monotonic()
        if self.handle is None:
            self.handle = display({"text/plain": line}, raw=True, display_id=True)
        else:
            self.handle.update({"text/plain": line}, raw=True)


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
