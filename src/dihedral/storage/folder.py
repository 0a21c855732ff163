"""A model on disk: a folder of safetensors, Arrow and JSON files that `model.json` names.

`model.json` is written last and in one piece, so it decides what the folder holds: a save that is
cut short leaves the model that was there before. Nothing is pickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph.triples import SPLITS, Graph, Triples, Vocabulary
from dihedral.io.files import atomic_path, make_folder, only_writer, read_json, read_tensors, write_json, write_tensors
from dihedral.models import STORED_MODELS, Model, restore_relations

FORMAT = "dihedral-model"
VERSION = 1
MANIFEST = "model.json"
CHECKED_AT_ONCE = 2_000_000  # names or triples, when a model is opened; more are checked when they are first used
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


class StoredGraph(Graph):
    """A graph whose triples lie in a file: they are checked before they are used, not when it is opened."""

    def __init__(
        self,
        entities: Vocabulary,
        relations: Vocabulary,
        train: Triples,
        valid: Triples,
        test: Triples,
        name: str = "unnamed",
        notes: tuple[str, ...] = (),
        file: str = "",
    ) -> None:
        self.__dict__.update(entities=entities, relations=relations, name=name, notes=notes)
        self.__dict__.update(_parts=(train, valid, test), file=file)

    @cached_property
    def _checked(self) -> tuple[Triples, Triples, Triples]:
        limits = self.num_entities, self.num_relations, self.num_entities
        parts: tuple[Triples, Triples, Triples] = self.__dict__["_parts"]
        for part in parts:
            for column, limit in zip(part.T, limits, strict=True):
                if len(column) and (column.min() < 0 or column.max() >= limit):
                    raise DihedralError(
                        f"known facts in {self.__dict__['file']!r} name entities or relations that are not there"
                    )
        return parts

    def check(self, most: int) -> None:
        """Look through names and triples now, where there are at most so many."""
        for vocabulary in (self.entities, self.relations):
            if len(vocabulary) <= most:
                vocabulary.array  # noqa: B018
        if sum(map(len, self.__dict__["_parts"])) <= most:
            self._checked  # noqa: B018

    train = property(lambda self: self._checked[0])
    valid = property(lambda self: self._checked[1])
    test = property(lambda self: self._checked[2])


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
    for name, vocabulary in (("entities.arrow", graph.entities), ("relations.arrow", graph.relations)):
        _save_table(place(name), {"name": vocabulary.array, "order": pa.array(vocabulary.order)})
    parts = [graph.split(split) for split in SPLITS]
    sizes = [len(part) for part in parts]
    columns = {
        name: pa.array(np.concatenate([part[:, i] for part in parts]).astype(np.int32))
        for i, name in enumerate(("head", "relation", "tail"))
    }
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
    shards = [read_tensors(folder / name)[0]["entities"] for name in files["entities"]]
    entities = (shards[0] if len(shards) == 1 else torch.cat(shards)).float()  # one of float32 stays in its file
    shape = (manifest["entities"], manifest["dimension"])
    if tuple(entities.shape) != shape:
        raise DihedralError(f"entities in {str(folder)!r} have shape {tuple(entities.shape)}, expected {shape}")
    kind = manifest["model"]
    if kind not in STORED_MODELS:
        raise DihedralError(f"model folder {str(folder)!r} holds a model of kind {kind!r:.80}, unknown to this version")
    tensors = read_tensors(folder / files["relations"])[0]
    if ("codes" in tensors) != STORED_MODELS[kind].is_discrete:
        raise DihedralError(f"relations in {str(folder)!r} do not belong to a model of kind {kind!r}")
    prefixes = manifest.get("prefixes", {})  # of IRIs; models stored earlier have none
    names = _load_names(folder / files["relation_names"], "relation", prefixes)
    if len(names) != manifest["relations"]:  # before room is made for so many
        raise DihedralError(f"vocabularies in {str(folder)!r} do not fit its model; copy the folder again")
    relations = restore_relations(
        kind,
        tensors,
        manifest["relations"],
        manifest["dimension"],
        manifest["settings"],
    )
    train, valid, test = _load_known(folder / files["known"])
    graph = StoredGraph(
        _load_names(folder / files["entity_names"], "entity", prefixes),
        names,
        train,
        valid,
        test,
        name=manifest["graph"],
        notes=tuple(manifest.get("notes", ())),
        file=str(folder / files["known"]),
    )
    if len(graph.entities) != shape[0]:
        raise DihedralError(f"vocabularies in {str(folder)!r} do not fit its model; copy the folder again")
    graph.check(CHECKED_AT_ONCE)
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


def _load_table(path: Path, content: pa.Buffer | None = None) -> pa.Table:
    try:
        return pa.ipc.open_file(content or pa.memory_map(str(path))).read_all()
    except (pa.ArrowException, OSError) as error:
        raise DihedralError(f"{str(path)!r} cannot be read: {str(error).splitlines()[0]}") from None


def _load_names(path: Path, kind: str, prefixes: dict[str, str]) -> Vocabulary:
    """A memory-mapped vocabulary, with the order of its names where that is stored."""
    table = _load_table(path)
    names = _whole(table, "name")
    if names.type not in (pa.string(), pa.large_string()) or names.null_count:
        raise ValueError(f"names in {path.name} are not text")
    order = _numbers(table, "order", np.int32) if "order" in table.column_names else None
    return Vocabulary(names, kind, prefixes, order=order, file=str(path))


def _load_known(path: Path) -> list[Triples]:
    """Train, valid and test as views of a memory-mapped file, where its columns allow it."""
    mapped = np.memmap(path, np.uint8, mode="c")  # torch wants memory it may write to; the file is never written
    table = _load_table(path, pa.py_buffer(mapped))
    columns = [_numbers(table, name, np.int32) for name in ("head", "relation", "tail")]
    split = _numbers(table, "split", np.uint8)
    if split.max(initial=0) > 2:
        raise ValueError(f"splits in {path.name} are not train, valid and test")
    first, second, third = (column.ctypes.data - mapped.ctypes.data for column in columns)
    if len(table) and 0 <= first < second < len(mapped) and second - first == third - second:
        triples = np.ndarray((len(table), 3), np.int32, mapped, first, (4, second - first))
    else:
        triples = np.stack(columns, axis=1)
    if (split[:-1] > split[1:]).any():
        return [triples[split == number] for number in range(3)]
    return np.split(triples, np.searchsorted(split, np.array([1, 2], np.uint8)))


def _whole(table: pa.Table, name: str) -> pa.Array:
    """A column as one array, where it lies if it is one."""
    column = table.column(name)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    array.validate()
    return array


def _numbers(table: pa.Table, name: str, kind: type[np.generic]) -> NDArray[Any]:
    """A column of numbers where it lies; Arrow's own way imports pandas, which takes longer than opening a model."""
    array = _whole(table, name)
    if array.type != pa.from_numpy_dtype(kind) or array.null_count:
        raise ValueError(f"column {name} is of {array.type} with {array.null_count} missing values")
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * np.dtype(kind).itemsize)


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
