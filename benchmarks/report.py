"""Writes docs/performance.md from the records in results/: `python -m benchmarks.report`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.cpu import OURS, PLAIN
from benchmarks.record import RESULTS
from paper.tables import markdown

DOCS = RESULTS.parent / "docs"
GOALS = {  # targets for one H200, in seconds
    ("full softmax", "WN18RR"): 0.12,
    ("full softmax", "FB15k-237"): 0.15,
    ("full softmax", "FB15k"): 0.45,
    ("sampled, 10 negatives", "WN18RR"): 0.03,
    ("filtered ranking of test", "FB15k-237"): 0.1,
}


def read(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def source(content: dict[str, Any], name: str) -> str:
    made = content["environment"]
    machine = made.get("gpu") or made.get("cpu")
    note = f" {made['note']}" if made.get("note") else ""
    return f"*`{made['command']}`, {machine}, torch {made['torch']}, {made['time']}; `results/{name}.json`.{note}*\n"


def cpu_part() -> str:
    content = read("cpu-engine")
    if content is None:
        return ""
    rows = []
    for row in content["rows"]:
        same = [r for r in content["rows"] if (r["graph"], r["what"]) == (row["graph"], row["what"])]
        own = {r["library"]: r["seconds"] for r in same if r["library"] in (OURS, PLAIN)}
        ratio = "" if row["library"] in own else " / ".join(f"{row['seconds'] / s:.1f}" for s in own.values())
        part = "" if row["part_measured"] > 0.999 else f", scaled from {row['part_measured']:.1%}"
        rows.append([row["graph"], row["what"], row["library"], f"{row['seconds']:.3f}{part}", ratio])
    same_model = content["mrr_of_one_model"]
    return (
        "## CPU, compared with other libraries\n\n"
        "ComplEx, 2L = 200, batch size 1024, 10 negatives; medians of interleaved runs in one process. The ratio is\n"
        "the speedup of dihedral, with compiled kernels and, for epochs, without them.\n\n"
        + markdown(["graph", "task", "library", "seconds", "ratio"], rows)
        + f"\nThe MRR of one trained model is {same_model['dihedral']:.7f} in dihedral and "
        f"{same_model['pykeen']:.7f} in PyKEEN.\n\n"
        + source(content, "cpu-engine")
        + "\n![Seconds per task, dihedral and other libraries](images/cpu-engine.png)\n"
    )


def gpu_part() -> str:
    content = read("gpu-engine")
    if content is None:
        return ""
    rate, *epochs = content["epochs"]
    rows = []
    for row in [*epochs, *content["ranking"]]:
        goal = GOALS.get((row["what"], row["graph"]), "")
        share = f"{row['share_of_matmul_rate']:.0%}" if "share_of_matmul_rate" in row else ""
        rows.append(
            [row["graph"], row["what"], row.get("model", ""), row["dimension"], row.get("precision", ""),
             f"{row['seconds']:.4f}", goal, share]
        )  # fmt: skip
    header = ["graph", "task", "model", "2L", "products", "seconds", "goal", "share of product rate"]
    largest = max((r for r in content["growth"] if r["objective"] == "softmax"), key=lambda r: r["entities"])
    return (
        "## One GPU\n\n"
        f"Epochs with batch size 1024. A large float16 product reaches {rate['matmul_tflops']:.0f} TFLOP/s; the last\n"
        "column is the rate of the three products of an epoch as a share of it.\n\n"
        + markdown(header, rows)
        + f"\nWith {largest['entities']:,} entities, 2L = {largest['dimension']}, a full-softmax step takes "
        f"{largest['seconds_a_step'] * 1000:.0f} ms and\n{largest['extra_gib']:.2f} GiB in addition to parameters, "
        "gradients and optimiser state.\n\n"
        + source(content, "gpu-engine")
        + "\n![Growth of the cost of a step](images/gpu-growth.png)\n"
    )


def curve_part(wanted: float = 0.36) -> str:
    content = read("curve")
    if content is None:
        return ""
    rows = []
    for name, curve in content["curves"].items():
        reached = next((f"{point['seconds']:.1f}" for point in curve if point["test"] >= wanted), "not reached")
        per_epoch = (curve[-1]["seconds"] - curve[0]["seconds"]) / (curve[-1]["epoch"] - curve[0]["epoch"])
        first = curve[0]["seconds"] - curve[0]["epoch"] * per_epoch
        last = f"{curve[-1]['test']:.4f} after {curve[-1]['seconds']:.0f} s"
        rows.append([name, reached, f"{per_epoch:.2f}", f"{max(0.0, first):.1f}", last])
    header = ["model", f"seconds to a test MRR of {wanted}", "seconds per epoch", "start", "at the end"]
    return (
        f"## Time to a given MRR: {content['graph']}\n\n"
        "ComplEx as in kbc is written after Lacroix et al. (2018) in plain PyTorch: autograd, dense Adagrad, float32.\n"
        "Seconds are those of training alone; `start` is the part that loads or compiles kernels and captures a step.\n"
        "The curves of ComplEx are of the day before, and came after another one in the same process, so theirs is\n"
        "short.\n\n"
        + markdown(header, rows)
        + "\n"
        + source(content, "curve")
        + "\n![Test MRR against seconds of training](images/curve.png)\n"
    )


def agreement_part() -> str:
    rows, sources = [], []
    for device in ("cpu", "cuda"):
        content = read(f"agreement-{device}")
        if content is None:
            continue
        sources.append(source(content, f"agreement-{device}"))
        for row in content["rows"]:
            reference, fast = (mean(row[way]["test_mrr"]) for way in ("reference", "fast"))
            speed = sum(row["reference"]["seconds"]) / sum(row["fast"]["seconds"])
            rows.append([row["graph"], row["model"], row["objective"], device, len(row["fast"]["test_mrr"]),
                         f"{reference:.4f}", f"{fast:.4f}", f"{fast - reference:+.4f}", f"{speed:.1f}x"])  # fmt: skip
    header = ["graph", "model", "objective", "device", "seeds", "reference MRR", "fast MRR", "difference", "speedup"]
    return (
        "## Agreement of the fast and the reference paths\n\n"
        "Test MRR, averaged over seeds, after training on the reference paths (autograd, all logits at once, float32)\n"
        "and on the fast ones.\n\n" + markdown(header, rows) + "\n" + "\n".join(sources)
    )


def serving_part() -> str:
    content = read("serving")
    if content is None:
        return ""
    rows = []
    for row in content["rows"]:
        rate = f"{row['asked_per_second']:.0f} per second" if row["asked_per_second"] else "unlimited"
        batching = "in batches" if row["at_once"] > 1 else "one by one"
        rows.append([batching, row["clients"], rate, f"{row['answered_per_second']:.0f}",
                     *(f"{row[key]:.0f}" for key in ("p50_ms", "p99_ms", "max_ms"))])  # fmt: skip
    header = ["processing", "clients", "request rate", "answers per second", "median ms", "p99 ms", "max ms"]
    return (
        "## Serving\n\n"
        f"Single predictions over HTTP, with the clients on the same machine; {content['entities']:,} entities, "
        f"2L = {content['dimension']}.\n\n" + markdown(header, rows) + "\n" + source(content, "serving")
    )


def everyday_part() -> str:
    content, rdf = read("everyday"), read("rdf")
    if content is None or rdf is None:
        return ""
    top, test = content["top_ten"], content["calibration"]["test"]
    rows = [
        [f"top 10 of {top['questions']} queries, {top['graph']}, 2L = {top['dimension']}", f"{top['seconds']:.3f} s"],
        ["expected calibration error of probabilities, FB15k-237 test", f"{test['expected_calibration_error']:.4f}"],
        ["accuracy of triple classification by thresholds, same triples", f"{test['accuracy']:.3f}"],
        [f"loading {rdf['triples']:,} N-Triples", f"{rdf['seconds']:.2f} s"],
    ]  # fmt: skip
    return (
        "## Common tasks\n\n" + markdown(["task", "result"], rows) + "\n"
        + source(content, "everyday") + "\n" + source(rdf, "rdf")
    )  # fmt: skip


def growth_chart(path: Path) -> None:
    content = read("gpu-engine")
    if content is None:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = content["growth"]
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
    figure.savefig(path, dpi=150)


def main() -> None:
    parts = ["# Performance\n", "`python -m benchmarks.report` generates this page from the records in `results/`.\n",
             cpu_part(), gpu_part(), curve_part(), agreement_part(), serving_part(), everyday_part()]  # fmt: skip
    (DOCS / "performance.md").write_text("\n".join(part for part in parts if part), encoding="utf-8")
    growth_chart(DOCS / "images" / "gpu-growth.png")
    chart = RESULTS / "cpu-engine.png"
    if chart.exists():
        (DOCS / "images" / "cpu-engine.png").write_bytes(chart.read_bytes())


if __name__ == "__main__":
    main()
