"""A model on disk: safetensors, Arrow and JSON files, and the manifest `model.json`, which is written last."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

import torch
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph.triples import Graph
from dihedral.graph.vocabulary import Vocabulary
from dihedral.io import files
from dihedral.models import STORED_MODELS, BlockRelations, Model, restore_relations
from dihedral.models.path_model import PathModel
from dihedral.objectives.recipe import Recipe
from dihedral.probability.calibration import Calibration
from dihedral.scoring.path_scorer import PathScorer
from dihedral.store.card import check_metrics, write_card
from dihedral.store.graph_files import load_graph, write_graph, write_labels
from dihedral.store.manifest import Manifest, holds_model, read_current, read_manifest, write_manifest
from dihedral.store.trained import NOT_CALIBRATED, History, TrainedModel

Dtype = Literal["float32", "float16"]
_SHARD, _MARK = r"-\d{5}-of-\d{5}", r"\.save-[0-9a-f]{8}"
_OWN = re.compile(rf"[a-z]+({_SHARD}|({_SHARD})?(\.labels)?{_MARK})\.(safetensors|arrow|json)")  # nobody else's names
_DTYPES = {"float32": torch.float32, "float16": torch.float16}


def check_options(dtype: str, shard_mb: float | None) -> None:
    if dtype not in _DTYPES:
        raise DihedralError(f"dtype is {dtype!r}; entities are stored as float32 or float16")
    if shard_mb is not None and shard_mb <= 0:
        raise DihedralError(f"shard_mb is {shard_mb}; a shard needs more than 0 MiB")


def save_model(
    folder: Path,
    trained: TrainedModel,
    *,
    dtype: Dtype = "float32",
    shard_mb: float | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model folder with its card; replacing a model needs `overwrite`."""
    check_options(dtype, shard_mb)
    if holds_model(folder) and not overwrite:
        raise DihedralError(f"folder {str(folder)!r} already holds a model; choose another or pass --overwrite")
    _check_values(trained, dtype)
    files.make_folder(folder)
    taken = f"folder {str(folder)!r} is being written by another process; wait for it or choose another folder"
    with files.lock_folder(folder, taken):
        files.remove_partial_files(folder)
        before = read_manifest(folder) if holds_model(folder) else None
        with _new_files(folder, before) as new:
            _finish(folder, _write_files(new, trained, dtype, shard_mb), before, trained)


def _check_values(stored: TrainedModel, dtype: Dtype) -> None:
    """Raise an error unless all values are numbers that the type of the file can hold."""
    limit = torch.finfo(_DTYPES[dtype]).max
    for name, tensor in (_tables(stored) | stored.relations.stored()).items():
        largest = float(torch.linalg.vector_norm(tensor, math.inf)) if tensor.is_floating_point() else 0.0
        if not math.isfinite(largest):
            raise DihedralError(f"{name} of the model hold NaN or infinity, so training diverged; it is not saved")
        if name == "entities" and largest > limit:
            found = f"{name} of the model hold {largest:.4g}, and {dtype} ends at {limit:.4g}"
            raise DihedralError(f"{found}; save it as float32")


def _write_files(new: _NewFiles, stored: TrainedModel, dtype: Dtype, shard_mb: float | None) -> Manifest:
    relations, graph, tables = stored.relations, stored.graph, _tables(stored)
    settings = relations.settings()
    if isinstance(stored.scorer, PathScorer):
        files.write_tensors(new.file("paths.safetensors", "paths"), tables)
        settings = settings | {"steps": stored.scorer.model.num_steps}
    else:
        for name, rows in _shards(tables["entities"].to("cpu", _DTYPES[dtype]), shard_mb):
            files.write_tensors(new.shard(name), {"entities": rows})
    files.write_tensors(new.file("relations.safetensors", "relations"), relations.stored())
    write_graph(graph, new.file)
    files.write_json(new.file("recipe.json", "recipe"), stored.recipe.to_dict() if stored.recipe else {})
    for role, content in _measured(stored).items():
        files.write_json(new.file(f"{role}.json", role), content)
    return Manifest(
        model=relations.kind, settings=settings, entities=graph.num_entities,
        relations=graph.num_relations, dimension=relations.dimension, dtype=dtype, graph=graph.name,
        fingerprint=graph.fingerprint, notes=list(graph.notes), prefixes=graph.entities.prefixes,
        shards=new.shards, files=new.files, bytes={},
    )  # fmt: skip


