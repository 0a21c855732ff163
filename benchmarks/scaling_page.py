"""docs/scaling.md and its figure from results/scale.json: the fitted model of cost and memory, and what it predicts.

`python -m benchmarks.scale --plots --page` calls this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from benchmarks.record import RESULTS
from benchmarks.report import DOCS, read, source
from dihedral.reproduction.tables import markdown

Row = dict[str, Any]
OBJECTIVES = {"softmax": "full softmax", "logistic": "sampled"}
GOALS = {"softmax": 15 * 60, "logistic": 20, "ranking": 5}  # what one H200 was asked to reach, in seconds
WIDEST = 256  # rows of full softmax that fit into registers; wider ones take another path and are not fitted
FREEBASE = {"entities": 86_054_151, "triples": 338_586_276, "dimension": 256}
NVLINK, NETWORK = 300e9, 40e9  # bytes a second that an all-reduce reaches: a GPU in a machine, a machine in a network
GPUS = {"24 GB": 24e9, "48 GB": 48e9, "80 GB": 80e9, "H200, 141 GB": 141e9}


# --- the model -------------------------------------------------------------------------------------


def queries(row: Row) -> float:
    """Rows multiplied with candidates in a step: full softmax asks both sides."""
    return row["batch_size"] * (2 if row["objective"] == "softmax" else 1)


def last_batch(row: Row) -> float:
    """How full an epoch's last batch is, if it was measured: it needs memory beside that of the recorded step."""
    whole = row["steps_measured"] * row["batch_size"] >= row["triples"]
    return row["triples"] / row["batch_size"] % 1 if whole else 0.0


def uses(row: Row) -> float:
    """Entity rows that a sampled step reads and updates."""
    chunks = np.ceil(row["batch_size"] / row["share_negatives"])
    return 2 * row["batch_size"] + chunks * row["negatives"]


LAST = "{}, for a smaller last batch"
Term = tuple[str, Callable[[Row], float]]
SECONDS: dict[str, list[Term]] = {
    "softmax": [
        ("queries × entities × dimension", lambda r: queries(r) * r["entities"] * r["dimension"]),
        ("queries × entities", lambda r: queries(r) * r["entities"]),
        ("entities × dimension", lambda r: r["entities"] * r["dimension"]),
        ("one step", lambda r: 1.0),
    ],
    "logistic": [
        ("batch × negatives × dimension", lambda r: r["batch_size"] * r["negatives"] * r["dimension"]),
        ("batch × negatives", lambda r: r["batch_size"] * r["negatives"]),
        ("rows in use × dimension", lambda r: uses(r) * r["dimension"]),
        ("one step", lambda r: 1.0),
    ],
}
BYTES: dict[str, list[Term]] = {
    "softmax": [
        ("entities × dimension", lambda r: r["entities"] * r["dimension"]),
        ("triples", lambda r: r["triples"]),
        ("queries × dimension", lambda r: queries(r) * r["dimension"]),
        ("whatever the size", lambda r: 1.0),
        (LAST.format("entities × dimension"), lambda r: np.ceil(last_batch(r)) * r["entities"] * r["dimension"]),
    ],
    "logistic": [
        ("entities × dimension", lambda r: r["entities"] * r["dimension"]),
        ("triples", lambda r: r["triples"]),
        ("batch × negatives", lambda r: r["batch_size"] * r["negatives"]),
        ("rows in use × dimension", lambda r: uses(r) * r["dimension"]),
        ("whatever the size", lambda r: 1.0),
        (LAST.format("batch × negatives"), lambda r: last_batch(r) * r["batch_size"] * r["negatives"]),
    ],
}


@dataclass(frozen=True)
class Fit:
    """A sum of terms with coefficients of 0 or more, fitted so that relative errors are small."""

    terms: list[Term]
    coefficients: np.ndarray
    errors: np.ndarray  # relative, of the rows it was fitted to

    @classmethod
    def of(cls, terms: list[Term], rows: list[Row], measured: Callable[[Row], float]) -> Fit:
        target = np.array([measured(row) for row in rows])
        design = np.array([[value(row) for _, value in terms] for row in rows]) / target[:, None]
        size = design.max(0)  # terms of like size: the solver stops by an absolute bound
        coefficients = nnls(design / size, np.ones(len(rows)))[0] / size
        return cls(terms, coefficients, design @ coefficients - 1)

    def __call__(self, row: Row) -> float:
        return float(sum(c * value(row) for c, (_, value) in zip(self.coefficients, self.terms, strict=True)))


def measured_rows(content: Row) -> list[Row]:
    return [*content["softmax"], *content["sampled"], *content["growth"]]


