"""Figures of what a model learned: the elements of each relation, their components, and the products of relations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.interpretation import Algebra, Match, Row

MAX_RELATIONS = 16
MAX_NAME = 48  # characters, the last ones


def draw_relations(algebra: Algebra, path: Path, *, relations: list[str] | None = None, title: str = "") -> None:
    """Draw the share of each group element per relation (left) and the relation nearest to each product (right)."""
    rows = _rows(algebra, relations)
    size = 0.55 * len(rows) + 1.2
    figure = Figure(figsize=(5.2 + 1.15 * len(rows) + 1.5, size + 0.8))
    left, right = figure.subplots(1, 2, width_ratios=[2 * algebra.monoid.K + 1, 2.1 * len(rows)])
    _element_shares(left, rows)
    _products(right, rows)
    figure.suptitle(title, fontsize=12)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def draw_components(algebra: Algebra, path: Path, *, relations: list[str] | None = None, title: str = "") -> None:
    """Draw the elements of relations (rows) in all components (columns): the hue is the element, zero is white.

    Smaller elements are paler. Components are ordered by how much of them the relations use.
    """
    monoid, rows = algebra.monoid, _rows(algebra, relations)
    sizes = np.stack([row.sizes for row in rows])  # [R, L]
    order = np.argsort(-sizes.sum(axis=0), kind="stable")
    colours = _element_colours(monoid.K)[np.stack([monoid.group_part(row.codes) for row in rows])]  # [R, L, 3]
    image = 1 - (1 - colours) * np.sqrt(sizes)[..., None]
    figure = Figure(figsize=(9, 0.28 * len(rows) + 1.6))
    axes = figure.subplots()
    axes.imshow(image[:, order], aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(rows)), [_shown(row) for row in rows], fontsize=8)
    axes.set_xlabel("components, most used first")
    legend = [Patch(color=tuple(colour), label=_math_name(name))
              for colour, name in zip(_element_colours(monoid.K), monoid.group.names, strict=True)]  # fmt: skip
    axes.legend(handles=legend, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False)
    axes.set_title(title, fontsize=11)
    figure.savefig(path, dpi=150, bbox_inches="tight")


def _rows(algebra: Algebra, relations: list[str] | None) -> list[Row]:
    """The rows of some relations, or of the first ones."""
    names = list(algebra.names)[:MAX_RELATIONS] if relations is None else relations
    if not names:
        raise DihedralError("no relations to draw; name at least one")
    return [algebra[name] for name in names]


def _element_colours(K: int) -> NDArray[np.float64]:
    """One colour per element [2K, 3]: rotations from blue to green, reflections from yellow to purple."""
    turns, mirrors = colormaps["winter"](np.linspace(0, 0.9, K)), colormaps["plasma_r"](np.linspace(0.15, 0.8, K))
    return np.concatenate([turns, mirrors])[:, :3]


def _math_name(name: str) -> str:
    return rf"${name[0]}_{{{name[1:].split('^')[0]}}}^{{{name.split('^')[1]}}}$"


def _element_shares(axes: Any, rows: list[Row]) -> None:
    monoid = rows[0].algebra.monoid
    codes = np.stack([row.codes for row in rows])
    elements = np.where(codes < 0, 2 * monoid.K, monoid.group_part(codes))  # whatever the size; zero comes last
    shares = np.stack([(elements == element).mean(axis=1) for element in range(2 * monoid.K + 1)], axis=1)
    names = list(map(_math_name, monoid.group.names))
    if rows[0].algebra.is_graded:
        names.append("0")
    shares = shares[:, : len(names)]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=max(0.5, shares.max()), aspect="auto")
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(rows)), [_shown(row) for row in rows])
    axes.set_title("share of each element", fontsize=10)
    for (i, j), share in np.ndenumerate(shares):
        axes.text(j, i, f"{share:.2f}".lstrip("0") or "0", ha="center", va="center", fontsize=7,
                  color="white" if share > 0.35 else "#333333")  # fmt: skip


def _products(axes: Any, rows: list[Row]) -> None:
    """Label cell (i, j) with the relation, or the identity, nearest to the product of row i and column j.

    A cell without significant agreement is blank. Comparisons: every product with every relation and the identity.
    """
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
                axes.text(j, i, f"{label}\n{best[i, j]:.2f}", ha="center", va="center", fontsize=6.5,
                          color="white" if best[i, j] > 0.6 else "#333333")  # fmt: skip
    axes.imshow(best, cmap="Greens", vmin=0, vmax=1, aspect="auto")
    shown = [_shown(row) for row in rows]
    axes.set_xticks(range(len(rows)), shown, rotation=20, ha="right")
    axes.set_yticks(range(len(rows)), shown)
    axes.set_title("row · column: nearest relation, kappa (0: chance, blank: not significant)", fontsize=10)


def _shown(row: Row) -> str:
    """The label of a relation with its name, or the end of a long name."""
    names = row.algebra.names
    shown = names.shown(row.name) if names.label(row.name) else row.name
    return _plain(shown if len(shown) <= MAX_NAME else f"…{shown[1 - MAX_NAME :]}")


def _plain(name: str) -> str:
    """Escape matplotlib's math delimiter in a name."""
    return name.replace("$", r"\$")
