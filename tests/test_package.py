"""The package as a user sees it: light to import, complete public names."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from importlib import resources
from importlib.metadata import version
from pathlib import Path

import pytest

import dihedral as dh

SOURCE = Path(str(resources.files("dihedral")))
ROOT = Path(__file__).parents[1]
MAX_LINES = 60

IMPORT = """
import json, sys, torch
before = set(sys.modules)
from dihedral import *
print(json.dumps(sorted(set(sys.modules) - before)))
"""
SLOW_OR_OPTIONAL = {
    "scipy", "matplotlib", "pandas", "polars", "networkx", "pyoxigraph", "typer", "rich", "pykeen", "hypothesis",
    "pytest", "fastapi", "uvicorn", "prometheus_client", "optuna", "faiss", "mlflow", "tensorboard", "numba",
}  # fmt: skip


@pytest.fixture(scope="module")
def imported():
    """The modules that a new process loads for the package, without those of torch."""
    run = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def test_every_public_name_is_imported_on_its_first_use():
    assert set(dh._MODULES) == set(dh.__all__) <= set(dir(dh))
    assert all(getattr(dh, name) is not None for name in dh.__all__)
    assert dh.predict.train.train is dh.train
    with pytest.raises(AttributeError, match="module 'dihedral' has no attribute 'tran'"):
        dh.tran  # noqa: B018


def test_importing_the_package_loads_no_upper_layer(imported):
    upper = {f"dihedral.{package}" for package in ("cli", "serve", "figures", "integrations", "tune")}
    assert upper & set(imported) == set() and "dihedral.learn" in imported


def test_importing_the_package_loads_no_slow_or_optional_module(imported):
    assert {name.partition(".")[0] for name in imported} & SLOW_OR_OPTIONAL == set()


def test_every_public_name_has_a_docstring():
    assert [name for name in dh.__all__ if not getattr(dh, name).__doc__] == []


def test_the_public_names_are_sorted_and_unique():
    assert list(dh.__all__) == sorted(set(dh.__all__))


def test_the_version_is_the_one_of_the_project():
    assert dh.__version__ == version("dihedral")
    assert dh.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").is_file()


def test_no_function_is_long():
    """Its body, without the docstring, has at most 60 lines."""
    long = []
    for path in (
        path for part in ("src", "tests", "paper", "benchmarks", "soak") for path in (ROOT / part).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body and node.end_lineno - body[0].lineno >= MAX_LINES:
                    long.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert long == []


def test_the_calls_of_the_readme_work(family, tmp_path):
    """Train, evaluate, save, load, predict and compose relations."""
    predictor = dh.train(family, "demo/family", dimension=16, epochs=2, progress=False)
    assert 0 < dh.evaluate(predictor, family, split="test").mrr <= 1
    predictor.save(tmp_path / "model")
    predictor = dh.load(tmp_path / "model")
    assert len(predictor.predict(head="man_0000", relation="spouse", top=10)) == 10
    assert isinstance(predictor.score("man_0000", "spouse", "woman_0010"), float)
    a = dh.algebra(predictor)
    assert len((a["spouse"] @ a["parent"]).nearest(3)) == 3
    assert ((~a["parent"]) @ a["parent"]).identity() == 1.0
