"""`dihedral missing`: list the most likely facts that are missing from the graph."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
import typer

import dihedral as dh
from dihedral.cli.options import Json, ModelFolder, SpreadsheetSafe, TableFile, Wide
from dihedral.cli.output import counted_bar, print_answers, remark
from dihedral.cli.predict import read_among
from dihedral.io.table_files import check_table_path
from dihedral.predict.completion import missing_facts
from dihedral.store.reviews import Fact, Reviews


def command(
    model: ModelFolder,
    relation: Annotated[list[str] | None, typer.Option(help="Only facts of this relation; repeatable.")] = None,
    top: Annotated[
        int | None, typer.Option(help="Number of facts; by default 10, or 1000 with --min-precision.")
    ] = None,
    among: Annotated[
        str, typer.Option(help="Candidate entities: signature, range, all, or RELATION=ENTITY.")
    ] = "signature",
    min_precision: Annotated[
        float | None, typer.Option(help="End the list where fewer than this share are expected to hold.")
    ] = None,
    missing: Annotated[
        int | None,
        typer.Option(help="How many facts are missing from the graph; by default as many as its valid split holds."),
    ] = None,
    out: TableFile = None,
    spreadsheet_safe: SpreadsheetSafe = False,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """List the most likely facts that are missing from the graph.

    Candidates are entities whose facts fit that side of the relation. The column precision is the share of the facts
    down to that row that are expected to hold. Facts that were rejected with `dihedral review` are left out.

    Example: dihedral missing out/umls --relation causes --top 20
    """
    if out is not None:
        check_table_path(out)
    top = top if top is not None else 10 if min_precision is None else 1000
    predictor = dh.load(model)
    limits: dict[str, Any] = {"min_precision": min_precision, "missing": missing}
    limits["among"] = read_among(predictor, among)
    reviews = Reviews(model)
    limits["exclude"] = reviews.facts("reject")
    with counted_bar("relations") as on_progress:
        found = missing_facts(predictor, relations=relation or (), top=top, on_progress=on_progress, **limits)
    if min_precision is not None and len(found) in (0, top):
        nothing = f"no list is expected to have a precision of {min_precision}; leave out --min-precision"
        remark(f"the list ends at --top {top}" if len(found) else nothing)
    if predictor.calibration is None:
        remark(f"ordered by score, because there are no probabilities: {predictor.why_not_calibrated}")
        found = found.drop_columns(["probability", "precision", "precision_low", "precision_high"])
    elif found["precision_low"].null_count:
        found = found.drop_columns(["precision_low", "precision_high"])
    print_answers(_with_decisions(found, set(reviews.facts("accept"))), predictor.graph, out, spreadsheet_safe, json)


def _with_decisions(found: pa.Table, accepted: set[Fact]) -> pa.Table:
    """The table with a column that marks accepted facts, if there are any."""
    facts = zip(*(found[part].to_pylist() for part in ("head", "relation", "tail")), strict=True)
    marks = ["accepted" if fact in accepted else None for fact in facts]
    return found.append_column("decision", pa.array(marks, pa.string())) if any(marks) else found