def _tables(stored: TrainedModel) -> dict[str, Tensor]:
    """The tensors of a model besides those of its relations: entity vectors, or the weights of a path model."""
    if isinstance(stored.scorer, PathScorer):
        return stored.scorer.model.stored()
    return {"entities": stored.model.entities.detach()}


class _NewFiles:
    """The files of a save, under names that no save has used, so that a load reads the files of one model only."""

    def __init__(self, folder: Path, before: Manifest | None) -> None:
        self.folder, self.mark = folder, "" if before is None else f".save-{token_hex(4)}"
        self.shards: list[str] = []
        self.files: dict[str, str] = {}

    def shard(self, name: str) -> Path:
        self.shards.append(self._free(name))
        return self.folder / self.shards[-1]

    def file(self, name: str, role: str) -> Path:
        self.files[role] = self._free(name)
        return self.folder / self.files[role]

    def _free(self, name: str) -> str:
        return f"{Path(name).stem}{self.mark}{Path(name).suffix}"


@contextmanager
def _new_files(folder: Path, before: Manifest | None) -> Iterator[_NewFiles]:
    """The files of a save, which are deleted if it fails before the manifest names them."""
    for path in _leftovers(folder, before):
        path.unlink()
    new = _NewFiles(folder, before)
    try:
        yield new
    except BaseException:
        used = read_manifest(folder).names if holds_model(folder) else set()
        for name in {*new.shards, *new.files.values()} - used:
            with suppress(OSError):
                (folder / name).unlink()
        raise


def _measured(stored: TrainedModel) -> dict[str, Any]:
    """The content of the files of what was measured, by role."""
    content: dict[str, Any] = {"metrics": stored.metrics, "calibration": {"reason": stored.why_not_calibrated}}
    if stored.calibration is not None:
        content["calibration"] = stored.calibration.to_dict()
    return content | ({"history": stored.history.to_dict()} if stored.history.versions else {})


def relabel_model(folder: Path, source: Any, language: str | Sequence[str]) -> Graph:
    """Store other labels in a model folder; nothing else of the model changes. Returns its graph with the labels."""
    with _changing(folder) as (manifest, new):
        _check_files(folder, manifest)
        graph = load_graph(folder, manifest).with_labels(source, language=language)
        write_labels(graph, new.file)
    return graph


def replace_metrics(folder: Path, trained: TrainedModel, since: Manifest) -> None:
    """Store other metrics; an error if the folder no longer holds the model with the manifest `since`."""
    with _changing(folder) as (manifest, new):
        if manifest != since:
            raise DihedralError(
                f"the model in folder {str(folder)!r} was replaced in the meantime; run the command again"
            )
        for role, content in _measured(trained).items():
            files.write_json(new.file(f"{role}.json", role), content)


@contextmanager
def _changing(folder: Path) -> Iterator[tuple[Manifest, _NewFiles]]:
    """The manifest of a model, and the new files, which replace those of their roles at the end."""
    read_manifest(folder)  # a folder without a model is left alone
    taken = f"folder {str(folder)!r} is being written by another process; wait for it"
    with files.lock_folder(folder, taken):
        files.remove_partial_files(folder)
        before = read_manifest(folder)
        with _new_files(folder, before) as new:
            yield before, new
            _finish(folder, replace(before, files=before.files | new.files), before)


def _leftovers(folder: Path, manifest: Manifest | None) -> list[Path]:
    """The files that saves which were killed have left: their own ones, or those of the model that they replaced."""
    used, replaced = (set(), {}) if manifest is None else (manifest.names, manifest.replaced)
    others = [path for path in folder.iterdir() if path.name not in used]  # also files of the user
    return [path for path in others if _OWN.fullmatch(path.name) or replaced.get(path.name) == path.lstat().st_size]


