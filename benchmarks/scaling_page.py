"""Write docs/scaling.md and its figure from results/scale.json: a fitted model of cost and memory, and its predictions.

`python -m benchmarks.scale --plots --page` calls this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from benchmarks.record import RESULTS
from benchmarks.report import DOCS, read, source
from paper.tables import markdown

Row = dict[str, Any]
OBJECTIVES = {"softmax": "full softmax", "logistic": "sampled"}
GOALS = {"softmax": 15 * 60, "logistic": 20, "ranking": 5}  # targets for one H200, in seconds
MAX_FITTED_DIMENSION = 256  # wider rows of full softmax do not fit into registers and take another code path
FREEBASE = {"entities": 86_054_151, "triples": 338_586_276, "dimension": 256}
NVLINK, NETWORK = 300e9, 40e9  # all-reduce bytes per second: per GPU within a machine, per machine in a network
GPUS = {"24 GB": 24e9, "48 GB": 48e9, "80 GB": 80e9, "H200, 141 GB": 141e9}


# --- the model -------------------------------------------------------------------------------------


def queries(row: Row) -> float:
    """Rows multiplied with candidates per step; full softmax has queries for both sides."""
    return row["batch_size"] * (2 if row["objective"] == "softmax" else 1)


def last_batch(row: Row) -> float:
    """Relative size of the last batch of an epoch, if measured; it needs memory in addition to the recorded step."""
    complete = row["steps_measured"] * row["batch_size"] >= row["triples"]
    return row["triples"] / row["batch_size"] % 1 if complete else 0.0


def rows_used(row: Row) -> float:
    """Number of entity rows that a sampled step reads and updates."""
    chunks = np.ceil(row["batch_size"] / row["share_negatives"])
    return 2 * row["batch_size"] + chunks * row["negatives"]


LAST = "{}, if the last batch is smaller"
Term = tuple[str, Callable[[Row], float]]
SECONDS: dict[str, list[Term]] = {
    "softmax": [
        ("queries × entities × dimension", lambda r: queries(r) * r["entities"] * r["dimension"]),
        ("queries × entities", lambda r: queries(r) * r["entities"]),
        ("entities × dimension", lambda r: r["entities"] * r["dimension"]),
        ("constant", lambda r: 1.0),
    ],
    "logistic": [
        ("batch × negatives × dimension", lambda r: r["batch_size"] * r["negatives"] * r["dimension"]),
        ("batch × negatives", lambda r: r["batch_size"] * r["negatives"]),
        ("rows used × dimension", lambda r: rows_used(r) * r["dimension"]),
        ("constant", lambda r: 1.0),
    ],
}
BYTES: dict[str, list[Term]] = {
    "softmax": [
        ("entities × dimension", lambda r: r["entities"] * r["dimension"]),
        ("triples", lambda r: r["triples"]),
        ("queries × dimension", lambda r: queries(r) * r["dimension"]),
        ("constant", lambda r: 1.0),
        (LAST.format("entities × dimension"), lambda r: np.ceil(last_batch(r)) * r["entities"] * r["dimension"]),
    ],
    "logistic": [
        ("entities × dimension", lambda r: r["entities"] * r["dimension"]),
        ("triples", lambda r: r["triples"]),
        ("batch × negatives", lambda r: r["batch_size"] * r["negatives"]),
        ("rows used × dimension", lambda r: rows_used(r) * r["dimension"]),
        ("constant", lambda r: 1.0),
        (LAST.format("batch × negatives"), lambda r: last_batch(r) * r["batch_size"] * r["negatives"]),
    ],
}


@dataclass(frozen=True)
class Fit:
    """A sum of terms with non-negative coefficients, fitted by least squares of the relative errors."""

    terms: list[Term]
    coefficients: np.ndarray
    errors: np.ndarray  # relative errors on the fitted rows

    @classmethod
    def of(cls, terms: list[Term], rows: list[Row], measured: Callable[[Row], float]) -> Fit:
        target = np.array([measured(row) for row in rows])
        design = np.array([[value(row) for _, value in terms] for row in rows]) / target[:, None]
        size = design.max(0)  # scale the terms, because the solver has an absolute tolerance
        coefficients = nnls(design / size, np.ones(len(rows)))[0] / size
        return cls(terms, coefficients, design @ coefficients - 1)

    def __call__(self, row: Row) -> float:
        return float(sum(c * value(row) for c, (_, value) in zip(self.coefficients, self.terms, strict=True)))


def measured_rows(content: Row) -> list[Row]:
    return [*content["softmax"], *content["sampled"], *content["growth"]]


def fitted(row: Row) -> bool:
    return not row.get("held_back") and (row["objective"] == "logistic" or row["dimension"] <= MAX_FITTED_DIMENSION)


def fits(content: Row) -> dict[str, tuple[Fit, Fit]]:
    """Fit seconds per step and bytes of memory for both objectives to all rows that are not held out."""
    found = {}
    for objective in OBJECTIVES:
        rows = [r for r in measured_rows(content) if r["objective"] == objective and fitted(r)]
        found[objective] = (
            Fit.of(SECONDS[objective], rows, lambda r: r["seconds_a_step"]),
            Fit.of(BYTES[objective], rows, lambda r: r["peak_gib"] * 2**30),
        )
    return found


def setting(content: Row, objective: str, **changes: Any) -> Row:
    """Settings of the full-size run with changes, for a complete epoch."""
    row = {**content["softmax" if objective == "softmax" else "sampled"][0], **changes}
    return {**row, "steps_measured": np.ceil(row["triples"] / row["batch_size"])}


# --- predictions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    name: str
    machines: int
    gpus: int  # per machine

    @property
    def devices(self) -> int:
        return self.machines * self.gpus

    def all_reduce(self, size: float) -> float:
        """Seconds to reduce `size` bytes over all devices: within machines, then between them."""

        def ring(count: int, rate: float) -> float:
            return 2 * (count - 1) / count * size / rate

        return ring(self.gpus, NVLINK) + ring(self.machines, NETWORK)


CLUSTERS = [
    Cluster("8 GPUs in one machine", 1, 8),
    Cluster("8 machines with 1 GPU each", 8, 1),
    Cluster("8 machines with 8 GPUs each", 8, 8),
]


def predict(content: Row, objective: str, cluster: Cluster) -> Row:
    """Predict an epoch in which each device holds a part of the rows and queries and gradients are all-reduced."""
    seconds, memory = fits(content)[objective]
    devices = cluster.devices
    full = setting(content, objective, **FREEBASE)
    if objective == "softmax":  # every device multiplies all queries with its own entities
        batch = full["batch_size"]
        row = {**full, "entities": full["entities"] / devices}
        sent = [queries(row) * row["dimension"] * 4] * 2 + [queries(row) * 4]
    else:  # every device processes a part of the batch
        batch = 8 * full["batch_size"]
        row = {**full, "entities": full["entities"] / devices, "batch_size": batch / devices}
        row["share_negatives"] = min(row["share_negatives"], row["batch_size"])
        sent = [batch * row["dimension"] * 4] * 2
    step = seconds(row)
    network = sum(cluster.all_reduce(size) for size in sent)
    steps = FREEBASE["triples"] / batch
    held = memory(row) + 2 * batch * row["dimension"] * 4  # queries and gradients of the complete batch
    return {"batch": batch, "gib": held / 2**30, "sent": sum(sent), "epoch": steps * (step + network),
            "network": network / (step + network)}  # fmt: skip


def max_entities(content: Row, objective: str, memory: float) -> float:
    """Number of entities that fit on a device with `memory` bytes, of which a tenth stays free."""
    fit = fits(content)[objective][1]
    row = setting(content, objective)
    fixed = fit({**row, "entities": 0})
    return (0.9 * memory - fixed) / (fit({**row, "entities": 1}) - fixed)


# --- the page --------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def made_by(content: Row) -> str:
    """Return the source line, including the commands of parts that were measured by another command."""
    last = content["environment"]["command"]
    others = {part: command for part, command in content["made_by"].items() if command != last}
    line = source(content, "scale")
    for command in sorted(set(others.values())):
        parts = ", ".join(part for part in others if others[part] == command)
        line = line.replace("`results/scale.json`", f"{parts} by `{command}`; `results/scale.json`")
    return line


def measured_part(content: Row) -> str:
    rows = []
    for row in [*content["softmax"], *content["sampled"]]:
        steps = f"{row['steps_measured']} steps" if row["objective"] == "softmax" else "a complete epoch"
        rows.append([f"epoch, {OBJECTIVES[row['objective']]}, {row['model']}", duration(row["epoch_seconds"]),
                     duration(GOALS[row["objective"]]), f"{row['triples_a_second']:,.0f} triples per second",
                     f"{row['peak_gib']:.1f} GiB", f"{steps}, batch {row['batch_size']:,}"])  # fmt: skip
    for row in content["ranking"]:
        rows.append([f"ranking {row['triples_ranked']:,} test triples, both sides", duration(row["seconds"]),
                     duration(GOALS["ranking"]), f"{2 * row['triples_ranked'] / row['seconds']:,.0f} ranks per second",
                     f"{row['peak_gib']:.1f} GiB", f"{row['memory_mb']:,} MiB of scores per tile"])  # fmt: skip
    for row in content["top"]:
        rows.append([f"top 10, batch of {row['questions_at_once']:,}", f"{row['seconds'] * 1000:.1f} ms", "",
                     f"{row['questions_a_second']:,.0f} queries per second", "", ""])  # fmt: skip
    size, prepared = content["softmax"][0], content["ranking"][0]["preparation_seconds"]
    return (
        "## Measured at the size of Wikidata5M\n\n"
        f"A generated graph with {size['entities']:,} entities, {size['relations']} relations and {size['triples']:,} "
        f"training triples,\n2L = {size['dimension']}, on one GPU. Tails and relations follow Zipf's law with exponent "
        "1 and heads are mildly skewed, because\nin real graphs a few rows occur in a large share of the triples. The "
        "times of full-softmax epochs are extrapolated\nfrom the given number of steps; the slowest and the fastest "
        f"tenth of the steps differ by {size['slowest_block'] / size['fastest_block'] - 1:.1%}. Ranking also\nneeds "
        f"an index of known answers, which took {prepared:.0f} s to build, once per graph.\n\n"
        + markdown(["task", "time", "target", "rate", "GPU memory", "measurement"], rows)
        + f"\nAt this speed, the three matrix products of full softmax alone run at {size['useful_tflops']:.0f} "
        "TFLOP/s. The logits stay in registers,\nat the cost of a fourth product.\n\n" + made_by(content)
    )  # fmt: skip


def model_part(content: Row) -> str:
    found = fits(content)
    rows, errors = [], []
    for objective, pair in found.items():
        for fit, what, unit in zip(pair, ("seconds per step", "bytes"), ("s", "B"), strict=True):
            for (name, _), coefficient in zip(fit.terms, fit.coefficients, strict=True):
                if coefficient:
                    rows.append([OBJECTIVES[objective], what, name, f"{coefficient:.3g} {unit}"])
            errors.append([OBJECTIVES[objective], what, len(fit.errors), f"{np.abs(fit.errors).max():.1%}"])
    for row in content["growth"]:
        if row.get("held_back"):
            for fit, actual in zip(
                found[row["objective"]], (row["seconds_a_step"], row["peak_gib"] * 2**30), strict=True
            ):
                place = next(e for e in errors if e[0] == OBJECTIVES[row["objective"]] and len(e) == 4)
                place.append(f"{fit(row) / actual - 1:+.1%}")
    held = next(row for row in content["growth"] if row.get("held_back"))
    return (
        "## A model of cost and memory\n\n"
        "The seconds per step and the bytes on the device are sums of a few terms. Each term is a product of sizes\n"
        "with a non-negative coefficient, fitted to the measurements by least squares of the relative errors. The\n"
        "table omits terms with a coefficient of 0.\n\n"
        + markdown(["objective", "quantity", "term", "coefficient"], rows)
        + "\nAn epoch has triples / batch steps. Full softmax has two queries per triple, sampled training has one.\n"
        "Rows used are the rows of heads, tails and negatives. If the last batch of an epoch is smaller, it is not\n"
        "part of the recorded step and needs additional memory; the full-softmax steps above were measured without\n"
        f"it. The fit is tested on a held-out size: {held['entities']:,} entities, 2L = {held['dimension']}, half "
        "the batch.\n\n"
        + markdown(
            ["objective", "quantity", "fitted sizes", "max. error of the fit", "error on the held-out size"], errors
        )
        + f"\nFull softmax with 2L > {MAX_FITTED_DIMENSION} uses a slower code path with logits in memory and is not "
        "fitted.\n\n![Cost by entities, triples and dimension, and memory](images/scaling.png)\n\n"
        "*Points are measurements, lines are the fitted model. Each panel shows only sizes that differ in its axis.*\n"
    )


def fitting_part(content: Row) -> str:
    rows = [[name, *(f"{max_entities(content, objective, memory) / 1e6:.0f} million" for objective in OBJECTIVES)]
            for name, memory in GPUS.items()]  # fmt: skip
    return (
        "## What fits on one device\n\n"
        "Number of entities at 2L = 256 according to the model, with the batch sizes above and a tenth of the memory\n"
        "free. Half the dimension allows twice the entities.\n\n" + markdown(["GPU memory", *OBJECTIVES.values()], rows)
    )


def prediction_part(content: Row) -> str:
    rows = []
    for cluster in CLUSTERS:
        for objective, name in OBJECTIVES.items():
            found = predict(content, objective, cluster)
            rows.append(
                [cluster.name, name, f"{found['batch']:,}", f"{found['gib']:.0f} GiB",
                 f"{found['sent'] / 2**20:,.0f} MiB", duration(found["epoch"]), f"{found['network']:.0%}"]
            )  # fmt: skip
    header = ["devices", "objective", "batch", "memory per device", "all-reduce per step", "epoch", "network share"]
    return (
        "## 86 million entities\n\n"
        f"The model's prediction for a graph of the size of Freebase ({FREEBASE['entities']:,} entities, "
        f"{FREEBASE['triples']:,} triples,\n2L = {FREEBASE['dimension']}) on H200 GPUs. **These values are predicted, "
        "not measured**; only one GPU was available.\n\nEach device keeps its entity rows and their optimiser state. "
        "Queries and their gradients are all-reduced over all\ndevices as float32 [queries, 2L], and full softmax adds "
        "one log-sum-exp per query. Sampled training exchanges them from\ndevice to device, which is about half of the "
        "volume. The prediction assumes:\n\n"
        f"- all-reduce at {NVLINK / 1e9:.0f} GB/s per GPU within a machine and {NETWORK / 1e9:.0f} GB/s per machine "
        "between machines (a 400 Gb/s network);\n"
        "- no overlap of communication and computation;\n"
        "- all triples on every device, and evenly partitioned work;\n"
        "- steps as fast as the recorded steps of one device. Several processes do not record their steps yet, which\n"
        "  slows down small steps.\n\n"
        + markdown(header, rows)
        + "\nAt this size neither objective fits on one H200; both fit on eight. Full softmax is compute-bound and\n"
        "scales with the number of GPUs. Sampled training is network-bound as soon as a network is involved.\n"
    )


def processes_part() -> str:
    """Return the section with all results/scale-processes*.json files."""
    parts = []
    for path in sorted(RESULTS.glob("scale-processes*.json")):
        content = read(path.stem)
        assert content is not None
        rows = [
            [name, f"{r['batch_size']:,}", r["dimension"], r["processes"], f"{r['seconds']:.3f} s", f"{r['times']:.2f}"]
            for name, found in content["workloads"].items()
            for r in found
        ]
        kernels = "compiled" if next(iter(content["workloads"].values()))[0]["compiled"] else "not compiled"
        parts.append(
            f"On {content['environment']['cpu']}, {kernels}:\n\n"
            + markdown(["workload", "batch", "2L", "processes", "epoch", "speed-up"], rows)
            + "\n" + source(content, path.stem)
        )  # fmt: skip
    if not parts:
        return ""
    return (
        "## Several processes on one CPU\n\n"
        "Epochs of `torchrun --nproc-per-node N -m dihedral train` with one thread per process, connected by gloo\n"
        "over the loopback network; the fastest of six epochs. The processes communicate three times per step, and\n"
        "gloo takes about the same time for any message size. Several processes are faster only if steps are large.\n"
        "On one machine without GPUs, prefer one process with as many threads.\n\n" + "\n\n".join(parts)
    )


INTRODUCTION = """# Scaling

