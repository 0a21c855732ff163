"""Records measurements in results/NAME.json and measures the median time of a call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from dihedral.runtime.environment import environment

RESULTS = Path(__file__).resolve().parent.parent / "results"


def save(name: str, content: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write results/NAME.json with a description of the environment."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"environment": environment(), **content}, indent=1) + "\n", encoding="utf-8")
    return path


def device_name(device: torch.device) -> str:
    """The name of the hardware."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def seconds(work: Callable[[], Any], *, repeats: int = 5, warmup: int = 1) -> float:
    """The median time of a call, including its work on the GPU."""
    times = []
    for i in range(warmup + repeats):
        _synchronise()
        started = perf_counter()
        work()
        _synchronise()
        if i >= warmup:
            times.append(perf_counter() - started)
    return median(times)


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
