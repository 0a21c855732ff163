"""SIGKILL at random times during `dihedral update`: the folder must hold the old or the new model, complete."""

from __future__ import annotations

import functools
import hashlib
import random
import shutil
import time
from pathlib import Path
from typing import Any

import dihedral as dh
from soak.children import Ending, command, run_child
from soak.kills import Killer, damaged_files, small_graph
from soak.tally import Tally

ADDED = "zoe\tsibling\tman_0001\nzoe\tlikes\tman_0002\nman_0001\tlikes\tman_0003\n"


def run(tally: Tally, kills: int, seed: int, folder: Path) -> None:
    """Kill updates of one model, most of them within the time that an update takes."""
    killer = Killer(tally, "updating", kills, random.Random(seed))
    old, out = folder / "old", folder / "model"
    graph = small_graph()
    options: dict[str, Any] = {"dimension": 16, "epochs": 3, "progress": False, "device": "cpu"}
    dh.train(graph, "demo/family", out=old, **options)
    (folder / "new.tsv").write_text(ADDED, encoding="utf-8")
    (folder / "gone.tsv").write_text("\t".join(next(graph.names_of(graph.train))) + "\n", encoding="utf-8")
    update = ("update", out, "--add", folder / "new.tsv", "--remove", folder / "gone.tsv", "--device", "cpu")
    shutil.copytree(old, out)
    before = run_child(functools.partial(digest, out)).value
    started = time.monotonic()
    ending = run_child(command(*update))
    seconds = time.monotonic() - started
    after = run_child(functools.partial(digest, out)).value
    if not killer.check(ending.how == "done" and before != after, f"did not complete: {ending}"):
        return
    shutil.rmtree(out)
    shutil.copytree(old, out)
    while killer.left:
        killer.start(command(*update), seconds)
        found = run_child(functools.partial(digest, out))
        killer.check(found.value in (before, after), f"left neither the old nor the new model: {found}")
        damaged = run_child(functools.partial(damaged_files, out))
        killer.check(damaged == Ending("done", []), f"killed left {damaged}")
        tally.count("updates that left the old model", found.value == before)
        tally.count("updates that left the new model", found.value == after)
        if found.value != before:
            shutil.rmtree(out)
            shutil.copytree(old, out)
    ending = killer.start(command(*update), 0)
    found = run_child(functools.partial(digest, out))
    killer.check(found.value == after, f"did not complete after kills: {found}")


def digest(folder: Path) -> list[str]:
    """Checksums of a model's tensors and of its graph."""
    predictor = dh.load(folder)
    tensors = {
        "entities": predictor.model.entities,
        **predictor.model.relations.stored(),
    }
    sums = [hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for _, tensor in sorted(tensors.items())]
    return [*sums, predictor.graph.fingerprint]
