"""Memory that is used again: a fresh large tensor costs more in page faults than the work done in it."""

from __future__ import annotations

import torch
from torch import Tensor


class Scratch:
    """Named buffers that grow to the largest size asked for; their content is not kept."""

    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}

    def take(self, name: str, shape: torch.Size | tuple[int, ...], device: torch.device | str = "cpu") -> Tensor:
        """A float32 tensor of this shape with any content."""
        size = torch.Size(shape).numel()
        buffer = self.buffers.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self.buffers[name] = torch.empty(size, device=device)
        return buffer[:size].view(shape)

    def last_uses(self, rows: int) -> Tensor:
        """int32 [rows], all -1: who takes it puts it back so."""
        if "last" not in self.buffers:
            self.buffers["last"] = torch.full((rows,), -1, dtype=torch.int32)
        return self.buffers["last"]
