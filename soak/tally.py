"""What a part of the campaign counted and what was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Tally:
    """Counts by kind, and a sentence for each loss; `advance` moves the part's bar."""

    advance: Callable[[], object] = lambda: None
    counts: Counter[str] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # what cannot be made on this machine, and why

    def count(self, kind: str, number: int = 1) -> None:
        self.counts[kind] += number

    def check(self, held: bool, loss: str) -> bool:
        if not held:
            self.losses.append(loss)
        return held

    def to_dict(self) -> dict[str, Any]:
        return {"counts": dict(sorted(self.counts.items())), "losses": self.losses, "skipped": self.skipped}
