"""Answers: `dihedral predict`, `complete`, `classify`, `explain`, `similar`, `missing`, `ask` and `query`."""

from __future__ import annotations

import csv
import json as json_format
import sys
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

import dihedral as dh
from dihedral.ask.asking import Answer, AnswerFact
from dihedral.ask.messages import WIDTH
from dihedral.ask.tree import path_query
from dihedral.cli import options as opt
from dihedral.cli.output import counted_bar, open_model, print_answers, print_found, print_json, remark, say
from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.interpretation.explanations import explain
from dihedral.io.files import check_suffix
from dihedral.predict import completion
from dihedral.predict.completion import read_questions
from dihedral.predict.predictor import Predictor
from dihedral.scoring import questions
from dihedral.store.reviews import Fact, Reviews

FEW_VALID = 100  # facts; fewer leave a precision open
Width = Annotated[int, typer.Option(help="Entities of a variable from which predictions are followed.")]


def predict_command(
    model: opt.ModelFolder,
    head: opt.Head = None,
    relation: opt.Relation = None,
    tail: opt.Tail = None,
    top: opt.Top = 10,
    known: opt.Known = "include",
    among: opt.Among = "all",
    order: opt.Order = "auto",
    graph: opt.OtherGraph = None,
    wide: opt.Wide = False,
    json: opt.Json = False,
) -> None:
    """Predict the missing one of head, relation and tail.

    Example: dihedral predict out/umls --head virus --relation causes --known exclude

    Example: dihedral predict out/paths --graph other.tsv --head ann --relation knows
    """
    predictor = open_model(model, graph)
    candidates = read_among(predictor, among)
    found = predictor.predict(
        head=head, relation=relation, tail=tail, top=top, known=known, among=candidates, order=order,  # type: ignore[arg-type]
    )  # fmt: skip
    given = [name for name, value in (("relation", relation), ("head", head), ("tail", tail)) if value is not None]
    likely = ["probability"] * any(each.probability is not None for each in found)
    header = ["head", "relation", "tail", "score", *likely, "known"]
    print_found(json, [each._asdict() for each in found], header, None, predictor.graph, given)


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
    model: opt.ModelFolder,
    queries: Annotated[Path, typer.Option(help="A TSV, CSV or Parquet file of triples with one part empty or `?`.")],
    top: opt.Top = 10,
    known: opt.Known = "include",
    among: opt.Among = "all",
    order: opt.Order = "auto",
    graph: opt.OtherGraph = None,
    skip_unknown: Annotated[bool, typer.Option("--skip-unknown", help="Leave out queries with unknown names.")] = False,
    out: opt.TableFile = None,
    spreadsheet_safe: opt.SpreadsheetSafe = False,
    wide: opt.Wide = False,
    json: opt.Json = False,
) -> None:
    """Answer a file of queries.

    Example: dihedral complete out/umls --queries questions.tsv --out predictions.parquet
    """
    predictor = open_model(model, graph)
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
    model: opt.ModelFolder,
    head: Annotated[str | None, typer.Argument(help="The head entity.")] = None,
    relation: Annotated[str | None, typer.Argument(help="The relation.")] = None,
    tail: Annotated[str | None, typer.Argument(help="The tail entity.")] = None,
    triples: Annotated[Path | None, typer.Option(help="A TSV, CSV or Parquet file of triples.")] = None,
    out: opt.TableFile = None,
    spreadsheet_safe: opt.SpreadsheetSafe = False,
    wide: opt.Wide = False,
    json: opt.Json = False,
) -> None:
    """Judge triples as true or false; a known fact is judged as if it were not known.

    The probability is that of a triple being true among as many true as false ones, of which half are random and
    half are proposals of the model.

    Example: dihedral classify out/umls virus causes disease_or_syndrome
    """
    given = [part for part in (head, relation, tail) if part is not None]
    if len(given) != (0 if triples is not None else 3):
        raise DihedralError(f"{len(given)} of head, relation and tail given; give all three, or a file with --triples")
    predictor = dh.load(model)
    facts = [(given[0], given[1], given[2])] if triples is None else _read_triples(triples)
    scores = predictor.scorer.score(predictor.triple_ids(facts)).cpu().numpy()
    found = predictor.classify(facts).to_arrow()
    print_answers(found.append_column("score", pa.array(scores)), predictor.graph, out, spreadsheet_safe, json)


def _read_triples(path: Path) -> list[Fact]:
    rows = read_questions(path)
    if not rows:
        raise DihedralError(f"file {str(path)!r} holds no triples; write head, relation and tail per line")
    for number, row in enumerate(rows, start=1):
        if None in row:
            raise DihedralError(f"triple {number} of {str(path)!r} lacks a part; a triple has head, relation and tail")
    return rows  # type: ignore[return-value]


