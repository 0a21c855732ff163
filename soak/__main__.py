"""`python -m soak`: the fault campaign, recorded in results/soak.json; exit code 1 if anything was lost.

kills: SIGKILL at random moments of training, saving, downloading and tuning. disk: one that fills up or turns
read-only in mid-save. folders: two runs into one. mutations: damaged models, archives, Parquet, text and RDF files.
archives: bombs and path escapes. clock: one that jumps by hours.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: one order of adding up, and no threads to fork with

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, save
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from soak import archives, clock, disk, folders, kills, mutations
from soak.tally import Tally

KILLS, MUTATIONS = 200, 10_000
PARTS: dict[str, Callable[[Tally, int, int, Path], None]] = {
    "kills": kills.run,
    "disk": disk.run,
    "folders": folders.run,
    "mutations": mutations.run,
    "archives": archives.run,
    "clock": clock.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--mutations", type=int, default=MUTATIONS)
    parser.add_argument("--part", choices=PARTS, action="append", help="Only this part; may be given again.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    amounts = {
        "kills": options.kills,
        "mutations": options.mutations,
        "disk": max(1, options.kills // 10),
        "folders": 6,
        "archives": len(archives.CASES),
        "clock": 5,
    }
    record: dict[str, Any] = {
        "command": shlex.join(["python", "-m", "soak", *sys.argv[1:]]), "seed": options.seed, "parts": {},
    }  # fmt: skip
    kills.warm_up()
    with Progress(
        TextColumn("{task.description:10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[lost]} lost"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
    ) as bar:  # fmt: skip  (it refreshes in this thread: a process with others must not fork)
        for name in options.part or PARTS:
            task = bar.add_task(name, total=amounts[name], lost=0)
            tally = Tally()

            def advance(task: Any = task, tally: Tally = tally) -> None:
                bar.update(task, advance=1, lost=len(tally.losses))
                bar.refresh()

            tally.advance = advance
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="soak-") as folder:
                PARTS[name](tally, amounts[name], options.seed, Path(folder))
            record["parts"][name] = {**tally.to_dict(), "seconds": round(time.monotonic() - started, 1)}
    losses = [f"{name}: {loss}" for name, part in record["parts"].items() for loss in part["losses"]]
    record["losses"] = len(losses)
    record["seconds"] = round(sum(part["seconds"] for part in record["parts"].values()), 1)
    path = save("soak", record, options.out)
    for name, part in record["parts"].items():
        counts = ", ".join(f"{number} {kind}" for kind, number in part["counts"].items())
        print(f"{name}: {counts}; {part['seconds']} s")
        for sentence in part["skipped"]:
            print(f"  not made here: {sentence}")
    for loss in losses:
        print(f"LOST {loss}", file=sys.stderr)
    print(f"{len(losses)} lost; recorded in {path}")
    sys.exit(1 if losses else 0)


if __name__ == "__main__":
    main()
