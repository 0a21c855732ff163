"""`python -m soak`: run the fault campaign and record it in results/soak.json. Exit code 1 if anything was lost.

kills: SIGKILL at random times during training, saving, downloading and tuning. updates: the same during updates.
disk: a disk that fills up or becomes read-only during a write. folders: two runs into one folder. mutations: damaged
models, archives, Parquet, text and RDF files. archives: bombs and path traversal. clock: a clock that jumps by hours.
hostile: valid-looking files whose sizes, depths, counts and offsets lie.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: deterministic sums, and no threads when forking

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from benchmarks.record import RESULTS, save
from soak import archives, clock, disk, folders, hostile, kills, mutations, updates
from soak.tally import Tally

NUM_KILLS, NUM_MUTATIONS, NUM_HOSTILE = 200, 10_000, 20_000
PARTS: dict[str, Callable[[Tally, int, int, Path], None]] = {
    "kills": kills.run,
    "updates": updates.run,
    "disk": disk.run,
    "folders": folders.run,
    "mutations": mutations.run,
    "archives": archives.run,
    "clock": clock.run,
    "hostile": hostile.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=NUM_KILLS)
    parser.add_argument("--mutations", type=int, default=NUM_MUTATIONS)
    parser.add_argument("--hostile", type=int, default=NUM_HOSTILE)
    parser.add_argument("--workers", type=int, default=hostile.NUM_WORKERS, help="Hostile files read at a time.")
    parser.add_argument("--part", choices=PARTS, action="append", help="Run only this part; can be repeated.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="soak", help="Name of the record.")
    options = parser.parse_args()
    amounts = {
        "kills": options.kills,
        "updates": max(1, options.kills // 2),
        "mutations": options.mutations,
        "disk": max(1, options.kills // 10),
        "folders": 6,
        "archives": len(archives.CASES),
        "clock": 5,
        "hostile": options.hostile,
    }
    hostile.NUM_WORKERS = options.workers
    print(f"seed {options.seed}", flush=True)
    kills.warm_up()
    parts = run_parts({name: amounts[name] for name in options.part or PARTS}, options.seed)
    losses = [f"{name}: {loss}" for name, part in parts.items() for loss in part["losses"]]
    record: dict[str, Any] = {
        "command": shlex.join(["python", "-m", "soak", *sys.argv[1:]]), "seed": options.seed, "parts": parts,
        "losses": len(losses), "seconds": round(sum(part["seconds"] for part in parts.values()), 1),
    }  # fmt: skip
    path = save(options.name, record, options.out)
    for name, part in parts.items():
        counts = ", ".join(f"{number} {kind}" for kind, number in part["counts"].items())
        print(f"{name}: {counts}; {part['seconds']} s")
        for reason in part["skipped"]:
            print(f"  skipped: {reason}")
    for loss in losses:
        print(f"LOST {loss}", file=sys.stderr)
    print(f"{len(losses)} lost; recorded in {path}")
    sys.exit(1 if losses else 0)


def run_parts(amounts: dict[str, int], seed: int) -> dict[str, dict[str, Any]]:
    """Run parts with a progress bar; returns the record of each."""
    parts = {}
    columns = (
        TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[lost]} lost"),
        TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    # no auto_refresh: it would start a thread, and a process with threads must not fork
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as bar:
        for name, amount in amounts.items():
            task = bar.add_task(name, total=amount, lost=0)
            tally = Tally()

            def advance(task: Any = task, tally: Tally = tally) -> None:
                bar.update(task, advance=1, lost=len(tally.losses))
                bar.refresh()
                if not bar.console.is_terminal:
                    _print_progress(bar.tasks[task], len(tally.losses))

            tally.advance = advance
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="soak-") as folder:
                PARTS[name](tally, amount, seed, Path(folder))
            parts[name] = {**tally.to_dict(), "seconds": round(time.monotonic() - started, 1)}
    return parts


def _print_progress(task: Task, lost: int) -> None:
    """In a log file: a line for each tenth of a part."""
    total, done = int(task.total or 0), int(task.completed)
    if done * 10 // total != (done - 1) * 10 // total:
        left = "" if task.time_remaining is None else f", {task.time_remaining:.0f} s left"
        print(f"{task.description}: {done} of {total}, {lost} lost{left}", flush=True)


if __name__ == "__main__":
    main()
