"""A figure of the paths that support a triple, drawn from head to tail."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dihedral.errors import DihedralError
from dihedral.graph import Graph, Vocabulary
from dihedral.interpretation.explanations import Explanation

BLUE, ORANGE, GREY = "#2b6ca3", "#d9822b", "#777777"

Place = tuple[float, float]


def draw_explanation(explanation: Explanation, path: Path, graph: Graph | None = None) -> None:
    """Draw the head on the left, the tail on the right, and one lane per path; the dashed top lane is the triple.

    graph: names are shown with the labels that it has.
    """
    if path.suffix not in (".png", ".svg"):
        raise DihedralError(f"figure is {str(path)!r}; the name must end in .png or .svg")
    lanes = len(explanation.paths) + 1
    figure = Figure(figsize=(11, 0.9 + 0.8 * lanes))
    axes = figure.subplots()
    entity, step = (str, str) if graph is None else (partial(_lines, graph.entities), graph.relations.shown)
    head, relation, tail = explanation.triple
    start, end = (0.0, -(lanes - 1) / 2), (3.0, -(lanes - 1) / 2)
    _lane(axes, start, end, 0, [step(relation)], None, ORANGE, 0.5)
    for number, chain in enumerate(explanation.paths, start=1):
        between = entity(chain.entities[1]) if len(chain.entities) == 3 else None
        _lane(axes, start, end, number, list(map(step, chain.relations)), between, BLUE, chain.support)
        axes.text(3.55, -number, f"{chain.support:.2f}", ha="center", va="center", fontsize=8, color=BLUE)
    axes.text(3.55, 0, "support", ha="center", va="center", fontsize=8, color=GREY)
    _box(axes, start, entity(head), BLUE)
    _box(axes, end, entity(tail), BLUE)
    if not explanation.paths:
        axes.text(1.5, -0.45, "no path of known facts supports this triple", ha="center", fontsize=9, color=GREY)
    axes.set(xlim=(-0.6, 3.8), ylim=(-lanes + 0.4, 0.6))
    axes.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=140)


def _lines(names: Vocabulary, name: str) -> str:
    """A label above its id, or the name."""
    label = names.label(name)
    return f"{label}\n{names.short(name)}" if label else names.short(name)


def _lane(axes: Any, start: Place, end: Place, number: int, relations: list[str], between: str | None, colour: str,
          strength: float) -> None:  # fmt: skip
    """Draw head → lane → tail, with the relations above the lane and the intermediate entity in its middle."""
    y = float(-number)
    style = {"color": colour, "linewidth": 0.6 + 2.2 * strength, "linestyle": "-" if number else "--", "zorder": 1}
    axes.plot([start[0], 0.45], [start[1], y], **style)
    axes.plot([0.45, 2.55], [y, y], **style)
    arrow = {"arrowstyle": "-|>", "shrinkB": 24, **{key: style[key] for key in ("color", "linewidth", "linestyle")}}
    axes.annotate("", xy=end, xytext=(2.55, y), arrowprops=arrow)
    places, max_length = ([1.5], 60) if between is None else ([0.93, 2.07], 30)
    if between is not None:
        _box(axes, (1.5, y), between, GREY)
    for x, name in zip(places, relations, strict=True):
        axes.text(x, y + 0.08, short(name, max_length), ha="center", va="bottom", fontsize=8, color=colour, zorder=2)


def _box(axes: Any, place: Place, name: str, colour: str) -> None:
    text = "\n".join(short(line, 22) for line in name.split("\n")[:2])
    axes.text(*place, text, ha="center", va="center", fontsize=8, color="white", zorder=3,
              bbox={"boxstyle": "round,pad=0.4", "facecolor": colour, "edgecolor": "none"})  # fmt: skip


def short(name: str, max_length: int = 40) -> str:
    """Shorten a name to fit a panel, Freebase paths to their last parts, and escape matplotlib's math delimiter."""
    back = "~" if name.startswith("~") else ""
    name = name.removeprefix("~")
    if name.count("/") > 2:
        name = "…/" + "/".join(name.replace("./", "/").split("/")[-2:])
    name = name.replace("$", r"\$")
    return back + (name if len(name) <= max_length else "…" + name[-max_length + 1 :])
