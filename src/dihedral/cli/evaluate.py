"""`dihedral evaluate`: measure a stored model with filtered ranking metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

import dihedral as dh
from dihedral.cli.info import print_versions
from dihedral.cli.options import Columns, Device, Json, ModelFolder, Threads, Wide
from dihedral.cli.output import METRICS, metric_rows, print_json, print_metrics, print_table, read_data, say
from dihedral.errors import DihedralError
from dihedral.store.history import History, Version
from dihedral.update.lineage import versions_of


def command(
    model: ModelFolder,
    data: Annotated[
        str | None,
        typer.Option(help="Evaluate on this graph instead; all triples of a file without splits are ranked."),
    ] = None,
    split: Annotated[str, typer.Option(help="The split to rank: train, valid or test.")] = "test",
    sample: Annotated[int, typer.Option(help="Rank a random sample of this many triples; 0 ranks all.")] = 0,
    seed: Annotated[int, typer.Option(help="Random seed of the sample.")] = 0,
    order: Annotated[
        str,
        typer.Option(
            help="Rank by `score`, as published metrics do, by `probability`, or as answers are shown (`auto`)."
        ),
    ] = "score",
    memory_mb: Annotated[int, typer.Option(help="Memory for scores, in megabytes.")] = 256,
    since: Annotated[
        int | None, typer.Option(metavar="VERSION", help="Compare with what was measured for a version of this model.")
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    columns: Columns = None,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Rank each head and tail of a split against all entities, with other known answers filtered out.

    Example: dihedral evaluate out/umls --split valid --json

    Example: dihedral evaluate out/large --sample 5000

    Example: dihedral evaluate out/umls --since 0
    """
    if since is not None and (order != "score" or sample or data is not None):
        raise DihedralError(
            "--since compares with the MRR of all facts of a split by score; leave out --order, --sample and --data"
        )
    predictor = dh.load(model, device=device)
    graph = None if data is None else read_data(data, columns, all_as=split)
    options: dict[str, Any] = {"split": split, "memory_mb": memory_mb, "sample": sample, "seed": seed, "order": order}
    report = dh.evaluate(predictor, graph, **options).to_dict()
    if since is not None:
        report["since"] = compare(versions_of(predictor.trained), since, split)
    if json:
        print_json(report)
        return
    if since is not None:
        print_versions(History.from_dict(report["since"]).versions)
        change = report["since"]["change"]
        shown = "not measured by every update" if change is None else f"{change:+.4f}"
        say(f"\n{split} MRR since version {since}: {shown}\n")
    size = f", {report['triples']} of {report['drawn_from']} triples" if "drawn_from" in report else ""
    ordered = f", answers in order of {report['order']}" if order != "score" else ""
    print_metrics(
        f"{split}{size}, filtered, realistic ties{ordered}", metric_rows(report), report.get("standard_error")
    )
    print_metrics("other tie-breaking rules", {name: report[name] for name in ("optimistic", "pessimistic")})
    print_metrics("by relation category", {name: row["both"] for name, row in report["per_category"].items()})
    relations = sorted(report["per_relation"], key=lambda row: -row["triples"])[:20]
    header = ["relation", "category", "triples", "MRR", "Hits@1", "Hits@10", "mean rank"]
    rows = [[row[key] for key in ("relation", "category", "triples", *METRICS) if key != "hits@3"] for row in relations]
    print_table("by relation (the 20 most frequent)", header, rows, predictor.graph)


def compare(versions: Sequence[Version], since: int, split: str) -> dict[str, Any]:
    """The versions from one on, and the change of the MRR since then; None if that was not measured.

    The change is the sum of those of the updates. Each compares both models on the same facts, with the same known
    answers left out; the MRR of two versions on their own graphs would not be comparable.
    """
    wanted = tuple(each for each in versions if each.version >= since)
    if not wanted or wanted[0].version != since:
        known = f"{versions[0].version} to {versions[-1].version}"
        raise DihedralError(f"version {since} does not exist; this model has versions {known}")
    pairs = [each.mrr(split) for each in wanted[1:]]
    measured = [after - before for before, after in pairs if before is not None and after is not None]
    return {**History(wanted).to_dict(), "change": sum(measured) if len(measured) == len(pairs) else None}
