"""The package from outside: quick to import, honest about its names, nothing pickled."""

from __future__ import annotations

import ast
import json
import re
import statistics
import tomllib
from importlib import resources
from importlib.metadata import version
from pathlib import Path

import pytest

import dihedral as dh

SOURCE = Path(str(resources.files("dihedral")))
MODULES = sorted(SOURCE.rglob("*.py"))

IMPORT = """
import json, sys, time
started = time.perf_counter()
import torch
middle = time.perf_counter()
before = set(sys.modules)
import dihedral
seconds = time.perf_counter() - middle
print(json.dumps({"seconds": seconds, "new": sorted({name.split(".")[0] for name in set(sys.modules) - before})}))
"""


@pytest.fixture(scope="module")
def imports():
    """Three fresh imports of the package after torch."""
    import subprocess
    import sys

    runs = [
        subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True) for _ in range(3)
    ]
    return [json.loads(run.stdout) for run in runs]


def test_importing_the_package_adds_under_a_third_of_a_second_to_torch(imports):
    assert statistics.median(run["seconds"] for run in imports) < 0.3


@pytest.mark.parametrize(
    "module",
    [
        "matplotlib",
        "pandas",
        "polars",
        "networkx",
        "pyoxigraph",
        "typer",
        "rich",
        "pykeen",
        "hypothesis",
        "pytest",
        "fastapi",
        "uvicorn",
        "prometheus_client",
        "optuna",
        "faiss",
        "mlflow",
        "tensorboard",
        "numba",
    ],
)
def test_importing_the_package_leaves_optional_modules_alone(imports, module):
    assert module not in imports[0]["new"]


@pytest.mark.parametrize("name", dh.__all__)
def test_every_public_name_exists(name):
    assert getattr(dh, name).__doc__


def test_the_public_names_are_sorted_and_unique():
    assert list(dh.__all__) == sorted(set(dh.__all__))


def test_the_version_is_that_of_the_installed_package():
    assert dh.__version__ == version("dihedral")
    project = Path(__file__).parents[1] / "pyproject.toml"
    assert dh.__version__ == tomllib.loads(project.read_text())["project"]["version"]


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").is_file()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_nothing_is_pickled(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        else:
            continue
        for name in names:
            assert not re.match(r"(c?pickle|dill|joblib|shelve|marshal)\b|torch\.(load|save)$", name), (
                node.lineno,
                name,
            )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_every_module_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_the_doors_of_the_readme(family, tmp_path):
    """The calls that the design promises, end to end."""
    predictor = dh.train(family, "demo/family", dimension=16, epochs=2, progress=False)
    assert 0 < dh.evaluate(predictor, family, split="test").mrr <= 1
    predictor.save(tmp_path / "model")
    predictor = dh.load(tmp_path / "model")
    assert len(predictor.predict(head="man_0000", relation="spouse", top=10)) == 10
    assert isinstance(predictor.score("man_0000", "spouse", "woman_0010"), float)
    a = dh.algebra(predictor)
    assert len((a["spouse"] @ a["parent"]).nearest(3)) == 3
    assert ((~a["parent"]) @ a["parent"]).identity() == 1.0
