"""A model on disk: a folder of safetensors, Arrow and JSON files, listed in the manifest `model.json`.

The manifest is written last and atomically: an interrupted save leaves the previous model intact. Nothing is pickled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph.labels import COLUMNS, Labels
from dihedral.graph.name_search import WordIndex
from dihedral.graph.triples import SPLITS, Graph, Triples
from dihedral.graph.vocabulary import Vocabulary
from dihedral.io.files import (
    make_folder,
    read_json,
    read_tensors,
    remove_partial_files,
    write_json,
    write_tensors,
)  # fmt: skip
from dihedral.io.locks import lock_folder
from dihedral.models import STORED_MODELS, Model, restore_relations
from dihedral.objectives.recipe import Recipe
from dihedral.probability.calibration import Calibration
from dihedral.store.card import write_card
from dihedral.store.history import History
from dihedral.store.tables import read_table, write_table
from dihedral.store.trained import NOT_CALIBRATED, TrainedModel

FORMAT = "dihedral-model"
VERSION = 1
MANIFEST = "model.json"
MAX_CHECKED_ON_OPEN = 2_000_000  # names or triples; more of them are checked when they are first used
Dtype = Literal["float32", "float16"]
_REQUIRED = {
    "model": str, "settings": dict, "entities": int, "relations": int, "dimension": int, "graph": str,
    "fingerprint": str, "files": dict, "bytes": dict,
}  # fmt: skip
_ROLES = ("relations", "entity_names", "relation_names", "known", "recipe", "metrics")  # besides entities
_DTYPES = {"float32": torch.float32, "float16": torch.float16}


def holds_model(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


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
    latents: bool = False,
    optimiser: bool = False,
    overwrite: bool = False,
) -> None:
    """Write a model folder with its card; replacing a model needs `overwrite`.

    latents: keep the training parameters behind the codes. optimiser: keep the state of the optimiser and these.
    """
    latents = latents or optimiser
    if latents and trained.latents is None:
        raise DihedralError("this predictor holds no training latents to save")
    if optimiser and trained.optimiser is None:
        raise DihedralError("this predictor holds no state of an optimiser to save; train it with keep_optimiser")
    stored = replace(
        trained,
        latents=trained.latents if latents else None,
        optimiser=trained.optimiser if optimiser else None,
    )
    check_options(dtype, shard_mb)
    if holds_model(folder) and not overwrite:
        raise DihedralError(f"folder {str(folder)!r} already holds a model; choose another or pass --overwrite")
    _check_values(stored.model, dtype)
    make_folder(folder)
    taken = f"folder {str(folder)!r} is being written by another process; wait for it or choose another folder"
    with lock_folder(folder, taken):
        remove_partial_files(folder)
        _write(folder, stored, dtype, shard_mb)
        write_card(folder, stored)


def _check_values(model: Model, dtype: Dtype) -> None:
    """Raise an error unless all values are numbers that the type of the file can hold."""
    for name, tensor in {"entities": model.entities.detach(), **model.relations.stored()}.items():
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        lowest, highest = (float(value) for value in tensor.aminmax())
        if not (math.isfinite(lowest) and math.isfinite(highest)):
            raise DihedralError(f"{name} of the model hold NaN or infinity, so training diverged; it is not saved")
        largest = torch.finfo(_DTYPES[dtype]).max
        if name == "entities" and max(-lowest, highest) > largest:
            raise DihedralError(
                f"entities of the model hold {max(-lowest, highest):.4g}, and {dtype} ends at {largest:.4g}; "
                "save it as float32"
            )


def _write(folder: Path, stored: TrainedModel, dtype: Dtype, shard_mb: float | None) -> None:
    in_use = _files_of(read_manifest(folder)) if holds_model(folder) else set()
    model, graph = stored.model, stored.graph
    manifest = {
        "format": FORMAT, "version": VERSION,
        "model": model.relations.kind, "settings": model.relations.settings(), "entities": model.num_entities,
        "relations": model.num_relations, "dimension": model.dimension, "dtype": dtype,
        "graph": graph.name, "fingerprint": graph.fingerprint, "notes": list(graph.notes),
        "prefixes": graph.entities.prefixes,
        "files": _write_files(folder, stored, dtype, shard_mb, in_use),
    }  # fmt: skip
    _finish(folder, manifest, in_use)


def _write_files(
    folder: Path, stored: TrainedModel, dtype: Dtype, shard_mb: float | None, in_use: set[str]
) -> dict[str, Any]:
    """Write all files except the manifest; returns their names by role.

    in_use: files of the model that the folder holds now; they are not overwritten.
    """
    files: dict[str, Any] = {"entities": []}
    model, graph = stored.model, stored.graph

    def new_file(name: str, role: str) -> Path:
        free = _free_name(name, in_use)
        if role == "entities":
            files[role].append(free)
        else:
            files[role] = free
        return folder / free

    for name, rows in _shards(model.entities.detach().to("cpu", _DTYPES[dtype]), shard_mb):
        write_tensors(new_file(name, "entities"), {"entities": rows})
    write_tensors(new_file("relations.safetensors", "relations"), model.relations.stored())
    if stored.latents is not None:
        write_tensors(new_file("latents.safetensors", "latents"), stored.latents)
    if stored.optimiser is not None:
        write_tensors(new_file("optimiser.safetensors", "optimiser"), stored.optimiser)
    _save_names(new_file("entities.arrow", "entity_names"), graph.entities)
    _save_names(new_file("relations.arrow", "relation_names"), graph.relations)
    _write_labels(graph, new_file)
    _save_triples(new_file("known.arrow", "known"), graph)
    write_json(new_file("recipe.json", "recipe"), stored.recipe.to_dict() if stored.recipe else {})
    for role, content in _measured(stored).items():
        write_json(new_file(f"{role}.json", role), content)
    return files


def _measured(stored: TrainedModel) -> dict[str, Any]:
    """The content of the files of what was measured, by role."""
    content: dict[str, Any] = {"metrics": stored.metrics, "calibration": {"reason": stored.why_not_calibrated}}
    if stored.calibration is not None:
        content["calibration"] = stored.calibration.to_dict()
    return content | ({"history": stored.history.to_dict()} if stored.history.versions else {})


def _write_labels(graph: Graph, new_file: Callable[[str, str], Path]) -> None:
    """Write the labels, if there are any, and the words of names and labels for the search."""
    for names, kind in ((graph.entities, "entity"), (graph.relations, "relation")):
        if names.labels is not None:
            plural = "entities" if kind == "entity" else "relations"
            texts = {name: each.array for name, each in names.labels.texts.items()}
            write_table(
                new_file(f"{plural}.labels.arrow", f"{kind}_labels"), texts | {"order": pa.array(names.labels.order)}
            )
    write_table(new_file("words.arrow", "words"), WordIndex.build(graph.entities, graph.by_degree).to_arrow())


def relabel_model(folder: Path, source: Any, language: str | Sequence[str]) -> Graph:
    """Store other labels in a model folder; nothing else of the model changes. Returns its graph with the labels."""
    manifest = read_manifest(folder)
    taken = f"folder {str(folder)!r} is being written by another process; wait for it"
    with lock_folder(folder, taken):
        remove_partial_files(folder)
        manifest = read_manifest(folder)
        graph = _load_graph(folder, manifest).with_labels(source, language=language)
        in_use = _files_of(manifest)
        files = manifest["files"]

        def new_file(name: str, role: str) -> Path:
            files[role] = _free_name(name, in_use)
            return folder / files[role]

        _write_labels(graph, new_file)
        _finish(folder, manifest, in_use)
    return graph


def replace_metrics(folder: Path, trained: TrainedModel, since: dict[str, Any]) -> None:
    """Store other metrics in a model folder; nothing else of the model changes.

    since: the manifest of the model that the metrics belong to; an error if the folder has another one by now.
    """
    taken = f"folder {str(folder)!r} is being written by another process; wait for it"
    with lock_folder(folder, taken):
        remove_partial_files(folder)
        manifest = read_manifest(folder)
        if manifest != since:
            raise DihedralError(
                f"the model in folder {str(folder)!r} was replaced in the meantime; run the command again"
            )
        in_use = _files_of(manifest)
        for role, content in _measured(trained).items():
            manifest["files"][role] = _free_name(f"{role}.json", in_use)
            write_json(folder / manifest["files"][role], content)
        _finish(folder, manifest, in_use)


def _free_name(name: str, in_use: set[str]) -> str:
    """The name of a new file that overwrites no file of the present model."""
    path = Path(name)
    return f"{path.stem}.2{path.suffix}" if name in in_use else name


def _finish(folder: Path, manifest: dict[str, Any], in_use: set[str]) -> None:
    """Write the manifest, which makes the new files the model's, and remove those that it no longer has."""
    manifest["bytes"] = {name: (folder / name).stat().st_size for name in sorted(_files_of(manifest))}
    write_json(folder / MANIFEST, manifest)
    for name in in_use - _files_of(manifest):
        with suppress(OSError):  # the new model is complete; an old file that stays does no harm
            (folder / name).unlink()


