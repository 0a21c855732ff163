"""What the pages share: reading a record, saying where it comes from, and numbers as text."""

from __future__ import annotations

import json
from statistics import mean, stdev
from typing import Any

from benchmarks.record import RESULTS

Row = dict[str, Any]


def read(name: str) -> Row:
    content: Row = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def read_rows(name: str) -> list[Row]:
    """The rows of results/NAME.jsonl."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def source(name: str) -> str:
    """The record of a table and the machine that it was measured on."""
    made = read(name).get("environment", {})
    machine = made.get("gpu") or made.get("cpu")
    return f"\n*`results/{name}.json`{f', {machine}' if machine else ''}.*\n"


def number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def seconds(value: float | None) -> str:
    """Seconds with two digits after the point, or three below a tenth of a second."""
    return "" if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def spread(values: list[float]) -> str:
    """Mean and standard deviation."""
    return f"{mean(values):.4f} ± {stdev(values):.4f}" if len(values) > 1 else f"{values[0]:.4f}"


def ratio(part: float) -> str:
    return f"{part:.1%}"