def fitted(row: Row) -> bool:
    return not row.get("held_back") and (row["objective"] == "logistic" or row["dimension"] <= WIDEST)


def fits(content: Row) -> dict[str, tuple[Fit, Fit]]:
    """Seconds a step and bytes of memory of both objectives, from all rows but those held back."""
    found = {}
    for objective in OBJECTIVES:
        rows = [r for r in measured_rows(content) if r["objective"] == objective and fitted(r)]
        found[objective] = (
            Fit.of(SECONDS[objective], rows, lambda r: r["seconds_a_step"]),
            Fit.of(BYTES[objective], rows, lambda r: r["peak_gib"] * 2**30),
        )
    return found


def setting(content: Row, objective: str, **changes: Any) -> Row:
    """The settings of the full-size run with others in place of some, as a whole epoch has them."""
    row = {**content["softmax" if objective == "softmax" else "sampled"][0], **changes}
    return {**row, "steps_measured": np.ceil(row["triples"] / row["batch_size"])}


# --- predictions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    name: str
    machines: int
    gpus: int  # a machine

    @property
    def devices(self) -> int:
        return self.machines * self.gpus

    def all_reduce(self, size: float) -> float:
        """Seconds to add up `size` bytes over all devices: within machines, then between them."""

        def ring(count: int, rate: float) -> float:
            return 2 * (count - 1) / count * size / rate

        return ring(self.gpus, NVLINK) + ring(self.machines, NETWORK)


CLUSTERS = [
    Cluster("8 GPUs in one machine", 1, 8),
    Cluster("8 machines with a GPU each", 8, 1),
    Cluster("8 machines with 8 GPUs each", 8, 8),
]


def predict(content: Row, objective: str, cluster: Cluster) -> Row:
    """Each device holds its share of the rows; queries and their gradients travel, log-sum-exps too."""
    seconds, memory = fits(content)[objective]
    devices = cluster.devices
    whole = setting(content, objective, **FREEBASE)
    if objective == "softmax":  # every device multiplies all queries with its own entities
        batch = whole["batch_size"]
        row = {**whole, "entities": whole["entities"] / devices}
        sent = [queries(row) * row["dimension"] * 4] * 2 + [queries(row) * 4]
    else:  # every device has its share of the batch's work
        batch = 8 * whole["batch_size"]
        row = {**whole, "entities": whole["entities"] / devices, "batch_size": batch / devices}
        row["share_negatives"] = min(row["share_negatives"], row["batch_size"])
        sent = [batch * row["dimension"] * 4] * 2
    step = seconds(row)
    network = sum(cluster.all_reduce(size) for size in sent)
    steps = FREEBASE["triples"] / batch
    held = memory(row) + 2 * batch * row["dimension"] * 4  # queries and gradients of the whole batch
    return {"batch": batch, "gib": held / 2**30, "sent": sum(sent), "epoch": steps * (step + network),
            "network": network / (step + network)}  # fmt: skip


def largest(content: Row, objective: str, memory: float) -> float:
    """Entities that fit a device with so many bytes, a tenth left free."""
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
    """The source line, with the commands of parts that were measured by another one."""
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
        steps = f"{row['steps_measured']} steps" if row["objective"] == "softmax" else "a whole epoch"
        rows.append([f"an epoch, {OBJECTIVES[row['objective']]}, {row['model']}", duration(row["epoch_seconds"]),
                     duration(GOALS[row["objective"]]), f"{row['triples_a_second']:,.0f} triples a second",
                     f"{row['peak_gib']:.1f} GiB", f"{steps}, batch {row['batch_size']:,}"])  # fmt: skip
    for row in content["ranking"]:
        rows.append([f"ranking {row['triples_ranked']:,} test triples, both sides", duration(row["seconds"]),
                     duration(GOALS["ranking"]), f"{2 * row['triples_ranked'] / row['seconds']:,.0f} ranks a second",
                     f"{row['peak_gib']:.1f} GiB", f"{row['memory_mb']:,} MiB of scores at a time"])  # fmt: skip
    for row in content["top"]:
        rows.append([f"top 10, {row['questions_at_once']:,} at once", f"{row['seconds'] * 1000:.1f} ms", "",
                     f"{row['questions_a_second']:,.0f} questions a second", "", ""])  # fmt: skip
    size, prepared = content["softmax"][0], content["ranking"][0]["preparation_seconds"]
    return (
        "## Measured at the size of Wikidata5M\n\n"
        f"A generated graph with {size['entities']:,} entities, {size['relations']} relations and {size['triples']:,} "
        f"training triples,\n2L = {size['dimension']}, on one GPU. Tails and relations are drawn by Zipf's law with "
        "exponent 1, heads with a mild skew:\nreal graphs have such rows that a large share of all triples meet. "
        "Full-softmax epochs are extrapolated from the steps\nnamed; their slowest and fastest tenth differ by "
        f"{size['slowest_block'] / size['fastest_block'] - 1:.1%}. The index of known answers that ranking needs took\n"
        f"{prepared:.0f} s more, once a graph.\n\n"
        + markdown(["task", "time", "goal", "rate", "GPU memory", "how"], rows)
        + f"\nThe three products of full softmax alone are {size['useful_tflops']:.0f} TFLOP/s at this speed; the "
        "logits never leave the registers, at the\nprice of a fourth product.\n\n" + made_by(content)
    )  # fmt: skip


