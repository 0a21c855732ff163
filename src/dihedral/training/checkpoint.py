"""The state of a run on disk, whatever the number of processes: torch.distributed.checkpoint in safetensors files.

`checkpoint.json` names the folder of the tensors and is written last and in one piece, so a run that is killed while
it saves still has its last checkpoint. Nothing is pickled.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.io.files import make_folder, read_json, write_json
from dihedral.io.jsonl import append_line, write_lines
from dihedral.io.locks import lock_folder
from dihedral.runtime.distributed import is_joined, launch, on_rank_zero

VERSION = 2


@dataclass
class RunState:
    """How far a run is; with the tensors, all that a resume needs."""

    epoch: int = 0  # the epoch that is next, or under way
    step: int = 0  # steps done of that epoch
    loss_sum: float = 0.0  # of those steps
    best_mrr: float = float("-inf")
    best_epoch: int = -1
    validations_since_best: int = 0
    seconds: float = 0.0
    device: str = "cpu"  # whose random numbers a step within an epoch goes on with
    history: list[dict[str, Any]] = field(default_factory=list)


class RunFolder:
    """The `training` folder of an output folder: checkpoint, best model so far, log."""

    def __init__(self, out: Path, device: torch.device | str = "cpu") -> None:
        self.folder = out / "training"
        self.checkpoint = self.folder / "checkpoint.json"
        self.log = self.folder / "log.jsonl"
        self._launch = self.folder / "launch"
        self.device = torch.device(device)  # through which processes agree
        self.state = ""  # the folders that the checkpoint names
        self.best = ""

    def create(self) -> None:
        make_folder(self.folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of the folder until the block or the process ends."""
        self.create()
        taken = (
            f"folder {str(self.folder.parent)!r} is being trained into by another process; "
            "wait until it finishes or choose another folder"
        )
        with lock_folder(self.folder, taken):
            yield

    def write_log(self, history: list[dict[str, Any]]) -> None:
        """Rewrite the log: after a resume it holds the epochs up to the checkpoint."""
        write_lines(self.log, history)

    def append_log(self, row: dict[str, Any]) -> None:
        append_line(self.log, row)

    def clear(self) -> None:
        """Forget an earlier run."""
        self.drop_checkpoint()
        self.log.unlink(missing_ok=True)

    def begin(self) -> None:
        """Note which call of torchrun this run is of: if processes of it are started again, they go on."""
        if launch():
            self._launch.write_text(launch(), encoding="utf-8")

    def begun_by_this_launch(self) -> bool:
        return bool(launch()) and self._launch.is_file() and self._launch.read_text(encoding="utf-8") == launch()

    def drop_checkpoint(self) -> None:
        """What a finished run no longer needs."""
        self.checkpoint.unlink(missing_ok=True)
        self._launch.unlink(missing_ok=True)
        self._drop_all_but(())

    def _drop_all_but(self, names: tuple[str, ...]) -> None:
        for pattern in ("state-*", "best-*", ".*"):  # a dot: was being written when a run was killed
            for path in self.folder.glob(pattern):
                if path.is_file():
                    path.unlink(missing_ok=True)
                elif path.name not in names:
                    shutil.rmtree(path, ignore_errors=True)

    # --- tensors: every process writes and reads its own part ------------------------------------

    def save(self, progress: RunState, tensors: dict[str, Tensor], identity: dict[str, Any]) -> None:
        """Write the tensors, replace the checkpoint, then drop the folders that it no longer names."""
        name, best = f"state-{progress.epoch:06d}-{progress.step:06d}", _best(progress.best_epoch)
        if self.state != name:
            self._write(name, tensors)
            self.state = name
        content = {"version": VERSION, "state": name, "progress": progress.__dict__, "identity": identity}
        content["bytes"] = {
            str(file.relative_to(self.folder)): file.stat().st_size
            for folder in (name, best)
            for file in sorted((self.folder / folder).glob("*.safetensors"))
        }

        def replace() -> None:
            write_json(self.checkpoint, content)
            self._drop_all_but((name, best))

        on_rank_zero(replace, self.device)

    def has_best(self, epoch: int) -> bool:
        return self.best == _best(epoch)

    def save_best(self, epoch: int, tensors: dict[str, Tensor]) -> None:
        self._write(_best(epoch), tensors)
        self.best = _best(epoch)

    def load(self, identity: dict[str, Any]) -> RunState:
        """How far the last checkpoint is; refuses one that belongs to other data, another recipe or seed."""
        if not self.checkpoint.exists():
            raise DihedralError(f"{str(self.folder)!r} holds no checkpoint to resume; start without --resume")
        content = read_json(self.checkpoint)
        if content.get("version") != VERSION:
            raise DihedralError(
                f"checkpoint {str(self.checkpoint)!r} is not of version {VERSION}, which this library reads"
            )
        try:
            for key, value in identity.items():
                if content["identity"].get(key) != value:
                    raise DihedralError(
                        f"checkpoint {str(self.checkpoint)!r} was made with another {key}; "
                        "resume with the same data, recipe and seed, or start anew with --overwrite"
                    )
            for name, size in content["bytes"].items():
                check_tensors(self.folder / name, size)
            self.state, self.best = str(content["state"]), _best(content["progress"]["best_epoch"])
            if not (self.folder / self.state).is_dir():
                raise KeyError(self.state)
            return RunState(**{name: content["progress"][name] for name in RunState.__dataclass_fields__})
        except (KeyError, TypeError, AttributeError) as error:
            raise DihedralError(
                f"checkpoint {str(self.checkpoint)!r} is damaged: {error!r}; start anew with --overwrite"
            ) from None

    def fill(self, tensors: dict[str, Tensor]) -> None:
        """Read the checkpoint's tensors into these."""
        self._read(self.state, tensors)

    def fill_best(self, epoch: int, tensors: dict[str, Tensor]) -> None:
        self._read(_best(epoch), tensors)

    def _write(self, name: str, tensors: dict[str, Tensor]) -> None:
        """All processes together write a folder of tensors; it counts once a checkpoint names it."""
        import torch.distributed.checkpoint as dcp  # takes a second

        partial, place = self.folder / f".{name}", self.folder / name

        def clear() -> None:  # what an earlier try, perhaps of more processes, left
            for folder in (partial, place):
                shutil.rmtree(folder, ignore_errors=True)

        on_rank_zero(clear, self.device)
        writer = dcp.HuggingFaceStorageWriter(str(partial), save_distributed=True)  # type: ignore[attr-defined]
        try:
            _checked(lambda: dcp.save(tensors, storage_writer=writer, no_dist=not is_joined()), place, "written")  # type: ignore[attr-defined]
            on_rank_zero(lambda: os.replace(partial, place), self.device)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _read(self, name: str, tensors: dict[str, Tensor]) -> None:
        import torch.distributed.checkpoint as dcp

        place = self.folder / name
        reader = dcp.HuggingFaceStorageReader(str(place))  # type: ignore[attr-defined]
        _checked(lambda: dcp.load(tensors, storage_reader=reader, no_dist=not is_joined()), place, "read")  # type: ignore[attr-defined]


def _best(epoch: int) -> str:
    return f"best-{epoch:06d}"


def check_tensors(path: Path, size: int) -> None:
    """A safetensors file of this size with a header that can be read."""
    try:
        if path.stat().st_size != size:
            raise DihedralError(
                f"{str(path)!r} has {path.stat().st_size} bytes, expected {size}; it is damaged, "
                "start anew with --overwrite"
            )
        with safe_open(path, framework="pt"):
            pass
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DihedralError(f"{str(path)!r} cannot be read: {reason}; start anew with --overwrite") from None


def _checked(work: Callable[[], Any], path: Path, done: str) -> None:
    """torch's own saving and loading, its failures in one sentence."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # one process is what we mean
            work()
    except CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        for cause in causes:
            if isinstance(cause, KeyboardInterrupt):
                raise cause from None
        reason = next((cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror), None)
        text = reason or (str(causes[0]) or repr(causes[0])).splitlines()[0]
        after = "nothing stored before was changed" if done == "written" else "start anew with --overwrite"
        raise DihedralError(f"{str(path)!r} cannot be {done}: {text}; {after}") from None
