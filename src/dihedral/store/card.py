"""The model card: the README.md of a model folder, generated from its content."""

from __future__ import annotations

import math
import re
from importlib import resources
from pathlib import Path
from typing import Any

from torch import Tensor

from dihedral.graph import Graph
from dihedral.graph.triples import SPLITS
from dihedral.io.display import visible
from dihedral.io.files import write_text
from dihedral.objectives.recipe import Recipe
from dihedral.probability.calibration import Calibration
from dihedral.scoring.path_scorer import PathScorer
from dihedral.store.trained import TrainedModel

CARD = "README.md"
MARK = "<!-- Written by dihedral at every save; remove this line to keep a text of your own. -->"
METRICS = {"mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10", "mr": "mean rank"}


def write_card(folder: Path, trained: TrainedModel) -> None:
    """Write the card, unless the folder has a README.md that dihedral did not write."""
    path = folder / CARD
    is_own = path.is_file() and not path.is_symlink() and path.read_bytes().startswith(MARK.encode())
    if is_own or not (path.exists() or path.is_symlink()):
        write_text(path, model_card(trained))


def model_card(trained: TrainedModel) -> str:
    """The model, data, metrics, use, recipe and limitations, in Markdown."""
    graph, metrics = trained.graph, trained.metrics
    codes = getattr(trained.relations, "codes", None)
    head, relation, _ = next(graph.names_of(graph.train[:1]))
    more = ""
    if codes is not None:
        more += "\n- Rules that follow from group elements hold in the model; verify them in the data."
    if "test" not in metrics:
        more += "\n- It has not been evaluated on test triples."
    template = (resources.files(__package__) / "card.md").read_text("utf-8")
    return template.format(
        mark=MARK,
        name=_code(graph.name),
        model=_model(trained, codes),
        graph=graph,
        data=_data(graph),
        metrics=_metrics(metrics),
        head=head,
        relation=relation,
        recipe=_recipe(trained.recipe, metrics),
        probabilities=_probabilities(trained.calibration),
        more=more,
    )


def _model(trained: TrainedModel, codes: Tensor | None) -> str:
    graph, relations = trained.graph, trained.relations
    size = f"{graph.num_entities} entities with {relations.dimension} numbers each, {graph.num_relations} relations"
    if isinstance(trained.scorer, PathScorer):
        size = (
            f"it has no entity vectors and answers by the paths of up to {trained.scorer.model.num_steps} steps in the "
            f"graph, with {graph.num_relations} relations"
        )
    if codes is None:
        return f"A {_code(relations.kind)} model: {size}."
    settings = relations.settings()
    graded = f", graded with the sizes {settings['levels']}" if "levels" in settings else ""
    return (
        f"A DihEdral model ([Xu & Li, ACL 2019](https://aclanthology.org/P19-1026/)): {size} of "
        f"{codes.shape[1]} elements of the dihedral group D_{settings['K']}{graded}."
    )


def _data(graph: Graph) -> str:
    rows: list[list[Any]] = [["name", _code(graph.name)]]
    rows += [["entities", graph.num_entities], ["relations", graph.num_relations]]
    rows += [[f"{split} triples", len(graph.split(split))] for split in SPLITS]
    rows.append(["fingerprint", _code(graph.fingerprint)])
    notes = "".join(f"\n- {_code(note)}" for note in graph.notes)
    return _table(["", ""], rows) + (f"\n\nNotes from reading the data:\n{notes}" if notes else "")


def _metrics(metrics: dict[str, Any]) -> str:
    rows = []
    for split in ("valid", "test"):
        if split in metrics:
            report = metrics[split]
            seen = report["seen_only"]
            rows.append([split, "all", report["triples"], *(_number(report["both"][key]) for key in METRICS)])
            rows.append([split, "seen entities", seen["triples"], *(_number(seen[key]) for key in METRICS)])
    if not rows:
        return "This model has not been evaluated."
    return (
        "Each head and each tail is ranked among all entities without the other known answers: those of train and "
        "valid for the split valid, of all splits for test. Ties get their mean rank. "
        '"Seen entities" excludes triples with an entity that does not occur in train.\n\n'
        + _table(["split", "subset", "triples", *METRICS.values()], rows)
    )


def check_metrics(metrics: dict[str, Any]) -> None:
    """A KeyError or TypeError if the metrics of a split are not as a card shows them."""
    for report in (metrics[split] for split in ("valid", "test") if split in metrics):
        for part in (report["both"], report["seen_only"]):
            if not all(isinstance(part[key], (int, float)) for key in METRICS):
                raise TypeError("a metric is not a number")
        if not isinstance(report["triples"], int) or not isinstance(report["seen_only"]["triples"], int):
            raise TypeError("a number of triples is not one")


def _recipe(recipe: Recipe | None, metrics: dict[str, Any]) -> str:
    run = {key: metrics[key] for key in ("seed", "best_epoch", "train_seconds", "device", "torch") if key in metrics}
    settings = {key: value for key, value in recipe.to_dict().items() if value != ""} if recipe else {}
    if not settings and not run:
        return "Not recorded."
    return _table(["setting", "value"], [[_code(key), _code(value)] for key, value in (settings | run).items()])


def _probabilities(calibration: Calibration | None) -> str:
    if calibration is None:
        return "Scores rank the answers to one query; they are not probabilities and not comparable between queries."
    text = (
        "Scores rank the answers to one query. The probability of an answer or of a missing fact is the share of such "
        "proposals that hold; how many facts are missing was estimated from the valid split. That of a judgement "
        "assumes as many true as false triples, and half of the false ones are proposals of the model"
    )
    judged = calibration.judged
    if judged and judged.triples:
        text += f" (expected calibration error {judged.expected_calibration_error:.3f})"
    return f"{text}."


def _table(header: list[str], rows: list[list[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _code(value: Any) -> str:
    """Text as inline code, so that Markdown does not interpret it, between more backticks than it holds in a row."""
    text = visible(" ".join(str(value).strip().splitlines()), one_line=True)
    text = re.sub(" (?= )", "\u00a0", text)  # of several blanks, Markdown would show one
    marks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{marks} {text} {marks}" if "`" in text else f"`{text}`"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}" if value <= 1 else f"{value:.1f}"
