"""The time of a run: when a checkpoint is due, and when the time is up."""

from __future__ import annotations

import math
import time

from dihedral.errors import DihedralError


class Clock:
    """Measures a run from `begin`."""

    def __init__(self, checkpoint_minutes: float, minutes: float | None) -> None:
        """minutes: limit on the time of the run; no epoch starts that would end later. None is no limit."""
        if checkpoint_minutes < 0:
            raise DihedralError(f"checkpoint_minutes is {checkpoint_minutes}; it must be 0 or more")
        if minutes is not None and not minutes > 0:
            raise DihedralError(f"minutes is {minutes}; it must be more than 0")
        self.checkpoint_seconds = 60 * checkpoint_minutes
        self.limit = math.inf if minutes is None else 60 * minutes
        self.deadline = math.inf
        self.saved = time.monotonic()  # when the last checkpoint was written

    def begin(self, seconds_before: float) -> None:
        """Start the run, or continue one that has taken some time already."""
        self.saved = time.monotonic()
        self.deadline = self.saved + self.limit - seconds_before

    def is_due(self, *, within_epoch: bool = False) -> bool:
        """Whether a checkpoint is due; with 0 minutes there is one after each epoch, and none within it."""
        only_between_epochs = not self.checkpoint_seconds
        is_late = time.monotonic() - self.saved >= self.checkpoint_seconds
        return is_late and not (within_epoch and only_between_epochs)

    def is_up(self, seconds: float) -> bool:
        """Whether the time does not suffice for work of some seconds."""
        return time.monotonic() + seconds > self.deadline
