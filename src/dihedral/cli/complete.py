"""`dihedral complete`: answer a file of queries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import dihedral as dh
from dihedral.cli.options import Json, Known, ModelFolder, SpreadsheetSafe, TableFile, Wide
from dihedral.cli.output import counted_bar, print_answers, remark
from dihedral.cli.predict import read_among
from dihedral.errors import DihedralError
from dihedral.io.table_files import check_table_path
from dihedral.predict.completion import complete
from dihedral.predict.question_files import read_questions
from dihedral.scoring.questions import list_unknown, unknown_names


def command(
    model: ModelFolder,
    queries: Annotated[
        Path | None, typer.Option(help="A TSV, CSV or Parquet file of triples, each with one part empty or `?`.")
    ] = None,
    top: Annotated[int, typer.Option(help="Answers per query.")] = 10,
    known: Known = "include",
    among: Annotated[
        str | None, typer.Option(help="Candidate entities: all, signature, range, or RELATION=ENTITY (default: all).")
    ] = None,
    order: Annotated[str, typer.Option(help="Order of answers: auto, probability or score.")] = "auto",
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out queries with unknown names instead of refusing all.")
    ] = False,
    out: TableFile = None,
    spreadsheet_safe: SpreadsheetSafe = False,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Answer a file of queries.

    Example: dihedral complete out/umls --queries questions.tsv --out predictions.parquet
    """
    if queries is None:
        raise DihedralError("no --queries FILE is given; `dihedral missing` lists the most likely missing facts")
    if out is not None:
        check_table_path(out)
    predictor = dh.load(model)
    questions = read_questions(queries)
    options: dict[str, Any] = {"top": top, "known": known, "among": read_among(predictor, among), "order": order}
    with counted_bar("answering") as on_progress:
        found = complete(predictor, questions, skip_unknown=skip_unknown, on_progress=on_progress, **options)
    if skip_unknown and (unknown := unknown_names(predictor.graph, questions)):
        count = len({number for numbers in unknown.values() for number in numbers})
        remark(f"left out {count} of {len(questions)} queries with unknown names: {list_unknown(unknown)}")
    print_answers(found, predictor.graph, out, spreadsheet_safe, json)
