"""`dihedral evaluate`: measure a stored model with filtered ranking metrics."""

from __future__ import annotations

from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.options import Columns, Device, Json, ModelFolder, Threads, Wide
from dihedral.cli.output import METRICS, metric_rows, print_json, print_metrics, print_table, read_data


def command(
    model: ModelFolder,
    data: Annotated[
        str | None,
        typer.Option(help="Evaluate on this graph instead; all triples of a file without splits are ranked."),
    ] = None,
    split: Annotated[str, typer.Option(help="The split to rank: train, valid or test.")] = "test",
    sample: Annotated[int, typer.Option(help="Rank a random sample of this many triples; 0 ranks all.")] = 0,
    seed: Annotated[int, typer.Option(help="Random seed of the sample.")] = 0,
    memory_mb: Annotated[int, typer.Option(help="Memory for scores, in megabytes.")] = 256,
    device: Device = "auto",
    threads: Threads = None,
    columns: Columns = None,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Rank each head and tail of a split against all entities, with other known answers filtered out.

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
    print_metrics("other tie-breaking rules", {name: report[name] for name in ("optimistic", "pessimistic")})
    print_metrics("by relation category", {name: row["both"] for name, row in report["per_category"].items()})
    relations = sorted(report["per_relation"], key=lambda row: -row["triples"])[:20]
    header = ["relation", "category", "triples", "MRR", "Hits@1", "Hits@10", "mean rank"]
    rows = [[row[key] for key in ("relation", "category", "triples", *METRICS) if key != "hits@3"] for row in relations]
    print_table("by relation (the 20 most frequent)", header, rows, predictor.graph)
