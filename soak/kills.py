"""SIGKILL at random moments of training, saving, downloading and tuning.

After each kill every file under its final name must be whole, and the same command must go on; in the end the result
must be the one of a run that was never killed, bit for bit.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import random
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from safetensors import safe_open
from typer.testing import CliRunner

import dihedral as dh
from dihedral.cli.main import app
from dihedral.graph.benchmarks import BENCHMARKS, Benchmark, locate, verify
from dihedral.graph.readers import write_folder
from dihedral.graph.triples import SPLITS
from dihedral.io.jsonl import read_lines
from dihedral.models import build_model
from dihedral.storage.folder import holds_model
from dihedral.training.recipe import load_recipe
from dihedral.tuning.optuna_search import Search, search
from soak.children import Child, Ending, ask, command
from soak.tally import Tally

EPOCHS = 60
TRAINING = ("--recipe", "demo/family", "--checkpoint-minutes", 0, "--device", "cpu",
            "--set", "dimension=16", "--set", "batch_size=64", "--set", f"epochs={EPOCHS}",
            "--set", "validate_every=3")  # fmt: skip
TUNING = {"dimension": 8, "batch_size": 64, "epochs": 6, "validate_every": 2}
TRIALS = 8


def run(tally: Tally, kills: int, seed: int, folder: Path) -> None:
    """Spread the kills evenly over the four kinds of work."""
    chance = random.Random(seed)
    data = folder / "data"
    write_folder(small_graph(), data)
    kinds = [
        ("training", functools.partial(kill_training, data=data)),
        ("saving", kill_saving),
        ("downloading", kill_downloading),
        ("grid search", functools.partial(kill_grid, data=data)),
        ("search by trials", kill_search),
    ]
    shares = [kills // 4, kills // 4, kills // 4, kills // 8]
    for (kind, work), share in zip(kinds, [*shares, kills - sum(shares)], strict=True):
        place = folder / kind.replace(" ", "-")
        place.mkdir()
        if share:
            work(Killer(tally, kind, share, chance), folder=place)


class Killer:
    """Starts work and kills it at random moments until its share of kills is spent."""

    def __init__(self, tally: Tally, kind: str, kills: int, chance: random.Random) -> None:
        self.tally, self.kind, self.left, self.chance = tally, kind, kills, chance

    def start(self, work: Callable[[], Any], longest: float) -> Ending:
        """Start work and kill it within `longest` seconds; when all kills are spent, let it end."""
        child = Child(work)
        ending = child.kill_after(self.chance.uniform(0, longest)) if self.left else child.wait()
        if ending.how == "killed":
            self.left -= 1
            self.tally.count(f"kills of {self.kind}")
            self.tally.advance()
        else:
            self.lose_unless(ending.how == "done", f"was to go on after {self.killed}, but {ending}")
        return ending

    @property
    def killed(self) -> str:
        return f"{self.tally.counts[f'kills of {self.kind}']} kills"

    def lose_unless(self, held: bool, loss: str) -> bool:
        return self.tally.check(held, f"{self.kind} {loss}")


# --- training -----------------------------------------------------------------------------------------


def kill_training(killer: Killer, *, folder: Path, data: Path) -> None:
    """Runs with a checkpoint an epoch, each killed several times before it ends."""
    train = ("train", data, *TRAINING, "--out")
    started = time.monotonic()
    whole = ask(command(*train, folder / "whole"))
    seconds = time.monotonic() - started
    expected = ask(functools.partial(digest, folder / "whole")).value
    if not killer.lose_unless(whole.how == "done" and expected is not None, f"did not end by itself: {whole}"):
        return
    number = 0
    while killer.left:
        out = folder / f"run-{number}"
        number += 1
        while not holds_model(out) or not killer.left:
            begun = holds_model(out) or any((out / "training").glob("checkpoint.*"))
            before = _epochs(out)
            ending = killer.start(command(*train, out, *(["--resume"] if begun else [])), 0.6 * seconds)
            if ending.how == "killed":
                _count_moment(killer, out)
                found = ask(functools.partial(damaged_files, out))
                killer.lose_unless(found == Ending("done", []), f"killed left {found}")
                # an epoch is logged before its checkpoint is written, so one may have to be trained again
                killer.lose_unless(_epochs(out) >= before - 1, f"went back from epoch {before} to {_epochs(out)}")
                continue
            break
        if holds_model(out):
            found = ask(functools.partial(digest, out))
            killer.lose_unless(found.value == expected, f"ended otherwise than without kills: {found}")
            killer.tally.count("runs that ended as if never killed", found.value == expected)


def _epochs(out: Path) -> int:
    log = out / "training" / "log.jsonl"
    return len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0


def _count_moment(killer: Killer, out: Path) -> None:
    """A temporary file shows that the kill came in the middle of writing one."""
    if any(out.rglob(".*")):
        killer.tally.count("kills with a file half written")
    if not (out / "training" / "log.jsonl").exists():
        killer.tally.count("kills before training began")
    if holds_model(out):
        killer.tally.count("kills after the model was there")


def digest(folder: Path) -> dict[str, Any]:
    """A model in short: the sums of its tensors and names, and what was measured apart from seconds."""
    predictor = dh.load(folder)
    tensors = {"entities": predictor.model.entities, **predictor.model.relations.stored()}
    sums = {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}
    metrics = {key: value for key, value in predictor.metrics.items() if key != "train_seconds"}
    return json.loads(json.dumps({**sums, "graph": predictor.graph.fingerprint, "metrics": metrics}))


def damaged_files(folder: Path) -> list[str]:
    """Files under their final names that are not whole; a dot before the name of a file or folder says: not final."""
    damaged = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        try:
            _read_whole(path)
        except Exception as error:  # noqa: BLE001  whatever a reader says
            damaged.append(f"{path.relative_to(folder)}: {error!r}")
    return damaged


def _read_whole(path: Path) -> None:
    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as stream:
            for name in stream.keys():  # noqa: SIM118
                stream.get_tensor(name)
    elif path.suffix == ".arrow":
        pa.ipc.open_file(str(path)).read_all().validate(full=True)
    elif path.suffix == ".json":
        json.loads(path.read_text(encoding="utf-8"))
    elif path.suffix == ".jsonl":
        for line in path.read_text(encoding="utf-8").splitlines():
            json.loads(line)


# --- saving -------------------------------------------------------------------------------------------


def kill_saving(killer: Killer, *, folder: Path) -> None:
    """A process saves two models in turn over each other; one of them must be there, whole."""
    graph = dh.make_family(1200, seed=1)
    pair = [random_predictor(graph, seed) for seed in (0, 1)]
    expected, seconds = [], 0.0
    for number, predictor in enumerate(pair):
        predictor.save(folder / f"{number}", shard_mb=0.1)
        started = time.monotonic()
        predictor.save(folder / f"{number}", shard_mb=0.1, overwrite=True)
        seconds = time.monotonic() - started
        expected.append(digest(folder / f"{number}"))
    out, there = folder / "model", 1

    def save(first: int, times: int) -> None:
        for number in range(first, first + times):
            pair[number % 2].save(out, shard_mb=0.1, overwrite=True)

    while killer.left:
        before = set(out.glob(".*"))
        killer.start(functools.partial(save, 1 - there, 10_000), 2 * seconds)
        killer.tally.count("kills with a file half written", bool(set(out.glob(".*")) - before))
        if not holds_model(out):  # killed in the first save; from now on there is a model to lose
            ask(functools.partial(save, 0, 1))
        found = ask(functools.partial(digest, out))
        if killer.lose_unless(found.value in expected, f"left a model that is neither: {found}"):
            there = expected.index(found.value)
        killer.tally.count("saves that left the model before or the one after", found.value in expected)
    killer.start(functools.partial(save, 0, 2), 0)
    found = ask(functools.partial(digest, out))
    killer.lose_unless(found.value == expected[1], f"did not go on: {found}")
    left = sorted(path.name for path in out.glob(".*"))
    killer.lose_unless(not left, f"left {len(left)} unfinished files that no later save removes, such as {left[:1]}")


def random_predictor(graph: dh.Graph, seed: int) -> dh.Predictor:
    """A model that nobody trained."""
    model = build_model("dihedral-ste", graph.num_entities, graph.num_relations, dimension=64, seed=seed)
    return dh.Predictor(model.requires_grad_(False), graph, metrics={"seed": seed})


# --- downloading --------------------------------------------------------------------------------------


def kill_downloading(killer: Killer, *, folder: Path) -> None:
    """A benchmark from a slow server on loopback, as one archive and as text files."""
    graph = dh.make_family(400, seed=1)
    write_folder(graph, folder / "files")
    files = {f"{split}.txt": (folder / "files" / f"{split}.txt").read_bytes() for split in SPLITS}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    sums = {split: f"sha256:{hashlib.sha256(files[f'{split}.txt']).hexdigest()}" for split in SPLITS}
    port_file = folder / "port"
    server = Child(functools.partial(_serve, {**files, "soak.tar.gz": packed.getvalue()}, port_file))
    try:
        while not port_file.exists():
            time.sleep(0.01)
        address = f"http://127.0.0.1:{port_file.read_text()}"
        packed_one = Benchmark("soak-graph", (0, 0, 0, 0, 0), (f"{address}/soak.tar.gz",), sums)
        texts = tuple(f"{address}/{name}" for name in files)
        in_parts = replace(packed_one, sources=texts, joined=tuple((name,) for name in files))
        for number, benchmark in enumerate((packed_one, in_parts)):
            share = killer.left // 2 if number == 0 else killer.left
            _kill_downloads(killer, benchmark, killer.left - share, folder / f"cache-{number}")
    finally:
        server.kill_after(0)


def _kill_downloads(killer: Killer, benchmark: Benchmark, until: int, folder: Path) -> None:
    """Download again and again until so many kills are left."""
    started = time.monotonic()
    expected = ask(functools.partial(download, benchmark, folder / "whole"))
    seconds = time.monotonic() - started
    if not killer.lose_unless(expected.how == "done", f"did not end by itself: {expected}"):
        return
    number, ending = 0, expected
    while killer.left > until or ending.how == "killed":
        cache = folder / f"{number}"
        ending = killer.start(functools.partial(download, benchmark, cache), seconds)
        found = ask(functools.partial(whole_download, benchmark, cache))
        killer.lose_unless(found.how == "done", f"left {found}")
        if ending.how != "killed":
            killer.lose_unless(ending.value == expected.value, f"ended otherwise than without kills: {ending}")
            killer.tally.count("downloads that ended whole after kills")
            number += 1


def download(benchmark: Benchmark, cache: Path) -> str:
    _point_to(benchmark, cache)
    return dh.load_graph(benchmark.name).fingerprint


def whole_download(benchmark: Benchmark, cache: Path) -> bool:
    """Whether there is a download; one that is there must be the published file."""
    _point_to(benchmark, cache)
    path = locate(benchmark)
    if path is not None:
        verify(benchmark, path)
    return path is not None


def _point_to(benchmark: Benchmark, cache: Path) -> None:
    """In this process, the benchmark is downloaded into `cache`."""
    os.environ.pop("DIHEDRAL_DATA", None)
    os.environ["XDG_CACHE_HOME"] = str(cache)
    BENCHMARKS[benchmark.name] = benchmark


def _serve(files: dict[str, bytes], port_file: Path) -> None:
    """A web server that sends a few KiB each millisecond."""

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files[self.path.rsplit("/", 1)[1]]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            for start in range(0, len(content), 4096):
                self.wfile.write(content[start : start + 4096])
                self.wfile.flush()
                time.sleep(0.004)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    partial = port_file.with_name("port.partial")
    partial.write_text(str(server.server_address[1]))
    partial.rename(port_file)
    server.serve_forever()


# --- tuning -------------------------------------------------------------------------------------------


def kill_grid(killer: Killer, *, folder: Path, data: Path) -> None:
    """`dihedral tune --grid`, whose log must hold each combination once, as if never killed."""
    words = ["tune", data, "--grid", "--recipe", "demo/family", "--device", "cpu", "--choose", "K=4,6", "--choose",
             "lr=0.1,0.5", "--choose", "seed=0,1"]  # fmt: skip
    words += [word for key, value in TUNING.items() for word in ("--set", f"{key}={value}")]

    def rows(log: Path) -> list[dict[str, Any]]:
        ignored = ("seconds", "train_seconds")
        return [{key: value for key, value in row.items() if key not in ignored} for row in read_lines(log)]

    started = time.monotonic()
    ending = ask(command(*words, "--log", folder / "whole.jsonl"))
    seconds = time.monotonic() - started
    expected = rows(folder / "whole.jsonl")
    if not killer.lose_unless(ending.how == "done" and len(expected) == 8, f"did not end by itself: {ending}"):
        return
    number = 0
    while killer.left or ending.how == "killed":
        log = folder / f"{number}.jsonl"
        before = len(rows(log))
        ending = killer.start(command(*words, "--log", log), seconds / 2)
        found = rows(log)
        killer.lose_unless(found == expected[: len(found)], f"left another log after {killer.killed}")
        killer.lose_unless(len(found) >= before, f"lost {before - len(found)} of {before} rows")
        if ending.how != "killed":
            killer.lose_unless(found == expected, f"ended with {len(found)} rows that differ")
            killer.tally.count("grid searches that ended as if never killed", found == expected)
            number += 1


def kill_search(killer: Killer, *, folder: Path) -> None:
    """A search by Optuna: its trials must be those of a search that was never killed."""
    started = time.monotonic()
    expected = ask(functools.partial(trials, folder / "whole"))
    seconds = time.monotonic() - started
    if not killer.lose_unless(expected.how == "done" and len(expected.value) > 1, f"did not end: {expected}"):
        return
    number, ending = 0, expected
    while killer.left or ending.how == "killed":
        ending = killer.start(functools.partial(trials, folder / f"{number}"), seconds / 2)
        if ending.how != "killed":
            killer.lose_unless(ending.value == expected.value, f"ended otherwise than without kills: {ending}")
            killer.tally.count("searches by trials that ended as if never killed", ending.value == expected.value)
            number += 1


def trials(folder: Path) -> list[dict[str, Any]]:
    """The trials of a search in their order, without numbers and seconds."""
    recipe = load_recipe("demo/family").replace(**TUNING)
    space: Any = {"K": [4, 6], "entity_lr": (0.03, 1.0), "relation_lr": (0.03, 1.0)}
    rows = search(Search(small_graph(), recipe, space, folder, seed=3, device="cpu"), trials=TRIALS)
    kept = ("state", "changes", "valid_mrr", "epochs", "best_epoch")
    return [{key: row.get(key) for key in kept} for row in sorted(rows, key=lambda row: row["trial"])]


# --- shared -------------------------------------------------------------------------------------------


def small_graph() -> dh.Graph:
    return dh.make_family(40, seed=1)


def warm_up() -> None:
    """Import and compile in this process what children need, with one thread."""
    torch.set_num_threads(1)
    for model in ("dihedral-gumbel", "dihedral-ste"):
        dh.train(small_graph(), "demo/family", model=model, epochs=1, dimension=8, progress=False)
    CliRunner().invoke(app, ["train", "nowhere", "--out", "nowhere"])  # what typer imports late
