"""Element-wise Adagrad (Duchi et al., 2011), for whole tensors and for the rows a batch used."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-10


class Adagrad:
    """x ← x - lr · g / (√(Σ g²) + ε), each element with its own sum.

    A row without a gradient does not move, so updating only the rows in use equals updating all.
    """

    def __init__(self, parameter: Tensor, lr: float) -> None:
        self.parameter = parameter.detach()  # shares storage
        self.lr = lr
        self.sum = torch.zeros_like(self.parameter)

    def step(self, gradient: Tensor) -> None:
        self.sum.addcmul_(gradient, gradient)
        self.parameter.addcdiv_(gradient, self.sum.sqrt().add_(EPSILON), value=-self.lr)

    def step_rows(self, rows: Tensor, gradient: Tensor) -> None:
        """Update distinct `rows` with their gradients [len(rows), d]."""
        total = self.sum[rows].addcmul_(gradient, gradient)
        self.sum[rows] = total
        self.parameter[rows] = self.parameter[rows].addcdiv_(gradient, total.sqrt_().add_(EPSILON), value=-self.lr)
