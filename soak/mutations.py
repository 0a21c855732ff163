"""Damaged files: models, archives, Parquet, text and RDF with flipped bits, lost bytes and false lengths.

Each must be refused in one sentence, or load and work, without another exception, a crash, a hang or excessive memory.
Case i of a seed is reproducible: `python -m soak.mutations SEED i` runs it alone and prints the result.
"""

from __future__ import annotations

import functools
import io
import json
import os
import random
import resource
import select
import shutil
import struct
import sys
import tarfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as papq

import dihedral as dh
from dihedral.cli import folders
from dihedral.errors import DihedralError
from dihedral.graph.readers import write_folder
from dihedral.graph.triples import SPLITS
from dihedral.io.sources import RDF_SUFFIXES
from soak.children import GIB, Child, is_clear, run_child
from soak.tally import Tally

MAX_SECONDS = 300.0  # per file: a process that hangs, not a busy machine
MAX_MEMORY = GIB // 2  # for loading, in addition to the memory of the process
NUM_WORKERS = 2
MAX_MESSAGE_LENGTH = 2000
LENGTHS = [struct.pack("<i", -1), struct.pack("<I", 2**31 - 1), struct.pack("<q", 2**62), struct.pack("<Q", 2**64 - 1),
           struct.pack(">I", 2**32 - 2), struct.pack("<q", 2**33)]  # fmt: skip
JSON_VALUES: list[Any] = [None, -1, 0, 2**31, 2**70, 1e308, float("nan"), True, "", "\x00", "../x", "a" * 5000, [], {},
                          [[[]]], {"a": {}}, [None], "entities", "\ud800", 10**400]  # fmt: skip

Target = tuple[str, Path]  # kind, and file or folder


def run(tally: Tally, mutations: int, seed: int, folder: Path) -> None:
    """Damage and load files in a few processes."""
    made = run_child(functools.partial(make_bases, folder / "bases"))
    if not tally.check(made.how == "done", f"the files to damage could not be created: {made}"):
        return
    if not any(kind == "rdf" for kind, _ in targets(folder / "bases")):
        tally.skipped.append("damaged RDF files: pyoxigraph is not installed")
    workers = [Worker(number, mutations, seed, folder) for number in range(NUM_WORKERS)]
    while any(worker.busy for worker in workers):
        ready, _, _ = select.select([worker.pipe for worker in workers if worker.busy], [], [], 0.2)
        for worker in workers:
            if worker.busy:
                for outcome in worker.outcomes(worker.pipe in ready):
                    _judge(tally, outcome, seed)
                    tally.advance()


def _judge(tally: Tally, outcome: dict[str, Any], seed: int) -> None:
    """Count a case; it is a loss unless it was refused or loaded."""
    kind, how, message = outcome["kind"], outcome["how"], outcome["message"]
    place = f"case {outcome['case']} of seed {seed} ({kind}: {outcome['mutation']})"
    if how == "refused":
        if not is_clear(message) or len(message) > MAX_MESSAGE_LENGTH:
            how, message = "refused with an unclear message", message[:500]
        elif any(word in message.lower() for word in ("alloc", "out of memory")):
            how = "memory"
    tally.count(f"{kind}: {how}")
    tally.check(how in ("refused", "loaded", "loaded, other content"), f"{place} {how}: {message}")


class Worker:
    """Runs every n-th case in a process; if a case ends the process, another continues with the next case."""

    def __init__(self, number: int, mutations: int, seed: int, folder: Path) -> None:
        self.cases = list(range(number, mutations, NUM_WORKERS))
        self.seed, self.bases, self.place = seed, folder / "bases", folder / f"worker-{number}"
        self.child: Child | None = None
        self._start()

    @property
    def busy(self) -> bool:
        return self.child is not None

    def _start(self) -> None:
        if not self.cases:
            self.child = None
            return
        self.pipe, sending = os.pipe()
        self.buffer, self.since = b"", time.monotonic()
        self.at: dict[str, Any] | None = None
        batch = self.cases[:250]  # bounds what memory leaks in libraries can add up to
        self.child = Child(functools.partial(work_through, batch, self.seed, self.bases, self.place, sending),
                           memory=4 * GIB)  # fmt: skip
        os.close(sending)

    def outcomes(self, ready: bool) -> Iterator[dict[str, Any]]:
        """Cases reported since the last call, and cases that ended the process."""
        assert self.child is not None
        block = os.read(self.pipe, 1 << 16) if ready else None
        if block:
            self.since = time.monotonic()
            *lines, self.buffer = (self.buffer + block).split(b"\n")
            for line in lines:
                report = json.loads(line)
                if "how" in report:
                    self.cases.remove(report["case"])
                    self.at = None
                    yield report
                else:
                    self.at = report
        elif block == b"" or time.monotonic() - self.since > MAX_SECONDS:
            ending = self.child.kill_after(0.0 if block is None else 5.0)
            os.close(self.pipe)
            if self.at is not None or ending.how != "done":
                case = self.at or {"case": self.cases[0], "kind": "?", "mutation": "?"}
                self.cases.remove(case["case"])
                how = "hung" if block is None else ending.how
                yield {**case, "how": how, "message": str(ending)}
            self._start()


