"""`dihedral complete`: answer a file of queries, or list the most likely missing facts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.options import Json, Known, ModelFolder
from dihedral.cli.output import cell, counted_bar, print_found, remark
from dihedral.cli.predict import read_among
from dihedral.errors import DihedralError
from dihedral.inference.completion import complete, missing_facts
from dihedral.inference.tables import check_table_path, read_questions, write_table


def command(
    model: ModelFolder,
    queries: Annotated[
        Path | None, typer.Option(help="A TSV, CSV or Parquet file of triples, each with one part empty or `?`.")
    ] = None,
    relation: Annotated[list[str] | None, typer.Option(help="Only missing facts of this relation; repeatable.")] = None,
    top: Annotated[int, typer.Option(help="Answers per query, or missing facts in total.")] = 10,
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
    out: Annotated[Path | None, typer.Option(help="Write a .parquet, .csv or .tsv file instead of printing.")] = None,
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
    if queries is None and known != "include":
        raise DihedralError(f"known is {known!r} without --queries; missing facts are never known facts")
    predictor = dh.load(model)
    limit = read_among(predictor, among)
    if queries is not None:
        questions = read_questions(queries)
        with counted_bar("answering") as on_progress:
            found = complete(predictor, questions, top=top, known=known, among=limit, on_progress=on_progress)  # type: ignore[arg-type]
    else:
        limits = {"among": limit or "signature", "min_precision": min_precision}
        with counted_bar("relations") as on_progress:
            found = missing_facts(predictor, relations=relation or (), top=top, on_progress=on_progress, **limits)  # type: ignore[arg-type]
        if predictor.calibration is None:
            remark(f"ordered by score, because there are no probabilities: {predictor.why_not_calibrated}")
            found = found.drop_columns(["probability", "precision", "precision_low", "precision_high"])
    if out is not None:
        write_table(found, out)
        remark(f"wrote {len(found)} rows to {out}")
        return
    rows = found.to_pylist()
    cells = [[cell(value) for value in row.values()] for row in rows]
    print_found(json, rows, found.column_names, cells, predictor.graph.entities.short)
