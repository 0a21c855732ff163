"""Speed on a CPU compared with PyKEEN and TorchKGE: `make bench`, or `python -m benchmarks.cpu`.

All libraries train ComplEx on the same data with the same dimension, batch size, negatives and threads, interleaved in
one process so that changes in the speed of the machine affect all of them. Slow rankings are timed on a part of the
test set and scaled up; the table states the part.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import resource
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch

import dihedral as dh
from benchmarks.peers import PyKEEN, TorchKGE
from benchmarks.record import RESULTS, save
from dihedral.evaluation import Evaluator
from dihedral.learn.trainer import Trainer
from dihedral.objectives.recipe import Recipe

DIMENSION, BATCH, NEGATIVES = 200, 1024, 10
OURS, PLAIN = "dihedral", "dihedral, no compiler"


class Dihedral:
    """dihedral with the interface of `benchmarks.peers`."""

    def __init__(self, graph: dh.Graph, *, model: str = "complex", plain: bool = False) -> None:
        recipe = Recipe(model=model, dimension=DIMENSION, batch_size=BATCH, negatives=NEGATIVES, validate_every=0,
                        regulariser="none", epochs=1_000)  # fmt: skip
        self.plain = plain
        self.trainer = Trainer(graph, recipe)
        self.evaluator = Evaluator(graph, "test")

    def epoch(self) -> None:
        with patch.dict(os.environ, DIHEDRAL_COMPILED="0") if self.plain else nullcontext():
            self.trainer.run_epoch()

    def rank(self) -> float:
        return self.evaluator(self.trainer.scorer()).mrr

    def top10(self, heads: torch.Tensor, relations: torch.Tensor) -> None:
        self.trainer.scorer().top(heads, relations, 10)


def interleaved(work: dict[str, Callable[[], Any]], repeats: int, warmup: int = 1) -> dict[str, list[float]]:
    """Time each piece of work once per round."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for i in range(warmup + repeats):
        for name, call in work.items():
            started = perf_counter()
            call()
            if i >= warmup:
                times[name].append(perf_counter() - started)
    return times


def measure(name: str, repeats: int) -> list[dict[str, Any]]:
    graph = dh.load_graph(name)
    options = {"batch_size": BATCH, "negatives": NEGATIVES, "lr": 0.1}
    pykeen, torchkge = PyKEEN(graph, DIMENSION, **options), TorchKGE(graph, DIMENSION, **options)
    ours, plain = Dihedral(graph), Dihedral(graph, plain=True)
    rows: list[dict[str, Any]] = []

    def note(what: str, times: dict[str, list[float]], scale: dict[str, float] | None = None) -> None:
        for library, seconds in times.items():
            factor = (scale or {}).get(library, 1.0)
            rows.append(
                {
                    "graph": graph.name,
                    "what": what,
                    "library": library,
                    "seconds": median(seconds) * factor,
                    "all_seconds": [round(s * factor, 4) for s in seconds],
                    "part_measured": 1 / factor,
                }
            )
            print(rows[-1], flush=True)

    epochs = {"PyKEEN": pykeen.epoch, "TorchKGE": torchkge.epoch, OURS: ours.epoch, PLAIN: plain.epoch}
    note("epoch, 10 negatives", interleaved(epochs, repeats))
    part = 200
    scale = len(graph.test) / part
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ranks = interleaved({OURS: ours.rank}, max(3, repeats))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    note("filtered ranking of test", ranks)
    rows[-1]["extra_gib"] = grown
    others = {"PyKEEN": lambda: pykeen.rank(part), "TorchKGE": lambda: torchkge.rank(part)}
    note("filtered ranking of test", interleaved(others, 2), {"PyKEEN": scale, "TorchKGE": scale})
    generator = torch.Generator().manual_seed(0)
    chosen = torch.from_numpy(graph.train).long()[torch.randint(len(graph.train), (1000,), generator=generator)]
    heads, relations = chosen[:, 0].contiguous(), chosen[:, 1].contiguous()
    note("top-10 of 1000 queries", interleaved({OURS: lambda: ours.top10(heads, relations)}, 5))
    few = {"PyKEEN": lambda: pykeen.top10(heads[:100], relations[:100])}
    note("top-10 of 1000 queries", interleaved(few, 1, 1), {"PyKEEN": 10.0})
    return rows