def explain_command(
    model: opt.ModelFolder,
    head: Annotated[str, typer.Argument(help="The head entity.")],
    relation: Annotated[str, typer.Argument(help="The relation.")],
    tail: Annotated[str, typer.Argument(help="The tail entity.")],
    top: Annotated[int, typer.Option(help="Maximum number of paths and of similar facts.")] = 5,
    figure: Annotated[Path | None, typer.Option(help="Draw the paths in this .png or .svg file.")] = None,
    graph: opt.OtherGraph = None,
    json: opt.Json = False,
) -> None:
    """Show the paths that support a triple, similar facts, and what each group element adds to its score.

    Example: dihedral explain out/demo man_0600 parent_in_law man_0012
    """
    if figure is not None:
        check_suffix("figure", figure, (".png", ".svg"))
        try:
            from dihedral.figures import draw_explanation
        except ModuleNotFoundError:
            raise DihedralError("--figure needs matplotlib: pip install 'dihedral[plots]'") from None
    predictor = open_model(model, graph)
    found = explain(predictor, head, relation, tail, top=top)
    if json:
        print_json(found.to_dict(), predictor.graph)
    else:
        say(found.text(predictor.graph.entities.shown, predictor.graph.relations.shown))
    if figure is not None:
        draw_explanation(found, figure, predictor.graph)
        remark(f"wrote {figure}")


def similar_command(
    model: opt.ModelFolder,
    entity: Annotated[str, typer.Argument(help="The entity to compare with.")],
    top: opt.Top = 10,
    wide: opt.Wide = False,
    json: opt.Json = False,
) -> None:
    """List the entities with the highest cosine similarity to an entity; a path model compares numbers of facts.

    Example: dihedral similar out/umls virus
    """
    predictor = dh.load(model)
    found = predictor.similar(entity, top=top)
    print_found(json, [each._asdict() for each in found], ["entity", "similarity"], None, predictor.graph)


def missing_command(
    model: opt.ModelFolder,
    relation: opt.Relations = None,
    top: Annotated[
        int | None, typer.Option(help="Number of facts (default: 10, or 1000 with either of the next two limits).")
    ] = None,
    per_relation: Annotated[int | None, typer.Option(help="At most so many facts of each relation.")] = None,
    min_precision: Annotated[float | None, typer.Option(help="Minimum share of facts expected to hold.")] = None,
    among: opt.Among = "signature",
    missing: Annotated[int | None, typer.Option(help="Number of missing facts (default: an estimate).")] = None,
    out: opt.TableFile = None,
    spreadsheet_safe: opt.SpreadsheetSafe = False,
    wide: opt.Wide = False,
    json: opt.Json = False,
) -> None:
    """List the most likely facts that are missing from the graph.

    Candidates are entities whose facts fit that side of the relation. The column precision is the share of the facts
    down to that row that are expected to hold. Facts that were rejected with `dihedral review` are left out.

    Example: dihedral missing out/umls --relation causes --top 20
    """
    top = top if top is not None else 10 if min_precision is None and per_relation is None else 1000
    predictor = dh.load(model)
    reviews, candidates = Reviews(model), read_among(predictor, among)
    with counted_bar("relations") as on_progress:
        found = completion.missing_facts(
            predictor, relations=relation or (), top=top, per_relation=per_relation, among=candidates,
            min_precision=min_precision, missing=missing, exclude=reviews.facts("reject"), on_progress=on_progress,
        )  # fmt: skip
    if min_precision is not None and len(found) in (0, top):
        nothing = f"no list is expected to have a precision of {min_precision}; leave out --min-precision"
        remark(f"the list ends at --top {top}" if len(found) else nothing)
    if predictor.calibration is None:
        remark(f"ordered by score, because there are no probabilities: {predictor.why_not_calibrated}")
        found = found.drop_columns(["probability", "precision", "precision_low", "precision_high"])
    elif found["precision_low"].null_count:
        found = found.drop_columns(["precision_low", "precision_high"])
    elif len(found) >= 10 and (count := len(predictor.graph.valid)) < FEW_VALID:
        remark(f"the intervals are wide, because the graph has only {count} valid facts to fit probabilities on")
    print_answers(_with_decisions(found, set(reviews.facts("accept"))), predictor.graph, out, spreadsheet_safe, json)


