"""`dihedral info`: describe a model folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dihedral.cli.options import Json, ModelFolder, Wide
from dihedral.cli.output import metric_rows, print_json, print_metrics, print_table, say
from dihedral.errors import DihedralError
from dihedral.store.folder import describe
from dihedral.store.history import History, Version

SPLITS = ("valid", "test")  # that are measured


def command(model: ModelFolder, wide: Wide = False, json: Json = False) -> None:
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
        print_versions(versions)


def print_versions(versions: Sequence[Version]) -> None:
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