def same_metrics() -> dict[str, float]:
    """The MRR of one model according to PyKEEN and to dihedral."""
    graph = dh.load_graph("umls")
    ours = Dihedral(graph)
    for _ in range(5):
        ours.epoch()
    peer = PyKEEN(graph, DIMENSION)
    peer.load_embeddings(ours.trainer.model.entities.detach(), ours.trainer.model.relations.weights.detach())
    return {"dihedral": ours.rank(), "pykeen": peer.rank()}


def table(rows: list[dict[str, Any]]) -> str:
    """A Markdown table of seconds and speed ratios."""
    lines = ["| graph | what | library | seconds | speedup of dihedral |", "|---|---|---|---|---|"]
    for row in rows:
        own = [r["seconds"] for r in rows if (r["graph"], r["what"], r["library"]) == (row["graph"], row["what"], OURS)]
        times = f"{row['seconds'] / own[0]:.1f}x" if row["library"] != OURS else ""
        part = "" if row["part_measured"] == 1 else f" (scaled from {row['part_measured']:.1%})"
        lines.append(f"| {row['graph']} | {row['what']} | {row['library']} | {row['seconds']:.3f}{part} | {times} |")
    return "\n".join(lines) + "\n"


def chart(rows: list[dict[str, Any]], path: Path) -> None:
    """A bar chart of seconds on a logarithmic axis, with one panel per task."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tasks = list(dict.fromkeys(row["what"] for row in rows))
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    colours = {"PyKEEN": "#c44e52", "TorchKGE": "#dd8452", PLAIN: "#8fb6d9", OURS: "#2a6fb0"}
    figure, panels = plt.subplots(1, len(tasks), figsize=(4.3 * len(tasks), 3.6))
    for axes, task in zip(panels, tasks, strict=True):
        libraries = [name for name in colours if any(r["library"] == name and r["what"] == task for r in rows)]
        width = 0.8 / len(libraries)
        for i, library in enumerate(libraries):
            for j, graph in enumerate(graphs):
                found = [r["seconds"] for r in rows if (r["graph"], r["what"], r["library"]) == (graph, task, library)]
                if found:
                    place = j + (i - (len(libraries) - 1) / 2) * width
                    axes.bar(place, found[0], width * 0.95, color=colours[library], label=library if j == 0 else None)
                    axes.text(
                        place,
                        found[0],
                        f"{found[0]:#.2g}".rstrip(".") if found[0] < 100 else f"{found[0]:.0f}",
                        ha="center",
                        va="bottom",
                        fontsize=7,
                    )
        axes.set_yscale("log")
        axes.set_xticks(range(len(graphs)), graphs)
        axes.set_title(task, fontsize=10)
        axes.margins(y=0.15)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("seconds")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="lower center", ncols=len(colours), fontsize=8, frameon=False
    )
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=["WN18RR", "FB15k-237"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = [row for name in options.graphs for row in measure(name, options.repeats)]
    peers = {name: importlib.metadata.version(name) for name in ("pykeen", "torchkge")}
    settings = {"dimension": DIMENSION, "batch_size": BATCH, "negatives": NEGATIVES, "model": "ComplEx"}
    save("cpu-engine", {"peers": peers, "settings": settings, "mrr_of_one_model": same_metrics(), "rows": rows},
         options.out)  # fmt: skip
    chart(rows, RESULTS.parent / "docs/images/cpu-engine.png")
    print(table(rows))


if __name__ == "__main__":
    main()
