"""What every measured figure carries: the command, versions, hardware and time that made it."""

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

import torch

RESULTS = Path(__file__).resolve().parent.parent / "results"


def environment() -> dict[str, Any]:
    """Versions, hardware and the command line."""
    import numpy

    import dihedral

    return {
        "command": " ".join([Path(sys.executable).name, *_module_call()]),
        "time": strftime("%Y-%m-%d %H:%M"),
        "commit": _commit(),
        "python": platform.python_version(),
        "dihedral": dihedral.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def save(name: str, content: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write results/NAME.json."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"environment": environment(), **content}, indent=1) + "\n", encoding="utf-8")
    return path


def seconds(work: Callable[[], Any], *, repeats: int = 5, warmup: int = 1) -> float:
    """The median time of a call, the GPU's work included."""
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


def _module_call() -> list[str]:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    words = ["-m", spec.name, *sys.argv[1:]] if spec else [Path(sys.argv[0]).name, *sys.argv[1:]]
    if "--out" in words:  # where the file went says nothing about the figure
        del words[words.index("--out") : words.index("--out") + 2]
    return words


def _commit() -> str | None:
    folder = Path(__file__).resolve().parent
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True)
    return done.stdout.strip() or os.environ.get("DIHEDRAL_COMMIT")


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores"
    return platform.processor()
