"""Damaged files: models, archives, Parquet, text and RDF with bits flipped, bytes lost and lengths made up.

Each must be refused in one sentence or load and answer; no other exception, crash, hang, or memory beyond a bound.
Case i of a seed is always the same: `python -m soak.mutations SEED i` runs it alone and shows what happens.
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
from dihedral.cli import info
from dihedral.errors import DihedralError
from dihedral.graph.readers import write_folder
from dihedral.graph.sources import RDF_SUFFIXES
from dihedral.graph.triples import SPLITS
from soak.children import GIB, Child, ask, is_clear
from soak.tally import Tally

SECONDS = 10.0  # that one file may take
MEMORY = GIB // 2  # that loading may take beyond what the process had
WORKERS = 2
LONGEST = 2000  # characters of a refusal
LENGTHS = [struct.pack("<i", -1), struct.pack("<I", 2**31 - 1), struct.pack("<q", 2**62), struct.pack("<Q", 2**64 - 1),
           struct.pack(">I", 2**32 - 2), struct.pack("<q", 2**33)]  # fmt: skip
JSON_VALUES: list[Any] = [None, -1, 0, 2**31, 2**70, 1e308, float("nan"), True, "", "\x00", "../x", "a" * 5000, [], {},
                          [[[]]], {"a": {}}, [None], "entities"]  # fmt: skip

Target = tuple[str, Path]  # what kind it is, and the file or folder


def run(tally: Tally, mutations: int, seed: int, folder: Path) -> None:
    """Mutate and load so many files in a few processes."""
    made = ask(functools.partial(make_bases, folder / "bases"))
    if not tally.check(made.how == "done", f"the files to damage could not be made: {made}"):
        return
    if not any(kind == "rdf" for kind, _ in targets(folder / "bases")):
        tally.skipped.append("damaged RDF files: pyoxigraph is not installed")
    workers = [Worker(number, mutations, seed, folder) for number in range(WORKERS)]
    while any(worker.busy for worker in workers):
        ready, _, _ = select.select([worker.pipe for worker in workers if worker.busy], [], [], 0.2)
        for worker in workers:
            if worker.busy:
                for outcome in worker.outcomes(worker.pipe in ready):
                    _judge(tally, outcome, seed)
                    tally.advance()


def _judge(tally: Tally, outcome: dict[str, Any], seed: int) -> None:
    """Count a case; what is neither refused nor loaded is lost."""
    kind, how, said = outcome["kind"], outcome["how"], outcome["said"]
    place = f"case {outcome['case']} of seed {seed} ({kind}: {outcome['mutation']})"
    if how == "refused":
        if not is_clear(said) or len(said) > LONGEST:
            how, said = "refused unclearly", said[:500]
        elif any(word in said.lower() for word in ("alloc", "out of memory")):
            how = "memory"
    tally.count(f"{kind}: {how}")
    tally.check(how in ("refused", "loaded", "loaded, other content"), f"{place} {how}: {said}")


class Worker:
    """A process that goes through every n-th case; when a case ends it, another goes on with the next."""

    def __init__(self, number: int, mutations: int, seed: int, folder: Path) -> None:
        self.cases = list(range(number, mutations, WORKERS))
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
        batch = self.cases[:250]  # so that what leaks in a library does not add up
        self.child = Child(functools.partial(work_through, batch, self.seed, self.bases, self.place, sending),
                           memory=4 * GIB)  # fmt: skip
        os.close(sending)

    def outcomes(self, ready: bool) -> Iterator[dict[str, Any]]:
        """What was reported since, and cases that took the process with them."""
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
        elif block == b"" or time.monotonic() - self.since > SECONDS:
            ending = self.child.kill_after(0.0 if block is None else 5.0)
            os.close(self.pipe)
            if self.at is not None or ending.how != "done":
                case = self.at or {"case": self.cases[0], "kind": "?", "mutation": "?"}
                self.cases.remove(case["case"])
                how = "hung" if block is None else ending.how
                yield {**case, "how": how, "said": str(ending)}
            self._start()


def work_through(cases: list[int], seed: int, bases: Path, place: Path, report: int) -> None:
    """Make and load cases; each is announced before it is loaded, and reported after."""

    def send(content: dict[str, Any]) -> None:
        os.write(report, json.dumps(content).encode() + b"\n")

    expected = {path: load(kind, path) for kind, path in targets(bases)}
    most = _peak() + MEMORY
    for case in cases:
        kind, path, mutation, base = make_case(case, seed, bases, place)
        about = {"case": case, "kind": kind, "mutation": mutation}
        send(about)
        try:
            found = load(kind, path)
            how, said = ("loaded" if found == expected[base] else "loaded, other content"), ""
        except DihedralError as error:
            how, said = "refused", str(error)
        except MemoryError as error:
            how, said = "memory", repr(error)
        except Exception:  # noqa: BLE001  what else comes is a finding
            how, said = "raised", traceback.format_exc()[-1500:]
        if _peak() > most:
            how, said, most = "memory", f"{_peak() >> 20} MiB", _peak() + MEMORY
        send({**about, "how": how, "said": said[:20_000]})


def load(kind: str, path: Path) -> Any:
    """Open and use what may be damaged; what it holds, in short."""
    if kind != "model":
        graph = dh.load_graph(path)
        limits = graph.num_entities, graph.num_relations, graph.num_entities
        assert graph.known.min() >= 0 and (graph.known.max(axis=0) < limits).all(), "ids that have no names"
        return graph.fingerprint
    predictor = dh.load(path)
    names, relations = predictor.graph.entities, predictor.graph.relations
    found = predictor.predict(head=names[0], relation=relations[0], top=3, known="exclude")
    found += predictor.predict(head=names[0], tail=names[1], top=3)
    info.command(path, json=False)
    info.command(path, json=True)
    return json.dumps(found)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- whole files ----------------------------------------------------------------------------------------


def make_bases(folder: Path) -> None:
    """One whole file of each kind."""
    graph = dh.make_family(80, seed=1)
    settings: dict[str, Any] = {"epochs": 2, "dimension": 8, "progress": False, "validate_every": 1}
    dh.train(graph, "demo/family", **settings, out=folder / "model" / "sharded", shard_mb=0.005, keep_latents=True)
    dh.train(graph, "demo/family", **settings, out=folder / "model" / "half", dtype="float16", model="dihedral-ste")
    dh.train(graph, "demo/family", **settings, out=folder / "model" / "transe", model="transe")
    dh.train(graph, "demo/family", **settings, out=folder / "model" / "rescal", model="rescal")
    for model in (folder / "model").iterdir():
        shutil.rmtree(model / "training")
    texts = folder / "splits"
    write_folder(graph, texts)
    labels = list(graph.labels(graph.known))
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
    """All whole files, the kind of each being the folder it lies in."""
    return sorted((path.parent.name, path) for path in bases.glob("*/*"))


# --- damage ---------------------------------------------------------------------------------------------


def make_case(case: int, seed: int, bases: Path, place: Path) -> tuple[str, Path, str, Path]:
    """Make damaged files: their kind, where they are, what was done, and the whole files they were."""
    chance = random.Random(f"{seed}-{case}")
    kinds = sorted({kind for kind, _ in targets(bases)})
    wanted = "model" if case % 2 else kinds[case // 2 % len(kinds)]
    _, base = chance.choice([target for target in targets(bases) if target[0] == wanted])
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    path = place / base.name
    if wanted == "model":
        shutil.copytree(base, path)
        mutation = _damage_model(path, bases, chance)
    else:
        content = base.read_bytes()
        if base.name.endswith((".tar.gz", ".tar.xz")) and chance.random() < 0.5:  # inside what was packed
            import gzip
            import lzma

            packer: Any = gzip if base.suffix == ".gz" else lzma
            mutation, content = damage(packer.decompress(content), chance, bases)
            mutation, content = f"{mutation} inside {base.name}", packer.compress(content)
        else:
            mutation, content = damage(content, chance, bases)
            mutation = f"{mutation} in {base.name}"
        path.write_bytes(content)
    return wanted, path, mutation, base


def _damage_model(folder: Path, bases: Path, chance: random.Random) -> str:
    """Damage a file of a model; half the time its size in the manifest is made to agree."""
    files = sorted(path for path in folder.iterdir() if path.name != "README.md")
    path = chance.choice(files)
    kind = chance.random()
    if kind < 0.05:
        path.unlink()
        return f"{path.name} removed"
    if kind < 0.1:
        other = chance.choice(files)
        one, two = path.read_bytes(), other.read_bytes()
        path.write_bytes(two)
        other.write_bytes(one)
        mutation = f"{path.name} and {other.name} swapped"
    elif path.suffix == ".json" and kind < 0.7:
        content = json.loads(path.read_text(encoding="utf-8"))
        mutation = f"{_edit(content, chance)} in {path.name}"
        path.write_text(json.dumps(content), encoding="utf-8")
    else:
        mutation, content = damage(path.read_bytes(), chance, bases)
        mutation = f"{mutation} in {path.name}"
        path.write_bytes(content)
    if "model.json" not in mutation and chance.random() < 0.5:
        manifest = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        manifest["bytes"] = {name: (folder / name).stat().st_size for name in manifest["bytes"]}
        (folder / "model.json").write_text(json.dumps(manifest), encoding="utf-8")
        mutation += ", size agreed"
    return mutation


def _edit(content: Any, chance: random.Random) -> str:
    """Change, remove or add a value somewhere in JSON."""
    node, trail = content, []
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return "nothing"
        key = chance.choice(keys)
        trail.append(str(key))
        if isinstance(node[key], (dict, list)) and node[key] and chance.random() < 0.8:
            node = node[key]
            continue
        break
    where = ".".join(trail)
    action = chance.random()
    if action < 0.2:
        del node[key]
        return f"{where} removed"
    if action < 0.3 and isinstance(node, dict):
        node[chance.choice(["", "x", key * 2])] = node.pop(key)
        return f"{where} renamed"
    if action < 0.45 and isinstance(node[key], (int, float)):
        node[key] = node[key] * chance.choice([-1, 2, 10**6, 0.5]) + chance.choice([0, 1, -1])
        return f"{where} = {node[key]}"
    value = chance.choice(JSON_VALUES)
    node[key] = value
    return f"{where} = {str(value)[:20]!r}"


def damage(content: bytes, chance: random.Random, bases: Path) -> tuple[str, bytes]:
    """Bytes with one kind of damage, and its name."""
    name = chance.choice(list(DAMAGE))
    return name, DAMAGE[name](content, chance, bases)


def _place(content: bytes, chance: random.Random) -> int:
    """Somewhere in a file; headers and footers more often than the rest."""
    edge = min(len(content), 400)
    where = chance.random()
    if where < 0.35:
        return chance.randrange(edge + 1)
    if where < 0.7:
        return len(content) - chance.randrange(edge + 1)
    return chance.randrange(len(content) + 1)


def _flip(content: bytes, chance: random.Random, _: Path) -> bytes:
    changed = bytearray(content or b"\0")
    for _number in range(chance.choice([1, 1, 2, 8])):
        changed[min(_place(content, chance), len(changed) - 1)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _overwrite(content: bytes, chance: random.Random, new: bytes) -> bytes:
    start = min(_place(content, chance), max(0, len(content) - len(new)))
    return content[:start] + new + content[start + len(new) :]


def _duplicate(content: bytes, chance: random.Random, _: Path) -> bytes:
    start, end = sorted((_place(content, chance), _place(content, chance)))
    return content[:end] + content[start:end] * chance.choice([1, 1, 5]) + content[end:]


def _insert(content: bytes, chance: random.Random, _: Path) -> bytes:
    at = _place(content, chance)
    new = chance.choice([b"\0" * 64, b"\xff" * 9, b'"', b"\n\n", b"\t" * 20, b"\r", "\u2028é".encode(), b"[" * 20_000,
                         b"a" * 300_000, chance.randbytes(40)])  # fmt: skip
    return content[:at] + new + content[at:]


def _length(content: bytes, chance: random.Random, _: Path) -> bytes:
    new = chance.choice(LENGTHS)
    start = min(_place(content, chance) // 4 * 4, max(0, len(content) - len(new)))
    return content[:start] + new + content[start + len(new) :]


def _swap(_: bytes, chance: random.Random, bases: Path) -> bytes:
    return chance.choice([path for path in sorted(bases.rglob("*")) if path.is_file()]).read_bytes()


DAMAGE: dict[str, Callable[[bytes, random.Random, Path], bytes]] = {
    "bits flipped": _flip,
    "random bytes": lambda content, chance, _: _overwrite(content, chance, chance.randbytes(chance.choice([1, 4, 60]))),
    "zeros": lambda content, chance, _: _overwrite(content, chance, bytes(chance.choice([1, 8, 500]))),
    "cut short": lambda content, chance, _: content[: _place(content, chance)],
    "beginning lost": lambda content, chance, _: content[_place(content, chance) :],
    "part doubled": _duplicate,
    "bytes inserted": _insert,
    "a length made huge": _length,
    "another file's content": _swap,
}


def main() -> None:
    """Run single cases here, with their tracebacks."""
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
