"""What a target writes: its numbers as JSON, a section of Markdown, and its pictures; and the page of all of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from dihedral.errors import DihedralError
from dihedral.io.files import make_folder, read_json, write_json
from dihedral.io.jsonl import read_lines
from dihedral.reproduction.paper import NAMES, TABLES
from dihedral.reproduction.plan import FRAME, SYMMETRY, TARGETS, frame, plan
from dihedral.reproduction.runs import TRAIN_SAMPLE, Record, find_record
from dihedral.reproduction.tables import METRICS, OURS, markdown, share, table_markdown, table_rows


@dataclass(frozen=True)
class Found:
    """The records a target stands on, and where its files go."""

    results: Path
    folder: Path
    seeds: int
    quick: bool

    def records(self, target: str) -> dict[str, list[Record]]:
        """By recipe, in the order of seeds."""
        groups: dict[str, list[Record]] = defaultdict(list)
        for run in plan(target, self.seeds, quick=self.quick):
            record = find_record(run, self.results / "runs")
            if record is not None:
                groups[run.recipe.name.removeprefix("quick-")].append(record)
        return dict(groups)


@dataclass
class Section:
    title: str
    text: str
    content: Any
    pictures: list[Path] = field(default_factory=list)

    def body(self, where: str) -> str:
        """The text, and the picture below it where one was drawn; `where` is the way to it from the page."""
        shown = [path for path in self.pictures if path.suffix == ".png"]
        return "\n".join([self.text, *(f"![{self.title}]({where}{path.name})\n" for path in shown)])


def write_target(target: str, results: Path, out: Path, *, seeds: int = 3, quick: bool = False) -> list[Path]:
    """Write TARGET.json, TARGET.md and the pictures of a target into `out`."""
    return _write(_section(target, results, out, seeds, quick), target, out, quick)


def _section(target: str, results: Path, out: Path, seeds: int, quick: bool) -> Section:
    make_folder(out)
    return SECTIONS[target](Found(results, out, seeds, quick), target)


def _write(section: Section, target: str, out: Path, quick: bool) -> list[Path]:
    numbers, text = out / f"{target}.json", out / f"{target}.md"
    write_json(numbers, {"target": target, "quick": quick, "content": section.content})
    warning = "*A quick run: it shows that everything works, not how good it is.*\n\n" if quick else ""
    text.write_text(f"# {section.title}\n\n{warning}{section.body('')}", encoding="utf-8")
    return [text, numbers, *section.pictures]


def write_page(results: Path, path: Path, *, seeds: int = 3) -> Path:
    """One page of all targets; their files are in a folder beside it."""
    folder = files_of(path)
    parts = [INTRODUCTION, _overview(results, seeds), _findings(results, seeds)]
    for target in TARGETS:
        section = _section(target, results, folder, seeds, False)
        _write(section, target, folder, False)
        parts.append(f"## {section.title}\n\n{section.body(f'{folder.name}/')}")
    parts += [DIFFERENCES, _costs(results)]
    path.write_text("\n".join(part for part in parts if part), encoding="utf-8")
    return path


def files_of(page: Path) -> Path:
    """The folder of a page's pictures and tables."""
    return page.with_name(f"{page.stem}-files")


INTRODUCTION = """# Results

This page is made from the records under `results/` by `dihedral reproduce all --no-train --page docs/results.md`; no
measured figure in its tables is typed by hand. Without `--no-train` the same command trains what is missing first.

Protocol: filtered ranking of both sides among all entities, known answers of train, valid and test left out, realistic
ties, all test triples. "Seen only" leaves out test triples with an entity that training never saw. Settings and epochs
are chosen on valid; test is reported. Several seeds are given as mean ± standard deviation. Seconds are those of a
whole run (training, validation, ranking); where runs shared the GPU, the table says how many stood beside.
"""

