"""The engine on CPU, compiled by numba where it is installed (`pip install 'dihedral[fast]'`).

Each function does what a plain torch path does elsewhere, in one pass over memory and on torch's
number of threads. Results do not depend on the number of threads.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dihedral.engine.adagrad import RowGradients


@cache
def _kernels() -> Any:
    if os.environ.get("DIHEDRAL_COMPILED", "1") == "0":
        return None
    try:
        from dihedral.engine import numba_kernels
    except ModuleNotFoundError:
        return None
    return numba_kernels


def available() -> bool:
    """Whether numba is here; DIHEDRAL_COMPILED=0 turns it off."""
    return _kernels() is not None


def adagrad_rows(
    parameter: Tensor, total: Tensor, last: Tensor, gradients: RowGradients, lr: float, epsilon: float
) -> None:
    """Add up each row's uses and update it, in one pass; `last` is int32 [rows], all -1."""
    kernels = _kernels()
    kernels.set_threads(torch.get_num_threads())
    ids = gradients.ids
    source = torch.arange(len(ids)) if gradients.source is None else gradients.source
    weights = torch.ones(len(ids)) if gradients.weights is None else gradients.weights
    kernels.adagrad_rows(
        parameter.numpy(), total.numpy(), last.numpy(), ids.numpy(), source.numpy(), weights.numpy(),
        gradients.vectors.numpy(), lr, epsilon,
    )  # fmt: skip


def block_logistic(
    entities: Tensor,
    operators: Tensor,
    index: Tensor,
    anchors: Tensor,
    targets: Tensor,
    negatives: Tensor,
    half: int,
    decay: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sampled logistic loss of a model of 2x2 blocks, with all its gradients.

    Questions [B] before `half` ask for tails, the others for heads. Returns the losses [B], the
    gradient of the operators, the vectors [3B, 2L] (of anchors, of targets, then the queries) and
    the weights of the negatives [B, k] with which the queries make their gradients.
    """
    kernels = _kernels()
    kernels.set_threads(torch.get_num_threads())
    size, k = negatives.shape
    width = entities.shape[1]
    losses = torch.empty(size, dtype=torch.float64)
    vectors = torch.empty(3 * size, width)
    weights = torch.empty(size, k)
    query_gradients = torch.empty(size, width)
    operator_gradient = torch.zeros_like(operators)
    kernels.block_logistic(
        entities.numpy(), operators.detach().numpy(), index.numpy(), anchors.numpy(), targets.numpy(),
        negatives.numpy(), half, decay, losses.numpy(), vectors.numpy(), weights.numpy(), query_gradients.numpy(),
    )  # fmt: skip
    kernels.operator_gradient(
        entities.numpy(), index.numpy(), anchors.numpy(), half, query_gradients.numpy(), operator_gradient.numpy()
    )
    return losses, operator_gradient, vectors, weights
