"""A disk that fills up, and a file system that becomes read-only, while files are written.

The disk is a small tmpfs in a separate mount namespace, invisible to other processes. This needs root or a kernel that
allows user namespaces; otherwise a limit on the size of files (RLIMIT_FSIZE) is used instead.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import random
import resource
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dihedral as dh
from dihedral.graph.readers import write_folder
from dihedral.store.manifest import holds_model
from soak.children import Child, Ending, command, is_clear, run_child
from soak.kills import digest, random_predictor, small_graph
from soak.tally import Tally

NEW_MOUNTS, NEW_USER = 0x20000, 0x10000000
READ_ONLY, REMOUNT, RECURSIVE, PRIVATE = 1, 32, 16384, 1 << 18
DISK_MIB = 8
TRAIN = ("--recipe", "demo/family", "--checkpoint-minutes", 0, "--device", "cpu", "--set", "epochs=40",
         "--set", "batch_size=64", "--set", "validate_every=2", "--set", "dimension=1024")  # fmt: skip
TUNE = ("--recipe", "demo/family", "--device", "cpu", "--set", "epochs=2", "--set", "dimension=8",
        "--set", "batch_size=64")  # fmt: skip


def run(tally: Tally, amount: int, seed: int, folder: Path) -> None:
    """Run each scenario `amount` times."""
    write_folder(small_graph(), folder / "data")
    possible = run_child(lambda: str(_small_disk(folder / "disk")))
    scenarios = [("a full disk", fill_up), ("a read-only file system", turn_read_only)]
    if possible.how != "done":
        tally.skipped.append(f"a small disk and a read-only file system: {possible.value.splitlines()[-1]}")
        scenarios = [("a limit on the size of files", limit_files)]
    for number in range(amount):
        for kind, scenario in scenarios:
            ending = run_child(functools.partial(scenario, folder, number, seed), seconds=120)
            if not tally.check(ending.how == "done", f"{kind}, number {number}: {ending}"):
                continue
            tally.count(f"{kind} during a write", ending.value["hit"])
            tally.count(f"{kind} after the last write", not ending.value["hit"])
            for loss in ending.value["losses"]:
                tally.losses.append(f"{kind}, number {number}: {loss}")
        tally.advance()


Found = dict[str, Any]


def fill_up(folder: Path, number: int, seed: int) -> Found:
    """Save, train or tune with too little space, and then with enough space."""
    disk = _small_disk(folder / "disk")
    rng = random.Random(f"{seed}-full-{number}")
    work, expected, retry = _work(folder, disk, number)
    ballast = disk / "ballast"
    space = rng.randrange(0, expected)
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast.write_bytes(bytes(max(0, free - space)))
    ending = run_child(work)
    losses = _losses(ending, disk)
    ballast.unlink()
    return _finish(ending, retry, losses)


def turn_read_only(folder: Path, number: int, seed: int) -> Found:
    """The same on a disk that is remounted read-only at a random time, between two writes."""
    disk = _small_disk(folder / "disk")
    rng = random.Random(f"{seed}-read-only-{number}")
    work, _, retry = _work(folder, disk, number)
    child = Child(work)
    time.sleep(rng.uniform(0.05, 0.3))
    deadline = time.monotonic() + 10
    while not _mount(disk, REMOUNT | READ_ONLY) and time.monotonic() < deadline:
        pass  # busy while a file is open for writing
    ending = child.wait()
    losses = _losses(ending, disk)
    _mount(disk, REMOUNT)
    return _finish(ending, retry, losses)


def limit_files(folder: Path, number: int, seed: int) -> Found:
    """The same without a separate disk: files cannot grow beyond a few KiB."""
    place = Path(tempfile.mkdtemp(dir=folder))
    work, expected, retry = _work(folder, place, number)
    limit = random.Random(f"{seed}-limit-{number}").randrange(0, expected // 4)

    def limited() -> Any:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then a write fails as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return work()

    ending = run_child(limited)
    return _finish(ending, retry, _losses(ending, place))


def _work(folder: Path, disk: Path, number: int) -> tuple[Callable[[], Any], int, Callable[[], Any]]:
    """The work on the disk, the maximum number of bytes it needs, and the work that must succeed with enough space."""
    data = folder / "data"
    if number % 4 == 1:
        out, grid = disk / "log.jsonl", ("tune", data, "--grid", *TUNE, "--choose", "K=4,6")
        tune = command(*grid, "--log", out)
        return tune, 3000, tune
    if number % 4 == 3:
        tune = command("tune", data, *TUNE, "--trials", 2, "--choose", "K=4,6", "--out", disk / "search")
        return tune, 150_000, tune
    if number % 4 == 2:
        train = ("train", data, *TRAIN, "--out", disk / "run")

        def resume() -> Any:
            begun = holds_model(disk / "run") or any((disk / "run" / "training").glob("checkpoint.*"))
            return command(*train, *(["--resume"] if begun else []))()

        return command(*train), 1_500_000, resume
    before, after = (random_predictor(dh.make_family(1200, seed=1), seed) for seed in (0, 1))
    before.save(disk / "model", shard_mb=0.1)
    save = functools.partial(_save_often, after, disk / "model")
    return save, 420_000, save


def _save_often(predictor: dh.Predictor, folder: Path) -> None:
    for _ in range(60):
        predictor.save(folder, overwrite=True, shard_mb=0.1)


def _losses(ending: Ending, disk: Path) -> list[str]:
    """Losses without enough space: an unclear error, or a stored model that no longer loads."""
    losses = []
    if ending.how not in ("done", "refused") or (ending.how == "refused" and not _names_a_place(ending.value, disk)):
        losses.append(f"it ended {ending}")
    for model in disk.glob("*/model.json"):
        found = run_child(functools.partial(digest, model.parent))
        if found.how != "done":
            losses.append(f"a stored model no longer loads: {found}")
    return losses


def _names_a_place(sentence: str, disk: Path) -> bool:
    return is_clear(sentence) and str(disk) in sentence


def _finish(ending: Ending, retry: Callable[[], Any], losses: list[str]) -> Found:
    after = run_child(retry)
    if after.how != "done":
        losses.append(f"with enough space it failed: {after}")
    return {"hit": ending.how != "done", "losses": losses}


# --- mounts -----------------------------------------------------------------------------------------------


def _small_disk(place: Path) -> Path:
    """A tmpfs that is visible only to this process and its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    place.mkdir(exist_ok=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(NEW_MOUNTS if user == 0 else NEW_MOUNTS | NEW_USER):
        raise OSError(ctypes.get_errno(), f"cannot create a mount namespace: {os.strerror(ctypes.get_errno())}")
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    libc.mount(None, b"/", None, RECURSIVE | PRIVATE, None)
    if libc.mount(b"soak", bytes(place), b"tmpfs", 0, f"size={DISK_MIB}m".encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount a tmpfs: {os.strerror(ctypes.get_errno())}")
    return place


def _mount(place: Path, flags: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(None, bytes(place), None, flags, f"size={DISK_MIB}m".encode()) == 0:
        return True
    if ctypes.get_errno() != errno.EBUSY:
        raise OSError(ctypes.get_errno(), f"cannot remount {place}: {os.strerror(ctypes.get_errno())}")
    return False
