"""`dihedral evaluate`: filtered metrics of a stored model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.output import METRICS, Columns, Json, metric_rows, print_json, print_metrics, print_table, read_data


def command(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    data: Annotated[
        str | None, typer.Option(help="Other data than the model's own; of a single file, every triple is ranked.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    sample: Annotated[
        int, typer.Option(help="Rank only so many triples, drawn at random, against all entities; 0 ranks all.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    memory_mb: Annotated[int, typer.Option(help="Memory for scores.")] = 256,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Rank the answers of a split among all entities, known answers left out.

    Example: dihedral evaluate out/umls --split valid --json

    Example: dihedral evaluate out/large --sample 5000
    """
    predictor = dh.load(model, device=device)
    graph = None if data is None else read_data(data, columns, all_as=split)
    report = dh.evaluate(predictor, graph, split=split, memory_mb=memory_mb, sample=sample, seed=seed).to_dict()
    if json:
        print_json(report)
        return
    size = f", {report['triples']} of {report['drawn_from']} triples" if "drawn_from" in report else ""
    print_metrics(f"{split}{size}, filtered, realistic ties", metric_rows(report), report.get("standard_error"))
    print_metrics("other tie rules", {name: report[name] for name in ("optimistic", "pessimistic")})
    print_metrics("by category of relation", {name: row["both"] for name, row in report["per_category"].items()})
    rows = sorted(report["per_relation"], key=lambda row: -row["triples"])[:20]
    print_table(
        "by relation, the 20 most frequent",
        ["relation", "category", "triples", "MRR", "Hits@1", "Hits@10", "mean rank"],
        [
            [row["relation"], row["category"], row["triples"], *(row[key] for key in METRICS if key != "hits@3")]
            for row in rows
        ],
        predictor.graph.relations.short,
    )
