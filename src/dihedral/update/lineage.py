"""Lineage: the versions of a model, what each update did and measured, and when to train again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dihedral.evaluation import Evaluator
from dihedral.graph import Graph
from dihedral.graph.changes import Change
from dihedral.graph.triples import SPLITS, Triples
from dihedral.store.trained import History, TrainedModel, Version
from dihedral.update.parts import UpdateParts

SAMPLE = 1000  # added facts that are ranked
MAX_LOSS = 0.02  # of the valid MRR since training, as a share of it
MAX_CHANGED = 0.1  # facts added and removed since training, as a share of those at training (benchmarks/living.py)


def versions_of(trained: TrainedModel) -> tuple[Version, ...]:
    """The versions of a model; one that was never updated has version 0."""
    if trained.history.versions:
        return trained.history.versions
    graph = trained.graph
    first = Version(
        version=0, facts=len(graph.train), entities=graph.num_entities, relations=graph.num_relations,
        **_measured(trained),
    )  # fmt: skip
    return (first,)


def record_update(parts: UpdateParts, after: TrainedModel, *, epochs: int, seconds: float) -> None:
    """Add a version to the history of an updated model."""
    before, change, trained_again = parts.trained, parts.change, parts.schedule.starts_over
    versions = versions_of(before)
    rows = after.model.entities.detach()[: before.graph.num_entities]
    version = Version(
        **_next(versions, change),
        rows_changed=int((rows != before.model.entities.detach()).any(dim=1).sum()), rows=len(rows),
        rows_started_over=int(parts.schedule.fresh[: len(rows)].sum()), trained_again=trained_again,
        relations_trained=parts.relations or trained_again, epochs=epochs, train_seconds=round(seconds, 3),
        **_measured(after), **_compared(before, after, change),
    )  # fmt: skip
    if not trained_again:
        undone = _not_undone(change, parts.relations) if len(change.removed) else None
        version = replace(version, advice=advice((*versions, version)), not_undone=undone)
    after.history = History((*versions, version))


def record_graph_update(
    before: TrainedModel, after: TrainedModel, change: Change, *, epochs: int, seconds: float
) -> None:
    """Add a version to the history of a path model, of which the graph changed, and relations are trained if new."""
    versions = versions_of(before)
    version = Version(**_next(versions, change), epochs=epochs, train_seconds=round(seconds, 3), **_measured(after))
    after.history = History((*versions, version))


def _next(versions: Sequence[Version], change: Change) -> dict[str, Any]:
    parent, time = versions[-1].version, datetime.now(UTC).isoformat(timespec="seconds")
    facts = len(change.after.train)
    return {"version": parent + 1, "parent": parent, "time": time, "facts": facts, **change.to_dict()}


def _measured(trained: TrainedModel) -> dict[str, Any]:
    reports = {split: trained.metrics.get(split) for split in ("valid", "test")}
    return {f"{split}_mrr": round(report["both"]["mrr"], 5) for split, report in reports.items() if report}


def _compared(before: TrainedModel, after: TrainedModel, change: Change) -> dict[str, Any]:
    """The old model on the facts of the new graph that it can rank, and MRR of the added facts before and after.

    Facts with new names have no MRR before, so that those with known names also have an MRR after of their own.
    """
    graph = change.before.replace(**{split: _rankable(change, change.after.split(split)) for split in SPLITS})
    measured = {f"{split}_mrr": _mrr(before, graph, graph.split(split), split=split) for split in ("valid", "test")}
    known = _rankable(change, change.added)
    drift = {
        "added_mrr_before": _mrr(before, graph, known, SAMPLE),
        "added_known_mrr_after": _mrr(after, change.after, known, SAMPLE),
        "added_mrr_after": _mrr(after, change.after, change.added, SAMPLE),
    }
    return {"before": {name: mrr for name, mrr in measured.items() if mrr is not None}, "drift": drift}


def _rankable(change: Change, facts: Triples) -> Triples:
    """The facts whose names the old graph had."""
    before = change.before
    return facts[(facts[:, [0, 2]] < before.num_entities).all(axis=1) & (facts[:, 1] < before.num_relations)]


def _mrr(trained: TrainedModel, graph: Graph, triples: Triples, sample: int = 0, split: str = "facts") -> float | None:
    """MRR of facts, or of a sample of them; None if there are none."""
    if not len(triples):
        return None
    triples = np.ascontiguousarray(triples)
    found = Evaluator(graph, split, triples=triples, device=trained.device, sample=sample)(trained.scorer)
    return round(found.mrr, 5)


def advice(versions: Sequence[Version]) -> str | None:
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
    return None


def _not_undone(change: Change, relations: bool) -> str:
    count = len(np.unique(change.removed[:, 1]))
    codes = "the code of 1 relation" if count == 1 else f"the codes of {count:,} relations"
    then = ", and further without them" if relations else "; only training again undoes that"
    return f"{codes} may have been trained on removed facts{then}"
