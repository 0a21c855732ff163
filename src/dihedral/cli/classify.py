"""`dihedral classify`: judge triples as true or false."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

import dihedral as dh
from dihedral.cli.options import Json, ModelFolder, SpreadsheetSafe, TableFile, Wide
from dihedral.cli.output import print_answers
from dihedral.errors import DihedralError
from dihedral.io.table_files import check_table_path
from dihedral.predict.predictor import Predictor
from dihedral.predict.question_files import read_questions


def command(
    model: ModelFolder,
    head: Annotated[str | None, typer.Argument(help="The head entity.")] = None,
    relation: Annotated[str | None, typer.Argument(help="The relation.")] = None,
    tail: Annotated[str | None, typer.Argument(help="The tail entity.")] = None,
    triples: Annotated[Path | None, typer.Option(help="A TSV, CSV or Parquet file of triples.")] = None,
    out: TableFile = None,
    spreadsheet_safe: SpreadsheetSafe = False,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Judge triples as true or false; a known fact is judged as if it were not known.

    The probability is that of a triple being true if true and false are equally likely.

    Example: dihedral classify out/umls virus causes disease_or_syndrome
    """
    if out is not None:
        check_table_path(out)
    given = [part for part in (head, relation, tail) if part is not None]
    if len(given) != (0 if triples is not None else 3):
        raise DihedralError(
            f"{len(given)} of head, relation and tail are given; give all three, or a file with --triples"
        )
    predictor = dh.load(model)
    found = judge(predictor, [tuple(given)] if triples is None else _read(triples))  # type: ignore[list-item]
    print_answers(found, predictor.graph, out, spreadsheet_safe, json)


def judge(predictor: Predictor, triples: list[tuple[str, str, str]]) -> pa.Table:
    """Judgements with the scores of the triples."""
    scores = predictor.scorer.score(predictor.triple_ids(triples)).cpu().numpy()
    rows = [each._asdict() for each in predictor.classify(triples)]
    return pa.Table.from_pylist(rows).append_column("score", pa.array(scores))


def _read(path: Path) -> list[tuple[str, str, str]]:
    rows = read_questions(path)
    if not rows:
        raise DihedralError(f"file {str(path)!r} holds no triples; write head, relation and tail per line")
    for number, row in enumerate(rows, start=1):
        if None in row:
            raise DihedralError(f"triple {number} of {str(path)!r} lacks a part; a triple has head, relation and tail")
    return rows  # type: ignore[return-value]
