"""Selects the device that the work runs on."""

from __future__ import annotations

import torch

from dihedral.errors import DihedralError


def choose_device(name: str | torch.device = "auto") -> torch.device:
    """The device with this name; auto selects CUDA if available and the CPU otherwise, never Apple's mps."""
    name = str(name)
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device("cuda" if available["cuda"] else "cpu")
    kind = name.split(":")[0]
    if kind in available and not available[kind]:
        raise DihedralError(f"device is {name!r}, but this machine or this build of torch has none; choose cpu or auto")
    try:
        return torch.device(name if kind in available else "")
    except RuntimeError:
        raise DihedralError(f"device is {name!r}; choose auto, cpu, cuda or mps") from None
