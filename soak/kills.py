"""SIGKILL at random times during training, saving, downloading and tuning.

After each kill, every file under its final name must be complete, and the same command must resume. The final result
must be bit-identical to that of an uninterrupted run.
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
from dihedral.models import build_model
from dihedral.objectives.recipe import load_recipe
from dihedral.store.manifest import holds_model
from dihedral.tune.search import Search, search
from soak.children import Child, Ending, command, run_child
from soak.tally import Tally

EPOCHS = 60
TRAINING = ("--recipe", "demo/family", "--checkpoint-minutes", 0, "--device", "cpu",
            "--set", "dimension=16", "--set", "batch_size=64", "--set", f"epochs={EPOCHS}",
            "--set", "validate_every=3")  # fmt: skip
TUNING = {"dimension": 8, "batch_size": 64, "epochs": 6, "validate_every": 2}
TRIALS = 8


def run(tally: Tally, kills: int, seed: int, folder: Path) -> None:
    """Distribute the kills over the kinds of work."""
    rng = random.Random(seed)
    data = folder / "data"
    write_folder(small_graph(), data)
    kinds = [
        ("training", functools.partial(kill_training, data=data)),
        ("saving", kill_saving),
        ("downloading", kill_downloading),
        ("grid search", functools.partial(kill_grid, data=data)),
        ("Optuna search", kill_search),
    ]
    shares = [kills // 4, kills // 4, kills // 4, kills // 8]
    for (kind, work), share in zip(kinds, [*shares, kills - sum(shares)], strict=True):
        place = folder / kind.replace(" ", "-")
        place.mkdir()
        if share:
            work(Killer(tally, kind, share, rng), folder=place)


class Killer:
    """Starts work and kills it at random times until no kills are left."""

    def __init__(self, tally: Tally, kind: str, kills: int, rng: random.Random) -> None:
        self.tally, self.kind, self.left, self.rng = tally, kind, kills, rng

    def start(self, work: Callable[[], Any], max_seconds: float) -> Ending:
        """Start work and kill it within `max_seconds`; if no kills are left, let it finish."""
        child = Child(work)
        ending = child.kill_after(self.rng.uniform(0, max_seconds)) if self.left else child.wait()
        if ending.how == "killed":
            self.left -= 1
            self.tally.count(f"kills of {self.kind}")
            self.tally.advance()
        else:
            self.check(ending.how == "done", f"should resume after {self.killed}, but {ending}")
        return ending

    @property
    def killed(self) -> str:
        return f"{self.tally.counts[f'kills of {self.kind}']} kills"

    def check(self, condition: bool, loss: str) -> bool:
        return self.tally.check(condition, f"{self.kind} {loss}")


# --- training -----------------------------------------------------------------------------------------


def kill_training(killer: Killer, *, folder: Path, data: Path) -> None:
    """Runs with one checkpoint per epoch, each killed several times before it completes."""
    train = ("train", data, *TRAINING, "--out")
    started = time.monotonic()
    uninterrupted = run_child(command(*train, folder / "uninterrupted"))
    seconds = time.monotonic() - started
    expected = run_child(functools.partial(digest, folder / "uninterrupted")).value
    if not killer.check(uninterrupted.how == "done" and expected is not None, f"did not complete: {uninterrupted}"):
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
                found = run_child(functools.partial(damaged_files, out))
                killer.check(found == Ending("done", []), f"killed left {found}")
                # an epoch is logged before its checkpoint is written, so one epoch may be repeated
                killer.check(_epochs(out) >= before - 1, f"went back from epoch {before} to {_epochs(out)}")
                continue
            break
        if holds_model(out):
            found = run_child(functools.partial(digest, out))
            killer.check(found.value == expected, f"differs from an uninterrupted one: {found}")
            killer.tally.count("runs identical to an uninterrupted one", found.value == expected)


def _epochs(out: Path) -> int:
    log = out / "training" / "log.jsonl"
    return len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0


def _count_moment(killer: Killer, out: Path) -> None:
    """Count when the kill happened; a temporary file shows that a file was being written."""
    if any(out.rglob(".*")):
        killer.tally.count("kills during a write")
    if not (out / "training" / "log.jsonl").exists():
        killer.tally.count("kills before the first epoch")
    if holds_model(out):
        killer.tally.count("kills after the model was saved")


def digest(folder: Path) -> dict[str, Any]:
    """A summary of a model: checksums of its tensors and graph, and its metrics except times."""
    predictor = dh.load(folder)
    tensors = {"entities": predictor.model.entities, **predictor.model.relations.stored()}
    sums = {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}
    metrics = {key: value for key, value in predictor.metrics.items() if key != "train_seconds"}
    return json.loads(json.dumps({**sums, "graph": predictor.graph.fingerprint, "metrics": metrics}))


def damaged_files(folder: Path) -> list[str]:
    """Incomplete files under their final names; a leading dot marks files and folders that are not final."""
    damaged = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        try:
            _read_completely(path)
        except Exception as error:  # noqa: BLE001  any error of a reader
            damaged.append(f"{path.relative_to(folder)}: {error!r}")
    return damaged


def _read_completely(path: Path) -> None:
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
    """A process overwrites one model with another, again and again; one of the two must always be complete."""
    graph = dh.make_family(1200, seed=1)
    pair = [random_predictor(graph, seed) for seed in (0, 1)]
    expected, seconds = [], 0.0
    for number, predictor in enumerate(pair):
        predictor.save(folder / f"{number}", shard_mb=0.1)
        started = time.monotonic()
        predictor.save(folder / f"{number}", shard_mb=0.1, overwrite=True)
        seconds = time.monotonic() - started
        expected.append(digest(folder / f"{number}"))
    out, current = folder / "model", 1

    def save(first: int, times: int) -> None:
        for number in range(first, first + times):
            pair[number % 2].save(out, shard_mb=0.1, overwrite=True)

    while killer.left:
        before = set(out.glob(".*"))
        killer.start(functools.partial(save, 1 - current, 10_000), 2 * seconds)
        killer.tally.count("kills during a write", bool(set(out.glob(".*")) - before))
        if not holds_model(out):  # killed during the first save; from now on there is a model to lose
            run_child(functools.partial(save, 0, 1))
        found = run_child(functools.partial(digest, out))
        if killer.check(found.value in expected, f"left neither of the two models: {found}"):
            current = expected.index(found.value)
        killer.tally.count("saves that left the old or the new model", found.value in expected)
    killer.start(functools.partial(save, 0, 2), 0)
    found = run_child(functools.partial(digest, out))
    killer.check(found.value == expected[1], f"did not continue: {found}")
    left = sorted(path.name for path in out.glob(".*"))
    killer.check(not left, f"left {len(left)} temporary files that a later save does not remove, such as {left[:1]}")


def random_predictor(graph: dh.Graph, seed: int) -> dh.Predictor:
    """An untrained model."""
    model = build_model("dihedral-ste", graph.num_entities, graph.num_relations, dimension=64, seed=seed)
    return dh.Predictor(dh.TrainedModel(model.requires_grad_(False), graph, metrics={"seed": seed}))


# --- downloading --------------------------------------------------------------------------------------


def kill_downloading(killer: Killer, *, folder: Path) -> None:
    """Download a benchmark from a slow local server, as one archive and as text files."""
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
        archived = Benchmark("soak-graph", (0, 0, 0, 0, 0), (f"{address}/soak.tar.gz",), sums)
        texts = tuple(f"{address}/{name}" for name in files)
        separate = replace(archived, sources=texts, joined=tuple((name,) for name in files))
        for number, benchmark in enumerate((archived, separate)):
            share = killer.left // 2 if number == 0 else killer.left
            _kill_downloads(killer, benchmark, killer.left - share, folder / f"cache-{number}")
    finally:
        server.kill_after(0)


def _kill_downloads(killer: Killer, benchmark: Benchmark, until: int, folder: Path) -> None:
    """Download repeatedly until `until` kills are left."""
    started = time.monotonic()
    expected = run_child(functools.partial(download, benchmark, folder / "uninterrupted"))
    seconds = time.monotonic() - started
    if not killer.check(expected.how == "done", f"did not complete: {expected}"):
        return
    number, ending = 0, expected
    while killer.left > until or ending.how == "killed":
        cache = folder / f"{number}"
        ending = killer.start(functools.partial(download, benchmark, cache), seconds)
        found = run_child(functools.partial(check_download, benchmark, cache))
        killer.check(found.how == "done", f"left {found}")
        if ending.how != "killed":
            killer.check(ending.value == expected.value, f"differs from an uninterrupted one: {ending}")
            killer.tally.count("downloads completed after kills")
            number += 1


def download(benchmark: Benchmark, cache: Path) -> str:
    _point_to(benchmark, cache)
    return dh.load_graph(benchmark.name).fingerprint


def check_download(benchmark: Benchmark, cache: Path) -> bool:
    """Whether the download exists; if so, it must match the published checksums."""
    _point_to(benchmark, cache)
    path = locate(benchmark)
    if path is not None:
        verify(benchmark, path)
    return path is not None


def _point_to(benchmark: Benchmark, cache: Path) -> None:
    """Make this process download the benchmark into `cache`."""
    os.environ.pop("DIHEDRAL_DATA", None)
    os.environ["XDG_CACHE_HOME"] = str(cache)
    BENCHMARKS[benchmark.name] = benchmark


def _serve(files: dict[str, bytes], port_file: Path) -> None:
    """A web server that sends about 1 KiB per millisecond."""

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
    """`dihedral tune --grid`: each combination must be trained once, with the results of a search without kills."""
    words = ["tune", data, "--grid", "--recipe", "demo/family", "--device", "cpu", "--choose", "K=4,6", "--choose",
             "lr=0.1,0.5", "--choose", "seed=0,1"]  # fmt: skip
    words += [word for key, value in TUNING.items() for word in ("--set", f"{key}={value}")]

    def rows(out: Path) -> list[str]:
        found = json.loads((out / "trials.json").read_text())["trials"]
        return sorted(json.dumps([row["changes"], row["valid_mrr"], row["best_epoch"]]) for row in found)

    started = time.monotonic()
    ending = run_child(command(*words, "--out", folder / "uninterrupted"))
    seconds = time.monotonic() - started
    if not killer.check(ending.how == "done", f"did not complete: {ending}"):
        return
    expected = rows(folder / "uninterrupted")
    killer.check(len(expected) == 8, f"trained {len(expected)} of 8 combinations")
    number = 0
    while killer.left or ending.how == "killed":
        out = folder / str(number)
        ending = killer.start(command(*words, "--out", out), seconds / 2)
        if ending.how != "killed":
            found = rows(out)
            killer.check(found == expected, f"completed with {len(found)} rows that differ")
            killer.tally.count("grid searches identical to an uninterrupted one", found == expected)
            number += 1


def kill_search(killer: Killer, *, folder: Path) -> None:
    """A search with Optuna: its trials must be those of an uninterrupted search."""
    started = time.monotonic()
    expected = run_child(functools.partial(trials, folder / "uninterrupted"))
    seconds = time.monotonic() - started
    if not killer.check(expected.how == "done" and len(expected.value) > 1, f"did not complete: {expected}"):
        return
    number, ending = 0, expected
    while killer.left or ending.how == "killed":
        ending = killer.start(functools.partial(trials, folder / f"{number}"), seconds / 2)
        if ending.how != "killed":
            killer.check(ending.value == expected.value, f"differs from an uninterrupted one: {ending}")
            killer.tally.count("Optuna searches identical to an uninterrupted one", ending.value == expected.value)
            number += 1


def trials(folder: Path) -> list[dict[str, Any]]:
    """The trials of a search in order, without numbers and times."""
    recipe = load_recipe("demo/family").replace(**TUNING)
    space: Any = {"K": [4, 6], "entity_lr": (0.03, 1.0), "relation_lr": (0.03, 1.0)}
    rows = search(Search(small_graph(), recipe, space, folder, seed=3, device="cpu"), trials=TRIALS)
    kept = ("state", "changes", "valid_mrr", "epochs", "best_epoch")
    return [{key: row.get(key) for key in kept} for row in sorted(rows, key=lambda row: row["trial"])]


# --- shared -------------------------------------------------------------------------------------------


def small_graph() -> dh.Graph:
    return dh.make_family(40, seed=1)


def warm_up() -> None:
    """Import and compile in this process what the children need, with one thread."""
    torch.set_num_threads(1)
    for model in ("dihedral-gumbel", "dihedral-ste"):
        dh.train(small_graph(), "demo/family", model=model, epochs=1, dimension=8, progress=False)
    CliRunner().invoke(app, ["train", "nowhere", "--out", "nowhere"])  # imports that typer delays
