"""The charts of the pages: `python -m benchmarks.pages --charts`."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.pages import DOCS
from benchmarks.pages.cost_model import OBJECTIVES, fits, fitted
from benchmarks.pages.records import Row, read

IMAGES = DOCS / "images"


def draw_all() -> None:
    for draw in (growth_of_steps, scaling):
        draw()


def growth_of_steps() -> None:
    """Milliseconds per step against entities, dimension and negatives."""
    rows = read("gpu-engine")["growth"]
    figure, panels = plt.subplots(1, 3, figsize=(13, 3.8))
    panel_of = {"entities": (256, None), "dimension": (None, 40_000), "negatives": (256, 40_000)}
    for axes, (variable, (dimension, entities)) in zip(panels, panel_of.items(), strict=True):
        for label, chosen in {
            "full softmax": [r for r in rows if r["objective"] == "softmax"],
            "own negatives": [r for r in rows if r["objective"] == "logistic" and "share_negatives" not in r],
            "shared negatives": [r for r in rows if "share_negatives" in r],
        }.items():
            points = sorted(
                (r[variable], r["seconds_a_step"] * 1000)
                for r in chosen
                if variable in r
                and (dimension is None or r["dimension"] == dimension)
                and (entities is None or r["entities"] == entities)
                and (variable == "negatives" or r.get("negatives", 10) == 10)
            )
            if len({x for x, _ in points}) > 1:
                axes.loglog(*zip(*dict(points).items(), strict=True), marker="o", label=label)
        axes.set_xlabel(variable)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, frameon=False)
    panels[0].set_ylabel("milliseconds per step of 1024 triples")
    figure.tight_layout()
    figure.savefig(IMAGES / "gpu-growth.png", dpi=150)


def scaling() -> None:
    """Measured cost and memory against sizes, with the fitted model."""
    content = read("scale")
    figure, panels = plt.subplots(1, 4, figsize=(16, 3.8))
    for axes, (variable, what, rows) in zip(panels, _panels(content), strict=True):
        for number, (objective, (seconds, memory)) in enumerate(fits(content).items()):
            chosen = sorted((r for r in rows if r["objective"] == objective), key=lambda r: r[variable])
            line = [{**r, "seconds_a_step": seconds(r), "peak_gib": memory(r) / 2**30} for r in chosen if fitted(r)]
            for points, style, label in ((chosen, "o", OBJECTIVES[objective]), (line, "-", None)):
                values = [_shown(r, what) for r in points]
                axes.loglog([r[variable] for r in points], values, style, color=f"C{number}", label=label)
        ticks = sorted({r[variable] for r in rows})
        axes.set_xticks(ticks, [_short(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel(variable)
        axes.set_ylabel(what)
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(IMAGES / "scaling.png", dpi=130)


def _short(count: int) -> str:
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.2g}{letter}" if count < 100 * size else f"{count / size:.0f}{letter}"
    return str(count)


def _panels(content: Row) -> list[tuple[str, str, list[Row]]]:
    """Return the x axis, the y axis, and the rows that differ only in the x axis, for each panel."""
    growth = [row for row in content["growth"] if not row.get("held_back")]
    full = [content["softmax"][0], content["sampled"][0]]
    entities = [row for row in growth if row["axis"] == "entities"]
    max_size = max(row["entities"] for row in entities)
    dimension = [row for row in growth if row["axis"] == "dimension"]
    dimension += [row for row in entities if row["entities"] == max_size]
    triples = [row for row in growth if row["axis"] == "triples"]
    return [
        ("entities", "seconds per million triples", [*entities, *full]),
        ("triples", "seconds per epoch", triples),
        ("dimension", "seconds per million triples", dimension),
        ("entities", "GiB", [*entities, *full]),
    ]


def _shown(row: Row, what: str) -> float:
    if what == "GiB":
        return float(row["peak_gib"])
    epoch = row["seconds_a_step"] * row["triples"] / row["batch_size"]
    return float(epoch if what == "seconds per epoch" else epoch / row["triples"] * 1e6)
