"""The state of a run on disk, for any number of processes: torch.distributed.checkpoint in safetensors files.

`checkpoint.json` names the folder of the tensors and is written last and atomically, so a run that is killed while it
saves still has its previous checkpoint. Nothing is pickled.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.io.files import (
    atomic_path,
    check_header,
    make_folder,
    path_within,
    read_json,
    remove_partial_files,
    remove_tree,
    sync_folder,
    write_json,
)
from dihedral.io.locks import lock_folder
from dihedral.io.records import read_record
from dihedral.learn.identity import MAY_CHANGE_ON_RESUME, Identity, find_difference
from dihedral.runtime.distributed import is_joined, launch, on_rank_zero

VERSION = 2
UPDATE = "update"  # folder of an update that is not finished, beside that of a training run


@dataclass
class RunState:
    """How far a run has come; together with the tensors, all that a resume needs."""

    epoch: int = 0  # completed epochs
    step: int = 0  # completed steps of the current epoch
    loss_sum: float = 0.0  # over those steps
    best_mrr: float = float("-inf")
    best_epoch: int = -1
    validations_since_best: int = 0
    seconds: float = 0.0
    device: str = "cpu"  # a run that stopped within an epoch needs the same random numbers
    history: list[dict[str, Any]] = field(default_factory=list)


class RunFolder:
    """The `training` folder of an output folder: the checkpoint, the best model so far and the log."""

    def __init__(self, out: Path, device: torch.device | str = "cpu") -> None:
        self.folder = path_within(out, "training")
        self.checkpoint = self.folder / "checkpoint.json"
        self.log = self.folder / "log.jsonl"
        self._launch = self.folder / "launch"
        self.device = torch.device(device)  # that ranks communicate with
        self.restart = "start over with --overwrite"  # what error messages advise
        self.state = ""  # the folders that the checkpoint names
        self.best = ""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of the folder until the block or the process ends."""
        make_folder(self.folder)
        taken = (
            f"folder {str(self.folder.parent)!r} is in use by another training run or update; "
            "wait until it finishes or choose another folder"
        )
        with lock_folder(self.folder, taken, follow=False):
            yield

    def clear(self) -> None:
        """Delete what an earlier run left."""
        self.drop_checkpoint()
        self.log.unlink(missing_ok=True)
        remove_tree(self.folder.parent / UPDATE)

    def begin(self) -> None:
        """Record the torchrun launch of this run, so that processes that it restarts resume the run."""
        if launch():
            with atomic_path(self._launch) as partial:
                partial.write_text(launch(), encoding="utf-8")

    def begun_by_this_launch(self) -> bool:
        return bool(launch()) and self._launch.is_file() and self._launch.read_text(encoding="utf-8") == launch()

    def drop_checkpoint(self) -> None:
        """Delete what a finished run no longer needs."""
        self.checkpoint.unlink(missing_ok=True)
        self._launch.unlink(missing_ok=True)
        self._drop_all_but(())

    def _drop_all_but(self, names: tuple[str, ...]) -> None:
        for pattern in ("state-*", "best-*", ".state-*", ".best-*"):  # a dot: a run was killed while writing
            for path in self.folder.glob(pattern):
                if path.name not in names:
                    remove_tree(path)
        remove_partial_files(self.folder)

    # --- tensors: every rank writes and reads its own part ---------------------------------------

    def save(self, state: RunState, tensors: dict[str, Tensor], identity: Identity) -> None:
        """Write the tensors, replace the checkpoint, then delete the folders that it no longer names."""
        name, best = state_name(state), _best(state.best_epoch)
        if self.state != name:
            self._write(name, tensors)
            self.state = name
        content = {"version": VERSION, "state": name, "progress": asdict(state), "identity": identity}
        files = [file for folder in (name, best) for file in sorted((self.folder / folder).glob("*.safetensors"))]
        content["bytes"] = {str(file.relative_to(self.folder)): file.stat().st_size for file in files}

        def replace() -> None:
            write_json(self.checkpoint, content)
            self._drop_all_but((name, best))

        on_rank_zero(replace, self.device)

    def has_best(self, epoch: int) -> bool:
        return self.best == _best(epoch)

    def save_best(self, epoch: int, tensors: dict[str, Tensor]) -> None:
        self._write(_best(epoch), tensors)
        self.best = _best(epoch)

    def load(self, identity: Identity) -> RunState:
        """The state of the last checkpoint; refuses one of other data, another recipe or another seed."""
        if not self.checkpoint.exists():
            raise DihedralError(f"{str(self.folder)!r} holds no checkpoint to resume; start without --resume")
        content = read_json(self.checkpoint)
        if content.get("version") != VERSION:
            raise DihedralError(
                f"checkpoint {str(self.checkpoint)!r} is not of version {VERSION}, which this library reads; "
                f"{self.restart}"
            )
        try:
            if part := find_difference(content["identity"], identity, ignore=MAY_CHANGE_ON_RESUME):
                if part == "start":
                    raise DihedralError(
                        f"checkpoint {str(self.checkpoint)!r} is of another update; repeat the same command, "
                        f"or {self.restart}"
                    )
                raise DihedralError(
                    f"checkpoint {str(self.checkpoint)!r} was made with another {'graph' if part == 'data' else part}; "
                    f"resume with the same graph, recipe and seed, or {self.restart}"
                )
            state = _progress(content["progress"])
            self.state, self.best = state_name(state), _best(state.best_epoch)
            if content["state"] != self.state or not path_within(self.folder, self.state).is_dir():
                raise KeyError(str(content["state"])[:80])
            for name, size in content["bytes"].items():
                if Path(name).parent not in (Path(self.state), Path(self.best)):
                    raise KeyError(name[:80])
                check_tensors(path_within(self.folder, *Path(name).parts), size, self.restart)
            return state
        except (KeyError, TypeError, AttributeError) as error:
            raise DihedralError(f"checkpoint {str(self.checkpoint)!r} is damaged: {error!r}; {self.restart}") from None

    def _write(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Write a folder of tensors, all ranks together; it is valid once a checkpoint names it."""
        import torch.distributed.checkpoint as dcp  # a slow import

        partial, place = self.folder / f".{name}", self.folder / name

        def clear() -> None:  # an earlier attempt, perhaps of more processes, may have left files
            for folder in (partial, place):
                remove_tree(folder)

        on_rank_zero(clear, self.device)
        writer = dcp.HuggingFaceStorageWriter(str(partial), save_distributed=True)  # type: ignore[attr-defined]
        try:
            _checked(lambda: dcp.save(tensors, storage_writer=writer, no_dist=not is_joined()), place, "written")  # type: ignore[attr-defined]
            on_rank_zero(lambda: _rename(partial, place), self.device)
        finally:
            remove_tree(partial)

    def fill(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Read the tensors of a folder, `state` or `best`, into the given ones."""
        import torch.distributed.checkpoint as dcp

        place = self.folder / name
        reader = dcp.HuggingFaceStorageReader(str(place))  # type: ignore[attr-defined]
        _checked(lambda: dcp.load(tensors, storage_reader=reader, no_dist=not is_joined()), place, "read", self.restart)  # type: ignore[attr-defined]


def state_name(state: RunState) -> str:
    return f"state-{state.epoch:06d}-{state.step:06d}"


def _progress(content: Any) -> RunState:
    """The stored progress; a TypeError that names the first value that a run cannot have."""
    state = read_record(RunState, content)
    if missing := RunState.__dataclass_fields__.keys() - content.keys():
        raise TypeError(f"it has no {min(missing)}")
    for name, least in (("epoch", 0), ("step", 0), ("validations_since_best", 0), ("best_epoch", -1)):
        if not least <= getattr(state, name) < 10**9:
            raise TypeError(f"{name} is {getattr(state, name)!r:.80}")
    if state.best_epoch > state.epoch:
        raise TypeError("its history is not one of epochs")
    return state


def _rename(partial: Path, place: Path) -> None:
    os.replace(partial, place)
    sync_folder(place.parent)


def _best(epoch: int) -> str:
    return f"best-{epoch:06d}"


def check_tensors(path: Path, size: int, restart: str) -> None:
    """Refuse a safetensors file of another size or with a damaged header."""
    try:
        if path.stat().st_size != size:
            raise DihedralError(
                f"{str(path)!r} has {path.stat().st_size} bytes, expected {size}; it is damaged, {restart}"
            )
        check_header(path)
        with safe_open(path, framework="pt"):
            pass
    except (OSError, SafetensorError, ValueError) as error:
        if isinstance(error, DihedralError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise DihedralError(f"{str(path)!r} cannot be read: {reason}; {restart}") from None


def _checked(work: Callable[[], Any], path: Path, done: str, restart: str = "") -> None:
    """Run torch's saving or loading, and report a failure in one sentence."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # intended
            work()
    except CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        for cause in causes:
            if isinstance(cause, KeyboardInterrupt):
                raise cause from None
        reason = next((cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror), None)
        text = reason or (str(causes[0]) or repr(causes[0])).splitlines()[0]
        after = "earlier files are unchanged" if done == "written" else restart
        raise DihedralError(f"{str(path)!r} cannot be {done}: {text}; {after}") from None
