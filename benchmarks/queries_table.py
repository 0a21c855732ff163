"""The tables of docs/how-to/ask.md from results/queries.json."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from statistics import mean
from typing import Any

from benchmarks.report import read, source
from paper.tables import markdown

CQD = {  # quoted: Hits@3 of CQD-Beam (Arakelyan et al. 2021) on the test part of the query set
    "1p": 0.512, "2p": 0.279, "3p": 0.219, "2i": 0.352, "3i": 0.457, "ip": 0.129, "pi": 0.249, "2u": 0.284, "up": 0.128,
}  # fmt: skip
METRICS = {"hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10", "mrr": "MRR"}
Row = dict[str, Any]


def tables() -> str:
    content = read("queries")
    if content is None:
        return ""
    setup = ("probabilities", "width", "conjunction", "ways")
    first = [content["rows"][0].get(name) for name in setup]
    rows = [row for row in content["rows"] if [row.get(name) for name in setup] == first]
    parts = [accuracy(content, rows), missing(rows), times(rows), calibration(content["calibration"])]
    return "\n".join(parts) + source(content, "queries")


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 118) + "\n\n"


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _average(rows: list[Row], value: Callable[[Row], float | None]) -> str:
    """The mean over the types that have a value."""
    found = [each for each in map(value, rows) if each is not None]
    return _number(mean(found)) if found else ""


def accuracy(content: Row, rows: list[Row]) -> str:
    shown = [
        [row["kind"], *(_number(row["all"][name]) for name in METRICS), _number(CQD.get(row["kind"]))] for row in rows
    ]
    shown.append(
        ["average", *(_average(rows, lambda row, name=name: row["all"][name]) for name in METRICS),  # type: ignore[misc]
         _average(rows, lambda row: CQD.get(row["kind"]))]
    )  # fmt: skip
    counts = sorted({row["queries"] for row in rows})
    number = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    model, quality = content["recipe"], content.get("valid_mrr")
    trained = "" if quality is None else f", MRR {quality:.3f} on valid"
    return _paragraph(
        f"FB15k-237, {number} queries of each type from the validation part of the Query2Box query set "
        f"(Ren et al. 2020), one model for all types (2L = {model['dimension']}{trained}). Training facts are known. "
        "Each answer that needs a missing fact is ranked against all entities that are not answers; metrics are "
        "averaged over the answers of a query, then over queries. The Hits@3 of CQD-Beam (Arakelyan et al. 2021) are "
        "quoted, and are for the test part."
    ) + markdown(["type", *METRICS.values(), "CQD-Beam, Hits@3"], shown)


def missing(rows: list[Row]) -> str:
    parts = "one missing", "more missing"
    shown = [
        [row["kind"], *(cell for part in parts for cell in (f"{row[part]['queries']:,}", _number(row[part]["hits@3"])))]
        for row in rows
    ]
    header = ["type", *(f"{part}: {column}" for part in parts for column in ("queries", "Hits@3"))]
    return _paragraph(
        "Most answers of these sets need just one fact that is not known (Gregucci et al. 2024), so both parts are "
        "shown, each over the queries that have such answers:"
    ) + markdown(header, shown)


def times(rows: list[Row]) -> str:
    header = ["type", "exact", "ms, one query", "ms per query in batches of 100"]
    shown = [[row["kind"], f"{row['exact']:.0%}", _number(row["ms_one"], 1), _number(row["ms_in_batch"], 1)]
             for row in rows]  # fmt: skip
    if all("peak_mb" in row for row in rows):
        header.append("memory of the process, MB")
        shown = [[*cells, f"{row['peak_mb']:,}"] for cells, row in zip(shown, rows, strict=True)]
    return _paragraph(
        f"The width is {rows[0]['width']}; `exact` is the share of queries for which that is enough. The time of one "
        "query is a median."
    ) + markdown(header, shown)


def calibration(errors: Row) -> str:
    stored, fitted = errors["stored"]["all"], errors["fitted on half of the queries"]["all"]
    return _paragraph(
        f"Of the 10 best answers of each query that training facts do not give, {errors['true']:.1%} hold. On one half "
        f"of the queries ({errors['answers']:,} answers), the expected calibration error of the probabilities that "
        f"come with the model is {stored:.3f}; fitted on the other half of the queries, it is {fitted:.3f}."
    )