def load_model(folder: Path, *, device: str | torch.device = "cpu") -> TrainedModel:
    """Read a model folder."""
    manifest = read_manifest(folder)
    for name, size in manifest["bytes"].items():
        path = folder / name
        if path.is_symlink():
            raise DihedralError(f"{str(path)!r} is a symbolic link; the files of a model must be in its folder")
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


def _assemble(folder: Path, manifest: dict[str, Any], device: str | torch.device) -> TrainedModel:
    files = manifest["files"]
    kind, num_relations, dimension = manifest["model"], manifest["relations"], manifest["dimension"]
    entities = _load_entities(folder, manifest)
    if kind not in STORED_MODELS:
        raise DihedralError(f"model folder {str(folder)!r} holds a model of kind {kind!r:.80}, unknown to this version")
    tensors = read_tensors(folder / files["relations"])[0]
    if ("codes" in tensors) != STORED_MODELS[kind].is_discrete:
        raise DihedralError(f"relations in {str(folder)!r} do not belong to a model of kind {kind!r}")
    graph = _load_graph(folder, manifest)  # checks the number of relations, before memory for so many is allocated
    try:
        relations = restore_relations(kind, tensors, num_relations, dimension, manifest["settings"])
    except DihedralError as error:
        raise DihedralError(f"relations in {str(folder)!r} are damaged: {error}") from None
    optimiser = read_tensors(folder / files["optimiser"])[0] if "optimiser" in files else None
    if optimiser is not None and optimiser["entities"].shape != entities.shape:
        raise DihedralError(f"the optimiser's state in {str(folder)!r} does not fit its model; copy the folder again")
    measured = _read_measured(folder, files)
    calibration, reason = _read_calibration(measured["calibration"], graph.relations)
    return TrainedModel(
        source=Model(entities, relations).to(device).requires_grad_(False),
        graph=graph,
        recipe=Recipe.from_stored(read_json(folder / files["recipe"])),
        metrics=measured["metrics"],
        calibration=calibration,
        why_not_calibrated=reason,
        history=History.from_dict(measured["history"]),
        latents=read_tensors(folder / files["latents"])[0] if "latents" in files else None,
        optimiser=optimiser,
    )


