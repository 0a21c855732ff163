"""From `pip install` to a labelled prediction: `python -m benchmarks.first_steps`.

A family of 5,000 people, 30,000 facts, is written as CSV with ids such as Q12 and P3, and their labels as another.
Four commands run in an empty folder with an empty pip cache; the record holds their output and seconds.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import dihedral as dh
from benchmarks.record import RESULTS, save

ROOT = RESULTS.parent
COMMANDS = [
    "python -m venv venv",
    "venv/bin/pip install dihedral",
    "venv/bin/dihedral train facts.csv --labels labels.csv --out model --minutes 1",
    "venv/bin/dihedral predict model --head 'Woman 4242' --relation 'Parent in law' --top 3",
]


def write_files(folder: Path, people: int) -> int:
    """Write facts.csv and labels.csv; returns the number of facts."""
    graph = dh.make_family(people)
    entities = [f"Q{i + 1}" for i in range(graph.num_entities)]
    relations = [f"P{i + 1}" for i in range(graph.num_relations)]
    labels = [name.replace("_", " ").capitalize() for name in [*graph.entities, *graph.relations]]
    with open(folder / "facts.csv", "w", newline="") as file:
        rows = ((entities[h], relations[r], entities[t]) for h, r, t in graph.known.tolist())
        csv.writer(file, lineterminator="\n").writerows([("head", "relation", "tail"), *rows])
    with open(folder / "labels.csv", "w", newline="") as file:
        rows = zip([*entities, *relations], labels, strict=True)
        csv.writer(file, lineterminator="\n").writerows([("id", "label"), *rows])
    return len(graph.known)


def run(command: str, folder: Path, package: str) -> dict[str, object]:
    """Run a command with the package of this repository in place of a released one."""
    removed = ("PYTHON", "VIRTUAL_ENV", "OMP_", "GOMP_", "DIHEDRAL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(removed)}
    kept |= {"PIP_CACHE_DIR": str(folder / "cache"), "COLUMNS": "100", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    python = Path(sys.base_prefix) / "bin" / "python3"
    real = command.replace("python -m venv", f"{python} -m venv").replace("install dihedral", package)
    started = perf_counter()
    done = subprocess.run(real, shell=True, cwd=folder, env=kept, capture_output=True, text=True, check=False)
    spent = perf_counter() - started
    output = (done.stderr + done.stdout) if "pip install" not in command else ""
    print(f"$ {command}\n{output}{spent:.1f} s", flush=True)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {done.stderr}")
    return {"command": command, "seconds": round(spent, 1), "output": output}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    package = f"install -c {ROOT / 'constraints.txt'} torch {ROOT}"  # torch's CPU build, as in the README
    with tempfile.TemporaryDirectory() as folder:
        facts = write_files(Path(folder), options.people)
        steps = [run(command, Path(folder), package) for command in COMMANDS]
    save("first-steps", {"facts": facts, "steps": steps}, options.out)


if __name__ == "__main__":
    main()
