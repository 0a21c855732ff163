"""The state of a run on disk: one safetensors file that is replaced as a whole, and the best model so far."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.files import atomic_path, make_folder, read_tensors, write_tensors

VERSION = 1


@dataclass
class Progress:
    """How far a run is; with the tensors, all that a resume needs."""

    epoch: int = 0  # the epoch that is next, or under way
    step: int = 0  # steps done of that epoch
    loss_sum: float = 0.0  # of those steps
    best_mrr: float = float("-inf")
    best_epoch: int = -1
    validations_since_best: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)


class RunFolder:
    """The `training` folder of an output folder: checkpoint, best model so far, log."""

    def __init__(self, out: Path) -> None:
        self.folder = out / "training"
        self.checkpoint = self.folder / "checkpoint.safetensors"
        self.log = self.folder / "log.jsonl"

    def create(self) -> None:
        make_folder(self.folder)

    def write_log(self, history: list[dict[str, Any]]) -> None:
        """The whole log anew: after a resume it holds what the checkpoint knows, no more."""
        with atomic_path(self.log) as partial:
            partial.write_text("".join(json.dumps(row) + "\n" for row in history), encoding="utf-8")

    def append_log(self, row: dict[str, Any]) -> None:
        with self.log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")

    def clear(self) -> None:
        """Forget an earlier run."""
        self.drop_checkpoint()
        self.log.unlink(missing_ok=True)

    def drop_checkpoint(self) -> None:
        """What a finished run no longer needs."""
        for path in (self.checkpoint, *self.folder.glob("best-*.safetensors"), *self.folder.glob(".*")):
            path.unlink(missing_ok=True)  # names that begin with a dot were being written when a run was killed

    def save(self, progress: Progress, tensors: dict[str, Tensor], identity: dict[str, Any]) -> None:
        """Replace the checkpoint, then drop best models that it no longer names."""
        content = {"version": VERSION, "progress": progress.__dict__, "identity": identity}
        write_tensors(self.checkpoint, tensors, content)
        for path in self.folder.glob("best-*.safetensors"):
            if path != self.best(progress.best_epoch):
                path.unlink()

    def load(self, identity: dict[str, Any]) -> tuple[Progress, dict[str, Tensor]]:
        """The last checkpoint; refuses one that belongs to other data, another recipe or seed."""
        if not self.checkpoint.exists():
            raise DihedralError(f"{str(self.folder)!r} holds no checkpoint to resume; start without --resume")
        tensors, content = read_tensors(self.checkpoint)
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise DihedralError(
                f"checkpoint {str(self.checkpoint)!r} is not of version {VERSION}, which this library reads"
            )
        for key, value in identity.items():
            if content["identity"].get(key) != value:
                raise DihedralError(
                    f"checkpoint {str(self.checkpoint)!r} was made with another {key}; "
                    "resume with the same data, recipe and seed, or start anew with --overwrite"
                )
        return Progress(**content["progress"]), tensors

    def best(self, epoch: int) -> Path:
        return self.folder / f"best-{epoch:06d}.safetensors"

    def save_best(self, epoch: int, tensors: dict[str, Tensor]) -> None:
        if not self.best(epoch).exists():
            write_tensors(self.best(epoch), tensors)

    def load_best(self, epoch: int) -> dict[str, Tensor]:
        return read_tensors(self.best(epoch))[0]