def _read_measured(folder: Path, files: dict[str, Any]) -> dict[str, Any]:
    """The content of the files of what was measured, by role; in older folders, all of it is among the metrics."""
    metrics = read_json(folder / files["metrics"])
    older = {
        "calibration": metrics.pop("calibration", {}),
        "history": {"versions": metrics.pop("versions", None) or []},
    }
    newer = {role: read_json(folder / files[role]) for role in older if role in files}
    return {"metrics": metrics, **older, **newer}


def _read_calibration(content: Any, relations: Vocabulary) -> tuple[Calibration | None, str]:
    """The calibration that a file holds; otherwise None, and why there is none."""
    if content == {}:
        return None, NOT_CALIBRATED
    if isinstance(content, dict) and "curves" in content:
        return None, "they were fitted by another version; call calibrate()"
    if isinstance(content, dict) and isinstance(content.get("reason"), str):
        return None, content["reason"]
    return Calibration.from_dict(content, relations), ""


def _load_entities(folder: Path, manifest: dict[str, Any]) -> Tensor:
    """The entity table float32 [N, 2L]; a single float32 shard stays mapped."""
    width = manifest["dimension"]
    dtype = _DTYPES.get(manifest.get("dtype", "float32"))
    shards = [read_tensors(folder / name)[0]["entities"] for name in manifest["files"]["entities"]]
    for name, shard in zip(manifest["files"]["entities"], shards, strict=True):
        if shard.dtype != dtype or shard.ndim != 2 or shard.shape[1] != width:
            raise DihedralError(
                f"{str(folder / name)!r} holds {_kind(shard)}; expected {manifest.get('dtype')!s:.20} [rows, {width}]"
            )
    rows = sum(map(len, shards))
    if rows != manifest["entities"]:
        raise DihedralError(f"{str(folder)!r} holds the rows of {rows} entities; expected {manifest['entities']}")
    return (shards[0] if len(shards) == 1 else torch.cat(shards)).float()


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _load_graph(folder: Path, manifest: dict[str, Any]) -> Graph:
    """The graph of a model folder, memory-mapped; a large one is checked when it is first used."""
    files, prefixes = manifest["files"], manifest.get("prefixes", {})  # older models have no prefixes
    entities = _load_names(folder / files["entity_names"], "entity", prefixes)
    relations = _load_names(folder / files["relation_names"], "relation", prefixes)
    if (len(entities), len(relations)) != (manifest["entities"], manifest["relations"]):
        raise DihedralError(f"vocabularies in {str(folder)!r} do not fit its model; copy the folder again")
    for names in (entities, relations):
        if f"{names.kind}_labels" in files:
            names.labels = _load_labels(folder / files[f"{names.kind}_labels"], len(names))
    known = folder / files["known"]
    notes = tuple(manifest.get("notes", ()))
    train, valid, test = _load_triples(known)
    graph = Graph(entities, relations, train, valid, test, manifest["graph"], notes, file=str(known))
    for vocabulary in (entities, relations):
        if len(vocabulary) <= MAX_CHECKED_ON_OPEN:
            vocabulary.check()
    if graph.num_triples <= MAX_CHECKED_ON_OPEN:
        graph.check()
    return graph