def model_part(content: Row) -> str:
    found = fits(content)
    rows, errors = [], []
    for objective, pair in found.items():
        for fit, what, unit in zip(pair, ("seconds a step", "bytes"), ("s", "B"), strict=True):
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
        "Seconds of a step and bytes on the device are sums of a few terms, each a product of sizes with a\n"
        "coefficient of 0 or more, fitted to the measurements (least squares of relative errors).\n"
        "Terms that got 0 are left out.\n"
        "\n"
        + markdown(["objective", "of", "term", "coefficient"], rows)
        + "\nSteps an epoch are triples / batch. Full softmax asks two queries a triple, sampled training one; its\n"
        "rows in use are those of heads, tails and negatives. The last batch of an epoch, where it is smaller, is not\n"
        "part of the recorded step and takes memory of its own; the steps of full softmax above were measured without\n"
        f"it. The fit is checked on a size that was held back: {held['entities']:,} entities, "
        f"2L = {held['dimension']},\nhalf the batch.\n\n"
        + markdown(["objective", "of", "sizes fitted", "largest error there", "error at the size held back"], errors)
        + f"\nFull softmax with 2L > {WIDEST} takes a slower path with logits in memory and is not fitted.\n\n"
        "![Cost against entities, triples and dimension, and memory](images/scaling.png)\n\n"
        "*Points are measured, lines are the model. Left out of a panel: sizes that differ in more than its axis.*\n"
    )


