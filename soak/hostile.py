"""Files that are valid at first sight and hostile: sizes, depths, counts and offsets that lie.

Each is created and read in a forked process with 1 GiB of memory and 20 seconds of processor time, which, unlike time,
does not depend on what else the machine does. It must be refused in one sentence, or
load and work: without another exception, a signal, or content that the file does not have. Case i of a seed is
reproducible: `python -m soak.hostile SEED i` runs it alone and prints the result.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import dihedral as dh
from dihedral.errors import DihedralError
from dihedral.io.table_files import BLANKS
from soak import hostile_files, hostile_models
from soak.children import GIB, Child, Ending, is_clear, run_child
from soak.mutations import load
from soak.tally import Tally

MAX_SECONDS = 20  # of processor time
MAX_WAITING = 200.0  # seconds, for a process that does nothing
MAX_MEMORY = GIB
MAX_MESSAGE_LENGTH = 2000
NUM_WORKERS = 2
KINDS: dict[str, tuple[int, Callable[[random.Random, Path, Path], str]]] = {  # weight, and what creates a case
    "rdf": (4, hostile_files.rdf),
    "parquet": (3, hostile_files.parquet),
    "text": (3, hostile_files.text),
    "json lines": (2, hostile_files.json_lines),
    "archive": (4, hostile_files.archive),
    "arrow": (4, hostile_models.arrow),
    "safetensors": (4, hostile_models.safetensors),
    "json": (4, hostile_models.json_file),
}


@dataclass
class Running:
    """A case at work."""

    case: int
    kind: str
    child: Child
    since: float


def run(tally: Tally, cases: int, seed: int, folder: Path) -> None:
    """Create and read every case, a few at a time."""
    made = run_child(functools.partial(hostile_models.make_bases, folder / "bases"))
    if not tally.check(made.how == "done", f"the models to change could not be created: {made}"):
        return
    gc.freeze()  # collections in children would copy the memory that they share with this process
    waiting = iter(range(cases))
    running: list[Running] = []
    while True:
        while len(running) < NUM_WORKERS and (case := next(waiting, None)) is not None:
            work = functools.partial(run_case, case, seed, folder)
            running.append(Running(case, kind_of(case, seed), Child(work), time.monotonic()))
        if not running:
            return
        for each in list(running):
            ending = each.child.poll(MAX_WAITING - (time.monotonic() - each.since))
            if ending is not None:
                running.remove(each)
                judge(tally, each, seed, ending)
                tally.advance()
        time.sleep(0.002)


def judge(tally: Tally, case: Running, seed: int, ending: Ending) -> None:
    """Count a case; it is a loss unless it was refused in one sentence or loaded."""
    how, value = ending.how, ending.value
    if how == "done":
        how, value = value["how"], value["message"]
    if how == "refused" and (not is_clear(value) or len(value) > MAX_MESSAGE_LENGTH):
        how = "refused with an unclear message"
    tally.count(f"{case.kind}: {how}")
    place = f"case {case.case} of seed {seed} ({case.kind})"
    tally.check(how in ("refused", "loaded"), f"{place} {how}: {str(value).strip()[-900:]}")


def kind_of(case: int, seed: int) -> str:
    weights = [weight for weight, _ in KINDS.values()]
    return random.Random(f"hostile-{seed}-{case}").choices(list(KINDS), weights)[0]


def run_case(case: int, seed: int, folder: Path) -> dict[str, str]:
    """Create a case, then read it within the limits; returns how that ended."""
    rng = random.Random(f"{seed}-{case}")
    kind = kind_of(case, seed)
    place = folder / f"case-{case}"
    place.mkdir()
    try:
        about = KINDS[kind][1](rng, place, folder / "bases")
        print(about, flush=True)
        path = next(place.glob("case*"))
        set_limits()
        try:
            read(kind, path)
        except DihedralError as error:
            return {"how": "refused", "message": str(error)}
        return {"how": "loaded", "message": about}
    finally:
        os.chdir("/")
        hostile_files.remove(place)


def set_limits() -> None:
    """What this process may take in addition to what it has taken; processes that it starts have the same limits."""
    seconds = int(time.process_time()) + MAX_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MAX_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def read(kind: str, path: Path) -> None:
    """Open and use a file or a model; an assertion fails if it has content that the file cannot have."""
    if kind in ("arrow", "safetensors", "json"):
        load("model", path)
        hostile_models.use_log(path)
        return
    graph = dh.load_graph(path)
    sizes = graph.num_entities, graph.num_relations, graph.num_entities
    assert graph.known.min() >= 0 and (graph.known.max(axis=0) < sizes).all(), "ids without names"
    names = list(graph.entities)
    assert len(set(names)) == len(names) and all(name.strip(BLANKS) for name in names), "names repeat or are empty"
    expected = path.parent / ".names"
    if expected.exists():
        unknown = set(names) - set(json.loads(expected.read_text()))
        assert not unknown, f"names that the file does not have: {sorted(unknown)[:3]}"


def main() -> None:
    """Run single cases in this process, with tracebacks."""
    import tempfile

    seed, *cases = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        hostile_models.make_bases(Path(folder) / "bases")
        for case in cases:
            print(f"case {case}: {kind_of(case, seed)}", flush=True)
            print(run_case(case, seed, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
