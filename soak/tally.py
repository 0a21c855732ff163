"""The counts and losses of one part of a campaign, and how a campaign against a server ends."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.record import save


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


def finish(name: str, seed: int, measured: dict[str, Any], losses: Sequence[str], out: Path) -> None:
    """Record and print what was measured and lost, and exit: with code 1 if anything was lost."""
    path = save(name, {"seed": seed, "losses": losses} | measured, out)
    print(json.dumps(measured))
    for loss in losses:
        print(f"LOST {loss}", file=sys.stderr)
    print(f"{len(losses)} lost; recorded in {path}")
    sys.exit(1 if losses else 0)
