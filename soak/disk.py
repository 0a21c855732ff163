"""A disk that fills up and a folder that turns read-only in mid-save.

The disk is a small tmpfs in a mount namespace of a child's own, so nothing of it is seen outside; that needs root or
a kernel that lets users make namespaces. Without either, a limit on the size of files (RLIMIT_FSIZE) stands in for it.
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
from dihedral.storage.folder import holds_model
from soak.children import Child, Ending, ask, command, is_clear
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
    """So many full disks and so many read-only folders."""
    write_folder(small_graph(), folder / "data")
    possible = ask(lambda: str(_small_disk(folder / "disk")))
    scenarios = [("a full disk", fill_up), ("a read-only folder", turn_read_only)]
    if possible.how != "done":
        tally.skipped.append(f"a small disk and a folder that turns read-only: {possible.value.splitlines()[-1]}")
        scenarios = [("a limit on the size of files", limit_files)]
    for number in range(amount):
        for kind, scenario in scenarios:
            ending = ask(functools.partial(scenario, folder, number, seed), seconds=120)
            if not tally.check(ending.how == "done", f"{kind}, number {number}: {ending}"):
                continue
            tally.count(f"{kind} in mid-save", ending.value["hit"])
            tally.count(f"{kind} that came too late", not ending.value["hit"])
            for loss in ending.value["losses"]:
                tally.losses.append(f"{kind}, number {number}: {loss}")
        tally.advance()


Found = dict[str, Any]


def fill_up(folder: Path, number: int, seed: int) -> Found:
    """Save, train or tune with too little room; then with room again."""
    disk = _small_disk(folder / "disk")
    chance = random.Random(f"{seed}-full-{number}")
    work, expected, go_on = _work(folder, disk, number)
    ballast = disk / "ballast"
    room = chance.randrange(0, expected)
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast.write_bytes(bytes(max(0, free - room)))
    ending = ask(work)
    losses = _losses(ending, disk)
    ballast.unlink()
    return _go_on(ending, go_on, losses)


def turn_read_only(folder: Path, number: int, seed: int) -> Found:
    """The same on a disk that is mounted anew as read-only at a random moment, between two writes."""
    disk = _small_disk(folder / "disk")
    chance = random.Random(f"{seed}-read-only-{number}")
    work, _, go_on = _work(folder, disk, number)
    child = Child(work)
    time.sleep(chance.uniform(0.05, 0.3))
    deadline = time.monotonic() + 10
    while not _mount(disk, REMOUNT | READ_ONLY) and time.monotonic() < deadline:
        pass  # busy while a file is open for writing
    ending = child.wait()
    losses = _losses(ending, disk)
    _mount(disk, REMOUNT)
    return _go_on(ending, go_on, losses)


def limit_files(folder: Path, number: int, seed: int) -> Found:
    """Without a disk of our own: files that may not grow beyond a few KiB."""
    place = Path(tempfile.mkdtemp(dir=folder))
    work, expected, go_on = _work(folder, place, number)
    limit = random.Random(f"{seed}-limit-{number}").randrange(0, expected // 4)

    def limited() -> Any:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write then fails as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return work()

    ending = ask(limited)
    return _go_on(ending, go_on, _losses(ending, place))


def _work(folder: Path, disk: Path, number: int) -> tuple[Callable[[], Any], int, Callable[[], Any]]:
    """What is done on the disk, the bytes it needs at most, and what must work when there is room again."""
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
    """What must hold while there is no room: one clear sentence, and every stored model still loads."""
    losses = []
    if ending.how not in ("done", "refused") or (ending.how == "refused" and not _names_a_place(ending.value, disk)):
        losses.append(f"it ended {ending}")
    for model in disk.glob("*/model.json"):
        found = ask(functools.partial(digest, model.parent))
        if found.how != "done":
            losses.append(f"what was stored before no longer loads: {found}")
    return losses


def _names_a_place(sentence: str, disk: Path) -> bool:
    return is_clear(sentence) and str(disk) in sentence


def _go_on(ending: Ending, go_on: Callable[[], Any], losses: list[str]) -> Found:
    after = ask(go_on)
    if after.how != "done":
        losses.append(f"with room again it did not go on: {after}")
    return {"hit": ending.how != "done", "losses": losses}


# --- mounts -----------------------------------------------------------------------------------------------


def _small_disk(place: Path) -> Path:
    """A tmpfs that only this process and its children see."""
    libc = ctypes.CDLL(None, use_errno=True)
    place.mkdir(exist_ok=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(NEW_MOUNTS if user == 0 else NEW_MOUNTS | NEW_USER):
        raise OSError(ctypes.get_errno(), f"no mount namespace of one's own: {os.strerror(ctypes.get_errno())}")
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    libc.mount(None, b"/", None, RECURSIVE | PRIVATE, None)
    if libc.mount(b"soak", bytes(place), b"tmpfs", 0, f"size={DISK_MIB}m".encode()):
        raise OSError(ctypes.get_errno(), f"no tmpfs can be mounted: {os.strerror(ctypes.get_errno())}")
    return place


def _mount(place: Path, flags: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(None, bytes(place), None, flags, f"size={DISK_MIB}m".encode()) == 0:
        return True
    if ctypes.get_errno() != errno.EBUSY:
        raise OSError(ctypes.get_errno(), f"{place} cannot be mounted anew: {os.strerror(ctypes.get_errno())}")
    return False
