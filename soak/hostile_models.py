"""Create hostile model folders: Arrow, safetensors and JSON files that lie about themselves."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from safetensors.torch import save as to_safetensors

import dihedral as dh
from dihedral.io.jsonl import read_lines
from dihedral.learn.checkpoint import RunFolder
from soak.hostile_files import LIES, amount


def make_bases(folder: Path) -> None:
    """Intact models of several kinds."""
    graph = dh.make_family(20, seed=1)
    settings: dict[str, Any] = {"epochs": 1, "dimension": 8, "progress": False, "validate_every": 1}
    dh.train(graph, "demo/family", **settings, out=folder / "dihedral", relation_scale=True)
    dh.train(graph, "demo/family", **settings, out=folder / "sharded", shard_mb=0.005)
    dh.train(graph, "demo/family", **settings, out=folder / "half", dtype="float16", model="dihedral-ste")
    dh.train(graph, "demo/family", **settings, out=folder / "rescal", model="rescal")


def use_log(folder: Path) -> None:
    """Read the log as the server does."""
    read_lines(RunFolder(folder).log)


def _copy(rng: random.Random, place: Path, bases: Path) -> Path:
    base = rng.choice(sorted(bases.iterdir()))
    shutil.copytree(base, place / "case")
    return place / "case"


def _store(folder: Path, path: Path, content: bytes) -> None:
    """Replace a file, with its size in the manifest, so that only its content is wrong."""
    path.write_bytes(content)
    if path.name == "model.json":
        return
    manifest = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    if path.name in manifest["bytes"]:
        manifest["bytes"][path.name] = len(content)
        (folder / "model.json").write_text(json.dumps(manifest), encoding="utf-8")


# --- Arrow ----------------------------------------------------------------------------------------------


def arrow(rng: random.Random, place: Path, bases: Path) -> str:
    folder = _copy(rng, place, bases)
    path = rng.choice(sorted(folder.glob("*.arrow")))
    kind = rng.choice(["numbers", "numbers", "compressed", "columns", "order", "ids", "batches"])
    table = pa.ipc.open_file(pa.py_buffer(path.read_bytes())).read_all()
    options: dict[str, Any] = {}
    if kind == "numbers":
        _store(folder, path, false_numbers(path.read_bytes(), rng, 8))
        return f"numbers in {path.name}"
    if kind == "compressed":
        options["options"] = pa.ipc.IpcWriteOptions(compression=rng.choice(["zstd", "lz4"]))
        if "name" in table.column_names:
            long = "x" * amount(rng, 1 << 20)
            table = table.set_column(0, "name", pa.array([f"{long}{i}" for i in range(len(table))]))
    elif kind == "columns":
        table = _other_columns(table, rng)
    elif kind == "batches":
        batches = [table.slice(i, rng.choice([0, 1, 5])) for i in range(0, len(table), 5)]
        table = pa.concat_tables(batches * rng.choice([1, 1, 3]))
    else:
        table = _other_numbers(table, rng)
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, table.schema, **options) as writer:
        writer.write_table(table)
    _store(folder, path, out.getvalue().to_pybytes())
    return f"{kind} in {path.name}"


def _other_columns(table: pa.Table, rng: random.Random) -> pa.Table:
    place, size = rng.randrange(table.num_columns), len(table)
    kinds = [
        pa.array([None] * size),
        pa.array(["x"] * size),
        pa.array([float("nan")] * size),
        pa.array([b"\xff"] * size),
        pa.array([["x"]] * size),
        pa.array(["x"] * size).dictionary_encode(),
        pa.array([2**40] * size),
        pa.array(["x"] * size, pa.string_view()),
        pa.array([{"a": 1}] * size),
    ]
    name = rng.choice([table.column_names[place], "x" * amount(rng, 10**5), "name", "split"])
    changed = table.set_column(place, name, rng.choice(kinds))
    return changed if rng.random() < 0.8 else changed.select(range(1, changed.num_columns))


def _other_numbers(table: pa.Table, rng: random.Random) -> pa.Table:
    """Ids, splits or the order: permuted, repeated or far away."""
    place = rng.randrange(table.num_columns)
    column = table.column(place)
    values = column.to_pylist()
    for _ in range(rng.choice([1, 2, len(values)])):
        at = rng.randrange(len(values))
        other = values[rng.randrange(len(values))]
        if isinstance(other, int) and rng.random() < 0.5:
            limit = 255 if column.type == pa.uint8() else 2**31 - 1
            other = max(0 if limit == 255 else -(2**31), min(limit, rng.choice(LIES)))
        values[at] = other
    return table.set_column(place, table.column_names[place], pa.array(values, column.type))


def false_numbers(content: bytes, rng: random.Random, first: int = 0) -> bytes:
    """Aligned numbers are replaced by others; lengths, offsets and counts are mostly near the ends."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 6])):
        size = rng.choice([2, 4, 8])
        where = rng.choice([rng.randrange(first, min(len(content), 800)), len(content) - rng.randrange(1, 500),
                            rng.randrange(first, len(content))])  # fmt: skip
        at = max(first, where // size * size)
        lie = rng.choice([*LIES, len(content), len(content) - 1, rng.randrange(256), -8])
        changed[at : at + size] = struct.pack("<q", lie)[:size]
    return bytes(changed[: len(content)])


# --- safetensors ----------------------------------------------------------------------------------------


def safetensors(rng: random.Random, place: Path, bases: Path) -> str:
    folder = _copy(rng, place, bases)
    path = rng.choice(sorted(folder.glob("*.safetensors")))
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    kind = rng.choice(["shape", "offsets", "dtype", "names", "length", "deep", "metadata", "values", "tensors", "long"])
    name = rng.choice([key for key in header if key != "__metadata__"])
    about = header[name]
    if kind == "shape":
        about["shape"] = [rng.choice([*LIES, about["shape"][0]]) for _ in range(rng.choice([0, 1, 2, 2, 3, 50]))]
    elif kind == "offsets":
        about["data_offsets"] = [rng.choice([*LIES, len(body)]) for _ in range(rng.choice([1, 2, 2, 2, 3]))]
    elif kind == "dtype":
        about["dtype"] = rng.choice(
            ["F64", "F32", "F16", "BF16", "I64", "I8", "U8", "BOOL", "F8_E4M3", "X", "", 3, None]
        )
    elif kind == "names":
        header[rng.choice(["x", "", "codes", "scales", "entities", "\0", "a" * 10**5])] = header.pop(name)
    elif kind == "metadata":
        header["__metadata__"] = {"dihedral": "[" * amount(rng, 10**5), "x" * amount(rng, 10**5): "y"}
    elif kind == "tensors":
        body = _other_tensors(rng)
        _store(folder, path, body)
        return f"other tensors in {path.name}"
    text = json.dumps(header).encode()
    if kind == "deep":
        text = b'{"x":' * amount(rng, 10**5) + text
    elif kind == "long":
        text += b" " * amount(rng, 30 << 20)
    elif kind == "values":
        body = false_numbers(body, rng)
    claimed = rng.choice(LIES) & (2**64 - 1) if kind == "length" else len(text)
    _store(folder, path, struct.pack("<Q", claimed) + text + body)
    return f"{kind} in {path.name}"


def _other_tensors(rng: random.Random) -> bytes:
    shape = [rng.choice([0, 1, 4, 6, 8, 20, 1000]) for _ in range(rng.choice([0, 1, 2, 2, 3]))]
    dtype = rng.choice([torch.uint8, torch.int16, torch.int64, torch.float32, torch.float16, torch.float64, torch.bool])
    names = rng.sample(["entities", "codes", "scales", "weights", "x"], rng.choice([1, 2]))
    fill = rng.choice([0, 1, 7, 255])
    return to_safetensors({name: torch.full(shape, fill, dtype=torch.float64).to(dtype) for name in names})


# --- JSON -----------------------------------------------------------------------------------------------


def json_file(rng: random.Random, place: Path, bases: Path) -> str:
    folder = _copy(rng, place, bases)
    path = rng.choice([*sorted(folder.glob("*.json")), folder / "training" / "log.jsonl"])
    path.parent.mkdir(exist_ok=True)
    kind = rng.choice(["deep", "long", "value", "value", "value", "text", "link"])
    if kind == "value":
        name = path.name if path.suffix == ".json" else "model.json"
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        where = _change(content, rng)
        _store(folder, folder / name, json.dumps(content).encode("utf-8", "replace"))
        return f"{where} in {name}"
    if kind == "link":
        path.unlink(missing_ok=True)
        if rng.random() < 0.5:
            path.symlink_to(rng.choice(["/etc/passwd", "/dev/zero", "/dev/stdin", str(path), "."]))
        else:
            os.mkfifo(path)
        return f"{path.name} is a link or a pipe"
    depth = amount(rng, 3 << 20)
    texts = {
        "deep": rng.choice(["[" * depth, '{"a":' * depth, '{"a": ' + "[" * depth + "]" * depth + "}"]),
        "long": '{"a": [' + rng.choice(["[],", "{},", "1,", '"",', '{"a":1},']) * depth + "1]}",
        "text": rng.choice(['{"a": "' + "\\\\" * depth, '"' * depth, "\ufeff{}", "1" * min(depth, 10**6), "NaN", "",
                            '{"a": 1e99999}', '{"a": "\\ud800"}', "{" + ",".join(['"a": 1'] * (depth % 10**5)) + "}"]),
    }  # fmt: skip
    _store(folder, path, texts[kind].encode())
    return f"{kind} {path.name}"


def _change(content: Any, rng: random.Random) -> str:
    """Replace a value somewhere by a hostile one."""
    deep: Any = []
    for _ in range(rng.choice([5, 90, 300])):
        deep = [deep]
    values: list[Any] = [
        *LIES,
        -(2**63),
        10**30,
        1e308,
        float("nan"),
        float("-inf"),
        True,
        None,
        "",
        "\x00",
        "../x",
        "/etc/passwd",
        "x" * 10**5,
        "\x1b[2J",
        "\ud7ff",
        [],
        {},
        deep,
        ["x"] * 10**4,
        {"x": {}},
    ]
    node: Any = content
    trail = []
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        trail.append(str(key))
        if isinstance(node[key], (dict, list)) and node[key] and rng.random() < 0.8:
            node = node[key]
            continue
        node[key] = rng.choice(values)
        return f"{'.'.join(trail)} = {str(node[key])[:20]!r}"
