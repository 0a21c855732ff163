"""Element-wise Adagrad (Duchi et al., 2011) on complete tensors and on the rows that a batch uses."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dihedral.engine import compiled, cuda

EPSILON = 1e-10


@dataclass(frozen=True)
class RowGradients:
    """Gradients of entity rows: use i adds weights[i] · vectors[source[i]] to the gradient of row ids[i]."""

    ids: Tensor  # int64 [uses], may repeat
    vectors: Tensor  # [m, 2L]
    source: Tensor | None = None  # int64 [uses]; None: 0, 1, 2, …
    weights: Tensor | None = None  # [uses]; None: all 1

    def joined(self, other: RowGradients) -> RowGradients:
        """The uses of both."""
        device, count = self.ids.device, len(self.vectors)
        sources, weights = [], []
        for each, start in ((self, 0), (other, count)):
            source = torch.arange(len(each.ids), device=device) if each.source is None else each.source
            sources.append(source + start)
            weights.append(torch.ones(len(each.ids), device=device) if each.weights is None else each.weights)
        vectors = torch.cat([self.vectors, other.vectors])
        return RowGradients(torch.cat([self.ids, other.ids]), vectors, torch.cat(sources), torch.cat(weights))

    def dense(self, num_rows: int) -> Tensor:
        """The equivalent dense gradient of the table: [num_rows, 2L]."""
        vectors = self.vectors if self.source is None else self.vectors[self.source]
        if self.weights is not None:
            vectors = vectors * self.weights[:, None]
        return torch.zeros(num_rows, vectors.shape[1], device=vectors.device).index_add_(0, self.ids, vectors)


class Adagrad:
    """x ← x - lr · g / (√(Σ g²) + ε), with a sum per element; a row with zero gradient does not change."""

    def __init__(self, parameter: Tensor, lr: float) -> None:
        self.parameter = parameter.detach()  # shares memory with the parameter
        self.lr = lr
        self.sum = torch.zeros_like(self.parameter)
        self.root = self.parameter.new_empty(0)  # of the sum; kept, because new memory takes longer than the root
        self.last = torch.empty(0)  # of the compiled form: the last use of each row, -1 between steps

    def step(self, gradient: Tensor | RowGradients) -> None:
        """Update all elements, or those of the rows in use."""
        if isinstance(gradient, RowGradients):
            self.step_rows(gradient)
            return
        if gradient.is_cuda:
            cuda.kernels().adagrad(self.parameter, self.sum, gradient.contiguous(), self.lr, EPSILON)
            return
        self.sum.addcmul_(gradient, gradient)
        root = torch.sqrt(self.sum, out=self.root).add_(EPSILON)
        self.parameter.addcdiv_(gradient, root, value=-self.lr)

    def step_rows(self, gradients: RowGradients) -> None:
        """Update the rows in use, after adding up the gradients of repeated uses."""
        if gradients.ids.is_cuda:
            cuda.adagrad_rows(self.parameter, self.sum, gradients, self.lr, EPSILON)
        elif compiled.available() and gradients.ids.device.type == "cpu":
            if not len(self.last):
                self.last = torch.full((len(self.parameter),), -1, dtype=torch.int32)
            compiled.adagrad_rows(self.parameter, self.sum, self.last, gradients, self.lr, EPSILON)
        else:
            rows, places = torch.unique(gradients.ids, return_inverse=True)
            gradient = replace(gradients, ids=places).dense(len(rows))
            self.sum[rows] = total = self.sum[rows].addcmul_(gradient, gradient)
            self.parameter[rows] = self.parameter[rows].addcdiv_(gradient, total.sqrt_().add_(EPSILON), value=-self.lr)
