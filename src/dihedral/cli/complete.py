"""`dihedral complete`: answers to a file of questions, or the best facts that the graph lacks, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import dihedral as dh
from dihedral.cli.output import Json, counted_bar, print_json, print_table, remark
from dihedral.cli.predict import read_among
from dihedral.errors import DihedralError
from dihedral.inference.completion import complete, missing_facts
from dihedral.inference.tables import check_table_path, read_questions, write_table


def command(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    queries: Annotated[
        Path | None, typer.Option(help="A TSV, CSV or Parquet file of triples with one part empty or `?`.")
    ] = None,
    relation: Annotated[list[str] | None, typer.Option(help="Missing facts of these relations only.")] = None,
    top: Annotated[int, typer.Option(help="How many answers a question, or facts in all.")] = 10,
    known: Annotated[str, typer.Option(help="include or exclude facts the graph holds already.")] = "include",
    among: Annotated[
        str | None,
        typer.Option(help="Only these entities: `range`, `all`, or RELATION=ENTITY for those with that fact."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a .parquet, .csv or .tsv file instead of printing.")] = None,
    json: Json = False,
) -> None:
    """Answer a file of questions; without one, name the likeliest facts that the graph does not hold.

    Facts that are missing are looked for among the entities that training has on that side of the relation, unless
    --among says otherwise.

    Example: dihedral complete out/umls --queries questions.tsv --out predictions.parquet
    """
    if out is not None:
        check_table_path(out)
    if queries is not None and relation:
        raise DihedralError("relation is given with queries; it limits missing facts, which are named without queries")
    if queries is None and known != "include":
        raise DihedralError(f"known is {known!r} without queries; missing facts are never known ones")
    predictor = dh.load(model)
    limit = None if among == "all" else read_among(predictor, among)
    if queries is not None:
        questions = read_questions(queries)
        with counted_bar("answering") as on_progress:
            found = complete(predictor, questions, top=top, known=known, among=limit, on_progress=on_progress)  # type: ignore[arg-type]
    else:
        limit = "range" if among is None else limit
        with counted_bar("relations") as on_progress:
            found = missing_facts(predictor, relations=relation or (), top=top, among=limit, on_progress=on_progress)
    if out is not None:
        write_table(found, out)
        remark(f"{len(found)} rows written to {out}")
    elif json:
        print_json(found.to_pylist())
    else:
        rows = [[_cell(value) for value in row.values()] for row in found.to_pylist()]
        print_table("", found.column_names, rows, predictor.graph.entities.short)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else ""
    return "" if value is None else value