*`python -m benchmarks.scale --page` generates this page from measured values.*

The objective determines the cost of a run.

- **Full softmax** (`objective = "softmax"`) compares each query with all entities: time grows with triples × entities ×
  dimension. The recipes under `best/` use it. It is affordable up to a few hundred thousand entities on any hardware,
  and up to millions on one large GPU with batches of ten thousand triples or more. The full logits are never in memory.
- **Sampled** (`objective = "logistic"`) compares each positive with `negatives` negatives: time grows with triples ×
  negatives × dimension and does not depend on the number of entities. For large graphs set `share_negatives`: this many
  positives share one set of negatives, so that scores are matrix products.

Both keep the entity table and Adagrad's sums on the device, at 8 bytes per value. Full softmax also keeps a gradient of
the entire table and a half-precision copy, at 6 more bytes. If this exceeds one device, `torchrun` partitions the rows
over several:

```console
torchrun --nproc-per-node 8 --max-restarts 3 -m dihedral train mine.tsv --out out/mine
```

Processes use GPUs through NCCL, or CPUs through gloo (`--device cpu`). The losses equal those of one process up to the
order of additions, and the model folder is the one that a single process writes. With `--max-restarts`, torchrun
restarts all processes if one dies; they resume from the last checkpoint, which is written once per minute
(`--checkpoint-minutes`). `--resume` works with any number of processes, including one. Several machines need a shared
folder, and restarts there need `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` in the environment of torchrun. Every process
reads the complete graph. `component_weight` and `adversarial` require a single process.

