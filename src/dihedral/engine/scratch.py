"""Reusable memory: page faults in a new large tensor can cost more than the computation in it."""

from __future__ import annotations

import torch
from torch import Tensor


class Scratch:
    """Named buffers that grow to the largest size requested; their contents are not preserved."""

    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}

    def take(self, name: str, shape: torch.Size | tuple[int, ...], device: torch.device | str = "cpu") -> Tensor:
        """An uninitialised float32 tensor of this shape."""
        size = torch.Size(shape).numel()
        buffer = self.buffers.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self.buffers[name] = torch.empty(size, device=device)
        return buffer[:size].view(shape)