def _finish(folder: Path, manifest: Manifest, before: Manifest | None, trained: TrainedModel | None = None) -> None:
    """Write the manifest, which makes the new files the model's, and the card, and remove what it no longer has."""
    sizes = {name: (folder / name).stat().st_size for name in sorted(manifest.names)}
    replaced = {} if before is None else {name: before.bytes[name] for name in sorted(before.names - manifest.names)}
    write_manifest(folder, replace(manifest, bytes=sizes, replaced=replaced))
    if trained is not None:
        write_card(folder, trained)
    for name in replaced:
        with suppress(OSError):  # the new model is complete; an old file that stays does no harm
            (folder / name).unlink()


def load_model(folder: Path, *, device: str | torch.device = "cpu") -> TrainedModel:
    """Read a model folder; if another process saves a model there meanwhile, the new one."""
    manifest, trained = read_current(folder, lambda manifest: (manifest, _load(folder, manifest, device)))
    with suppress(DihedralError, OSError):  # a save may be going on
        if _leftovers(folder, manifest):  # they may hold facts that an update has removed
            with files.lock_folder(folder, "a save is not done"):
                if read_manifest(folder) == manifest:
                    write_card(folder, trained)
                    for path in _leftovers(folder, manifest):
                        path.unlink()
    return trained


def _check_files(folder: Path, manifest: Manifest) -> None:
    """Raise an error unless the files of a model are there, as long as they were, and no links."""
    for name, size in manifest.bytes.items():
        path = folder / name
        if path.is_symlink():
            raise DihedralError(f"{str(path)!r} is a symbolic link; the files of a model must be in its folder")
        if not path.is_file():
            raise DihedralError(f"model folder {str(folder)!r} lacks the file {name!r}; copy the folder again")
        if path.stat().st_size != size:
            raise DihedralError(
                f"{str(path)!r} has {path.stat().st_size} bytes, expected {size}; the file is damaged or cut short"
            )


def _load(folder: Path, manifest: Manifest, device: str | torch.device) -> TrainedModel:
    _check_files(folder, manifest)
    try:
        return _assemble(folder, manifest, device)
    except DihedralError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OSError) as error:
        raise DihedralError(f"model folder {str(folder)!r} is damaged: {error!r}") from None


def _assemble(folder: Path, manifest: Manifest, device: str | torch.device) -> TrainedModel:
    roles, kind = manifest.files, manifest.model
    entities = None if "paths" in roles else _load_entities(folder, manifest)
    if kind not in STORED_MODELS:
        raise DihedralError(f"model folder {str(folder)!r} holds a model of kind {kind!r:.80}, unknown to this version")
    tensors = files.read_tensors(folder / roles["relations"])
    if ("codes" in tensors) != STORED_MODELS[kind].is_discrete:
        raise DihedralError(f"relations in {str(folder)!r} do not belong to a model of kind {kind!r}")
    graph = load_graph(folder, manifest)  # checks the number of relations, before memory for so many is allocated
    try:
        relations = restore_relations(kind, tensors, manifest.relations, manifest.dimension, manifest.settings)
    except DihedralError as error:
        raise DihedralError(f"relations in {str(folder)!r} are damaged: {error}") from None
    source: Model | PathScorer
    if entities is not None:
        source = Model(entities, relations).to(device).requires_grad_(False)
    elif not isinstance(relations, BlockRelations):
        raise DihedralError(f"relations in {str(folder)!r} are not 2x2 blocks, which a path model needs")
    else:
        tables, settings = files.read_tensors(folder / roles["paths"]), manifest.settings
        model = PathModel.restored(relations, settings["steps"], tables)
        source = PathScorer(model.requires_grad_(False).to(device), graph.train_index)
    measured = _read_measured(folder, roles)
    calibration, reason = _read_calibration(measured["calibration"], graph.relations)
    return TrainedModel(
        source=source,
        graph=graph,
        recipe=Recipe.from_stored(files.read_json(folder / roles["recipe"])),
        metrics=measured["metrics"],
        calibration=calibration,
        why_not_calibrated=reason,
        history=History.from_dict(measured["history"]),
    )


