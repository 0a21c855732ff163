"""Describes how a result was produced: the command, versions, hardware and time."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from time import strftime
from typing import Any

import numpy as np
import torch

from dihedral.version import package_version


def environment() -> dict[str, Any]:
    """Versions, hardware and the command line."""
    return {
        "command": _command(),
        "time": strftime("%Y-%m-%d %H:%M"),
        "commit": _commit(),
        "python": platform.python_version(),
        "dihedral": package_version(),
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
