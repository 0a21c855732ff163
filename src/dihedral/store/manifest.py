"""The manifest `model.json` of a model folder: the kind and size of the model, and the name and size of every file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dihedral.errors import DihedralError
from dihedral.io.files import read_json, read_record, write_json

Result = TypeVar("Result")
FORMAT = "dihedral-model"
VERSION = 1
MANIFEST = "model.json"
SUFFIXES = (".safetensors", ".arrow", ".json")
ROLES = ("relations", "entity_names", "relation_names", "known", "recipe", "metrics")  # that every model has


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of the manifest."""

    model: str
    settings: dict[str, Any]
    entities: int
    relations: int
    dimension: int
    dtype: str = "float32"  # numbers of the entity table
    graph: str
    fingerprint: str
    notes: list[str] = field(default_factory=list)
    prefixes: dict[str, str] = field(default_factory=dict)
    shards: list[str]  # the files of the entities
    files: dict[str, str]  # the other files by role
    bytes: dict[str, int]  # the size of each file
    replaced: dict[str, int] = field(default_factory=dict)  # the files that this save deletes, and their sizes

    @property
    def names(self) -> set[str]:
        """The names of all files."""
        return {*self.shards, *self.files.values()}

    def to_dict(self) -> dict[str, Any]:
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return content | {"files": {"entities": content.pop("shards"), **self.files}}


def holds_model(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    write_json(folder / MANIFEST, manifest.to_dict())


def read_current(folder: Path, read: Callable[[Manifest], Result]) -> Result:
    """What is read from the files of a manifest; if another process saves a model there meanwhile, from the new one."""
    while True:
        manifest = read_manifest(folder)
        try:
            return read(manifest)
        except (DihedralError, OSError):
            if read_manifest(folder) == manifest:
                raise


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a model folder, checked."""
    if not holds_model(folder):
        raise DihedralError(f"{str(folder)!r} is not a model folder: it has no {MANIFEST}")
    path = str(folder / MANIFEST)
    content = read_json(folder / MANIFEST)
    if content.get("format") != FORMAT:
        raise DihedralError(f"{path!r} does not describe a {FORMAT}")
    if content.get("version") != VERSION:
        raise DihedralError(
            f"model folder {str(folder)!r} has format version {content.get('version')!r:.80}; "
            f"this library reads version {VERSION}: upgrade dihedral"
        )
    files = content.get("files")
    others = dict(files) if isinstance(files, dict) else {}
    shards = others.pop("entities", None)
    names = [*shards, *others.values()] if isinstance(shards, list) else [None]
    if not set(ROLES) <= others.keys() or not all(isinstance(name, str) for name in names):
        raise DihedralError(f"{path!r} does not name all the files of a model")
    try:
        manifest = read_record(Manifest, content | {"shards": shards, "files": others})
    except TypeError as error:
        raise DihedralError(f"{path!r} is damaged: {error}; copy the folder again") from None
    for name in manifest.names | manifest.bytes.keys() | manifest.replaced.keys():
        if Path(name).name != name or name in ("", ".", ".."):
            raise DihedralError(f"{path!r} names a file outside its folder: {name!r}")
        if Path(name).suffix not in SUFFIXES or name == MANIFEST:  # a save deletes the files of the model it replaces
            raise DihedralError(f"{path!r} names a file that no model has: {name!r:.80}")
    if manifest.names != manifest.bytes.keys() or manifest.names & manifest.replaced.keys():
        raise DihedralError(f"{path!r} does not give the size of each of its files")
    return manifest
