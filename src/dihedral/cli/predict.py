"""Answers about single facts: `dihedral predict`, `complete`, `classify`, `similar` and `missing`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

import dihedral as dh
from dihedral.cli.options import (
    Among,
    HeadOption,
    Json,
    Known,
    ModelFolder,
    Order,
    RelationOption,
    Relations,
    SpreadsheetSafe,
    TableFile,
    TailOption,
    Top,
    Wide,
)
from dihedral.cli.output import counted_bar, print_answers, print_found, print_predictions, remark
from dihedral.errors import DihedralError
from dihedral.predict import completion
from dihedral.predict.predictor import Predictor
from dihedral.predict.question_files import read_questions
from dihedral.scoring import questions
from dihedral.store.reviews import Fact, Reviews


def predict_command(
    model: ModelFolder,
    head: HeadOption = None,
    relation: RelationOption = None,
    tail: TailOption = None,
    top: Top = 10,
    known: Known = "include",
    among: Among = "all",
    order: Order = "auto",
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Predict the missing one of head, relation and tail.

    Example: dihedral predict out/umls --head virus --relation causes --known exclude
    """
    if head is not None and relation is not None and tail is not None:
        raise DihedralError(
            "head, relation and tail are all given; leave out the one to predict, or use `dihedral classify`"
        )
    predictor = dh.load(model)
    candidates = read_among(predictor, among)
    found = predictor.predict(
        head=head, relation=relation, tail=tail, top=top, known=known, among=candidates, order=order,  # type: ignore[arg-type]
    )  # fmt: skip
    given = [name for name, value in (("relation", relation), ("head", head), ("tail", tail)) if value is not None]
    print_predictions(found, predictor.graph, json, given)


def read_among(predictor: Predictor, among: str) -> questions.Among:
    """Parse --among: words stay, RELATION=ENTITY becomes the entities with that fact."""
    if among in questions.CANDIDATES:
        return among
    relation, equals, entity = among.partition("=")
    if not equals:
        choices = ", ".join(questions.CANDIDATES)
        raise DihedralError(f"among is {among!r}; write {choices}, or RELATION=ENTITY such as isa=Virus")
    return predictor.members(relation, entity)


def complete_command(
    model: ModelFolder,
    queries: Annotated[
        Path | None, typer.Option(help="A TSV, CSV or Parquet file of triples, each with one part empty or `?`.")
    ] = None,
    top: Top = 10,
    known: Known = "include",
    among: Among = "all",
    order: Order = "auto",
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
    predictor = dh.load(model)
    asked, candidates = read_questions(queries), read_among(predictor, among)
    with counted_bar("answering") as on_progress:
        found = completion.complete(
            predictor, asked, top=top, known=known, among=candidates, order=order,  # type: ignore[arg-type]
            skip_unknown=skip_unknown, on_progress=on_progress,
        )  # fmt: skip
    if skip_unknown and (unknown := questions.unknown_names(predictor.graph, asked)):
        count = len({number for numbers in unknown.values() for number in numbers})
        remark(f"left out {count} of {len(asked)} queries with unknown names: {questions.list_unknown(unknown)}")
    print_answers(found, predictor.graph, out, spreadsheet_safe, json)


def classify_command(
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
    given = [part for part in (head, relation, tail) if part is not None]
    if len(given) != (0 if triples is not None else 3):
        raise DihedralError(
            f"{len(given)} of head, relation and tail are given; give all three, or a file with --triples"
        )
    predictor = dh.load(model)
    facts = [(given[0], given[1], given[2])] if triples is None else _read_triples(triples)
    scores = predictor.scorer.score(predictor.triple_ids(facts)).cpu().numpy()
    found = pa.Table.from_pylist([each._asdict() for each in predictor.classify(facts)])
    print_answers(found.append_column("score", pa.array(scores)), predictor.graph, out, spreadsheet_safe, json)


def _read_triples(path: Path) -> list[Fact]:
    rows = read_questions(path)
    if not rows:
        raise DihedralError(f"file {str(path)!r} holds no triples; write head, relation and tail per line")
    for number, row in enumerate(rows, start=1):
        if None in row:
            raise DihedralError(f"triple {number} of {str(path)!r} lacks a part; a triple has head, relation and tail")
    return rows  # type: ignore[return-value]


def similar_command(
    model: ModelFolder,
    entity: Annotated[str, typer.Argument(help="The entity to compare with.")],
    top: Top = 10,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """List the entities with the highest cosine similarity to an entity.

    Example: dihedral similar out/umls virus
    """
    predictor = dh.load(model)
    found = predictor.similar(entity, top=top)
    print_found(json, [each._asdict() for each in found], ["entity", "similarity"], found, predictor.graph)


def missing_command(
    model: ModelFolder,
    relation: Relations = None,
    top: Annotated[
        int | None, typer.Option(help="Number of facts; by default 10, or 1000 with --min-precision.")
    ] = None,
    among: Among = "signature",
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
    top = top if top is not None else 10 if min_precision is None else 1000
    predictor = dh.load(model)
    reviews, candidates = Reviews(model), read_among(predictor, among)
    with counted_bar("relations") as on_progress:
        found = completion.missing_facts(
            predictor, relations=relation or (), top=top, among=candidates, min_precision=min_precision,
            missing=missing, exclude=reviews.facts("reject"), on_progress=on_progress,
        )  # fmt: skip
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