def work_through(cases: list[int], seed: int, bases: Path, place: Path, report: int) -> None:
    """Create and load cases; each is announced before it is loaded and reported afterwards."""

    def send(content: dict[str, Any]) -> None:
        os.write(report, json.dumps(content).encode() + b"\n")

    expected = {path: load(kind, path) for kind, path in targets(bases)}
    max_peak = _peak() + MAX_MEMORY
    for case in cases:
        kind, path, mutation, base = make_case(case, seed, bases, place)
        about = {"case": case, "kind": kind, "mutation": mutation}
        send(about)
        try:
            found = load(kind, path)
            how, message = ("loaded" if found == expected[base] else "loaded, other content"), ""
        except DihedralError as error:
            how, message = "refused", str(error)
        except MemoryError as error:
            how, message = "memory", repr(error)
        except Exception:  # noqa: BLE001  any other exception is a finding
            how, message = "raised", traceback.format_exc()[-1500:]
        if _peak() > max_peak:
            how, message, max_peak = "memory", f"{_peak() >> 20} MiB", _peak() + MAX_MEMORY
        send({**about, "how": how, "message": message[:20_000]})


def load(kind: str, path: Path) -> Any:
    """Open and use a file that may be damaged; returns a summary of its content."""
    if kind != "model":
        graph = dh.load_graph(path)
        limits = graph.num_entities, graph.num_relations, graph.num_entities
        assert graph.known.min() >= 0 and (graph.known.max(axis=0) < limits).all(), "ids without names"
        return graph.fingerprint
    predictor = dh.load(path)
    names, relations = predictor.graph.entities, predictor.graph.relations
    found = predictor.predict(head=names[0], relation=relations[0], top=3, known="exclude")
    found += predictor.predict(head=names[0], tail=names[1], top=3)
    folders.info_command(path, json=False)
    folders.info_command(path, json=True)
    return json.dumps(found)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- intact files ----------------------------------------------------------------------------------------


