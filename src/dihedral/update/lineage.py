"""Lineage: the versions of a model, what each update did and measured, and when to train again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dihedral.evaluation import Evaluator
from dihedral.graph import Graph
from dihedral.graph.changes import Change
from dihedral.graph.triples import SPLITS, Triples
from dihedral.store.history import History, Version
from dihedral.store.trained import TrainedModel
from dihedral.update.parts import UpdateParts

SAMPLE = 1000  # facts that a measurement ranks
MAX_LOSS = 0.02  # of the valid MRR since training, as a share of it
MAX_CHANGED = 0.1  # facts added and removed since training, as a share of those at training (benchmarks/living.py)
MAX_FORGOTTEN = 0.1  # facts removed from one relation since training, as a share of them
MIN_FORGOTTEN = 10  # of them: a relation with few facts would pass that share with one


def versions_of(trained: TrainedModel) -> tuple[Version, ...]:
    """The versions of a model; one that was never updated has version 0."""
    if trained.history.versions:
        return trained.history.versions
    graph = trained.graph
    first = Version(
        version=0, fingerprint=graph.fingerprint, facts=len(graph.train), entities=graph.num_entities,
        relations=graph.num_relations, **_measured(trained),
    )  # fmt: skip
    return (first,)


def record_update(parts: UpdateParts, after: TrainedModel, *, epochs: int, seconds: float) -> None:
    """Add a version to the history of an updated model."""
    before, change, fresh = parts.trained, parts.change, parts.schedule.fresh.rows
    assert fresh is not None
    versions, trained_again = versions_of(before), parts.schedule.starts_over
    rows = after.model.entities.detach()[: before.graph.num_entities]
    version = Version(
        version=versions[-1].version + 1, parent=versions[-1].version,
        time=datetime.now(UTC).isoformat(timespec="seconds"), fingerprint=change.after.fingerprint,
        facts=len(change.after.train), **change.to_dict(), removed_of=_removed_of(change),
        rows_changed=int((rows != before.model.entities.detach()).any(dim=1).sum()), rows=len(rows),
        rows_started_over=int(fresh[: len(rows)].sum()), trained_again=trained_again,
        relations_trained=parts.relations or trained_again, epochs=epochs, train_seconds=round(seconds, 3),
        **_measured(after), before=_measured_before(before, change), drift=_drift(before, after, change),
    )  # fmt: skip
    if not trained_again:
        undone = _not_undone(change, parts.relations) if len(change.removed) else None
        version = replace(version, advice=advice((*versions, version), change), not_undone=undone)
    after.history = History((*versions, version))


def _measured(trained: TrainedModel) -> dict[str, Any]:
    reports = {split: trained.metrics.get(split) for split in ("valid", "test")}
    return {f"{split}_mrr": round(report["both"]["mrr"], 5) for split, report in reports.items() if report}


def _measured_before(before: TrainedModel, change: Change) -> dict[str, float]:
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


def _drift(before: TrainedModel, after: TrainedModel, change: Change) -> dict[str, float | None]:
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


def _mrr(trained: TrainedModel, graph: Graph, triples: Triples, sample: int = SAMPLE) -> float | None:
    """MRR of facts, or of a sample of them; None if there are none."""
    if not len(triples):
        return None
    triples = np.ascontiguousarray(triples)
    found = Evaluator(graph, "facts", triples=triples, device=trained.device, sample=sample)(trained.scorer)
    return round(found.mrr, 5)


def advice(versions: Sequence[Version], change: Change) -> str | None:
    """Why the latest of some versions should be trained again; None if the update is enough."""
    trained = max((place for place, each in enumerate(versions) if each.trained_again), default=0)
    first, updates = versions[trained], versions[trained + 1 :]
    pairs = [each.mrr("valid") for each in updates]  # each pair on the same facts: the graphs of versions differ
    kept = math.prod(after / before for before, after in pairs if before and after)
    if kept < 1 - MAX_LOSS:
        return f"updates since training lost {1 - kept:.1%} of the valid MRR"
    changed = sum(each.added + each.removed for each in updates)
    if changed > MAX_CHANGED * first.facts:
        return f"{changed:,} facts changed since training, which had {first.facts:,}"
    lost: Counter[str] = Counter()
    for each in updates:
        lost.update(each.removed_of)
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
