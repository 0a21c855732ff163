"""The figures of the paper, drawn from records; each is saved as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from dihedral.elements.group import DihedralGroup
from dihedral.figures import BLUE, GREY, ORANGE, short

CORNER_COLOURS = ("#2b6ca3", "#d9822b", "#3a923a", "#b33b3b")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with matplotlib.rc_context({"svg.hashsalt": name}):  # the same figure is the same file
        for path in paths:
            figure.savefig(path, dpi=140, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def element_title(name: str) -> str:
    """Return the name of a group element, such as O4^1, as mathematics."""
    kind, power = name[0], name.split("^")[1]
    return rf"${kind}_{{{name[1:].split('^')[0]}}}^{{({power})}}$"


def figure1(folder: Path) -> list[Path]:
    """Draw the elements of D4 acting on a square with labelled corners."""
    group = DihedralGroup(4)
    figure = Figure(figsize=(9.6, 5.4))
    panels = figure.subplots(2, 4)
    corners = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)], dtype=float)
    for element, axes in enumerate(panels.ravel()):
        matrix = group.matrices[element]
        moved = corners @ matrix.T
        outline = np.concatenate([moved, moved[:1]])
        axes.plot(outline[:, 0], outline[:, 1], color=GREY, linewidth=1.2, zorder=1)
        for label, (x, y), colour in zip("1234", moved, CORNER_COLOURS, strict=True):
            axes.scatter([x], [y], s=230, color=colour, zorder=2)
            axes.text(x, y, label, color="white", ha="center", va="center", fontsize=10, zorder=3)
        if element >= group.K:  # a reflection; its mirror line is at half its angle
            angle = np.pi * (element - group.K) / group.K
            line = 1.55 * np.array([[-np.cos(angle), -np.sin(angle)], [np.cos(angle), np.sin(angle)]])
            axes.plot(line[:, 0], line[:, 1], linestyle="--", color=ORANGE, linewidth=1.4, zorder=0)
        rows = r"\;\;".join(f"({a:.0f},\\;{b:.0f})" for a, b in matrix)
        axes.set_title(f"{element_title(group.name(element))}   rows ${rows}$", fontsize=10)
        axes.set(xlim=(-1.7, 1.7), ylim=(-1.7, 1.7), aspect="equal")
        axes.axis("off")
    figure.suptitle(
        "The eight elements of D4 on a square: four rotations, four reflections (mirror dashed)", fontsize=12
    )
    figure.tight_layout()
    return save(figure, folder, "figure1")


StudyRows = Sequence[Mapping[str, Any]]


def figure2(sections: Mapping[str, StudyRows], folder: Path) -> list[Path]:
    """Draw histograms of the diagonal entries of R₁R₂ for inverse pairs, one row of panels per graph."""

    def draw(axes: Any, row: Mapping[str, Any]) -> None:
        _diagonal(axes, row["diagonal"], BLUE)
        names = "\n".join(short(name) for name in row["relations"])
        axes.set_title(f"{names}\nones {row['ones']:.0%}, identity blocks {row['share']:.0%}", fontsize=7)

    figure = _panels(sections, draw, "Inverse pairs: diagonal entries of the product of the two relations")
    return save(figure, folder, "figure2")


def _panels(sections: Mapping[str, StudyRows], draw: Callable[[Any, Mapping[str, Any]], None], title: str) -> Figure:
    """Draw one line of panels per section and one panel per row of the section."""
    wide = max(len(rows) for rows in sections.values())
    figure = Figure(figsize=(2.5 * wide, 3.2 * len(sections)))
    panels = figure.subplots(len(sections), wide, squeeze=False)
    for line, (name, rows) in zip(panels, sections.items(), strict=True):
        for axes, row in zip(line, rows, strict=False):
            draw(axes, row)
        for axes in line[len(rows) :]:
            axes.axis("off")
        line[0].set_ylabel(name, fontsize=8)
    if panels[0][0].get_legend_handles_labels()[0]:
        panels[0][0].legend(fontsize=6, frameon=False)
    figure.suptitle(title, fontsize=12)
    figure.tight_layout()
    return figure


def figure3(plain: StudyRows, skew_negatives: StudyRows, folder: Path) -> list[Path]:
    """Draw the element shares of symmetric and skew-symmetric relations, without and with skew negatives."""
    wide = 6
    symmetric = [pair for pair in zip(plain, skew_negatives, strict=True) if pair[0]["kind"] == "symmetric"]
    skew = [pair for pair in zip(plain, skew_negatives, strict=True) if pair[0]["kind"] == "skew"]
    lines = [kind[i : i + wide] for kind in (symmetric, skew) for i in range(0, len(kind), wide)]
    figure = Figure(figsize=(2.6 * wide, 2.3 * len(lines)))
    panels = figure.subplots(len(lines), wide, squeeze=False)
    for line, pairs in zip(panels, lines, strict=True):
        for axes, (without, with_negatives) in zip(line, pairs, strict=False):
            names = list(without["elements"])
            place = np.arange(len(names))
            bars = ((-0.2, without, GREY, "no skew negatives"), (0.2, with_negatives, BLUE, "skew negatives"))
            for offset, row, colour, label in bars:
                counts = np.array(list(row["elements"].values()), dtype=float)
                axes.bar(place + offset, counts / counts.sum(), width=0.4, color=colour, label=label)
            axes.set_xticks(place, [element_title(name) for name in names], fontsize=6)
            axes.tick_params(axis="y", labelsize=6)
            axes.set_ylim(0, 0.5)
            axes.set_title(f"{short(without['relation'])}\n{without['kind']}", fontsize=7)
        for axes in line[len(pairs) :]:
            axes.axis("off")
    panels[0][0].legend(fontsize=6, frameon=False, loc="upper left")
    figure.suptitle("Shares of the elements of D4 in symmetric and skew-symmetric relations of WN18", fontsize=12)
    figure.tight_layout()
    return save(figure, folder, "figure3")


def figure4(sections: Mapping[str, StudyRows], folder: Path) -> list[Path]:
    """Draw histograms of the diagonal entries of R₁R₂R₃⁻¹, in the right order and with r₁ and r₂ swapped."""

    def draw(axes: Any, row: Mapping[str, Any]) -> None:
        for offset, order, colour in ((-0.2, "right", BLUE), (0.2, "swapped", ORANGE)):
            _diagonal(axes, row[order]["diagonal"], colour, offset=offset, width=0.4, label=f"{order} order")
        first, second, third = (short(name) for name in row["relations"])
        shares = f"identity blocks {row['right']['share']:.0%}, swapped {row['swapped']['share']:.0%}"
        axes.set_title(f"{first}\n· {second}\n= {third}\n{shares}", fontsize=7)

    figure = _panels(sections, draw, "Compositions: diagonal entries of R₁R₂R₃⁻¹ in the right order and swapped")
    return save(figure, folder, "figure4")


def discreteness(panels_of: Mapping[str, Mapping[str, Mapping[str, Any]]], folder: Path) -> list[Path]:
    """Draw MRR by epoch on train (top) and valid (bottom); one column per graph and weight, one colour per model."""
    figure = Figure(figsize=(3.6 * len(panels_of), 5.6))
    panels = figure.subplots(2, len(panels_of), squeeze=False)
    models = sorted({model for lines in panels_of.values() for model in lines})
    colours = dict(zip(models, (BLUE, ORANGE, "#3a923a", "#b33b3b", "#7a5195"), strict=False))
    for i, (title, lines) in enumerate(panels_of.items()):
        for axes, split in zip(panels[:, i], ("train", "valid"), strict=True):
            for model in sorted(lines):
                axes.plot(lines[model]["epochs"], lines[model][split], color=colours[model], label=model)
            axes.set_ylim({"train": (0.6, 1.01), "valid": (0.25, 0.46)}[split])  # one scale per row
            axes.set_title(f"{title}: {split}", fontsize=9)
            axes.tick_params(labelsize=7)
            axes.grid(alpha=0.3)
        panels[1, i].set_xlabel("epoch", fontsize=8)
    panels[0, 0].set_ylabel("MRR", fontsize=8)
    panels[1, 0].set_ylabel("MRR", fontsize=8)
    panels[1, -1].legend(fontsize=7, frameon=False)
    figure.tight_layout()
    return save(figure, folder, "discreteness")


def _diagonal(axes: Any, counts: Mapping[str, int], colour: str, *, offset: float = 0.0, width: float = 0.7,
              label: str | None = None) -> None:  # fmt: skip
    values = np.array([float(value) for value in counts])
    shares = np.array(list(counts.values()), dtype=float)
    step = 1.0 if set(values) <= {-1.0, 0.0, 1.0} else 0.12  # D4 has three values, larger groups have more
    axes.bar(values + offset * step, shares / shares.sum(), width=width * step, color=colour, label=label)
    axes.set(ylim=(0, 1.02), xlim=(-1.5, 1.5))
    axes.set_xticks([-1, 0, 1])
    axes.tick_params(labelsize=6)
