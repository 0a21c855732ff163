"""The Triton kernels on a CPU, run by Triton's interpreter and compared with `dihedral.reference` in float64.

The interpreter is chosen when triton is imported, so this file runs itself in a process of its own and prints, per
case, the relative error of each result.
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
from torch import Tensor

from dihedral import reference
from dihedral.engine.adagrad import EPSILON
from tests.oracle import exact_cross_entropy, exact_queries

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")

LR = 0.3
SINGLE, HALF = 1e-5, 2e-3  # relative errors that float32 and float16 results may have
COLUMNS, PADDED = 4500, 4544  # more than one block of 4096


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed))


def drawn(high: int, *shape: int, seed: int) -> Tensor:
    return torch.randint(high, shape, generator=seeded(seed))


# --- in the interpreter's process: pairs of a result and its reference ------------------------------


def queries(kernels, tail, L):
    operators, entities, gradient = (normal(*shape, seed=L) for shape in ((5, 4, L), (12, 2 * L), (12, 2 * L)))
    index = drawn(5, 12, seed=L)
    inputs = [tensor.double().requires_grad_() for tensor in (operators, entities)]
    expected = exact_queries(inputs[0], index, inputs[1], tail)
    operator_gradient, entity_gradient = torch.autograd.grad(expected, inputs, gradient.double())
    found = kernels.block_queries_backward(operators, index, entities, gradient, tail)
    return {
        "queries": (kernels.block_queries(operators, index, entities, tail), expected.detach()),
        "operator gradient": (found[0], operator_gradient),
        "entity gradient": (found[1], entity_gradient),
    }


def padded_logits(columns=COLUMNS, padded=PADDED, seed=0):
    """Float16 logits, with values in the padding that the kernels must ignore."""
    return (normal(6, padded, seed=seed) * 4).half().index_fill_(1, torch.arange(columns, padded), 100.0)


def softmax_residual(kernels):
    logits, targets, losses = padded_logits(), drawn(COLUMNS, 6, seed=1), torch.empty(6)
    exact = logits[:, :COLUMNS].double()
    loss, residual, _ = exact_cross_entropy(exact, torch.eye(COLUMNS, dtype=torch.float64), targets, scale=1024.0)
    kernels.softmax_residual(logits, targets, losses, COLUMNS, 1024.0)
    return {
        "loss": (losses.sum(), loss),
        "residual": (logits[:, :COLUMNS], residual),
        "padding": (logits[:, COLUMNS:], torch.zeros(6, PADDED - COLUMNS)),
    }


def half_matrices(width):
    """130 queries and 330 candidates: neither fills a number of blocks exactly."""
    return normal(130, width, seed=1).half(), (normal(330, width, seed=2) * 0.3).half()


def softmax_means(kernels, width, multiprocessors):
    """Few multiprocessors process the candidates in one part, many in several."""
    queries, candidates = half_matrices(width)
    norms, means = kernels.softmax_means(queries, candidates, multiprocessors)
    logits = queries.double() @ candidates.double().T
    return {"norms": (norms, logits.logsumexp(1)), "means": (means, logits.softmax(1) @ candidates.double())}


def softmax_gradient(kernels, width):
    queries, candidates = half_matrices(width)
    logits = queries.double() @ candidates.double().T
    gradient = kernels.softmax_gradient(queries, candidates, logits.logsumexp(1).float(), 0.5)
    return {"gradient": (gradient, 0.5 * logits.softmax(1).T @ queries.double())}


def exact_adagrad(start, gradients):
    """The parameter and its sum of squares after the steps of the reference, in float64."""
    parameter, total = start.double(), torch.zeros_like(start.double())
    for gradient in gradients:
        parameter, total = reference.adagrad(parameter, total, gradient.double(), LR)
    return parameter, total


def adagrad(kernels):
    parameter, gradients = normal(9, 300, seed=0), [normal(9, 300, seed=seed) for seed in (1, 2)]
    expected, total = exact_adagrad(parameter, gradients), torch.zeros(9, 300)
    for gradient in gradients:
        kernels.adagrad(parameter, total, gradient, LR, EPSILON)
    return {"parameter": (parameter, expected[0]), "sum": (total, expected[1])}


def adagrad_rows(kernels, width, weighted):
    parameter, total, vectors = normal(9, width, seed=0), torch.zeros(9, width), normal(7, width, seed=1)
    ids, source = drawn(8, 20, seed=2).int().sort().values, drawn(7, 20, seed=3)
    weights = normal(20, seed=4) if weighted else None
    added = vectors[source].double() * (1.0 if weights is None else weights[:, None].double())
    dense = torch.zeros(9, width, dtype=torch.float64).index_add_(0, ids.long(), added)
    expected = exact_adagrad(parameter, [dense, dense])
    for _ in range(2):
        kernels.adagrad_rows(parameter, total, ids, source, weights, vectors, LR, EPSILON)
    return {"parameter": (parameter, expected[0]), "sum": (total, expected[1])}


CASES = {
    "tail queries": (queries, {"tail": True, "L": 7}, SINGLE),
    "tail queries of two blocks": (queries, {"tail": True, "L": 600}, SINGLE),
    "head queries": (queries, {"tail": False, "L": 7}, SINGLE),
    "head queries of two blocks": (queries, {"tail": False, "L": 600}, SINGLE),
    "softmax_residual": (softmax_residual, {}, HALF),
    "softmax_means in one part": (softmax_means, {"width": 72, "multiprocessors": 1}, HALF),
    "softmax_means in several parts": (softmax_means, {"width": 16, "multiprocessors": 2}, HALF),
    "softmax_gradient": (softmax_gradient, {"width": 72}, HALF),
    "adagrad": (adagrad, {}, SINGLE),
    "adagrad_rows": (adagrad_rows, {"width": 5, "weighted": True}, SINGLE),
    "adagrad_rows without weights": (adagrad_rows, {"width": 5, "weighted": False}, SINGLE),
    "adagrad_rows of two blocks": (adagrad_rows, {"width": 1100, "weighted": True}, SINGLE),
}


def error(found, expected):
    """The relative error, or the absolute one where zeros are expected."""
    found, expected = found.double(), expected.double()
    return float((found - expected).norm() / (expected.norm() or 1.0))


def main():
    from dihedral.engine import triton_kernels

    results = {name: compare(triton_kernels, **options) for name, (compare, options, _) in CASES.items()}
    print(json.dumps({name: {part: error(*pair) for part, pair in case.items()} for name, case in results.items()}))


# --- the tests --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def errors():
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(Path(__file__))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_agrees_with_torch(errors, name):
    limit = CASES[name][2]
    assert {part: value for part, value in errors[name].items() if not value <= limit} == {}


if __name__ == "__main__":
    main()