DIFFERENCES = """## What differs from the paper, and why

- **λ.** The paper does not say how λ‖Θ‖² is averaged. We read it as λ·½(‖h‖² + ‖t‖²) a positive triple. The few runs
  that were made inside its grid stand in the tables; those of Gumbel (λ ≤ 0.001, learning rate 0.5 or 1) ended far
  lower and were not trained to a plateau. Our Gumbel recipes leave that grid, with a learning rate of their own for the
  relations. WN18RR's settings come from an earlier prototype's search on valid, FB15k's D4-STE is the
  first setting that was tried, the others come from `results/search`.
- **Temperature.** τ = max(0.5, 3·exp(-0.001·epoch)) needs over a thousand epochs to cool; ours cool faster.
- **Entities that training never saw.** Some of WN18RR's test triples have one. The paper does not say whether it keeps
  them; our headline does, and the other figure stands beside it.
- **Ties** are counted half (realistic rank). Gumbel noise is left out at evaluation.
- **Best recipes** leave the paper's objective for cross-entropy over all entities, and its dimensions, but not its
  model: one entity table, no biases, no codes of their own for reciprocal relations, K at most 16, 2L at most 2000, at
  most one factor a relation.
- **The same frame** is one setting of everything for all models: one weight of the regulariser a graph and objective,
  one seed, the epochs that the tables say; only Gumbel's logits have a higher learning rate and TransE no regulariser.
  It compares models at 2L = 200 under equal training, not at their best. Under the paper's objective λ holds the
  entities only, so models with free relation weights can grow around it and relations of D4 cannot. RESCAL has 2L
  numbers a relation for each one of the others.
- **YAGO3-10** was not run: its data could not be had. Its recipes exist, and their code path was run on a generated
  graph of its size (`results/yago-size.json`).
"""


# --- tables ------------------------------------------------------------------------------------


def _table(found: Found, target: str) -> Section:
    rows = table_rows(target, found.results, seeds=found.seeds, quick=found.quick)
    number = target[-1]
    title = f"Table {number}: {', '.join(TABLES[target])}"
    return Section(title, table_markdown(target, rows), rows)


def _overview(results: Path, seeds: int) -> str:
    """The best figure of each kind, a row a benchmark."""
    lines = []
    for target in TABLES:
        rows = [row for row in table_rows(target, results, seeds=seeds) if row["group"] == OURS]
        for graph in TABLES[target]:
            here = [row for row in rows if row["graph"] == graph]
            paper = max(row["paper"]["mrr"] for row in here if "paper" in row)
            cells = [graph, f"{paper:.3f}"]
            for kind in ("paper's objective", "best recipe"):
                measured = [row for row in here if row["kind"] == kind and "test" in row]
                if not measured:
                    cells += ["not run", ""]
                    continue
                best = max(measured, key=lambda row: row["valid_mrr"])
                cells += [f"{best['test']['mrr']:.4f} ({best['model']}, {_counted(len(best['seeds']), 'seed')})"]
                cells += [share(best["test_seen_only"]["mrr"])]
            lines.append(cells)
    header = ["test MRR", "paper's best", "paper's objective, ours", "seen only", "best recipe, ours", "seen only"]
    return markdown(header, lines)


def _findings(results: Path, seeds: int) -> str:
    """In words: what was reached of the paper's figures, and where D4 stands among the models of one frame."""
    lines = []
    for target in TABLES:
        rows = table_rows(target, results, seeds=seeds)
        for row in rows:
            if row["group"] == OURS and "paper" in row and "test" in row:
                ours, paper = row["test"]["mrr"], row["paper"]["mrr"]
                word = "reached" if ours >= paper - 0.0005 else "not reached"
                figures = f"{ours:.4f} against {paper:.3f}, {word} ({ours - paper:+.3f})"
                lines.append(f"- {row['graph']}, {row['model']}, the paper's objective: {figures}.")
        for graph in TABLES[target]:
            for objective in FRAME:
                frame_rows = [r for r in rows if r["graph"] == graph and r["kind"] == f"same frame, {objective}"]
                measured = sorted((r for r in frame_rows if "test" in r), key=lambda r: -r["test"]["mrr"])
                if len(measured) < len(frame_rows) or not measured:
                    continue
                place = 1 + next(i for i, row in enumerate(measured) if row["model"] == "D4-Gumbel")
                first = f"{measured[0]['model']} is first with {measured[0]['test']['mrr']:.4f}"
                lines.append(
                    f"- {graph}, all models in one frame, {objective}: D4-Gumbel is number {place} of {len(measured)}; "
                    f"{first}."
                )
    return "\n".join(lines) + "\n"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


