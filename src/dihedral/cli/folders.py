"""Commands about a model folder: `dihedral info`, `evaluate`, `label`, `export` and `update`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import dihedral as dh
from dihedral.cli import options as opt
from dihedral.cli import output
from dihedral.cli.output import print_json, print_metrics, print_table, read_data, remark, say
from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.label_files import read_labels
from dihedral.graph.labels import count_labels, parse_languages, unknown_ids
from dihedral.objectives.recipe import applicable
from dihedral.store.folder import describe, relabel_model
from dihedral.store.manifest import read_manifest
from dihedral.store.reviews import Fact
from dihedral.store.trained import History, Version
from dihedral.update.update import update_folder

SPLITS = ("valid", "test")  # that are measured


def info_command(model: opt.ModelFolder, wide: opt.Wide = False, json: opt.Json = False) -> None:
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
    simple = {key: value for key, value in content.items() if not isinstance(value, (dict, list)) and value != ""}
    settings = {f"recipe.{key}": value for key, value in applicable(content["recipe"]).items() if value != ""}
    rows = {**simple, **settings}
    print_table("", [""], [[f"{key:<{max(map(len, rows))}}  {value}"] for key, value in rows.items()])
    for note in content.get("notes", ()):
        say(f"note: {note}")
    for split in SPLITS:
        if split in content["metrics"]:
            report = content["metrics"][split]
            print_metrics(output.filtered(split), output.metric_rows(report), report.get("standard_error"))
    _print_calibration(content["calibration"])
    if len(versions := History.from_dict(content).versions) > 1:
        _print_versions(versions)


def _print_versions(versions: Sequence[Version]) -> None:
    """One row per version: what changed, and what was measured and trained."""
    header = ["version", "date", "added", "removed", "valid MRR", "test MRR", "trained"]
    rows = []
    for each in versions:
        measured = ["" if mrr is None else f"{mrr:.3f}" for mrr in (each.valid_mrr, each.test_mrr)]
        trained = "new model" if each.trained_again else "new relations" if each.epochs else ""
        rows.append([each.version, each.time[:10], each.added, each.removed, *measured, trained])
    print_table("\nversions, with MRR where it was measured", header, rows)


def _print_calibration(calibration: dict[str, Any]) -> None:
    if "reason" in calibration:
        say(f"\nno probabilities: {calibration['reason']}")
    if answers := calibration.get("answers"):
        mrr = answers["mrr"]
        say(
            f"\nanswers are ordered by {answers['order']}: on {answers['triples']} valid triples, "
            f"MRR {mrr['probability']:.4f} by probability, which was fitted on valid, and {mrr['score']:.4f} by score"
        )
    if missing := calibration.get("missing"):
        low, ratio, high = (missing[key] for key in ("low", "ratio", "high"))
        say(
            f"\nfacts that are neither in train nor in valid, as a multiple of those in valid: {ratio:.2f} "
            f"(95 % interval {low:.2f} to {high:.2f}); test holds {missing['known']:.2f} of these"
        )
    measured = calibration.get("judgements", {})
    if measured.get("triples"):
        error, accuracy = measured["expected_calibration_error"], measured["accuracy"]
        title = "\njudgements of valid triples and as many false ones, half of them proposals of the model: "
        title += f"expected calibration error {error:.4f}, accuracy {accuracy:.1%}"
        rows = [[row["probability"], row["true"], row["triples"]] for row in measured["reliability"]]
        print_table(title, ["probability", "share true", "triples"], rows)


def evaluate_command(
    model: opt.ModelFolder,
    data: Annotated[
        str | None, typer.Option(help="Evaluate on this graph; without splits, on all its triples.")
    ] = None,
    graph: opt.OtherGraph = None,
    split: Annotated[str, typer.Option(help="The split to rank: train, valid or test.")] = "test",
    sample: Annotated[int, typer.Option(help="Rank a random sample of this many triples; 0 ranks all.")] = 0,
    seed: Annotated[int, typer.Option(help="Random seed of the sample.")] = 0,
    order: Annotated[str, typer.Option(help="Rank by score, by probability, or as answers are shown: auto.")] = "score",
    memory_mb: Annotated[int, typer.Option(help="Memory for scores, in megabytes.")] = 256,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    columns: opt.Columns = None,
    wide: opt.Wide = False,
    json: opt.Json = False,
) -> None:
    """Rank each head and tail of a split against all entities, with other known answers filtered out.

    Example: dihedral evaluate out/umls --split valid --json

    Example: dihedral evaluate out/large --sample 5000
    """
    predictor = output.open_model(model, graph, device=device)
    asked = None if data is None else read_data(data, columns, all_as=split)
    report = dh.evaluate(
        predictor, asked, split=split, memory_mb=memory_mb, sample=sample, seed=seed, order=order,  # type: ignore[arg-type]
    ).to_dict()  # fmt: skip
    if json:
        print_json(report)
        return
    _print_report(report, split, order, predictor.graph)


def _print_report(report: dict[str, Any], split: str, order: str, graph: Graph) -> None:
    size = f", {report['triples']} of {report['drawn_from']} triples" if "drawn_from" in report else ""
    ordered = f", answers in order of {report['order']}" if order != "score" else ""
    title = f"{output.filtered(split)}{size}, realistic ties{ordered}"
    print_metrics(title, output.metric_rows(report), report.get("standard_error"))
    print_metrics("other tie-breaking rules", {name: report[name] for name in ("optimistic", "pessimistic")})
    print_metrics("by relation category", {name: row["both"] for name, row in report["per_category"].items()})
    relations = sorted(report["per_relation"], key=lambda row: -row["triples"])[:20]
    header = ["relation", "category", "triples", "MRR", "Hits@1", "Hits@10", "mean rank"]
    shown = ("relation", "category", "triples", "mrr", "hits@1", "hits@10", "mr")
    rows = [[row[key] for key in shown] for row in relations]
    print_table("by relation (the 20 most frequent)", header, rows, graph)


def label_command(
    model: opt.ModelFolder,
    labels: Annotated[Path, typer.Argument(metavar="FILE", help="TSV, CSV, JSON, Parquet or RDF with ids and labels.")],
    language: opt.Language = "en",
    json: opt.Json = False,
) -> None:
    """Store labels of entities and relations in a model folder; the model itself does not change.

    Labels are shown with the names, and accepted instead of them. Earlier labels stay where the file has none.

    Example: dihedral label out/mine labels.tsv
    """
    table = read_labels(labels, parse_languages(language))
    graph = relabel_model(model, table, language)
    if json:
        found = {names.kind: names.labels.count if names.labels else 0 for names in (graph.entities, graph.relations)}
        print_json({"entities": found["entity"], "relations": found["relation"]})
    else:
        say(f"labels: {count_labels(graph.entities, graph.relations)}")
    if unknown := unknown_ids(table, graph.entities, graph.relations):
        remark(f"ids that are not in the graph: {len(unknown):,}, such as {unknown[0]!r:.80}")


def export_command(
    model: opt.ModelFolder,
    out: Annotated[Path, typer.Option(help="NAME.npz; NAME.parquet or NAME.txt add relations in NAME.relations.*.")],
    json: opt.Json = False,
) -> None:
    """Write entity vectors and relation codes as NPZ, Parquet or word2vec text; the extension selects the format.

    Example: dihedral export out/umls --out umls.parquet
    """
    written = dh.load(model).export(out)
    if json:
        print_json({"files": [str(path) for path in written]})
    else:
        say(f"wrote {', '.join(map(str, written))}")


def update_command(
    model: opt.ModelFolder,
    add: Annotated[str | None, typer.Option(help="A file of facts to add; their names may be new.")] = None,
    remove: Annotated[str | None, typer.Option(help="A file of facts to remove.")] = None,
    reviews: Annotated[bool, typer.Option("--reviews", help="Add facts accepted with `dihedral review`.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the model to this folder; by default it is replaced.")] = None,
    retrain: Annotated[bool, typer.Option("--retrain", help="Train a new model on the changed graph.")] = False,
    calibrate: Annotated[
        bool | None, typer.Option(help="Measure, and fit probabilities again; by default if anything was trained.")
    ] = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    columns: opt.Columns = None,
    json: opt.Json = False,
) -> None:
    """Add facts to a model and remove facts from it.

    Of a path model only new relations are trained. A model with entity vectors is trained again, from the start, if
    training facts are removed or relations are new.

    Example: dihedral update out/umls --add new.tsv --remove old.tsv

    Example: dihedral update out/umls --add new.tsv --out out/umls-2

    Example: dihedral update out/umls --reviews
    """
    if add is None and remove is None and not reviews and not retrain:
        raise DihedralError("there is nothing to change; give --add, --remove, --reviews or --retrain")
    added, removed = _read(add, columns), _read(remove, columns)
    before = read_manifest(model)
    try:
        updated = update_folder(
            model, out=out, device=device, seed=seed, retrain=retrain, add=added, remove=removed, reviews=reviews,
            calibrate=calibrate,
        )  # fmt: skip
    except KeyboardInterrupt:
        state = "as it was" if read_manifest(model) == before else "already updated"
        remark(f"interrupted; the model in {model} is {state}")
        raise typer.Exit(1) from None
    version = updated.history.latest
    if json:
        print_json(asdict(version))
    else:
        print_version(updated.history)
        remark(f"wrote the model to {out or model}")


def _read(source: str | None, columns: str | None) -> list[Fact]:
    if source is None:
        return []
    graph = read_data(source, columns, all_as="train")
    return list(graph.names_of(graph.known))


def print_version(history: History) -> None:
    """What the last update did and measured."""
    version = history.latest
    counts = {name: getattr(version, name) for name in ("added", "removed", "new_entities", "new_relations")}
    changed = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items() if count)
    say(f"version {version.version}: {changed or 'the same graph'}")
    if version.known_already:
        say(f"facts that the graph had already: {version.known_already:,}")
    what = "a new model was" if version.trained_again else "new relations were" if version.epochs else "nothing was"
    say(f"{what} trained; the update took {version.train_seconds:.2f} s")
    for split in SPLITS:
        if (mrr := getattr(version, f"{split}_mrr")) is not None:
            say(f"{split} MRR {mrr:.4f}")
    if not version.trained_again:
        added = sum(each.added for each in history.since_training[1:])
        say(f"facts added since the model was trained: {added:,} of {version.facts:,}")
