"""The parameters that a run trains, their average over epochs, and the best ones on valid so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

LARGE_TABLE = 1 << 29  # numbers: 2 GiB; a GPU that holds a larger table has no memory for a second one


class Parameters:
    """The trained parameters of a model, by name; the tensors share memory with the model."""

    def __init__(self, values: dict[str, Tensor], averaging: float) -> None:
        """averaging: the decay of the average; 0 keeps none."""
        self.values, self.decay = values, averaging
        self.average = {name: torch.zeros_like(tensor) for name, tensor in values.items()} if averaging else {}
        self.best: dict[str, Tensor] | None = None

    def update_average(self, epochs: int) -> None:
        """Include the parameters after this many epochs; the first have weight 1, so there is no bias towards 0."""
        for name, average in self.average.items():
            average.lerp_(self.values[name], (1 - self.decay) / (1 - self.decay**epochs))

    def set(self, values: Mapping[str, Tensor]) -> None:
        """Continue with other values of parameters, such as `average` or `best`."""
        for name, tensor in values.items():
            self.values[name].copy_(tensor)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the averaged parameters, if there are any, in place of the trained ones."""
        trained = {name: self.values[name].clone() for name in self.average}
        self.set(self.average)
        try:
            yield
        finally:
            self.set(trained)

    def keep_as_best(self) -> None:
        self.best = {
            name: tensor.to("cpu" if tensor.numel() > LARGE_TABLE else tensor.device, copy=True)
            for name, tensor in self.values.items()
        }

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint but the best parameters."""
        return self.values | {f"average.{name}": average for name, average in self.average.items()}
