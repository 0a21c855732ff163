"""What all tests share: benchmarks from $DIHEDRAL_DATA, a small trained model, the command line, other processes."""

from __future__ import annotations

import os

# before torch, and for child processes too: one thread adds numbers up in one order
os.environ.setdefault("OMP_NUM_THREADS", "1")

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import settings

import dihedral as dh
from dihedral.graph.benchmarks import find_benchmark, locate
from tests.forks import ForkServer
from tests.small_graphs import small_probabilities

torch.set_num_threads(1)
# the same examples in every run: a test that fails today failed yesterday
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=200)  # of `make test-all`
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

FIXTURES = Path(__file__).parent / "fixtures"

# What starts a browser, a process, a server, a timer or a thread.
STARTING_FIXTURES = {"browser", "client", "forks"}
STARTING_MODULES = (
    "asyncio", "concurrent", "http", "multiprocessing", "signal", "socket", "soak", "subprocess", "threading",
    "tests.forks", "tests.pages", "tests.serve.servers",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make flaky` repeats."""
    for item in items:
        if STARTING_FIXTURES & set(getattr(item, "fixturenames", ())) or uses_starting_module(item):
            item.add_marker("concurrent")


def uses_starting_module(item: pytest.Item) -> bool:
    used = vars(getattr(item, "module", None) or object).values()
    names = (str(getattr(each, "__name__" if isinstance(each, ModuleType) else "__module__", "")) for each in used)
    return any(name == starting or name.startswith(f"{starting}.") for name in names for starting in STARTING_MODULES)


@pytest.fixture
def fixtures() -> Path:
    """The files that tests keep for ever."""
    return FIXTURES


# --- benchmarks -----------------------------------------------------------------------------------


@cache
def _read_benchmark(name: str) -> dh.Graph:
    return dh.load_graph(name)


def require_benchmark(name: str) -> Path:
    """Where a benchmark is; without it the test is skipped, on CI it fails. Nothing is downloaded."""
    path = locate(find_benchmark(name))
    if path is None:
        message = f"the benchmark {name} is not here; put its archive into a folder and name it in DIHEDRAL_DATA"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def benchmark_path() -> Callable[[str], Path]:
    """benchmark_path("umls"): its archive or folder on this machine."""
    return require_benchmark


@pytest.fixture(scope="session")
def benchmark_graph() -> Callable[[str], dh.Graph]:
    """benchmark_graph("umls"): a real benchmark, read once a session."""

    def load(name: str) -> dh.Graph:
        require_benchmark(name)
        return _read_benchmark(name)

    return load


# --- a small model --------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def family() -> dh.Graph:
    """Forty people."""
    return dh.make_family(40, seed=1)


@pytest.fixture
def probabilities_of_small_graphs() -> Iterator[None]:
    """What the test trains or updates has probabilities, although its graph is small."""
    with small_probabilities():
        yield


@pytest.fixture(scope="session")
def path_predictor() -> dh.Predictor:
    """A path model of sixty people, trained for a moment; tests must not change it."""
    recipe = dh.Recipe(
        model="dihedral-argmax", objective="paths", K=8, dimension=8, steps=3, batch_size=32, epochs=4,
        relation_lr=0.01, relation_init=0.5, update="gate",
    )  # fmt: skip
    return dh.train(dh.make_family(60, seed=1), recipe, progress=False, device="cpu")


@pytest.fixture(scope="session")
def predictor(family: dh.Graph) -> dh.Predictor:
    """A DihEdral model of the forty people, trained for a moment; tests must not change it."""
    with small_probabilities():
        return dh.train(family, "demo/umls", dimension=16, epochs=30, batch_size=32, regulariser_weight=0.01)


@pytest.fixture(scope="session")
def path_model_folder(path_predictor: dh.Predictor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That model on disk; tests must not change it."""
    folder = tmp_path_factory.mktemp("models") / "paths"
    path_predictor.save(folder)
    return folder


@pytest.fixture(scope="session")
def model_folder(predictor: dh.Predictor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That model on disk; tests must not change it."""
    folder = tmp_path_factory.mktemp("models") / "family"
    predictor.save(folder)
    return folder


@pytest.fixture(scope="session")
def umls_predictor(
    benchmark_graph: Callable[[str], dh.Graph], tmp_path_factory: pytest.TempPathFactory
) -> dh.Predictor:
    """A model of umls with probabilities, trained once for all workers; tests must not change it."""
    graph = benchmark_graph("umls")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "umls"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return dh.load(folder, device="cpu")
        trained = dh.train(graph, "demo/umls", epochs=15, progress=False, device="cpu")
        trained.save(folder)
    return trained


# --- the command line and other processes ----------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """What --json printed, one value per line."""
        return [json.loads(line, parse_constant=pytest.fail) for line in self.out.splitlines()]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """cli("data", "list"): what `dihedral data list` prints and its exit code, in this process."""
    from dihedral.cli.main import app, main
    from dihedral.cli.output import console, notes

    console.width = notes.width = 160
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: object, application: Any = app) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dihedral", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(application)
        captured = capfd.readouterr()
        return Outcome(stopped.value.code or 0, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    """Starts other Python processes without the time that torch takes to import."""
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def python(forks: ForkServer) -> Callable[..., subprocess.CompletedProcess[str]]:
    """python("-c", script): another Python process, with its output."""

    def run(*arguments: object, timeout: float = 600, **environment: str) -> subprocess.CompletedProcess[str]:
        with forks.start(*arguments, **environment) as process:
            return process.wait(timeout)

    return run


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    """set_threads(3): torch uses three threads until the end of the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures saved during a test, in order; each is drawn and listed once, even if saved in two formats."""
    from matplotlib.figure import Figure

    figures: list[Any] = []
    savefig = Figure.savefig

    def record(self: Any, *arguments: Any, **options: Any) -> None:
        if self not in figures:
            figures.append(self)
            savefig(self, *arguments, **{**options, "dpi": 40})  # quickly

    monkeypatch.setattr(Figure, "savefig", record)
    return figures
