"""A tiny model whose losses are written out with `dihedral.reference`, differentiated by autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dihedral import reference
from dihedral.models import Relations, build_model
from dihedral.objectives.base import Gradients
from tests.oracle import matrices

ENTITIES, RELATIONS, DIMENSION = 6, 3, 8
BATCH = torch.tensor([[0, 2, 1], [3, 0, 4], [1, 2, 0], [5, 0, 5], [0, 0, 1]])  # relation 1 is not in use
BLOCK_MODELS = ["dihedral-ste", "dihedral-gumbel", "complex", "simple"]
EVERY_KIND = [*BLOCK_MODELS, "hole", "rescal", "transe"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Example:
    """A tiny model and the batch above, as the training loop passes them to an objective."""

    def __init__(self, name: str, **options: Any) -> None:
        model = build_model(name, ENTITIES, RELATIONS, dimension=DIMENSION, entity_init=1.0, seed=1, **options)
        if name == "transe":
            with torch.no_grad():
                model.relations.weights[:, -1] = torch.tensor([4.0, 5.0, 6.0])  # margins
        self.relations: Relations = model.relations
        self.entities = model.entities.detach()
        which, self.index = torch.unique(BATCH[:, 1], return_inverse=True)
        self.operators = self.relations.operators(which, seeded(3)).detach()

    def ask(self, objective: Any, seed: int = 0) -> Gradients:
        return objective(self.entities, self.operators, self.index, BATCH, seeded(seed))

    def score(self, operator: Tensor, h: Tensor, t: Tensor) -> Tensor:
        """φ(h, r, t) from one operator row."""
        kind = self.relations.kind
        if kind == "transe":
            return operator[-1] - 0.5 * (h + operator[:-1] - t).square().sum()
        if kind == "rescal":
            return h @ operator @ t
        if kind == "hole":
            return sum(operator[k] * (h * t.roll(-k)).sum() for k in range(DIMENSION))
        return reference.score(h, matrices(operator[None])[0], t)


def written_out(example: Example, loss: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """loss(entities, operators) in double precision, and its gradients with respect to both."""
    entities = example.entities.double().requires_grad_()
    operators = example.operators.double().requires_grad_()
    value = loss(entities, operators)
    return value.detach(), *torch.autograd.grad(value, [operators, entities])


def assert_agree(found: Gradients, expected: tuple[Tensor, Tensor, Tensor]) -> None:
    entities = found.entities if isinstance(found.entities, Tensor) else found.entities.dense(ENTITIES)
    for name, ours, theirs in zip(
        ("loss", "operators", "entities"), (found.loss, found.operators, entities), expected, strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


def penalty(name: str, weight: float, h: Tensor, t: Tensor) -> Tensor:
    """λ · ½(‖h‖² + ‖t‖²), or λ times the cubed lengths of all components."""
    if name == "l2":
        return weight * reference.l2(h[None], t[None])
    if name == "n3":
        return weight * sum(e.reshape(2, -1).norm(dim=0).pow(3).sum() for e in (h, t))
    return torch.zeros(())
