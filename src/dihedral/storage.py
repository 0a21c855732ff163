"""A model on disk: a folder of safetensors, Arrow and JSON files that `model.json` names.

`model.json` is written last and in one piece, so it decides what the folder holds: a save that is
cut short leaves the model that was there before. Nothing is pickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.files import atomic_path, make_folder, only_writer, read_json, read_tensors, write_json, write_tensors
from dihedral.graph.triples import SPLITS, Graph, Vocabulary
from dihedral.models import MODELS, Model, restore_relations

FORMAT = "dihedral-model"
VERSION = 1
MANIFEST = "model.json"
Dtype = Literal["float32", "float16"]
_DTYPES = {"float32": torch.float32, "float16": torch.float16}


@dataclass(frozen=True)
class StoredModel:
    """What a model folder holds."""

    model: Model
    graph: Graph
    recipe: dict[str, Any]
    metrics: dict[str, Any]
    latents: dict[str, Tensor] | None


def holds_model(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def check_options(dtype: str, shard_mb: float | None) -> None:
    if dtype not in _DTYPES:
        raise DihedralError(f"dtype is {dtype!r}; entities are stored as float32 or float16")
    if shard_mb is not None and shard_mb <= 0:
        raise DihedralError(f"shard_mb is {shard_mb}; a shard needs more than 0 MiB")


def save_model(
    folder: Path,
    stored: StoredModel,
    *,
    dtype: Dtype = "float32",
    shard_mb: float | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model folder; refuses one that already holds a model unless `overwrite`."""
    check_options(dtype, shard_mb)
    if holds_model(folder) and not overwrite:
        raise DihedralError(f"folder {str(folder)!r} already holds a model; choose another or pass --overwrite")
    make_folder(folder)
    with only_writer(folder):
        _write(folder, stored, dtype, shard_mb)


def _write(folder: Path, stored: StoredModel, dtype: Dtype, shard_mb: float | None) -> None:
    in_use = _files_of(_read_manifest(folder)) if holds_model(folder) else set()
    written: dict[str, str] = {}

    def place(name: str) -> Path:
        """A file name that the model stored here now does not use."""
        stem, suffix = name.rsplit(".", 1)
        written[name] = name if name not in in_use else f"{stem}.2.{suffix}"
        return folder / written[name]

    model, graph = stored.model, stored.graph
    entities = model.entities.detach().to("cpu", _DTYPES[dtype])
    files: dict[str, Any] = {"entities": []}
    for name, rows in _shards(entities, shard_mb):
        write_tensors(place(name), {"entities": rows})
        files["entities"].append(written[name])
    write_tensors(place("relations.safetensors"), model.relations.stored())
    if stored.latents is not None:
        write_tensors(place("latents.safetensors"), stored.latents)
    _save_table(place("entities.arrow"), {"name": graph.entities.array})
    _save_table(place("relations.arrow"), {"name": graph.relations.array})
    known = graph.known
    sizes = [len(graph.split(split)) for split in SPLITS]
    columns = {name: pa.array(known[:, i]) for i, name in enumerate(("head", "relation", "tail"))}
    columns["split"] = pa.array(np.repeat(np.arange(3, dtype=np.uint8), sizes))
    _save_table(place("known.arrow"), columns)
    write_json(place("recipe.json"), stored.recipe)
    write_json(place("metrics.json"), stored.metrics)
    roles = {
        "relations": "relations.safetensors",
        "latents": "latents.safetensors",
        "entity_names": "entities.arrow",
        "relation_names": "relations.arrow",
        "known": "known.arrow",
        "recipe": "recipe.json",
        "metrics": "metrics.json",
    }
    files |= {role: written[name] for role, name in roles.items() if name in written}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "model": model.relations.kind,
        "settings": model.relations.settings(),
        "entities": model.num_entities,
        "relations": model.num_relations,
        "dimension": model.dimension,
        "dtype": dtype,
        "graph": graph.name,
        "fingerprint": graph.fingerprint,
        "notes": list(graph.notes),
        "prefixes": graph.entities.prefixes,
        "files": files,
    }
    manifest["bytes"] = {name: (folder / name).stat().st_size for name in sorted(_files_of(manifest))}
    write_json(folder / MANIFEST, manifest)
    for name in in_use - _files_of(manifest):  # the model that was here before
        (folder / name).unlink(missing_ok=True)


