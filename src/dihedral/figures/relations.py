"""A figure of what a model learned: the elements of each relation, and the products of relations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dihedral.errors import DihedralError
from dihedral.interpretation import Algebra, Row

MAX_RELATIONS = 16


def draw_relations(algebra: Algebra, path: Path, *, relations: list[str] | None = None, title: str = "") -> None:
    """Draw the share of each group element per relation (left) and the relation nearest to each product (right)."""
    names = list(algebra.names)[:MAX_RELATIONS] if relations is None else relations
    if not names:
        raise DihedralError("no relations to draw; name at least one")
    rows = [algebra[name] for name in names]
    size = 0.55 * len(rows) + 1.2
    figure = Figure(figsize=(5.2 + 1.15 * len(rows) + 1.5, size + 0.8))
    left, right = figure.subplots(1, 2, width_ratios=[2 * algebra.group.K + 1, 2.1 * len(rows)])
    _element_shares(left, rows)
    _products(right, rows)
    figure.suptitle(title, fontsize=12)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def _element_shares(axes: Any, rows: list[Row]) -> None:
    shares = np.array([list(row.elements().values()) for row in rows], dtype=float)
    shares /= shares.sum(axis=1, keepdims=True)
    names = [
        rf"${name[0]}_{{{name[1:].split('^')[0]}}}^{{{name.split('^')[1]}}}$" for name in rows[0].algebra.group.names
    ]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=max(0.5, shares.max()), aspect="auto")
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(rows)), [_plain(row.name) for row in rows])
    axes.set_title("share of each element", fontsize=10)
    for (i, j), share in np.ndenumerate(shares):
        axes.text(j, i, f"{share:.2f}".lstrip("0") or "0", ha="center", va="center", fontsize=7,
                  color="white" if share > 0.35 else "#333333")  # fmt: skip


def _products(axes: Any, rows: list[Row]) -> None:
    """Label cell (i, j) with the relation, or the identity, nearest to the product of row i and column j."""
    best = np.zeros((len(rows), len(rows)))
    for i, first in enumerate(rows):
        for j, second in enumerate(rows):
            product = first @ second
            match = product.nearest(1)[0]
            name, best[i, j] = match.relation, match.share
            if product.identity() >= best[i, j]:
                name, best[i, j] = "identity", product.identity()
            axes.text(j, i, f"{_plain(name)}\n{best[i, j]:.2f}", ha="center", va="center", fontsize=6.5,
                      color="white" if best[i, j] > 0.6 else "#333333")  # fmt: skip
    axes.imshow(best, cmap="Greens", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(rows)), [_plain(row.name) for row in rows], rotation=20, ha="right")
    axes.set_yticks(range(len(rows)), [_plain(row.name) for row in rows])
    axes.set_title("row · column: nearest relation, weighted share of components", fontsize=10)


def _plain(name: str) -> str:
    """Escape matplotlib's math delimiter in a name."""
    return name.replace("$", r"\$")
