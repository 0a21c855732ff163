"""`dihedral complete`: answer a file of queries, or list the most likely missing facts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

import dihedral as dh
from dihedral.cli.options import Json, Known, ModelFolder
from dihedral.cli.output import cell, counted_bar, print_found, remark
from dihedral.cli.predict import read_among
from dihedral.errors import DihedralError
from dihedral.inference.completion import complete, missing_facts
from dihedral.inference.predictor import Predictor
from dihedral.inference.questions import Question, list_unknown, unknown_names
from dihedral.inference.tables import check_table_path, read_questions, write_table


def command(
    model: ModelFolder,
    queries: Annotated[
        Path | None, typer.Option(help="A TSV, CSV or Parquet file of triples, each with one part empty or `?`.")
    ] = None,
    relation: Annotated[list[str] | None, typer.Option(help="Only missing facts of this relation; repeatable.")] = None,
    top: Annotated[
        int | None,
        typer.Option(help="Answers per query, or missing facts in total; by default 10, or 1000 with --min-precision."),
    ] = None,
    known: Known = "include",
    among: Annotated[
        str | None,
        typer.Option(
            help="Candidates: signature (default for missing facts), range, all (for queries), RELATION=ENTITY."
        ),
    ] = None,
    min_precision: Annotated[
        float | None,
        typer.Option(help="End the list of missing facts where fewer than this share are expected to hold."),
    ] = None,
    missing: Annotated[
        int | None,
        typer.Option(help="How many facts are missing from the graph; by default as many as its valid split holds."),
    ] = None,
    order: Annotated[str, typer.Option(help="Order of answers to queries: auto, probability or score.")] = "auto",
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out queries with unknown names instead of refusing all.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write a .parquet, .csv or .tsv file instead of printing.")] = None,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option(
            "--spreadsheet-safe", help="In .csv and .tsv files, put ' before names that start with = + - or @."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Answer a file of queries; without one, list the most likely facts that are missing from the graph.

    Candidates for missing facts are entities whose facts fit that side of the relation. The column precision is the
    share of the facts down to that row that are expected to hold.

    Example: dihedral complete out/umls --queries questions.tsv --out predictions.parquet
    """
    if out is not None:
        check_table_path(out)
    if queries is not None and relation:
        raise DihedralError("--relation is given with --queries; it selects missing facts, so leave out one of the two")
    if queries is not None and min_precision is not None:
        raise DihedralError("--min-precision is given with --queries; it ends a list of missing facts")
    if queries is not None and missing is not None:
        raise DihedralError("--missing is given with --queries; it is about a list of missing facts")
    if queries is None and known != "include":
        raise DihedralError(f"known is {known!r} without --queries; missing facts are never known facts")
    if queries is None and order != "auto":
        raise DihedralError(f"order is {order!r} without --queries; missing facts are ordered by probability")
    if queries is None and skip_unknown:
        raise DihedralError("--skip-unknown is given without --queries; it is about the names in a file of queries")
    top = top if top is not None else 10 if min_precision is None else 1000
    predictor = dh.load(model)
    limit = read_among(predictor, among)
    if queries is not None:
        found = _answers(
            predictor, read_questions(queries), skip_unknown, top=top, known=known, among=limit, order=order
        )
    else:
        limits = {"among": limit or "signature", "min_precision": min_precision, "missing": missing}
        with counted_bar("relations") as on_progress:
            found = missing_facts(predictor, relations=relation or (), top=top, on_progress=on_progress, **limits)  # type: ignore[arg-type]
        if min_precision is not None and len(found) in (0, top):
            nothing = f"no list is expected to have a precision of {min_precision}; leave out --min-precision"
            remark(f"the list ends at --top {top}" if len(found) else nothing)
        if predictor.calibration is None:
            remark(f"ordered by score, because there are no probabilities: {predictor.why_not_calibrated}")
            found = found.drop_columns(["probability", "precision", "precision_low", "precision_high"])
        elif relation or missing is not None:
            found = found.drop_columns(["precision_low", "precision_high"])
    if out is not None:
        write_table(found, out, spreadsheet_safe=spreadsheet_safe)
        remark(f"wrote {len(found)} rows to {out}")
        return
    rows = found.to_pylist()
    cells = [[cell(value) for value in row.values()] for row in rows]
    print_found(json, rows, found.column_names, cells, predictor.graph.entities.short)


def _answers(predictor: Predictor, questions: list[Question], skip_unknown: bool, **options: Any) -> pa.Table:
    """Answer questions, and say which are left out."""
    with counted_bar("answering") as on_progress:
        found = complete(predictor, questions, skip_unknown=skip_unknown, on_progress=on_progress, **options)
    if skip_unknown and (unknown := unknown_names(predictor.graph, questions)):
        count = len({number for numbers in unknown.values() for number in numbers})
        remark(f"left out {count} of {len(questions)} queries with unknown names: {list_unknown(unknown)}")
    return found
