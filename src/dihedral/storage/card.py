"""The model card: README.md in a model folder, made from what the folder holds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dihedral.graph import Graph
from dihedral.graph.triples import SPLITS
from dihedral.io.files import atomic_path
from dihedral.models import Model

CARD = "README.md"
MARK = "<!-- Written by dihedral at every save; remove this line to keep a text of your own. -->"
METRICS = {"mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10", "mr": "mean rank"}


def write_card(folder: Path, model: Model, graph: Graph, recipe: dict[str, Any], metrics: dict[str, Any]) -> None:
    """Write the card, unless someone put a README.md of their own there."""
    path = folder / CARD
    if path.exists() and not path.read_bytes().startswith(MARK.encode()):
        return
    with atomic_path(path) as partial:
        partial.write_text(model_card(model, graph, recipe, metrics), encoding="utf-8")


def model_card(model: Model, graph: Graph, recipe: dict[str, Any], metrics: dict[str, Any]) -> str:
    """Data, model, recipe, metrics, how to load, and limits, in Markdown."""
    parts = [
        f"{MARK}\n# Link prediction on {_code(graph.name)}\n\n{_model(model)}",
        f"## Data\n\n{_data(graph)}",
        f"## Metrics\n\n{_metrics(metrics)}",
        f"## Use\n\n{_use(graph)}",
        f"## Recipe\n\n{_recipe(recipe, metrics)}",
        f"## Limits\n\n{_limits(model, graph, metrics)}",
    ]
    return "\n\n".join(parts) + "\n"


def _model(model: Model) -> str:
    size = f"{model.num_entities} entities with {model.dimension} numbers each, {model.num_relations} relations"
    if model.codes is None:
        return f"A {_code(model.relations.kind)} model: {size}."
    K = model.relations.settings()["K"]
    return (
        f"A DihEdral model ([Xu & Li, ACL 2019](https://aclanthology.org/P19-1026/)): {size} of "
        f"{model.codes.shape[1]} elements of the dihedral group D_{K}."
    )


def _data(graph: Graph) -> str:
    rows: list[list[Any]] = [
        ["name", _code(graph.name)],
        ["entities", graph.num_entities],
        ["relations", graph.num_relations],
    ]
    rows += [[f"{split} triples", len(graph.split(split))] for split in SPLITS]
    rows.append(["fingerprint", _code(graph.fingerprint)])
    notes = "".join(f"\n- {_code(note)}" for note in graph.notes)
    return _table(["", ""], rows) + (f"\n\nNoticed while reading:\n{notes}" if notes else "")


def _metrics(metrics: dict[str, Any]) -> str:
    rows = []
    for split in ("valid", "test"):
        if split in metrics:
            report = metrics[split]
            seen = report["seen_only"]
            rows.append([split, "all", report["triples"], *(_number(report["both"][key]) for key in METRICS)])
            rows.append([split, "seen entities", seen["triples"], *(_number(seen[key]) for key in METRICS)])
    if not rows:
        return "This model was not measured."
    return (
        "Each head and each tail is ranked among all entities, other known answers left out, ties counted at their "
        'mean rank. "Seen entities" leaves out the triples with an entity that training never saw.\n\n'
        + _table(["split", "triples ranked", "how many", *METRICS.values()], rows)
    )


def _use(graph: Graph) -> str:
    head, relation, _ = next(graph.labels(graph.train[:1]))
    return (
        "```python\nimport dihedral as dh\n\n"
        'predictor = dh.load("path/to/this/folder")\n'
        f"predictor.predict(head={head!r}, relation={relation!r}, top=10)\n```"
    )


def _recipe(recipe: dict[str, Any], metrics: dict[str, Any]) -> str:
    run = {key: metrics[key] for key in ("seed", "best_epoch", "train_seconds", "device", "torch") if key in metrics}
    settings = {key: value for key, value in recipe.items() if value != ""}
    if not settings and not run:
        return "Not recorded."
    return _table(["setting", "value"], [[_code(key), _code(value)] for key, value in (settings | run).items()])


def _limits(model: Model, graph: Graph, metrics: dict[str, Any]) -> str:
    lines = [
        f"It knows the {graph.num_entities} entities and {graph.num_relations} relations above and no others.",
        _of_probabilities(metrics),
        "It repeats what its data says, gaps and prejudices included; a high rank is a guess, not a fact.",
        f"The folder holds the names and all {graph.num_triples} triples of the data: share it only if you may share "
        "those.",
    ]
    if model.codes is not None:
        lines.append("What the group elements of relations imply holds for the model; check it in the data.")
    if "test" not in metrics:
        lines.append("It was not measured on test triples.")
    return "\n".join(f"- {line}" for line in lines)


def _of_probabilities(metrics: dict[str, Any]) -> str:
    fitted = metrics.get("calibration")
    if not fitted:
        return "Scores order answers to one question; they are not probabilities, and not comparable between questions."
    measured = fitted["test"] if fitted["test"]["triples"] else fitted["valid"]
    error = measured["expected_calibration_error"]
    return (
        "Scores order answers to one question. Probabilities were fitted on valid for a mix with as many true triples "
        f"as false ones (expected calibration error {error:.3f}); of all triples there "
        "could be, far fewer are true."
    )


def _table(header: list[str], rows: list[list[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _code(value: Any) -> str:
    """Text as it is, whatever Markdown would make of it."""
    text = " ".join(str(value).split())
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}" if value <= 1 else f"{value:.1f}"