def load_words(folder: Path) -> WordIndex | None:
    """The words of entity names and labels; None in the folder of an older version."""
    manifest = read_manifest(folder)
    if "words" not in manifest["files"]:
        return None
    path = folder / manifest["files"]["words"]
    table = read_table(path, {"word": (pa.string(), pa.large_string()), "ranks": (pa.list_(pa.int32()),)})
    if table.column_names != ["word", "ranks"]:
        raise DihedralError(f"{str(path)!r} cannot be read: it has no words; copy the folder again")
    return WordIndex.from_arrow(table, manifest["entities"], str(path))


def describe(folder: Path) -> dict[str, Any]:
    """The manifest of a model folder with its recipe, metrics and versions; `bytes` is the total size.

    The models of probabilities, which are thousands of numbers, are left out.
    """
    manifest = read_manifest(folder)
    files = manifest["files"]
    measured = _read_measured(folder, files)
    calibration = measured["calibration"] if isinstance(measured["calibration"], dict) else {}
    return {
        **{key: value for key, value in manifest.items() if key not in ("files", "bytes")},
        "bytes": sum(manifest["bytes"].values()),
        "recipe": read_json(folder / files["recipe"]),
        "metrics": measured["metrics"],
        "calibration": {key: value for key, value in calibration.items() if key not in ("models", "queries")},
        **History.from_dict(measured["history"]).to_dict(),
    }


def saved_options(folder: Path) -> dict[str, Any]:
    """The options that a model was saved with: dtype, shard_mb, latents and optimiser."""
    manifest = read_manifest(folder)
    files, shard_mb = manifest["files"], None
    if len(files["entities"]) > 1:
        first = read_tensors(folder / files["entities"][0])[0]["entities"]
        shard_mb = (first.numel() * first.element_size() + 4096) / 2**20
    kept = {name: name in files for name in ("latents", "optimiser")}
    return {"dtype": manifest.get("dtype", "float32"), "shard_mb": shard_mb, **kept}


# --- the files ----------------------------------------------------------------------------------


