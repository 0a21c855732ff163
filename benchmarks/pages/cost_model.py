"""A model of the seconds and the memory of a training step, fitted to results/scale.json."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from benchmarks.pages.records import Row

OBJECTIVES = {"softmax": "full softmax", "logistic": "sampled"}
MAX_FITTED_DIMENSION = 256  # wider rows of full softmax do not fit into registers and take another code path


def queries(row: Row) -> float:
    """Rows multiplied with candidates per step; full softmax has queries for both sides."""
    return row["batch_size"] * (2 if row["objective"] == "softmax" else 1)


def last_batch(row: Row) -> float:
    """Relative size of the last batch of an epoch, if measured; it needs memory in addition to the recorded step."""
    complete = row["steps_measured"] * row["batch_size"] >= row["triples"]
    return row["triples"] / row["batch_size"] % 1 if complete else 0.0


def rows_used(row: Row) -> float:
    """Number of entity rows that a sampled step reads and updates."""
    chunks = np.ceil(row["batch_size"] / row["share_negatives"])
    return 2 * row["batch_size"] + chunks * row["negatives"]


LAST = "{}, if the last batch is smaller"
Term = tuple[str, Callable[[Row], float]]
SECONDS: dict[str, list[Term]] = {
    "softmax": [
        ("queries × entities × dimension", lambda r: queries(r) * r["entities"] * r["dimension"]),
        ("queries × entities", lambda r: queries(r) * r["entities"]),
        ("entities × dimension", lambda r: r["entities"] * r["dimension"]),
        ("constant", lambda r: 1.0),
    ],
    "logistic": [
        ("batch × negatives × dimension", lambda r: r["batch_size"] * r["negatives"] * r["dimension"]),
        ("batch × negatives", lambda r: r["batch_size"] * r["negatives"]),
        ("rows used × dimension", lambda r: rows_used(r) * r["dimension"]),
        ("constant", lambda r: 1.0),
    ],
}
BYTES: dict[str, list[Term]] = {
    "softmax": [
        ("entities × dimension", lambda r: r["entities"] * r["dimension"]),
        ("triples", lambda r: r["triples"]),
        ("queries × dimension", lambda r: queries(r) * r["dimension"]),
        ("constant", lambda r: 1.0),
        (LAST.format("entities × dimension"), lambda r: np.ceil(last_batch(r)) * r["entities"] * r["dimension"]),
    ],
    "logistic": [
        ("entities × dimension", lambda r: r["entities"] * r["dimension"]),
        ("triples", lambda r: r["triples"]),
        ("batch × negatives", lambda r: r["batch_size"] * r["negatives"]),
        ("rows used × dimension", lambda r: rows_used(r) * r["dimension"]),
        ("constant", lambda r: 1.0),
        (LAST.format("batch × negatives"), lambda r: last_batch(r) * r["batch_size"] * r["negatives"]),
    ],
}


@dataclass(frozen=True)
class Fit:
    """A sum of terms with non-negative coefficients, fitted by least squares of the relative errors."""

    terms: list[Term]
    coefficients: np.ndarray
    errors: np.ndarray  # relative errors on the fitted rows

    @classmethod
    def fitted(cls, terms: list[Term], rows: list[Row], measured: Callable[[Row], float]) -> Fit:
        target = np.array([measured(row) for row in rows])
        design = np.array([[value(row) for _, value in terms] for row in rows]) / target[:, None]
        size = design.max(0)  # scale the terms, because the solver has an absolute tolerance
        coefficients = nnls(design / size, np.ones(len(rows)))[0] / size
        return cls(terms, coefficients, design @ coefficients - 1)

    def __call__(self, row: Row) -> float:
        return float(sum(c * value(row) for c, (_, value) in zip(self.coefficients, self.terms, strict=True)))


def measured_rows(content: Row) -> list[Row]:
    return [*content["softmax"], *content["sampled"], *content["growth"]]


def fitted(row: Row) -> bool:
    return not row.get("held_back") and (row["objective"] == "logistic" or row["dimension"] <= MAX_FITTED_DIMENSION)


def fits(content: Row) -> dict[str, tuple[Fit, Fit]]:
    """Fit seconds per step and bytes of memory for both objectives to all rows that are not held out."""
    found = {}
    for objective in OBJECTIVES:
        rows = [r for r in measured_rows(content) if r["objective"] == objective and fitted(r)]
        found[objective] = (
            Fit.fitted(SECONDS[objective], rows, lambda r: r["seconds_a_step"]),
            Fit.fitted(BYTES[objective], rows, lambda r: r["peak_gib"] * 2**30),
        )
    return found


def setting(content: Row, objective: str, **changes: Any) -> Row:
    """Settings of the full-size run with changes, for a complete epoch."""
    row = {**content["softmax" if objective == "softmax" else "sampled"][0], **changes}
    return {**row, "steps_measured": np.ceil(row["triples"] / row["batch_size"])}


def max_entities(content: Row, objective: str, memory: float) -> float:
    """Number of entities that fit on a device with `memory` bytes, of which a tenth stays free."""
    fit = fits(content)[objective][1]
    row = setting(content, objective)
    fixed = fit({**row, "entities": 0})
    return (0.9 * memory - fixed) / (fit({**row, "entities": 1}) - fixed)


def worst_errors(content: Row) -> tuple[float, float]:
    """The largest relative error on the fitted sizes, and on the size that was held out."""
    found = fits(content)
    fitted_sizes = max(float(np.abs(fit.errors).max()) for pair in found.values() for fit in pair)
    held_out = [
        abs(fit(row) / actual - 1)
        for row in content["growth"] if row.get("held_back")
        for fit, actual in zip(found[row["objective"]], (row["seconds_a_step"], row["peak_gib"] * 2**30), strict=True)
    ]  # fmt: skip
    return fitted_sizes, max(held_out)
