"""Export a model's vectors, and its codes or operators, for other programs: NPZ, Parquet and word2vec text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as papq
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph import Graph, Vocabulary
from dihedral.io.files import atomic_path, make_folder
from dihedral.models import Model
from dihedral.models.dihedral import DiscreteRelations

Array = NDArray[Any]


def export_model(path: Path, model: Model, graph: Graph) -> list[Path]:
    """Write the format that the suffix of the path names; returns the files written.

    .npz holds everything in one file. .parquet, .txt and .vec hold entities; relations go to a second file,
    such as NAME.relations.parquet. As text, learned scales go to a third, NAME.scales.txt.
    """
    writers = {".npz": _write_npz, ".parquet": _write_parquet, ".txt": _write_text, ".vec": _write_text}
    if path.suffix not in writers:
        raise DihedralError(f"{str(path)!r} has the suffix {path.suffix!r}; export to one of {', '.join(writers)}")
    make_folder(path.parent)
    return writers[path.suffix](path, model, graph)


def relations_path(path: Path) -> Path:
    """The file of relations that belongs to a file of entities.

    >>> relations_path(Path("out/umls.parquet")).as_posix()
    'out/umls.relations.parquet'
    """
    return path.with_name(f"{path.stem}.relations{path.suffix}")


def _vectors(model: Model) -> NDArray[np.float32]:
    return model.entities.detach().cpu().float().numpy()  # [N, 2L]


def _relations(model: Model) -> dict[str, Array]:
    """One row per relation: codes [R, L] and, if learned, scales [R]; or operators flattened to [R, width]."""
    if model.codes is None:
        operators = model.relations.exact().detach().cpu().float()
        return {"operators": operators.flatten(1).numpy()}
    return {name: tensor.detach().cpu().numpy() for name, tensor in model.relations.stored().items()}


def _element_names(model: Model) -> Array:
    """The names of the elements by id; empty for a model without codes."""
    relations = model.relations
    return np.array(relations.element_names if isinstance(relations, DiscreteRelations) else [], np.str_)


def _write_npz(path: Path, model: Model, graph: Graph) -> list[Path]:
    arrays = {
        "entities": _vectors(model),
        "entity_names": np.array(list(graph.entities), np.str_),
        "relation_names": np.array(list(graph.relations), np.str_),
        **_relations(model),
    }
    for kind, names in (("entity", graph.entities), ("relation", graph.relations)):
        if names.labels is not None:
            arrays[f"{kind}_labels"] = np.array(names.labels.texts["label"].array.to_pylist(), np.str_)
    if model.codes is not None:
        arrays["element_names"] = _element_names(model)  # element_names[codes] are the names
    with atomic_path(path) as partial, partial.open("wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]  # array names, not options
    return [path]


def _write_parquet(path: Path, model: Model, graph: Graph) -> list[Path]:
    relations = _relations(model)
    columns = {name: _lists(values) for name, values in relations.items()}
    if "codes" in relations:
        columns["elements"] = _lists(_element_names(model)[relations["codes"]])
    tables = {
        path: {**_names(graph.entities), "vector": _lists(_vectors(model))},
        relations_path(path): {**_names(graph.relations), **columns},
    }
    for file, content in tables.items():
        with atomic_path(file) as partial:
            papq.write_table(pa.table(content), partial)
    return list(tables)


def _names(names: Vocabulary) -> dict[str, pa.Array]:
    """The names, and their labels if there are any."""
    labels = {} if names.labels is None else {"label": names.labels.texts["label"].array}
    return {"name": names.array, **labels}


def _lists(values: Array) -> pa.Array:
    """[n] as numbers, [n, width] as lists of fixed size."""
    flat = pa.array(np.ascontiguousarray(values).ravel())
    return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _write_text(path: Path, model: Model, graph: Graph) -> list[Path]:
    """The word2vec text format: a line with the counts, then one name with its numbers per line."""
    relations = _relations(model)
    rows = _element_names(model)[relations["codes"]] if "codes" in relations else relations["operators"]
    files = {path: (graph.entities, _vectors(model)), relations_path(path): (graph.relations, rows)}
    if "scales" in relations:  # one number per relation
        files[path.with_name(f"{path.stem}.scales{path.suffix}")] = (graph.relations, relations["scales"][:, None])
    for file, content in files.items():
        _write_lines(file, *content)
    return list(files)


def _write_lines(path: Path, names: Iterable[str], rows: Array) -> None:
    """Write a line with the shape of `rows` [n, width], which holds numbers or element names, and one line per row."""
    word = "%s" if rows.dtype.kind == "U" else "%.9g"  # nine digits restore a float32 exactly
    line = " ".join([word] * rows.shape[1])
    with atomic_path(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as out:
        out.write(f"{len(rows)} {rows.shape[1]}\n")
        for name, row in zip(names, rows, strict=True):
            out.write(f"{one_word(name)} {line % tuple(row.tolist())}\n")


def one_word(name: str) -> str:
    """A name without whitespace, which ends names in word2vec text; `urllib.parse.unquote` restores it.

    >>> one_word("New York"), one_word("50%")
    ('New%20York', '50%25')
    """
    return "".join(quote(char) if char.isspace() or char == "%" else char for char in name)
