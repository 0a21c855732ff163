"""The state of a run on disk: safetensors files, then `checkpoint.json`, so that a killed save leaves the previous one.

Rank zero writes tables of entities in the order of their ids, so that any number of processes can resume.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.io import files
from dihedral.objectives.recipe import Recipe
from dihedral.runtime.distributed import Shard, launch, on_rank_zero

VERSION = 3
RESTART = "start over with --overwrite"
MAY_CHANGE_ON_RESUME = ("precision", "epochs", "validate_every", "patience")

Identity = dict[str, Any]


def run_identity(recipe: Recipe | Mapping[str, Any], seed: int, data: str) -> Identity:
    """What determines a run: settings, seed and the graph's fingerprint."""
    recipe = recipe if isinstance(recipe, Recipe) else Recipe.from_dict(recipe)
    settings = {key: value for key, value in recipe.to_dict().items() if key not in ("name", "about")}
    return {"recipe": settings, "seed": seed, "data": data}


def find_difference(found: Identity, wanted: Identity, ignore: Collection[str] = ()) -> str | None:
    """The first part of `wanted` that differs in `found`, such as "recipe (K)", without settings to `ignore`."""
    for part, value in wanted.items():
        if part == "recipe":
            for key in value:
                if key not in ignore and found[part].get(key) != value[key]:
                    return f"recipe ({key})"
        elif found.get(part) != value:
            return part
    return None


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
    limited_from: float = 0.0  # seconds after which the limit on the time counts: where it stopped the run before
    device: str = "cpu"  # a run that stopped within an epoch needs the same random numbers
    history: list[dict[str, Any]] = field(default_factory=list)


class RunFolder:
    """The `training` folder of an output folder: the checkpoint, the best model so far and the log."""

    def __init__(self, out: Path, device: torch.device | str = "cpu") -> None:
        self.folder = files.path_within(out, "training")
        self.checkpoint = self.folder / "checkpoint.json"
        self.log = self.folder / "log.jsonl"
        self._launch = self.folder / "launch"
        self.device = torch.device(device)  # that ranks communicate with
        self.best_epoch = -1  # of the best parameters that are stored

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of the folder until the block or the process ends."""
        files.make_folder(self.folder)
        taken = (
            f"folder {str(self.folder.parent)!r} is in use by another training run or update; "
            "wait until it finishes or choose another folder"
        )
        with files.lock_folder(self.folder, taken, follow=False):
            yield

    def begin(self) -> None:
        """Record the torchrun launch of this run, so that processes that it restarts resume the run."""
        if launch():
            files.write_text(self._launch, launch())

    def begun_by_this_launch(self) -> bool:
        with suppress(OSError), open(self._launch, encoding="utf-8", errors="replace", opener=files.open_file) as file:
            return file.read(1000) == launch() != ""
        return False

    def drop_checkpoint(self) -> None:
        """Delete what a finished run no longer needs, and a new one must not resume."""
        self.checkpoint.unlink(missing_ok=True)
        self._launch.unlink(missing_ok=True)
        self._drop_all_but(())

    def _drop_all_but(self, kept: Collection[Path]) -> None:
        others = "".join(rf"(?!{re.escape(path.name)}\Z)" for path in kept)
        files.remove_files(self.folder, re.compile(rf"{others}(state-\d{{6,}}-\d{{6,}}|best-\d{{6,}})\.safetensors"))
        files.remove_partial_files(self.folder)

    def save(
        self,
        state: RunState,
        tensors: dict[str, Tensor],
        best: dict[str, Tensor] | None,
        identity: Identity,
        shard: Shard,
    ) -> None:
        """Write tensors and the best parameters, replace the checkpoint, and delete what it no longer refers to."""
        paths = self._state(state), self._best(state)
        self._write(paths[0], tensors, shard)
        if best is not None and self.best_epoch != state.best_epoch:
            self._write(paths[1], best, shard)
            self.best_epoch = state.best_epoch

        def replace() -> None:
            files.write_json(self.checkpoint, {"version": VERSION, "progress": asdict(state), "identity": identity})
            self._drop_all_but(paths)

        on_rank_zero(replace, self.device)

    def load(self, identity: Identity) -> RunState:
        """The state of the last checkpoint; refuses one of other data, another recipe or another seed."""
        if not self.checkpoint.exists():
            raise DihedralError(f"{str(self.folder)!r} holds no checkpoint to resume; start without --resume")
        content = files.read_json(self.checkpoint)
        if content.get("version") != VERSION:
            raise DihedralError(
                f"checkpoint {str(self.checkpoint)!r} is not of version {VERSION}, which this library reads; {RESTART}"
            )
        try:
            if part := find_difference(content["identity"], identity, ignore=MAY_CHANGE_ON_RESUME):
                part = {"data": "graph"}.get(part, part)
                raise DihedralError(
                    f"checkpoint {str(self.checkpoint)!r} was made with another {part}; "
                    f"resume with the same graph, recipe and seed, or {RESTART}"
                )
            return _progress(content["progress"])
        except (KeyError, TypeError, AttributeError) as error:
            raise DihedralError(f"checkpoint {str(self.checkpoint)!r} is damaged: {error!r}; {RESTART}") from None

    def fill(self, state: RunState, tensors: dict[str, Tensor], best: dict[str, Tensor] | None, shard: Shard) -> None:
        """Restore the tensors of a checkpoint, and the best parameters if there are any."""
        self._read(self._state(state), tensors, shard)
        if best is not None:
            self._read(self._best(state), best, shard)
            self.best_epoch = state.best_epoch

    def _write(self, path: Path, tensors: dict[str, Tensor], shard: Shard) -> None:
        whole = {name: shard.gather(each) if _is_table(name) else each for name, each in tensors.items()}
        kept = {name: each for name, each in whole.items() if each is not None}  # rank zero has the tables
        on_rank_zero(lambda: files.write_tensors(path, kept), self.device)

    def _read(self, path: Path, tensors: dict[str, Tensor], shard: Shard) -> None:
        try:
            stored = files.read_tensors(path)
        except DihedralError as error:
            raise DihedralError(f"{error}; {RESTART}") from None
        for name, tensor in tensors.items():
            shape = (shard.num_rows, *tensor.shape[1:]) if _is_table(name) else tuple(tensor.shape)
            found = stored.get(name)
            if found is None or found.shape != shape or found.dtype != tensor.dtype:
                raise DihedralError(f"{str(path)!r} is damaged: it has no {name} of shape {list(shape)}; {RESTART}")
            tensor.copy_(found[shard.ids()] if _is_table(name) and not shard.is_single else found)

    def _state(self, state: RunState) -> Path:
        return files.path_within(self.folder, f"state-{state.epoch:06d}-{state.step:06d}.safetensors")

    def _best(self, state: RunState) -> Path:
        return files.path_within(self.folder, f"best-{state.best_epoch:06d}.safetensors")


def _is_table(name: str) -> bool:
    """Whether a tensor has one row per entity, of which each process holds a part."""
    return name.endswith("entities")


def _progress(content: Any) -> RunState:
    """The stored progress; a TypeError that names the first value that a run cannot have."""
    state = files.read_record(RunState, content)
    if missing := RunState.__dataclass_fields__.keys() - content.keys():
        raise TypeError(f"it has no {min(missing)}")
    for name, least in (("epoch", 0), ("step", 0), ("validations_since_best", 0), ("best_epoch", -1)):
        if not least <= getattr(state, name) < 10**9:
            raise TypeError(f"{name} is {getattr(state, name)!r:.80}")
    if state.best_epoch > state.epoch:
        raise TypeError("its history is not one of epochs")
    return state
