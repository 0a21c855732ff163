"""Path models on a GPU, here by Triton's interpreter, compared with the reference in float64.

The interpreter is chosen when triton is imported, so this file runs itself in a process of its own and prints the
relative errors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from dihedral.engine.path_engine import PathWeights
from tests.engine import test_path_engine as cases

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed"),
]

LIMIT = 1e-5  # of relative errors in float32
CASES = [
    f"{form} pairs, {what}" for form in ("all", "reached") for what in ("scores", "without facts", "without pairs")
]


def error(found, wanted):
    return float((found.double() - wanted).norm() / (wanted.norm() or 1.0))


def compare(tables, index, model, pair):
    """The relative errors of the loss and of all its gradients."""
    entities, steps, answers = (
        each[cases.facts_as_questions(index)[0] <= 2][::3] for each in cases.facts_as_questions(index)
    )
    questions, weights = model.weights(entities, steps)
    fast = PathWeights(*(each.clone().requires_grad_() for each in weights))
    known = index.answers(entities, steps)
    loss = tables.loss(questions, answers, known, fast, pair, torch.float32)
    loss.backward()
    exact = cases.exact_loss(index, questions, answers, weights, pair)
    exact[0].backward()
    errors = {"loss": error(loss.detach(), exact[0].detach())}
    return errors | {
        name: error(mine.grad, wanted.grad)
        for name, mine, wanted in zip(PathWeights._fields, fast, exact[1], strict=True)
        if mine.numel()
    }


def main():
    from dihedral.engine import path_tables

    path_tables.MAX_EDGES = 4  # so that some entities have several segments
    index, model, results = cases.example_index(), cases.example_model(gated=True), {}
    graph = cases.path_edges(index)
    entities, steps = torch.cartesian_prod(torch.arange(cases.ENTITIES), torch.arange(2 * cases.RELATIONS)).T
    questions, weights = model.weights(entities[::40], steps[::40])
    for form, path_tables.MANY in (("all pairs", 0.0), ("reached pairs", 1.0)):
        tables = path_tables.PathTables(*map(torch.from_numpy, graph.arrays), cases.RELATIONS)
        for name, pair in (("without facts", False), ("without pairs", True)):
            results[f"{form}, {name}"] = compare(tables, index, model, pair)
        results[f"{form}, scores"] = {}
        wanted = cases.path_scores(graph, questions, weights).double()
        results[f"{form}, scores"]["all"] = error(tables.scores(questions, weights), wanted)
    print(json.dumps(results))


@pytest.fixture(scope="module")
def errors():
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(Path(__file__))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_tables_agree_with_the_reference(errors, name):
    assert {part: value for part, value in errors[name].items() if not value <= LIMIT} == {}


if __name__ == "__main__":
    main()