For large graphs, `validate_on = 5000` in a recipe ranks only that many validation triples, and
`dihedral evaluate MODEL --sample 5000` reports metrics of a sample with their standard error.
"""

ANSWERING = """## Answering queries

Top-k and ranking process the table in tiles of `memory_mb`. Larger tiles are faster on a GPU, because the table is read
once per tile. For millions of entities on a CPU, `dihedral.predict.neighbours.NearestAnswers` uses a faiss index. A
model folder can be stored in half precision and in shards (`predictor.save(folder, dtype="float16", shard_mb=512)`).

[Performance](performance.md) has measured times for smaller graphs on a CPU and on a GPU.
"""


def one_machine_part() -> str:
    content = read("big-graph")
    if content is None:
        return ""
    reading = [
        [row["from"], f"{row['seconds']:.0f} s", f"{row['peak_mb']:.0f} MB", f"{row['final_mb']:.0f} MB",
         f"{row['peak_to_final']:.2f}"]
        for row in content["reading"]
    ]  # fmt: skip
    opening = [
        [f"{row['entities']:,}", f"{row['folder_mb']:,} MB", f"{row['seconds_to_open']:.3f} s",
         f"{row['resident_outside_files_mb']:.0f} MB", f"{row['seconds_to_first_prediction']:.2f} s"]
        for row in content["opening"]
    ]  # fmt: skip
    return (
        "## Reading and opening\n\n"
        "Text is read block by block, with a peak of less than 2.5 times the memory of the graph (20.6 million\n"
        "triples, 4.6 million names):\n\n"
        + markdown(["source", "time", "peak memory", "memory of the graph", "ratio"], reading)
        + "\nAn opened model stays in its files: names are looked up there, and rows are read on demand. Importing\n"
        f"the library takes {content['seconds_to_import_beyond_torch']:.2f} s in addition to importing torch.\n\n"
        + markdown(["entities", "folder", "time to open", "memory outside the files", "first prediction"], opening)
        + "\n" + source(content, "big-graph")
    )  # fmt: skip


def page() -> None:
    content = read("scale")
    if content is None:
        raise SystemExit("results/scale.json is missing; run python -m benchmarks.scale first")
    parts = [INTRODUCTION, measured_part(content), model_part(content), fitting_part(content), prediction_part(content),
             processes_part(), one_machine_part(), ANSWERING]  # fmt: skip
    (DOCS / "scaling.md").write_text("\n".join(part for part in parts if part), encoding="utf-8")


# --- the figure ------------------------------------------------------------------------------------


def plots() -> None:
    content = read("scale")
    if content is None:
        raise SystemExit("results/scale.json is missing; run python -m benchmarks.scale first")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

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
    figure.savefig(DOCS / "images" / "scaling.png", dpi=130)


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