# --- figures -----------------------------------------------------------------------------------


def _figure1(found: Found, target: str) -> Section:
    text = "The elements of D4 acting on a square with labelled corners: four rotations and four reflections.\n"
    return Section("Figure 1: the elements of D4", text, None, _draw("figure1", found.folder))


def _figure2(found: Found, target: str) -> Section:
    records = found.records(target)
    pictured: dict[str, list[dict[str, Any]]] = {}
    content: dict[str, Any] = {"pairs": {}, "models": []}
    lines = []
    for graph, recipe in (("WN18", "case/wn18-d4-gumbel"), ("FB15k", "paper/fb15k-d4-gumbel")):
        runs = records.get(recipe, [])
        if not runs:
            continue
        rows = []
        for row in runs[0]["studies"]["inverses"]:
            same = [_same_relations(run["studies"]["inverses"], row) for run in runs]
            means = {key: mean(each[key] for each in same) for key in ("share", "ones")}
            rows.append({**row, **means, "seeds": len(runs)})
        pictured[graph] = rows
        content["pairs"][graph] = rows
        lines += [[graph, *(f"`{name}`" for name in row["relations"]), row["support"], share(row["share"]),
                   share(row["ones"]), row["seeds"]] for row in rows]  # fmt: skip
        lines.append([graph, "**mean**", "", "", share(mean(row["share"] for row in rows)),
                      share(mean(row["ones"] for row in rows)), len(runs)])  # fmt: skip
    text = (
        "The share of components whose block of R₁R₂ is the identity (chance 1/8), and the share of ones on the\n"
        "diagonal, which the paper counts (chance 1/4); mean over seeds, histograms of the first.\n\n"
        + markdown(["graph", "r₁", "r₂", "support", "identity blocks", "ones", "seeds"], lines)
    )
    models = _inverses_of_models(found)
    if models:
        content["models"] = models
        text += (
            "\nThe same pairs of WN18 in all bilinear models of the same frame. Cosine: of R₁R₂ with the identity, 1\n"
            "for a multiple of it. Diagonality: the share of the squared entries on the diagonal. Spread: standard\n"
            "deviation of the diagonal over its mean. The paper says that products of other models are near diagonal\n"
            "but not the identity. HolE's matrices are circulant, so its spread says nothing.\n\n"
            + markdown(
                ["model", "objective", "cosine", "diagonality", "spread"],
                [[m["model"], m["objective"], *(share(m[k]) for k in ("cosine", "diagonality", "spread"))]
                 for m in models],
            )
        )  # fmt: skip
    pictures = _draw("figure2", found.folder, pictured) if pictured else []
    return Section("Figure 2: inverse pairs", text, content, pictures)


def _inverses_of_models(found: Found) -> list[dict[str, Any]]:
    rows = []
    for objective in ("logistic", "softmax"):
        for run in frame("WN18", objective):
            record = find_record(run, found.results / "runs")
            if record is not None and "inverses" in record["studies"]:
                pairs = record["studies"]["inverses"]
                means = {key: mean(pair[key] for pair in pairs) for key in ("cosine", "diagonality", "spread")}
                rows.append({"model": NAMES[run.recipe.model], "objective": objective, **means})
    return rows


