"""Commands about a model folder: `dihedral info`, `evaluate`, `label` and `export`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import dihedral as dh
from dihedral.cli.options import Columns, Device, Json, Language, ModelFolder, Threads, Wide
from dihedral.cli.output import METRICS, metric_rows, print_json, print_metrics, print_table, read_data, say
from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.labels import count_labels
from dihedral.store.folder import describe, relabel_model
from dihedral.store.history import History, Version
from dihedral.update.lineage import versions_of

SPLITS = ("valid", "test")  # that are measured


def info_command(model: ModelFolder, wide: Wide = False, json: Json = False) -> None:
    """Show the model, data, recipe and metrics of a model folder.

    Example: dihedral info out/umls
    """
    content = describe(model)
    if json:
        print_json(content)
        return
    try:
        _print(content)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DihedralError(f"model folder {str(model)!r} has a damaged recipe or metrics: {error!r:.200}") from None


def _print(content: dict[str, Any]) -> None:
    content["notes"] = "; ".join(content.get("notes", ()))
    simple = {key: value for key, value in content.items() if not isinstance(value, (dict, list)) and value != ""}
    settings = {f"recipe.{key}": value for key, value in content["recipe"].items() if value != ""}
    print_table("", ["", ""], [[key, str(value)] for key, value in {**simple, **settings}.items()])
    for split in SPLITS:
        if split in content["metrics"]:
            report = content["metrics"][split]
            print_metrics(f"{split}, filtered", metric_rows(report), report.get("standard_error"))
    _print_calibration(content["calibration"])
    if len(versions := History.from_dict(content).versions) > 1:
        _print_versions(versions)


def _print_versions(versions: Sequence[Version]) -> None:
    """One row per version: what changed, and MRR before and after on the same facts."""
    header = ["version", "date", "added", "removed", "rows", "valid MRR", "test MRR", "advice"]
    rows = []
    for each in versions:
        measured = ["→".join(f"{value:.3f}" for value in each.mrr(split) if value is not None) for split in SPLITS]
        counts = ["", "", ""] if each.parent is None else [each.added, each.removed, each.rows_changed]
        advice = "train" if each.advice else "new model" if each.trained_again else ""
        rows.append([each.version, each.time[:10], *counts, *measured, advice])
    print_table("\nversions: changed rows of entities, MRR before→after, and whether to train again", header, rows)
    if reason := versions[-1].advice:
        say(f"retraining is recommended: {reason}")


def _print_calibration(calibration: dict[str, Any]) -> None:
    if "reason" in calibration:
        say(f"\nno probabilities: {calibration['reason']}")
    if answers := calibration.get("answers"):
        mrr = answers["mrr"]
        say(
            f"\nanswers are ordered by {answers['order']}: on {answers['triples']} valid triples, "
            f"MRR {mrr['probability']:.4f} by probability, which was fitted on valid, and {mrr['score']:.4f} by score"
        )
    measured = calibration.get("judgements", {}).get("test", {})
    if measured.get("triples"):
        error, accuracy = measured["expected_calibration_error"], measured["accuracy"]
        title = "\njudgements of test triples and as many false ones: "
        title += f"expected calibration error {error:.4f}, accuracy {accuracy:.1%}"
        rows = [[row["probability"], row["true"], row["triples"]] for row in measured["reliability"]]
        print_table(title, ["probability", "share true", "triples"], rows)


def evaluate_command(
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
    report = dh.evaluate(
        predictor, graph, split=split, memory_mb=memory_mb, sample=sample, seed=seed, order=order,  # type: ignore[arg-type]
    ).to_dict()  # fmt: skip
    if since is not None:
        report["since"] = _compare(versions_of(predictor.trained), since, split)
    if json:
        print_json(report)
        return
    if since is not None:
        _print_versions(History.from_dict(report["since"]).versions)
        change = report["since"]["change"]
        shown = "not measured by every update" if change is None else f"{change:+.4f}"
        say(f"\n{split} MRR since version {since}: {shown}\n")
    _print_report(report, split, order, predictor.graph)


def _print_report(report: dict[str, Any], split: str, order: str, graph: Graph) -> None:
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
    print_table("by relation (the 20 most frequent)", header, rows, graph)


def _compare(versions: Sequence[Version], since: int, split: str) -> dict[str, Any]:
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


def label_command(
    model: ModelFolder,
    labels: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="TSV, CSV, JSON, Parquet or RDF: id, label and optionally description, type, language."
        ),
    ],
    language: Language = "en",
    json: Json = False,
) -> None:
    """Store labels of entities and relations in a model folder; the model itself does not change.

    Labels are shown with the names, and accepted instead of them. Earlier labels stay where the file has none.

    Example: dihedral label out/mine labels.tsv
    """
    graph = relabel_model(model, labels, language)
    if json:
        found = {names.kind: names.labels.count if names.labels else 0 for names in (graph.entities, graph.relations)}
        print_json({"entities": found["entity"], "relations": found["relation"]})
        return
    say(f"labels: {count_labels(graph.entities, graph.relations)}")


def export_command(
    model: ModelFolder,
    out: Annotated[
        Path,
        typer.Option(help="NAME.npz, or NAME.parquet or NAME.txt (word2vec) with relations in NAME.relations.*."),
    ],
    json: Json = False,
) -> None:
    """Write entity vectors and relation codes as NPZ, Parquet or word2vec text; the extension selects the format.

    Example: dihedral export out/umls --out umls.parquet
    """
    written = dh.load(model).export(out)
    if json:
        print_json({"files": [str(path) for path in written]})
        return
    say(f"wrote {', '.join(map(str, written))}")
