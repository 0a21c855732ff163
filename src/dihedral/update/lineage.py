"""Lineage: the versions of a model, what each update did and measured, and when to train again."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dihedral.errors import DihedralError
from dihedral.evaluation import Evaluator
from dihedral.graph import Graph
from dihedral.graph.changes import Change
from dihedral.graph.triples import SPLITS, Triples
from dihedral.predict.predictor import Predictor

SAMPLE = 1000  # facts that a measurement ranks
MAX_LOSS = 0.02  # of the valid MRR since training, as a share of it
MAX_CHANGED = 0.1  # facts added and removed since training, as a share of those at training (benchmarks/living.py)
MAX_FORGOTTEN = 0.1  # facts removed from one relation since training, as a share of them
MIN_FORGOTTEN = 10  # of them: a relation with few facts would pass that share with one


def versions_of(predictor: Predictor) -> list[dict[str, Any]]:
    """The versions of a model; a model that was never updated has one."""
    found = predictor.metrics.get("versions")
    if found:
        if not isinstance(found, list) or not all(map(_is_version, found)):
            raise DihedralError("the model's versions are damaged; copy the folder again")
        return list(found)
    graph = predictor.graph
    first: dict[str, Any] = {"version": 0, "parent": None, "fingerprint": graph.fingerprint}
    counts = {"facts": len(graph.train), "entities": graph.num_entities, "relations": graph.num_relations}
    return [first | counts | _measured(predictor)]


def _is_version(entry: Any) -> bool:
    """Whether an entry, which comes from a file, has what is computed with."""
    if not isinstance(entry, dict) or not isinstance(entry.get("before", {}), dict):
        return False
    numbers = [entry.get(name, 0) for name in ("version", "facts", "added", "removed", "valid_mrr", "test_mrr")]
    numbers += [entry.get("before", {}).get(name) or 0 for name in ("valid_mrr", "test_mrr")]
    removed = entry.get("removed_of", {})
    if not isinstance(removed, dict):
        return False
    numbers += removed.values()
    return "version" in entry and "facts" in entry and all(isinstance(each, (int, float)) for each in numbers)


def record_update(
    before: Predictor, after: Predictor, change: Change, *, epochs: int, seconds: float, relations: bool,
    started_over: int, trained_again: bool,
) -> None:  # fmt: skip
    """Add a version to the metrics of an updated model.

    started_over: the number of known rows that did. trained_again: all of them and the relations did.
    """
    versions = versions_of(before)
    rows = after.model.entities.detach()[: before.graph.num_entities]
    changed = int((rows != before.model.entities.detach()).any(dim=1).sum())
    entry: dict[str, Any] = {
        "version": versions[-1]["version"] + 1, "parent": versions[-1]["version"],
        "time": datetime.now(UTC).isoformat(timespec="seconds"), "fingerprint": change.after.fingerprint,
        "facts": len(change.after.train), **change.to_dict(), "removed_of": _removed_of(change),
        "rows_changed": changed, "rows": len(rows),
        "rows_started_over": started_over, "trained_again": trained_again,
        "relations_trained": relations or trained_again, "epochs": epochs, "train_seconds": round(seconds, 3),
        **_measured(after), "before": _measured_before(before, change), "drift": _drift(before, after, change),
    }  # fmt: skip
    entry["advice"] = None if trained_again else advice(versions, entry, change)
    if len(change.removed) and not trained_again:
        entry["not_undone"] = _not_undone(change, relations)
    after.metrics["versions"] = [*versions, entry]


def _measured(predictor: Predictor) -> dict[str, Any]:
    reports = {split: predictor.metrics.get(split) for split in ("valid", "test")}
    return {f"{split}_mrr": round(report["both"]["mrr"], 5) for split, report in reports.items() if report}


def _measured_before(before: Predictor, change: Change) -> dict[str, Any]:
    """The old model on the valid and test facts of the new graph, with the same known answers left out."""
    found = {}
    for split in ("valid", "test"):
        mrr = _mrr(before, known_before(change), change.after.split(split), sample=0)
        if mrr is not None:
            found[f"{split}_mrr"] = mrr
    return found


def known_before(change: Change) -> Graph:
    """The facts of the new graph that the old model can rank."""
    before = change.before
    parts = {}
    for split in SPLITS:
        facts = change.after.split(split)
        kept = (facts[:, [0, 2]] < before.num_entities).all(axis=1) & (facts[:, 1] < before.num_relations)
        parts[split] = facts[kept]
    return before.replace(**parts)


def _drift(before: Predictor, after: Predictor, change: Change) -> dict[str, Any]:
    """MRR of the added facts before and after, and of other training facts after.

    Facts with new names have no MRR before, so that those with known names also have an MRR after of their own.
    """
    graph = known_before(change)
    known = graph.train[len(graph.train) - _num_known(change) :]
    old = change.after.train[: len(change.after.train) - len(change.added)]
    return {
        "added_mrr_before": _mrr(before, graph, known),
        "added_known_mrr_after": _mrr(after, change.after, known),
        "added_mrr_after": _mrr(after, change.after, change.added),
        "other_train_mrr_after": _mrr(after, change.after, old),
    }


def _num_known(change: Change) -> int:
    """The added facts whose names the old graph had."""
    inside = (change.added[:, [0, 2]] < change.before.num_entities).all(axis=1)
    return int((inside & (change.added[:, 1] < change.before.num_relations)).sum())


def _mrr(predictor: Predictor, graph: Graph, triples: Triples, sample: int = SAMPLE) -> float | None:
    """MRR of facts, or of a sample of them; None if there are none."""
    if not len(triples):
        return None
    triples = np.ascontiguousarray(triples)
    found = Evaluator(graph, "facts", triples=triples, device=predictor.device, sample=sample)(predictor.scorer)
    return round(found.mrr, 5)


def advice(versions: list[dict[str, Any]], entry: dict[str, Any], change: Change) -> str | None:
    """Why the model should be trained again; None if the update is enough."""
    last = max((number for number, each in enumerate(versions) if each.get("trained_again")), default=0)
    versions, kept = versions[last:], 1.0
    first = versions[0]
    for each in (*versions[1:], entry):  # of each update on the same facts: the graphs differ
        before, after = each.get("before", {}).get("valid_mrr"), each.get("valid_mrr")
        kept *= after / before if before and after else 1.0
    if kept < 1 - MAX_LOSS:
        return f"updates since training lost {1 - kept:.1%} of the valid MRR"
    changed = sum(each.get("added", 0) + each.get("removed", 0) for each in (*versions[1:], entry))
    if changed > MAX_CHANGED * first["facts"]:
        return f"{changed:,} facts changed since training, which had {first['facts']:,}"
    lost: Counter[str] = Counter()
    for each in (*versions[1:], entry):
        lost.update(each.get("removed_of", {}))
    facts = np.bincount(change.after.train[:, 1], minlength=change.after.num_relations)
    for name, count in lost.items():
        left = int(facts[change.after.relations.id(name)])
        if count >= MIN_FORGOTTEN and count > MAX_FORGOTTEN * (count + left):
            return f"{count:,} facts of relation {name!r} were removed, {left:,} are left, and its code stays"
    return None


def _removed_of(change: Change) -> dict[str, int]:
    """The number of training facts that each relation lost."""
    found = Counter(change.removed[:, 1].tolist())
    return {change.after.relations[relation]: count for relation, count in found.items()}


def _not_undone(change: Change, relations: bool) -> str:
    count = len(np.unique(change.removed[:, 1]))
    codes = "the code of 1 relation" if count == 1 else f"the codes of {count:,} relations"
    if relations:
        return f"{codes} may have been trained on removed facts, and further without them"
    return f"{codes} may have been trained on removed facts; only training again undoes that"
