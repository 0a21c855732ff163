"""Figures: what a model learned, the paths that support a triple, and a search of settings."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dihedral.graph import Graph, Vocabulary
from dihedral.interpretation import Algebra, Match, Row
from dihedral.interpretation.explanations import Explanation

BLUE, ORANGE, GREY, BLACK = "#2b6ca3", "#d9822b", "#777777", "#333333"
MAX_RELATIONS = 16
MAX_NAME = 48  # characters of a relation, the last ones

Place = tuple[float, float]


# --- what a model learned -------------------------------------------------------------------------


def draw_relations(algebra: Algebra, path: Path, *, title: str = "") -> None:
    """Draw the share of each group element per relation (left) and the relation nearest to each product (right)."""
    rows = [algebra[name] for name in list(algebra.names)[:MAX_RELATIONS]]
    size = 0.55 * len(rows) + 1.2
    figure = Figure(figsize=(5.2 + 1.15 * len(rows) + 1.5, size + 0.8))
    left, right = figure.subplots(1, 2, width_ratios=[2 * algebra.monoid.K + 1, 2.1 * len(rows)])
    _element_shares(left, rows)
    _products(right, rows)
    figure.suptitle(title, fontsize=12)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def _element_shares(axes: Any, rows: list[Row]) -> None:
    monoid = rows[0].algebra.monoid
    codes = np.stack([row.codes for row in rows])
    elements = np.where(codes < 0, 2 * monoid.K, monoid.group_part(codes))  # whatever the size; zero comes last
    shares = np.stack([(elements == element).mean(axis=1) for element in range(2 * monoid.K + 1)], axis=1)
    names = [rf"${name[0]}_{{{monoid.K}}}^{{{name.split('^')[1]}}}$" for name in monoid.group.names]
    if rows[0].algebra.is_graded:
        names.append("0")
    shares = shares[:, : len(names)]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=max(0.5, shares.max()), aspect="auto")
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(rows)), [_shown(row) for row in rows])
    axes.set_title("share of each element", fontsize=10)
    for (i, j), share in np.ndenumerate(shares):
        _cell(axes, i, j, f"{share:.2f}".lstrip("0") or "0", "white" if share > 0.35 else BLACK)


def _products(axes: Any, rows: list[Row]) -> None:
    """Label cell (i, j) with the relation, or identity, nearest to row i times column j; blank if not significant."""
    comparisons = len(rows) ** 2 * (len(rows[0].algebra) + 1)
    best = np.zeros((len(rows), len(rows)))
    for i, first in enumerate(rows):
        for j, second in enumerate(rows):
            product = first @ second
            options = [*product.nearest(1), Match("identity", product.identity())]
            name, share = max(options, key=lambda match: match.share.kappa)
            if share.among(comparisons).significant:
                best[i, j] = share.kappa
                label = _plain(first.algebra.names.label(name) or name)
                _cell(axes, i, j, f"{label}\n{share.kappa:.2f}", "white" if share.kappa > 0.6 else BLACK)
    axes.imshow(best, cmap="Greens", vmin=0, vmax=1, aspect="auto")
    shown = [_shown(row) for row in rows]
    axes.set_xticks(range(len(rows)), shown, rotation=20, ha="right")
    axes.set_yticks(range(len(rows)), shown)
    axes.set_title("row · column: nearest relation, kappa (0: chance, blank: not significant)", fontsize=10)


def _cell(axes: Any, row: int, column: int, text: str, colour: str) -> None:
    axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color=colour)


def _shown(row: Row) -> str:
    """The label of a relation with its name, or the end of a long name."""
    names = row.algebra.names
    shown = names.shown(row.name) if names.label(row.name) else row.name
    return _plain(shown if len(shown) <= MAX_NAME else f"…{shown[1 - MAX_NAME :]}")


def _plain(name: str) -> str:
    """Escape matplotlib's math delimiter in a name."""
    return name.replace("$", r"\$")


# --- an explanation -------------------------------------------------------------------------------


def draw_explanation(explanation: Explanation, path: Path, graph: Graph | None = None) -> None:
    """Draw the head on the left, the tail on the right, and a lane per path, with labels of the graph."""
    lanes = len(explanation.paths) + 1
    figure = Figure(figsize=(11, 0.9 + 0.8 * lanes))
    axes = figure.subplots()
    entity, step = (str, str) if graph is None else (partial(_lines, graph.entities), graph.relations.shown)
    head, relation, tail = explanation.triple
    start, end = (0.0, -(lanes - 1) / 2), (3.0, -(lanes - 1) / 2)
    _lane(axes, start, end, 0, [step(relation)], [], ORANGE, 0.5)
    for number, chain in enumerate(explanation.paths, start=1):
        between = list(map(entity, chain.entities[1:-1]))
        strength = chain.confidence if chain.share is None else chain.share / max(chain.share, explanation.added or 0)
        _lane(axes, start, end, number, list(map(step, chain.relations)), between, BLUE, strength)
        value = f"{chain.confidence:.0%}" if chain.share is None else f"{chain.share:.2f}"
        axes.text(3.55, -number, value, ha="center", va="center", fontsize=8, color=BLUE)
    meaning = "holds for" if explanation.added is None else "adds to score"
    axes.text(3.55, 0, meaning, ha="center", va="center", fontsize=8, color=GREY)
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


def _lane(axes: Any, start: Place, end: Place, number: int, relations: list[str], between: list[str], colour: str,
          strength: float) -> None:  # fmt: skip
    """Draw head → lane → tail, with the relations above the lane and the entities between on it."""
    y = float(-number)
    style = {"color": colour, "linewidth": 0.6 + 2.2 * strength, "linestyle": "-" if number else "--"}
    axes.plot([start[0], 0.45], [start[1], y], zorder=1, **style)
    axes.plot([0.45, 2.55], [y, y], zorder=1, **style)
    axes.annotate("", xy=end, xytext=(2.55, y), arrowprops={"arrowstyle": "-|>", "shrinkB": 24, **style})
    width = 2.1 / len(relations)
    for place, name in enumerate(between, start=1):
        _box(axes, (0.45 + place * width, y), name, GREY)
    for place, name in enumerate(relations):
        x, text = 0.45 + (place + 0.5) * width, short(name, 60 // len(relations))
        axes.text(x, y + 0.08, text, ha="center", va="bottom", fontsize=8, color=colour, zorder=2)


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
    name = _plain(name)
    return back + (name if len(name) <= max_length else "…" + name[-max_length + 1 :])


# --- a search of settings -------------------------------------------------------------------------


def draw_search(study: Any, folder: Path) -> list[Path]:
    """Draw history.png and, if two trials differ in valid MRR, importances.png for an Optuna study."""
    import matplotlib.pyplot as plt
    from optuna.exceptions import ExperimentalWarning
    from optuna.visualization import matplotlib as plots

    values = {trial.value for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"}
    drawers: dict[str, Any] = {"history": plots.plot_optimization_history}
    if len(values) > 1:
        drawers["importances"] = plots.plot_param_importances
    drawn = [folder / f"{name}.png" for name in drawers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # the plots have been experimental since 2020
        for path, draw in zip(drawn, drawers.values(), strict=True):
            figure: Any = draw(study, target_name="valid MRR").figure
            figure.savefig(path, dpi=140, bbox_inches="tight")
            plt.close(figure)
    return drawn