def fitting_part(content: Row) -> str:
    rows = [[name, *(f"{largest(content, objective, memory) / 1e6:.0f} million" for objective in OBJECTIVES)]
            for name, memory in GPUS.items()]  # fmt: skip
    return (
        "## What fits on one device\n\n"
        "Entities at 2L = 256 with the batches above and a tenth of the memory left free, by the model; half the\n"
        "dimension, twice the entities.\n\n" + markdown(["GPU memory", *OBJECTIVES.values()], rows)
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
    header = ["devices", "objective", "batch", "memory a device", "all-reduced a step", "an epoch", "of it network"]
    return (
        "## 86 million entities\n\n"
        f"What the model predicts for a graph of Freebase's size ({FREEBASE['entities']:,} entities, "
        f"{FREEBASE['triples']:,} triples,\n2L = {FREEBASE['dimension']}) on H200s. **Predicted, not measured.** "
        "Entity rows and their optimiser state stay where they are;\nwhat travels are queries and their gradients, "
        "each all-reduced over all devices as float32 [queries, 2L], and for\nfull softmax a log-sum-exp a query "
        "(sampled training swaps them from device to device, about half of that). "
        f"Assumed: all-reduce at {NVLINK / 1e9:.0f} GB/s a GPU within a machine and {NETWORK / 1e9:.0f} GB/s a\n"
        "machine between machines (a 400 Gb/s network), no overlap with computing, all triples on every device,\n"
        "work shared evenly, and steps as fast as the recorded ones of one device: several processes do not record\n"
        "theirs yet, which small steps will feel. Never run on several GPUs: there was one.\n\n"
        + markdown(header, rows)
        + "\nNeither objective fits one H200 at this size; eight hold it with either. Full softmax is bound by\n"
        "arithmetic: more GPUs shorten it as they come. Sampled training is bound by the network as soon as there is\n"
        "one.\n"
    )


def processes_part() -> str:
    """Every file of processes that there is."""
    parts = []
    for path in sorted(RESULTS.glob("scale-processes*.json")):
        content = read(path.stem)
        assert content is not None
        rows = [
            [name, f"{r['batch_size']:,}", r["dimension"], r["processes"], f"{r['seconds']:.3f} s", f"{r['times']:.2f}"]
            for name, found in content["workloads"].items()
            for r in found
        ]
        kernels = "compiled" if next(iter(content["workloads"].values()))[0]["compiled"] else "without a compiler"
        parts.append(
            f"On {content['environment']['cpu']}, {kernels}:\n\n"
            + markdown(["workload", "batch", "2L", "processes", "an epoch", "times one process"], rows)
            + "\n" + source(content, path.stem)
        )  # fmt: skip
    if not parts:
        return ""
    return (
        "## Several processes on one CPU\n\n"
        "Epochs of `torchrun --nproc-per-node N -m dihedral train`, each process on one thread, joined by gloo over\n"
        "the loopback network; the fastest of six epochs. The processes meet three times a step, which takes gloo\n"
        "about as long whatever is sent: steps must be large for several processes to gain. On one machine without\n"
        "GPUs, one process with as many threads is the better choice.\n\n" + "\n\n".join(parts)
    )


INTRODUCTION = """# Scaling

*Made of measured figures by `python -m benchmarks.scale --page`.*

What decides the cost of a run is the objective.

- **Full softmax** (`objective = "softmax"`) compares each query with all entities: time grows with triples × entities ×
  dimension. The recipes under `best/` use it. It is affordable up to some hundred thousand entities anywhere, and for
  millions on one large GPU with batches of ten thousand triples or more. Logits are never held whole.
- **Sampled** (`objective = "logistic"`) compares with `negatives` a positive: time grows with triples × negatives ×
  dimension, whatever the number of entities. For large graphs set `share_negatives`: that many positives share one set
  of negatives, so that scores are products of matrices.

Both keep the entity table and Adagrad's sums on the device, 8 bytes a number; full softmax also a gradient of the whole
table and a half-precision copy, 6 bytes more. When that outgrows one device, `torchrun` shares the rows over several:

```console
torchrun --nproc-per-node 8 --max-restarts 3 -m dihedral train mine.tsv --out out/mine
```

Processes use GPUs through NCCL, or CPUs through gloo (`--device cpu`). The losses are those of one process up to the
order in which numbers are added, and the folder is the one that a single process writes. `--max-restarts` lets torchrun
start all of them again when one died; they go on from the last checkpoint, of which there is one a minute
(`--checkpoint-minutes`). `--resume` goes on with any number of processes, also one. Several machines need a folder that
all of them see, and `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` in torchrun's environment for restarts. Every process reads
the whole graph. `component_weight` and `adversarial` are for one process.

What else helps with large graphs: `validate_on = 5000` in a recipe ranks that many validation triples, and
`dihedral evaluate MODEL --sample 5000` shows figures of a sample with their standard error.
"""

ANSWERING = """## Answering

Top-k and ranking go through the table in tiles of `memory_mb`; on a GPU larger tiles are faster, as the table is read
once a tile. For millions of entities on a CPU, `dihedral.inference.neighbours.NearestAnswers` answers from an index through
faiss. A model folder can be stored in half precision and in shards
(`predictor.save(folder, dtype="float16", shard_mb=512)`).

[Performance](performance.md) has measured times of smaller graphs, on a CPU and on a GPU.
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
        "Text is read block by block, in less than two and a half times the memory that the graph takes\n"
        "(20.6 million triples, 4.6 million names):\n\n"
        + markdown(["from", "time", "memory at most", "memory of the graph", "ratio"], reading)
        + "\nA model stays in its files when it is opened: names are found there, rows are read when they are used.\n"
        f"Importing the library takes {content['seconds_to_import_beyond_torch']:.2f} s beyond torch.\n\n"
        + markdown(["entities", "folder", "to open", "memory beside the files", "first prediction"], opening)
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
    """Axis, what is drawn, and the rows that differ in that axis alone."""
    growth = [row for row in content["growth"] if not row.get("held_back")]
    full = [content["softmax"][0], content["sampled"][0]]
    entities = [row for row in growth if row["axis"] == "entities"]
    widest = max(row["entities"] for row in entities)
    dimension = [row for row in growth if row["axis"] == "dimension"]
    dimension += [row for row in entities if row["entities"] == widest]
    triples = [row for row in growth if row["axis"] == "triples"]
    return [
        ("entities", "seconds a million triples", [*entities, *full]),
        ("triples", "seconds an epoch", triples),
        ("dimension", "seconds a million triples", dimension),
        ("entities", "GiB", [*entities, *full]),
    ]


def _shown(row: Row, what: str) -> float:
    if what == "GiB":
        return float(row["peak_gib"])
    epoch = row["seconds_a_step"] * row["triples"] / row["batch_size"]
    return float(epoch if what == "seconds an epoch" else epoch / row["triples"] * 1e6)