def load_model(folder: Path, *, device: str | torch.device = "cpu") -> StoredModel:
    """Read a model folder of any version this library knows."""
    manifest = _read_manifest(folder)
    for name, size in manifest["bytes"].items():
        path = folder / name
        if not path.is_file():
            raise DihedralError(f"model folder {str(folder)!r} lacks the file {name!r}; copy the folder again")
        if path.stat().st_size != size:
            raise DihedralError(
                f"{str(path)!r} has {path.stat().st_size} bytes, expected {size}; the file is damaged or cut short"
            )
    try:
        return _assemble(folder, manifest, device)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, DihedralError):
            raise
        raise DihedralError(f"model folder {str(folder)!r} is damaged: {error!r}") from None


def _assemble(folder: Path, manifest: dict[str, Any], device: str | torch.device) -> StoredModel:
    files = manifest["files"]
    entities = torch.cat([read_tensors(folder / name)[0]["entities"] for name in files["entities"]]).float()
    shape = (manifest["entities"], manifest["dimension"])
    if tuple(entities.shape) != shape:
        raise DihedralError(f"entities in {str(folder)!r} have shape {tuple(entities.shape)}, expected {shape}")
    kind = manifest["model"]
    if kind != "dihedral" and kind not in MODELS:
        raise DihedralError(f"model folder {str(folder)!r} holds a model of kind {kind!r:.80}, unknown to this version")
    tensors = read_tensors(folder / files["relations"])[0]
    if ("codes" in tensors) != (kind == "dihedral" or kind.startswith(("dihedral-", "cyclic-"))):
        raise DihedralError(f"relations in {str(folder)!r} do not belong to a model of kind {kind!r}")
    names = _names(folder / files["relation_names"])
    if len(names) != manifest["relations"]:  # before room is made for so many
        raise DihedralError(f"vocabularies in {str(folder)!r} do not fit its model; copy the folder again")
    relations = restore_relations(
        kind,
        tensors,
        manifest["relations"],
        manifest["dimension"],
        manifest["settings"],
    )
    known = _load_table(folder / files["known"])
    triples = np.stack([known.column(name).to_numpy() for name in ("head", "relation", "tail")], axis=1)
    split = known.column("split").to_numpy()
    prefixes = manifest.get("prefixes", {})  # of IRIs; models stored earlier have none
    graph = Graph(
        Vocabulary(_names(folder / files["entity_names"]), prefixes=prefixes),
        Vocabulary(names, "relation", prefixes),
        train=triples[split == 0],
        valid=triples[split == 1],
        test=triples[split == 2],
        name=manifest["graph"],
        notes=tuple(manifest.get("notes", ())),
    )
    limits = graph.num_entities, graph.num_relations, graph.num_entities
    if len(triples) and (triples.min() < 0 or (triples.max(axis=0) >= limits).any() or split.max() > 2):
        raise DihedralError(f"known facts in {str(folder)!r} name entities or relations that are not there")
    if len(graph.entities) != shape[0]:
        raise DihedralError(f"vocabularies in {str(folder)!r} do not fit its model; copy the folder again")
    latents = read_tensors(folder / files["latents"])[0] if "latents" in files else None
    return StoredModel(
        model=Model(entities, relations).to(device).requires_grad_(False),
        graph=graph,
        recipe=read_json(folder / files["recipe"]),
        metrics=read_json(folder / files["metrics"]),
        latents=latents,
    )


