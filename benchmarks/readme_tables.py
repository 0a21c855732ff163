"""The tables of README.md from the files under results/."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks import ordering
from benchmarks.cpu import OURS
from benchmarks.record import RESULTS
from paper.reported import REPORTED
from paper.tables import markdown

GRAPHS = ("WN18", "FB15k", "WN18RR", "FB15k-237", "umls", "family-neural-lp")
PEERS = ("PyKEEN", "TorchKGE")
CPU_TASKS = {
    "epoch, 10 negatives": "training epoch, 10 negatives",
    "filtered ranking of test": "filtered ranking of test",
    "top-10 of 1000 queries": "top 10 of 1000 queries",
}


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def accuracy() -> str:
    """One row per graph: every model at its best, the paper, and three models under one training setup."""
    rows = []
    for graph in GRAPHS:
        slug = graph.lower()
        strict = [path for path in (RESULTS / "runs/best").glob(f"{slug}-d[0-9]*-s*.json") if "graded" not in path.name]
        graded = list((RESULTS / "runs/best").glob(f"{slug}-d[0-9]*-graded-s*.json"))
        complex_ = list((RESULTS / "runs/best").glob(f"{slug}-complex-s*.json"))
        paper = [REPORTED[graph][name][3] / 100 for name in ("D4-STE", "D4-Gumbel")] if graph in REPORTED else []
        best = [summary(paths) for paths in (strict, graded)]
        rows.append([graph, f"{max(paper):.3f}" if paper else "", *best, ordered(graph), summary(complex_),
                     same_setup(graph, "softmax"), same_setup(graph, "logistic")])  # fmt: skip
    header = ["graph", "paper's MRR", "D_K", "graded D_K", "by probability", "ComplEx", "full softmax"]
    header.append("sampled negatives")
    return (
        "Filtered test MRR. The columns `D_K`, `graded D_K` and `ComplEx` show the recipes `best/*`: mean and\n"
        "standard deviation of 3 seeds, or one seed if no deviation is given. `by probability` is the graded model\n"
        "with its answers [ordered by probability](docs/concepts/probabilities.md), which also uses counts and rules\n"
        "of the training facts, with its number of seeds (FB15k and FB15k-237: estimated from 2,000 test facts;\n"
        "\\*: with the recipe before its last change).\n"
        "The other columns rank by score. The last two columns compare\n"
        "D4-Gumbel / graded D4-Gumbel / ComplEx under the same training setup (2L = 200, one seed).\n\n"
        + markdown(header, rows)
    )


def summary(paths: list[Path]) -> str:
    """Mean and standard deviation of the test MRR of runs."""
    mrr = [read(path)["test"]["both"]["mrr"] for path in paths]
    if not mrr:
        return ""
    return f"{mean(mrr):.4f} ± {stdev(mrr):.4f}" if len(mrr) > 1 else f"{mrr[0]:.4f}"


def ordered(graph: str) -> str:
    """Test MRR of the graded model in order of probability."""
    found = [each for (name, recipe), each in ordering.by_recipe().items() if name == graph and "graded" in recipe]
    if not found:
        return ""
    (rows,) = found
    mark = "" if all(map(ordering.is_current, rows)) else r" \*"
    return f"{ordering.spread(ordering.estimates(rows))} ({len(rows)}){mark}"


def same_setup(graph: str, objective: str) -> str:
    """Test MRR of D4-Gumbel, graded D4-Gumbel and ComplEx with the same training setup."""
    found = []
    for model in ("dihedral-gumbel", "dihedral-graded", "complex"):
        paths = list((RESULTS / "runs").glob(f"*-{objective}/{graph.lower()}-{model}-s0.json"))
        found += [f"{read(path)['test']['both']['mrr']:.3f}" for path in paths]
    return " / ".join(found)


def speed() -> str:
    """Seconds on a CPU, ours and others, and on one GPU."""
    cpu, gpu = read(RESULTS / "cpu-engine.json"), read(RESULTS / "gpu-engine.json")
    taken = {(row["graph"], row["what"], row["library"]): row["seconds"] for row in cpu["rows"]}
    _, *epochs = gpu["epochs"]
    wanted = "full softmax", "dihedral-gumbel", "half"
    softmax = {row["graph"]: row["seconds"] for row in epochs
               if (row["what"], row.get("model"), row.get("precision")) == wanted}  # fmt: skip
    ranking = {row["graph"]: row["seconds"] for row in gpu["ranking"]}
    processor, card = cpu["environment"]["cpu"], gpu["environment"]["gpu"]
    rows = []
    for graph in ("WN18RR", "FB15k-237"):
        for what, shown in CPU_TASKS.items():
            others = [taken.get((graph, what, peer)) for peer in PEERS]
            rows.append([graph, shown, processor, _seconds(taken[graph, what, OURS]), *map(_seconds, others)])
        rows.append([graph, "training epoch, full softmax, 2L = 600", card, _seconds(softmax[graph]), "", ""])
        rows.append([graph, "filtered ranking of test, 2L = 600", card, _seconds(ranking[graph]), "", ""])
    settings = cpu["settings"]
    return (
        f"Seconds. On the CPU every library runs {settings['model']} with 2L = {settings['dimension']} and batches of "
        f"{settings['batch_size']};\nslow tasks are scaled up from a part of the queries.\n\n"
        + markdown(["graph", "task", "hardware", "dihedral", *PEERS], rows)
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def tables() -> str:
    return f"{accuracy()}\n{speed()}"