def _shards(entities: Tensor, shard_mb: float | None) -> list[tuple[str, Tensor]]:
    row_bytes = entities.shape[1] * entities.element_size()
    rows = len(entities) if shard_mb is None else max(1, int((shard_mb * 2**20 - 4096) // row_bytes))
    parts = entities.split(rows)
    if len(parts) == 1:
        return [("entities.safetensors", entities)]
    return [(f"entities-{i:05d}-of-{len(parts):05d}.safetensors", part) for i, part in enumerate(parts, 1)]


def _save_names(path: Path, names: Vocabulary) -> None:
    write_table(path, {"name": names.array, "order": pa.array(names.order)})


def _save_triples(path: Path, graph: Graph) -> None:
    """All triples, sorted by split."""
    parts = [graph.split(split) for split in SPLITS]
    columns = {
        name: pa.array(np.concatenate([part[:, i] for part in parts]).astype(np.int32))
        for i, name in enumerate(("head", "relation", "tail"))
    }
    columns["split"] = pa.array(np.repeat(np.arange(3, dtype=np.uint8), [len(part) for part in parts]))
    write_table(path, columns)


def _load_names(path: Path, kind: str, prefixes: dict[str, str]) -> Vocabulary:
    """A memory-mapped vocabulary, with its sorted order if that is stored."""
    table = read_table(path, {"name": (pa.string(), pa.large_string()), "order": (pa.int32(),)})
    names = _column(table, "name")
    if names.null_count:
        raise DihedralError(f"{str(path)!r} has {names.null_count} missing names; copy the folder again")
    order = _numbers(table, "order", np.int32) if "order" in table.column_names else None
    return Vocabulary(names, kind, prefixes, order=order, file=str(path))


def _load_labels(path: Path, count: int) -> Labels:
    """Memory-mapped labels of a vocabulary with `count` names."""
    types: dict[str, tuple[pa.DataType, ...]] = dict.fromkeys(COLUMNS, (pa.string(), pa.large_string()))
    table = read_table(path, types | {"order": (pa.int32(),)})
    texts = {name: _column(table, name) for name in COLUMNS if name in table.column_names}
    if "label" not in texts or any(each.null_count or len(each) != count for each in texts.values()):
        raise DihedralError(f"{str(path)!r} cannot be read: it does not hold {count} labels; copy the folder again")
    labels = Labels(texts, _numbers(table, "order", np.int32), str(path))
    if count <= MAX_CHECKED_ON_OPEN:
        labels.check()
    return labels


def _load_triples(path: Path) -> list[Triples]:
    """Train, valid and test, as views of the memory-mapped file if its columns allow that."""
    mapped = np.memmap(path, np.uint8, mode="c")  # torch requires writable memory; the file is not written
    types = {name: (pa.int32(),) for name in ("head", "relation", "tail")} | {"split": (pa.uint8(),)}
    table = read_table(path, types, pa.py_buffer(mapped))
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


def _column(table: pa.Table, name: str) -> pa.Array:
    """A column as one array, without a copy if it has one chunk."""
    column = table.column(name)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    array.validate()
    return array


def _numbers(table: pa.Table, name: str, kind: type[np.generic]) -> NDArray[Any]:
    """A column of numbers without a copy; Arrow's own method imports pandas, which is slower than opening a model."""
    array = _column(table, name)
    if array.type != pa.from_numpy_dtype(kind) or array.null_count:
        raise ValueError(f"column {name} has type {array.type} and {array.null_count} missing values")
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * np.dtype(kind).itemsize)


def read_manifest(folder: Path) -> dict[str, Any]:
    if not holds_model(folder):
        raise DihedralError(f"{str(folder)!r} is not a model folder: it has no {MANIFEST}")
    path = str(folder / MANIFEST)
    manifest = read_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise DihedralError(f"{path!r} does not describe a {FORMAT}")
    if manifest.get("version") != VERSION:
        raise DihedralError(
            f"model folder {str(folder)!r} has format version {manifest.get('version')!r:.80}; "
            f"this library reads version {VERSION}: upgrade dihedral"
        )
    for key, kind in _REQUIRED.items():
        if not isinstance(manifest.get(key), kind):
            raise DihedralError(f"{path!r} has {key} = {manifest.get(key)!r:.80}; expected {kind.__name__}")
    notes, prefixes = manifest.get("notes", []), manifest.get("prefixes", {})
    if not (isinstance(notes, list) and isinstance(prefixes, dict) and _are_strings((*notes, *prefixes.values()))):
        raise DihedralError(f"{path!r} has notes or prefixes that are not strings")
    _check_files(path, manifest)
    return manifest


def _check_files(path: str, manifest: dict[str, Any]) -> None:
    """Raise an error unless the manifest names every file of a model, with its size, within the folder."""
    files, sizes = manifest["files"], manifest["bytes"]
    shards, others = files.get("entities"), {role: name for role, name in files.items() if role != "entities"}
    if not (isinstance(shards, list) and set(_ROLES) <= set(others) and _are_strings((*shards, *others.values()))):
        raise DihedralError(f"{path!r} does not name all the files of a model")
    for name in _files_of(manifest) | set(sizes):
        if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
            raise DihedralError(f"{path!r} names a file outside its folder: {name!r}")
    if _files_of(manifest) != set(sizes) or not all(isinstance(size, int) for size in sizes.values()):
        raise DihedralError(f"{path!r} does not give the size of each of its files")


def _are_strings(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _files_of(manifest: dict[str, Any]) -> set[str]:
    files = manifest["files"]
    return {*files["entities"], *(name for role, name in files.items() if role != "entities")}