def _with_decisions(found: pa.Table, accepted: set[Fact]) -> pa.Table:
    """The table with a column that marks accepted facts, if there are any."""
    facts = zip(*(found[part].to_pylist() for part in ("head", "relation", "tail")), strict=True)
    marks = ["accepted" if fact in accepted else None for fact in facts]
    return found.append_column("decision", pa.array(marks, pa.string())) if any(marks) else found


def ask_command(
    model: opt.ModelFolder,
    query: Annotated[str, typer.Argument(help="SPARQL, or the JSON form of a query.")],
    top: Annotated[int | None, typer.Option(help="Number of answers (default: the LIMIT of the query, or 10).")] = None,
    known: opt.Known = "include",
    conjunction: Annotated[str, typer.Option(help="product or minimum: how facts combine.")] = "product",
    ways: Annotated[str, typer.Option(help="noisy-or or max: how several ways to an answer combine.")] = "noisy-or",
    width: Width = WIDTH,
    explain: Annotated[bool, typer.Option("--explain", help="Print the plan and candidates of each step.")] = False,
    wide: opt.Wide = False,
    json: opt.Json = False,
    as_csv: opt.Csv = False,
) -> None:
    """Answer a query of several facts, also where the facts are not in the graph.

    Example: dihedral ask out/family 'SELECT ?x WHERE { <man_0600> <spouse>/<parent> ?x }'
    """
    if json and as_csv:
        raise DihedralError("both --json and --csv are given; choose one")
    predictor = dh.load(model)
    (found,) = predictor.ask_many(
        [_read(query)], top=top, known=known, conjunction=conjunction, ways=ways, width=width,  # type: ignore[arg-type]
    )  # fmt: skip
    graph = predictor.graph
    if explain and json:
        answers = [_content(answer) for answer in found.answers]
        print_json({"plan": found.plan, "exact": found.exact, "answers": answers}, graph)
        return
    if explain and not as_csv:
        how = "exact" if found.exact else f"beam: predictions are followed from at most {width} entities"
        for line in [*found.plan, how]:
            say(graph.entities.short(line))
    _print_variables(found.answers, graph, json=json, as_csv=as_csv)


def _print_variables(answers: list[Answer], graph: Graph, *, json: bool = False, as_csv: bool = False) -> None:
    """Print the answers of a query as a table, as JSON or as CSV."""
    variables = list(dict.fromkeys(name for answer in answers for name in answer.variables))
    fitted = any(answer.probability is not None for answer in answers)
    shown = ["value", "probability"] if as_csv else ["probability" if fitted else "value"]
    rows = []
    for answer in answers:
        row = [answer.entity, *(getattr(answer, name) for name in shown), "yes" if answer.known else ""]
        row += [answer.variables.get(name, "") for name in variables]
        rows.append([*row, " · ".join(_fact(each, graph, as_csv) for each in answer.facts)])
    header = ["answer", *shown, "known", *(f"?{name}" for name in variables), "rests on"]
    if as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows([header, *rows])
    else:
        print_found(json, [_content(answer) for answer in answers], header, rows, graph)


def _read(query: str) -> Any:
    if not query.lstrip().startswith("{"):
        return query
    try:
        return json_format.loads(query)
    except ValueError as error:
        raise DihedralError(f"the query is not JSON: {error}; write JSON, or SPARQL that starts with SELECT") from None
    except RecursionError:
        raise DihedralError("the query is nested too deeply") from None


def _fact(fact: AnswerFact, graph: Graph, plain: bool) -> str:
    sure = "known" if fact.known else "predicted" if fact.probability is None else f"{fact.probability:.2f}"
    entity, relation = (str, str) if plain else (graph.entities.shown, graph.relations.shown)
    return f"{entity(fact.head)} {relation(fact.relation)} {entity(fact.tail)} ({sure})"


def _content(answer: Answer) -> dict[str, Any]:
    return answer._asdict() | {"facts": [fact._asdict() for fact in answer.facts]}


def query_command(
    model: opt.ModelFolder,
    start: Annotated[str, typer.Option("--from", help="The entity where the path starts.")],
    via: Annotated[list[str], typer.Option(help="The next relation; ~RELATION follows it backwards; repeatable.")],
    top: opt.Top = 10,
    width: Width = WIDTH,
    wide: opt.Wide = False,
    json: opt.Json = False,
) -> None:
    """Follow a path of relations from an entity; the same as `ask` with a path.

    Example: dihedral query out/demo --from man_0600 --via spouse --via parent --top 3
    """
    predictor = dh.load(model)
    query = path_query(start, via, predictor.graph.relations)
    (found,) = predictor.ask_many([query], top=top, width=width)
    _print_variables(found.answers, predictor.graph, json=json)
