"""Records measurements in results/NAME.json with the command, versions and hardware; the median time of a call."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, strftime
from typing import Any

import numpy as np
import torch

import dihedral as dh

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


# --- the description of how a result was produced -----------------------------------------------------


def environment() -> dict[str, Any]:
    """Versions, hardware and the command line."""
    return {
        "command": _command(),
        "time": strftime("%Y-%m-%d %H:%M"),
        "commit": _commit(),
        "python": platform.python_version(),
        "dihedral": dh.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _command() -> str:
    """The command line without the options that name output folders, which do not affect the result."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    script = Path(sys.argv[0])
    if script.name == "__main__.py":  # python -m dihedral, or a process that it started
        program = [script.parent.name]
    else:
        program = ["python", "-m", spec.name] if spec else [script.name]
    words = [*program, *sys.argv[1:]]
    for option in ("--out", "--results"):
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
        words = [word for word in words if not word.startswith(f"{option}=")]
    return " ".join(words)


def _commit() -> str | None:
    if "DIHEDRAL_COMMIT" in os.environ:  # for a copy of the source tree without its history
        return os.environ["DIHEDRAL_COMMIT"]
    folder = Path(__file__).resolve().parent
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=folder, capture_output=True, text=True
    )
    return done.stdout.strip() or None


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores"
    return platform.processor()
