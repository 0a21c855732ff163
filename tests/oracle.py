"""Values and gradients of `dihedral.reference` in double precision, in the shapes of the engine."""

from __future__ import annotations

import torch
from torch import Tensor

from dihedral import reference


def matrices(operators: Tensor) -> Tensor:
    """Operators [R, 4, L] as the matrices of the reference: [R, L, 2, 2]."""
    return operators.unflatten(1, (2, 2)).permute(0, 3, 1, 2)


def exact_queries(operators: Tensor, index: Tensor, entities: Tensor, tail: bool) -> Tensor:
    """Queries [B, 2L] from rows [B, 2L]: a query is the gradient of the score with respect to the candidate."""
    R, candidate = matrices(operators)[index], torch.zeros_like(entities).requires_grad_()
    score = reference.score(entities, R, candidate) if tail else reference.score(candidate, R, entities)
    return torch.autograd.grad(score.sum(), candidate, create_graph=True)[0]


def exact_cross_entropy(
    queries: Tensor, candidates: Tensor, targets: Tensor, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The summed loss, and its gradients times `scale` for queries and candidates."""
    parts = [part.detach().double().requires_grad_() for part in (queries, candidates)]
    loss = reference.cross_entropy(parts[0] @ parts[1].T, targets) * len(targets)
    query_gradient, candidate_gradient = torch.autograd.grad(loss * scale, parts)
    return loss.detach(), query_gradient, candidate_gradient
