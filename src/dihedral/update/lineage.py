"""Lineage: the versions of a model, and what each update did."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dihedral.graph.changes import Change
from dihedral.store.trained import History, TrainedModel, Version


def versions_of(trained: TrainedModel) -> tuple[Version, ...]:
    """The versions of a model; one that was never updated has version 0."""
    if trained.history.versions:
        return trained.history.versions
    return (Version(version=0, **_described(trained)),)


def record_update(before: TrainedModel, after: TrainedModel, change: Change, **about: Any) -> None:
    """Add a version to the history of an updated model; about: further values of it."""
    versions = versions_of(before)
    parent, time = versions[-1].version, datetime.now(UTC).isoformat(timespec="seconds")
    version = Version(version=parent + 1, parent=parent, time=time, **change.to_dict(), **about, **_described(after))
    after.history = History((*versions, version))


def _described(trained: TrainedModel) -> dict[str, Any]:
    graph = trained.graph
    sizes = {"facts": len(graph.train), "entities": graph.num_entities, "relations": graph.num_relations}
    reports = {split: trained.metrics.get(split) for split in ("valid", "test")}
    return sizes | {f"{split}_mrr": round(report["both"]["mrr"], 5) for split, report in reports.items() if report}
