"""Records for tables and figures: one tiny run, and copies of its record for other runs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from dihedral.io.files import make_folder, read_json, write_json
from dihedral.learn import load_recipe
from paper.runs import Record, Run, perform


@pytest.fixture(scope="session")
def tiny() -> Run:
    """A run that takes about a second."""
    recipe = load_recipe("case/family-d4-gumbel").replace(epochs=1, dimension=16, validate_every=1, name="tiny/family")
    return Run("family-1", recipe, studies=("compositions", "curves"))


@pytest.fixture(scope="session")
def tiny_results(tiny: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with the record of that run; tests must not change it."""
    results = tmp_path_factory.mktemp("results")
    perform(tiny, results / "runs", device="cpu")
    return results


@pytest.fixture(scope="session")
def tiny_record(tiny: Run, tiny_results: Path) -> Record:
    return read_json(tiny.path(tiny_results / "runs"))


@pytest.fixture
def put(tiny_record: Record, tmp_path: Path) -> Any:
    """put(run, test=0.5) writes a record of that run with the given MRR to tmp_path / "results"."""

    def write(run: Run, *, test: float = 0.5, valid: float = 0.5, studies: Any = None) -> Record:
        record = copy.deepcopy(tiny_record)
        record |= {
            "graph": run.graph,
            "seed": run.seed,
            "recipe": run.recipe.to_dict(),
            "studies": studies or {name: [] for name in run.studies},
        }
        record["test"]["both"]["mrr"], record["valid"]["both"]["mrr"] = test, valid
        path = run.path(tmp_path / "results" / "runs")
        make_folder(path.parent)
        write_json(path, record)
        return record

    return write
