"""`dihedral ask`: answer a query of several facts; `dihedral query`: the same for a path of relations."""

from __future__ import annotations

import csv
import json as json_format
import sys
from typing import Annotated, Any

import typer

import dihedral as dh
from dihedral.ask.asking import Answer, AnswerFact
from dihedral.ask.messages import WIDTH
from dihedral.ask.tree import path_query
from dihedral.cli.options import Csv, Json, Known, ModelFolder, Top, Wide
from dihedral.cli.output import cell, print_found, print_json, say
from dihedral.errors import DihedralError
from dihedral.graph import Graph

Width = Annotated[int, typer.Option(help="Entities of a variable from which predictions are followed.")]


def ask_command(
    model: ModelFolder,
    query: Annotated[str, typer.Argument(help="SPARQL, or the JSON form of a query.")],
    top: Annotated[int | None, typer.Option(help="Number of answers (default: the LIMIT of the query, or 10).")] = None,
    known: Known = "include",
    conjunction: Annotated[
        str, typer.Option(help="product or minimum: how facts that must all hold combine.")
    ] = "product",
    ways: Annotated[str, typer.Option(help="noisy-or or max: how several ways to an answer combine.")] = "noisy-or",
    width: Width = WIDTH,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the plan with the candidates of each step.")
    ] = False,
    wide: Wide = False,
    json: Json = False,
    as_csv: Csv = False,
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
    if explain and not json and not as_csv:
        how = "exact" if found.exact else f"beam: predictions are followed from at most {width} entities"
        for line in [*found.plan, how]:
            say(graph.entities.short(line))
    if json and explain:
        print_json(
            {"plan": found.plan, "exact": found.exact, "answers": [_content(answer) for answer in found.answers]},
            graph,
        )
        return
    print_answers(found.answers, graph, json=json, as_csv=as_csv)


def print_answers(answers: list[Answer], graph: Graph, *, json: bool = False, as_csv: bool = False) -> None:
    """Print the answers of a query as a table, as JSON or as CSV."""
    variables = list(dict.fromkeys(name for answer in answers for name in answer.variables))
    fitted = any(answer.probability is not None for answer in answers)
    shown = ["value", "probability"] if as_csv else ["probability" if fitted else "value"]
    header = ["answer", *shown, "known", *(f"?{name}" for name in variables), "rests on"]
    rows = [[*_cells(answer, shown, variables), " · ".join(_fact(each, graph, as_csv) for each in answer.facts)]
            for answer in answers]  # fmt: skip
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


def _cells(answer: Answer, shown: list[str], variables: list[str]) -> list[Any]:
    names = [answer.variables.get(name, "") for name in variables]
    return [answer.entity, *(getattr(answer, name) for name in shown), cell(answer.known), *names]


def _fact(fact: AnswerFact, graph: Graph, plain: bool) -> str:
    sure = "known" if fact.known else "predicted" if fact.probability is None else f"{fact.probability:.2f}"
    if plain:
        return f"{fact.head} {fact.relation} {fact.tail} ({sure})"
    entity, relation = graph.entities.shown, graph.relations.shown
    return f"{entity(fact.head)} {relation(fact.relation)} {entity(fact.tail)} ({sure})"


def _content(answer: Answer) -> dict[str, Any]:
    return answer._asdict() | {"facts": [fact._asdict() for fact in answer.facts]}


def query_command(
    model: ModelFolder,
    start: Annotated[str, typer.Option("--from", help="The entity where the path starts.")],
    via: Annotated[list[str], typer.Option(help="The next relation; ~RELATION follows it backwards; repeatable.")],
    top: Top = 10,
    width: Width = WIDTH,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Follow a path of relations from an entity; the same as `ask` with a path.

    Example: dihedral query out/demo --from man_0600 --via spouse --via parent --top 3
    """
    predictor = dh.load(model)
    query = path_query(start, via, predictor.graph.relations)
    (found,) = predictor.ask_many([query], top=top, width=width)
    print_answers(found.answers, predictor.graph, json=json)