def make_bases(folder: Path) -> None:
    """Intact files of each kind."""
    graph = dh.make_family(80, seed=1)
    settings: dict[str, Any] = {"epochs": 2, "dimension": 8, "progress": False, "validate_every": 1}
    dh.train(graph, "demo/family", **settings, out=folder / "model" / "sharded", shard_mb=0.005)
    dh.train(graph, "demo/family", **settings, out=folder / "model" / "half", dtype="float16", model="dihedral-ste")
    dh.train(graph, "demo/family", **settings, out=folder / "model" / "transe", model="transe")
    dh.train(graph, "demo/family", **settings, out=folder / "model" / "rescal", model="rescal")
    for model in (folder / "model").iterdir():
        shutil.rmtree(model / "training")
    texts = folder / "splits"
    write_folder(graph, texts)
    labels = list(graph.names_of(graph.known))
    plain = "".join("\t".join(triple) + "\n" for triple in labels)
    files: dict[str, bytes] = {
        "text/plain.tsv": plain.encode(),
        "text/header.tsv": ("head\trelation\ttail\n" + plain).encode(),
        "text/quoted.csv": ("subject,predicate,object\n" + "".join(
            ",".join(f'"{name}"' for name in triple) + "\n" for triple in labels)).encode(),
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    _make_parquet(graph, labels, folder / "parquet")
    _make_archives({f"{split}.txt": (texts / f"{split}.txt").read_bytes() for split in SPLITS}, folder / "archive")
    shutil.rmtree(texts)
    _make_rdf(labels, folder / "rdf")


def _make_parquet(graph: dh.Graph, labels: list[tuple[str, str, str]], folder: Path) -> None:
    folder.mkdir()
    table = pa.table(dict(zip(("head", "relation", "tail"), map(list, zip(*labels, strict=True)), strict=True)))
    for compression in ("none", "snappy", "zstd"):
        papq.write_table(table, folder / f"{compression}.parquet", compression=compression)
    papq.write_table(graph.to_arrow(), folder / "split.parquet")


def _make_archives(files: dict[str, bytes], folder: Path) -> None:
    folder.mkdir()
    for name, how in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(folder / f"{name}.zip", "w", how) as archive:
            for member, content in files.items():
                archive.writestr(member, content)
    for name, mode in (("graph.tar", "w"), ("graph.tar.gz", "w:gz"), ("graph.tar.xz", "w:xz")):
        (folder / name).write_bytes(_tar(files, mode))


def _tar(files: dict[str, bytes], mode: Any = "w") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode, format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.pax_headers = {"comment": "é" * 40}
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _make_rdf(labels: list[tuple[str, str, str]], folder: Path) -> None:
    try:
        import pyoxigraph as ox
    except ImportError:
        return
    folder.mkdir()
    base = "http://example.org/"
    triples = [ox.Triple(*(ox.NamedNode(base + name) for name in triple)) for triple in labels[:60]]
    triples.append(ox.Triple(ox.BlankNode(), ox.NamedNode(base + "name"), ox.Literal("é")))
    for suffix, format in RDF_SUFFIXES.items():
        if suffix not in (".owl", ".xml"):
            content = ox.serialize(triples, format=getattr(ox.RdfFormat, format), prefixes={"ex": base})
            (folder / f"graph{suffix}").write_bytes(content)


@functools.cache
def targets(bases: Path) -> list[Target]:
    """All intact files with their kind, which is the name of their folder."""
    return sorted((path.parent.name, path) for path in bases.glob("*/*"))


# --- damage ---------------------------------------------------------------------------------------------


def make_case(case: int, seed: int, bases: Path, place: Path) -> tuple[str, Path, str, Path]:
    """Create a damaged file or folder; returns its kind, its path, the mutation and the intact original."""
    rng = random.Random(f"{seed}-{case}")
    kinds = sorted({kind for kind, _ in targets(bases)})
    kind = "model" if case % 2 else kinds[case // 2 % len(kinds)]
    _, base = rng.choice([target for target in targets(bases) if target[0] == kind])
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    path = place / base.name
    if kind == "model":
        shutil.copytree(base, path)
        mutation = _damage_model(path, bases, rng)
    else:
        content = base.read_bytes()
        if base.name.endswith((".tar.gz", ".tar.xz")) and rng.random() < 0.5:  # damage the uncompressed content
            import gzip
            import lzma

            packer: Any = gzip if base.suffix == ".gz" else lzma
            mutation, content = damage(packer.decompress(content), rng, bases)
            mutation, content = f"{mutation} inside {base.name}", packer.compress(content)
        else:
            mutation, content = damage(content, rng, bases)
            mutation = f"{mutation} in {base.name}"
        path.write_bytes(content)
    return kind, path, mutation, base


def _damage_model(folder: Path, bases: Path, rng: random.Random) -> str:
    """Damage a file of a model; in half of the cases its size in the manifest is adjusted."""
    files = sorted(path for path in folder.iterdir() if path.name != "README.md")
    path = rng.choice(files)
    kind = rng.random()
    if kind < 0.05:
        path.unlink()
        return f"{path.name} removed"
    if kind < 0.1:
        other = rng.choice(files)
        one, two = path.read_bytes(), other.read_bytes()
        path.write_bytes(two)
        other.write_bytes(one)
        mutation = f"{path.name} and {other.name} swapped"
    elif path.suffix == ".json" and kind < 0.7:
        content = json.loads(path.read_text(encoding="utf-8"))
        mutation = f"{_edit(content, rng)} in {path.name}"
        path.write_text(json.dumps(content), encoding="utf-8")
    else:
        mutation, content = damage(path.read_bytes(), rng, bases)
        mutation = f"{mutation} in {path.name}"
        path.write_bytes(content)
    if "model.json" not in mutation and rng.random() < 0.5:
        manifest = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        manifest["bytes"] = {name: (folder / name).stat().st_size for name in manifest["bytes"]}
        (folder / "model.json").write_text(json.dumps(manifest), encoding="utf-8")
        mutation += ", size adjusted"
    return mutation


def _edit(content: Any, rng: random.Random) -> str:
    """Change, remove or add a value somewhere in JSON."""
    node, trail = content, []
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return "nothing"
        key = rng.choice(keys)
        trail.append(str(key))
        if isinstance(node[key], (dict, list)) and node[key] and rng.random() < 0.8:
            node = node[key]
            continue
        break
    where = ".".join(trail)
    action = rng.random()
    if action < 0.2:
        del node[key]
        return f"{where} removed"
    if action < 0.3 and isinstance(node, dict):
        node[rng.choice(["", "x", key * 2])] = node.pop(key)
        return f"{where} renamed"
    if action < 0.45 and isinstance(node[key], (int, float)):
        node[key] = node[key] * rng.choice([-1, 2, 10**6, 0.5]) + rng.choice([0, 1, -1])
        return f"{where} = {node[key]}"
    value = rng.choice(JSON_VALUES)
    node[key] = value
    return f"{where} = {str(value)[:20]!r}"


def damage(content: bytes, rng: random.Random, bases: Path) -> tuple[str, bytes]:
    """Apply one random kind of damage; returns its name and the damaged bytes."""
    name = rng.choice(list(DAMAGE))
    return name, DAMAGE[name](content, rng, bases)


def _place(content: bytes, rng: random.Random) -> int:
    """A random offset in a file; headers and footers are more likely than the rest."""
    edge = min(len(content), 400)
    where = rng.random()
    if where < 0.35:
        return rng.randrange(edge + 1)
    if where < 0.7:
        return len(content) - rng.randrange(edge + 1)
    return rng.randrange(len(content) + 1)


def _flip(content: bytes, rng: random.Random, _: Path) -> bytes:
    changed = bytearray(content or b"\0")
    for _number in range(rng.choice([1, 1, 2, 8])):
        changed[min(_place(content, rng), len(changed) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(content: bytes, rng: random.Random, new: bytes) -> bytes:
    start = min(_place(content, rng), max(0, len(content) - len(new)))
    return content[:start] + new + content[start + len(new) :]


def _duplicate(content: bytes, rng: random.Random, _: Path) -> bytes:
    start, end = sorted((_place(content, rng), _place(content, rng)))
    return content[:end] + content[start:end] * rng.choice([1, 1, 5]) + content[end:]


def _insert(content: bytes, rng: random.Random, _: Path) -> bytes:
    at = _place(content, rng)
    new = rng.choice([b"\0" * 64, b"\xff" * 9, b'"', b"\n\n", b"\t" * 20, b"\r", "\u2028é".encode(), b"[" * 20_000,
                         b"a" * 300_000, rng.randbytes(40)])  # fmt: skip
    return content[:at] + new + content[at:]


def _length(content: bytes, rng: random.Random, _: Path) -> bytes:
    new = rng.choice(LENGTHS)
    start = min(_place(content, rng) // 4 * 4, max(0, len(content) - len(new)))
    return content[:start] + new + content[start + len(new) :]


def _swap(_: bytes, rng: random.Random, bases: Path) -> bytes:
    return rng.choice([path for path in sorted(bases.rglob("*")) if path.is_file()]).read_bytes()


DAMAGE: dict[str, Callable[[bytes, random.Random, Path], bytes]] = {
    "bits flipped": _flip,
    "random bytes": lambda content, rng, _: _overwrite(content, rng, rng.randbytes(rng.choice([1, 4, 60]))),
    "zeros": lambda content, rng, _: _overwrite(content, rng, bytes(rng.choice([1, 8, 500]))),
    "truncated": lambda content, rng, _: content[: _place(content, rng)],
    "beginning removed": lambda content, rng, _: content[_place(content, rng) :],
    "part duplicated": _duplicate,
    "bytes inserted": _insert,
    "huge length": _length,
    "another file's content": _swap,
}


def main() -> None:
    """Run single cases in this process, with tracebacks."""
    import tempfile

    seed, *cases = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        bases = Path(folder) / "bases"
        make_bases(bases)
        for case in cases:
            kind, path, mutation, _ = make_case(case, seed, bases, Path(folder) / "case")
            print(f"case {case}: {kind}, {mutation}", flush=True)
            try:
                load(kind, path)
            except DihedralError as error:
                print(f"refused: {error}")


if __name__ == "__main__":
    main()