def _read_measured(folder: Path, roles: dict[str, str]) -> dict[str, Any]:
    """The content of the files of what was measured, by role; in older folders, all of it is among the metrics."""
    metrics = files.read_json(folder / roles["metrics"])
    try:
        check_metrics(metrics)
    except (KeyError, TypeError) as error:
        raise DihedralError(f"metrics in {str(folder)!r} are damaged: {error!r:.80}; copy the folder again") from None
    older = {
        "calibration": metrics.pop("calibration", {}),
        "history": {"versions": metrics.pop("versions", None) or []},
    }
    newer = {role: files.read_json(folder / roles[role]) for role in older if role in roles}
    return {"metrics": metrics, **older, **newer}


def _read_calibration(content: Any, relations: Vocabulary) -> tuple[Calibration | None, str]:
    """The calibration that a file holds; otherwise None, and why there is none."""
    if content == {}:
        return None, NOT_CALIBRATED
    if isinstance(content, dict) and isinstance(content.get("reason"), str):
        return None, content["reason"]
    if isinstance(content, dict) and content.keys() & {"curves", "judgements"} and "missing" not in content:
        return None, "they were fitted by another version; call calibrate()"
    return Calibration.from_dict(content, relations), ""


def _load_entities(folder: Path, manifest: Manifest) -> Tensor:
    """The entity table float32 [N, 2L]; a single float32 shard stays mapped."""
    width, dtype = manifest.dimension, _DTYPES.get(manifest.dtype)
    shards = [files.read_tensors(folder / name)["entities"] for name in manifest.shards]
    for name, shard in zip(manifest.shards, shards, strict=True):
        if shard.dtype != dtype or shard.ndim != 2 or shard.shape[1] != width:
            found = f"{str(shard.dtype).removeprefix('torch.')} {list(shard.shape)}"
            raise DihedralError(f"{str(folder / name)!r} holds {found}; expected {manifest.dtype:.20} [rows, {width}]")
    rows = sum(map(len, shards))
    if rows != manifest.entities:
        raise DihedralError(f"{str(folder)!r} holds the rows of {rows} entities; expected {manifest.entities}")
    return (shards[0] if len(shards) == 1 else torch.cat(shards)).float()


def describe(folder: Path) -> dict[str, Any]:
    """The manifest with recipe, metrics and versions, without models of probabilities; `bytes` is the total size."""
    return read_current(folder, partial(_describe, folder))


def _describe(folder: Path, manifest: Manifest) -> dict[str, Any]:
    measured = _read_measured(folder, manifest.files)
    calibration = measured["calibration"] if isinstance(measured["calibration"], dict) else {}
    return {
        **{key: value for key, value in manifest.to_dict().items() if key not in ("files", "bytes", "replaced")},
        "bytes": sum(manifest.bytes.values()),
        "recipe": files.read_json(folder / manifest.files["recipe"]),
        "metrics": measured["metrics"],
        "calibration": {key: value for key, value in calibration.items() if key not in ("models", "queries")},
        **History.from_dict(measured["history"]).to_dict(),
    }


def saved_options(folder: Path) -> dict[str, Any]:
    """The options that a model was saved with: dtype and shard_mb."""
    manifest = read_manifest(folder)
    shard_mb = None
    if len(manifest.shards) > 1:
        first = files.read_tensors(folder / manifest.shards[0])["entities"]
        shard_mb = (first.numel() * first.element_size() + 4096) / 2**20
    return {"dtype": manifest.dtype, "shard_mb": shard_mb}


def _shards(entities: Tensor, shard_mb: float | None) -> list[tuple[str, Tensor]]:
    row_bytes = entities.shape[1] * entities.element_size()
    rows = len(entities) if shard_mb is None else max(1, int((shard_mb * 2**20 - 4096) // row_bytes))
    parts = entities.split(rows)
    if len(parts) == 1:
        return [("entities.safetensors", entities)]
    return [(f"entities-{i:05d}-of-{len(parts):05d}.safetensors", part) for i, part in enumerate(parts, 1)]