def _figure3(found: Found, target: str) -> Section:
    records = found.records(target)
    content: dict[str, Any] = {}
    lines = []
    for name, recipe in SYMMETRY.items():
        runs = records.get(recipe, [])
        if not runs:
            continue
        row = {
            "symmetric_in_symmetric": _mean_of(runs, "symmetric", "symmetry"),
            "skew_in_skew": _mean_of(runs, "skew", "skewness"),
            "skew_in_skew_by_facts": _mean_of(runs, "skew", "skewness", by_facts=True),
            "test_mrr": mean(run["test"]["both"]["mrr"] for run in runs),
            "seeds": [run["seed"] for run in runs],
            "relations": [run["studies"]["symmetry"] for run in runs],
        }
        content[name] = row
        shares = [share(row[key]) for key in ("symmetric_in_symmetric", "skew_in_skew", "skew_in_skew_by_facts")]
        lines.append([name, *shares, f"{row['test_mrr']:.4f}", len(runs)])
    text = (
        "Components of symmetric relations that are symmetric elements, components of definitely skew-symmetric\n"
        "relations in O₄⁽¹⁾ and O₄⁽³⁾ (chance 1/4; mean over relations and seeds), and WN18's test MRR, without and\n"
        "with the extra negatives (t, r, h). One extra negative weights little beside ten others and much beside one;\n"
        "the picture shows the latter.\n\n"
        + markdown(["training", "symmetric: symmetric", "skew: skew", "the same by facts", "test MRR", "seeds"], lines)
    )
    shown = [content[name]["relations"][0] for name in ("1 negative", "1 negative, skew") if name in content]
    pictures = _draw("figure3", found.folder, *shown) if len(shown) == 2 else []
    return Section("Figure 3: symmetry and skew-symmetry on WN18", text, content, pictures)


def _mean_of(runs: Iterable[Record], kind: str, key: str, *, by_facts: bool = False) -> float:
    """Mean over the relations of a kind, each alike or each by its training facts."""
    rows = [row for run in runs for row in run["studies"]["symmetry"] if row["kind"] == kind]
    weights = [row["triples"] if by_facts else 1 for row in rows]
    return sum(w * row[key] for w, row in zip(weights, rows, strict=True)) / sum(weights) if rows else math.nan


def _figure4(found: Found, target: str) -> Section:
    records = found.records(target)
    titles = {
        "case/family-1-d4-gumbel": "FAMILY, one parent a person",
        "case/family-2-d4-gumbel": "FAMILY, two parents a person",
        "paper/fb15k-237-d4-gumbel": "FB15k-237, D4-Gumbel",
        "best/fb15k-237-d8-gumbel": "FB15k-237, D8-Gumbel",
    }
    pictured, content, lines = {}, {}, []
    for recipe, title in titles.items():
        runs = records.get(recipe, [])
        if not runs:
            continue
        if runs[0]["recipe"]["K"] == 4:  # larger groups have too many values for such a picture
            pictured[title] = runs[0]["studies"]["compositions"]
        rows = []
        for row in runs[0]["studies"]["compositions"]:
            same = [_same_relations(run["studies"]["compositions"], row) for run in runs]
            right, swapped = (mean(each[order]["share"] for each in same) for order in ("right", "swapped"))
            rows.append({"relations": row["relations"], "right": right, "swapped": swapped, "seeds": len(runs)})
            ratio = f"{right / swapped:.2f}" if swapped else ""
            names = [f"`{name}`" for name in row["relations"]]
            held = [row.get("support", ""), share(row.get("confidence"))]
            lines.append([title, *names, *held, share(right), share(swapped), ratio, len(runs)])
        content[title] = rows
    text = (
        "The share of components in which R₁R₂R₃⁻¹ is the identity, in the right order and with r₁ and r₂ swapped;\n"
        "mean over seeds, histograms of the first; chance is 1/8 in D4 and 1/16 in D8. On FB15k-237: the best\n"
        "supported chains with three different relations and standard confidence of at least one half in training.\n"
        "Chance is also what a rule shows that the codes do not hold.\n\n"
        + markdown(["graph", "r₁", "r₂", "r₃", "support", "confidence", "right", "swapped", "ratio", "seeds"], lines)
    )
    pictures = _draw("figure4", found.folder, pictured) if pictured else []
    return Section("Figure 4: compositions", text, content, pictures)


def _same_relations(rows: Iterable[dict[str, Any]], wanted: dict[str, Any]) -> dict[str, Any]:
    """The row of another seed about the same relations."""
    return next(row for row in rows if row["relations"] == wanted["relations"])


