"""The counts and losses of one part of a campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Tally:
    """Counts by kind, and one sentence per loss; `advance` moves the progress bar."""

    advance: Callable[[], object] = lambda: None
    counts: Counter[str] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # what this machine cannot run, and why

    def count(self, kind: str, number: int = 1) -> None:
        self.counts[kind] += number

    def check(self, condition: bool, loss: str) -> bool:
        """Record a loss if a condition is false; returns the condition."""
        if not condition:
            self.losses.append(loss)
        return condition

    def to_dict(self) -> dict[str, Any]:
        return {"counts": dict(sorted(self.counts.items())), "losses": self.losses, "skipped": self.skipped}