def describe(folder: Path) -> dict[str, Any]:
    """The manifest of a model folder, with its recipe and metrics."""
    manifest = _read_manifest(folder)
    files = manifest["files"]
    return {
        **{key: value for key, value in manifest.items() if key not in ("files", "bytes")},
        "bytes": sum(manifest["bytes"].values()),
        "recipe": read_json(folder / files["recipe"]),
        "metrics": read_json(folder / files["metrics"]),
    }


# --- the files ----------------------------------------------------------------------------------


def _shards(entities: Tensor, shard_mb: float | None) -> list[tuple[str, Tensor]]:
    row_bytes = entities.shape[1] * entities.element_size()
    rows = len(entities) if shard_mb is None else max(1, int((shard_mb * 2**20 - 4096) // row_bytes))
    parts = entities.split(rows)
    if len(parts) == 1:
        return [("entities.safetensors", entities)]
    return [(f"entities-{i:05d}-of-{len(parts):05d}.safetensors", part) for i, part in enumerate(parts, 1)]


def _save_table(path: Path, columns: dict[str, pa.Array]) -> None:
    table = pa.table(columns)
    with atomic_path(path) as partial, pa.ipc.new_file(str(partial), table.schema) as writer:
        writer.write_table(table)


def _load_table(path: Path) -> pa.Table:
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        table.validate(full=True)  # a damaged offset would be followed out of the file; 5 million names take 40 ms
        return table
    except (pa.ArrowException, OSError) as error:
        raise DihedralError(f"{str(path)!r} cannot be read: {str(error).splitlines()[0]}") from None


def _names(path: Path) -> pa.Array:
    return _load_table(path).column("name").combine_chunks()


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not holds_model(folder):
        raise DihedralError(f"{str(folder)!r} is not a model folder: it has no {MANIFEST}")
    manifest = read_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise DihedralError(f"{str(folder / MANIFEST)!r} does not describe a {FORMAT}")
    if manifest.get("version") != VERSION:
        raise DihedralError(
            f"model folder {str(folder)!r} has format version {manifest.get('version')!r}; "
            f"this library reads version {VERSION}: upgrade dihedral"
        )
    kinds = {
        "model": str, "settings": dict, "entities": int, "relations": int, "dimension": int, "graph": str,
        "fingerprint": str, "files": dict, "bytes": dict,
    }  # fmt: skip
    for key, kind in kinds.items():
        if not isinstance(manifest.get(key), kind):
            raise DihedralError(f"{str(folder / MANIFEST)!r} has {key} = {manifest.get(key)!r:.80}, which no model has")
    notes, prefixes = manifest.get("notes", []), manifest.get("prefixes", {})
    if not (isinstance(notes, list) and isinstance(prefixes, dict)) or not all(
        isinstance(text, str) for text in (*notes, *prefixes.values())
    ):
        raise DihedralError(f"{str(folder / MANIFEST)!r} has notes or prefixes that are no text")
    files = manifest["files"]
    roles = ("relations", "entity_names", "relation_names", "known", "recipe", "metrics")
    shards = files.get("entities")
    single = [*(files.get(role) for role in roles), *(name for role, name in files.items() if role != "entities")]
    if not isinstance(shards, list) or not all(isinstance(name, str) for name in (*shards, *single)):
        raise DihedralError(f"{str(folder / MANIFEST)!r} does not name all the files of a model")
    for name in _files_of(manifest) | set(manifest["bytes"]):
        if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
            raise DihedralError(f"{str(folder / MANIFEST)!r} names a file outside its folder: {name!r}")
    if _files_of(manifest) != set(manifest["bytes"]) or not all(isinstance(n, int) for n in manifest["bytes"].values()):
        raise DihedralError(f"{str(folder / MANIFEST)!r} does not give the size of each of its files")
    return manifest


def _files_of(manifest: dict[str, Any]) -> set[str]:
    files = manifest["files"]
    return {*files["entities"], *(name for role, name in files.items() if role != "entities")}