def _discreteness(found: Found, target: str) -> Section:
    panels: dict[str, dict[str, Any]] = defaultdict(dict)
    lines = []
    for runs in found.records(target).values():
        record = runs[0]
        weight = record["recipe"]["regulariser_weight"]
        panel = f"{record['graph']}, {f'L2 {weight:g}' if weight else 'no regulariser'}"
        best = max(range(len(record["curve"])), key=lambda i: record["curve"][i][2])
        panels[panel][record["recipe"]["model"]] = {
            "epochs": [epoch for epoch, _, _ in record["curve"]],
            "valid": [valid for _, _, valid in record["curve"]],
            "train": record["train_curve"],
        }
        lines.append(
            [panel, record["recipe"]["model"], f"{record['curve'][best][2]:.4f}", record["curve"][best][0],
             f"{record['train_curve'][best]:.3f}", f"{record['train_curve'][best] - record['curve'][best][2]:.3f}",
             f"{record['curve'][-1][2]:.4f}", f"{record['test']['both']['mrr']:.4f}"]
        )  # fmt: skip
    header = ["training", "model", "best valid MRR", "at epoch", "train MRR then", "gap", "last valid MRR", "test MRR"]
    text = (
        "D4, its rotations alone, and continuous O(2) (any angle, and a reflection) under one and the same training:\n"
        f"full softmax, one seed. Train MRR is of {TRAIN_SAMPLE} training triples, ranked like the others. The\n"
        "paper argues that discrete relations regularise: they would then have the smaller gap and, without a\n"
        "regulariser, the higher valid MRR.\n\n" + markdown(header, sorted(lines))
    )
    pictures = _draw("discreteness", found.folder, panels) if panels else []
    return Section("Does discreteness regularise?", text, panels, pictures)


def _small(found: Found, target: str) -> Section:
    lines, remark = [], ""
    for name, runs in found.records(target).items():
        means = [mean(run["test"]["both"][key] for run in runs) for key in METRICS]
        lines.append([runs[0]["graph"], f"D4-Gumbel (`{name}`)", *map(share, means), len(runs)])
    path = found.results / "neural.json"
    if path.exists():
        content = read_json(path)
        remark = f" {content['note']}"
        for row in content["rows"]:
            means = [mean(run["test"][key] for run in row["runs"]) for key in METRICS]
            note = f"; {row['note']}" if row.get("note") else ""
            lines.append([row["graph"], f"{row['model']} (PyKEEN{note})", *map(share, means), len(row["runs"])])
    text = (
        "ConvE and R-GCN were trained through PyKEEN (`python -m benchmarks.neural`, `results/neural.json`) with the\n"
        f"same splits and protocol.{remark} MINERVA's figures in Table 4 are quoted from the paper.\n\n"
        + markdown(["graph", "model", "MRR", "Hits@1", "Hits@3", "Hits@10", "seeds"], sorted(lines))
    )
    return Section("Beside ConvE and R-GCN on small graphs", text, lines)


SECTIONS: dict[str, Callable[[Found, str], Section]] = {
    "table3": _table,
    "table4": _table,
    "figure1": _figure1,
    "figure2": _figure2,
    "figure3": _figure3,
    "figure4": _figure4,
    "discreteness": _discreteness,
    "small": _small,
}


def _draw(name: str, folder: Path, *content: Any) -> list[Path]:
    try:
        from dihedral.figures import paper
    except ModuleNotFoundError:
        raise DihedralError("figures need matplotlib: pip install 'dihedral[plots]'") from None
    drawn: list[Path] = getattr(paper, name)(*content, folder)
    return drawn


def _costs(results: Path) -> str:
    groups: dict[str, list[float]] = defaultdict(list)
    for path in sorted((results / "runs").rglob("*.json")):
        groups[path.parent.name].append(read_json(path)["train_seconds"])
    for log in sorted((results / "search").glob("*.jsonl")):
        groups["searches"] += [row["train_seconds"] for row in read_lines(log) if "train_seconds" in row]
    if not groups:
        return ""
    lines = [[name, len(seconds), f"{sum(seconds):.0f}", f"{max(seconds):.0f}"] for name, seconds in groups.items()]
    return (
        "## What it cost\n\n"
        "Seconds of training as each run saw them; runs that shared a GPU each count their whole time.\n\n"
        + markdown(["runs", "number", "training seconds, sum", "longest"], lines)
    )
