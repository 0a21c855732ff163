"""The section of each target: its text, its numbers and its figures, made from the records of runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from dihedral.errors import DihedralError
from dihedral.io.files import read_json
from dihedral.learn import Recipe
from paper.plan import COMPOSITIONS, SYMMETRY, plan, same_setup
from paper.reported import TABLES
from paper.runs import TRAIN_SAMPLE, Record, find_record
from paper.tables import METRICS, label, markdown, prose, share, short_table, table_markdown, table_rows


@dataclass(frozen=True)
class Sources:
    """Where the records of a target are read from, and where its figures are written to."""

    results: Path
    folder: Path
    seeds: int
    quick: bool

    def records(self, target: str) -> dict[str, list[Record]]:
        """Return the records of a target by recipe, in the order of the seeds."""
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
    figures: list[Path] = field(default_factory=list)
    short: str = ""  # the text on the results page, where it differs

    def body(self, prefix: str, *, short: bool = False) -> str:
        """Return the text and its figures; `prefix` is the path from the page to the folder of the figures."""
        shown = [path for path in self.figures if path.suffix == ".png"]
        text = self.short if short and self.short else self.text
        return "\n".join([text, *(f"![{self.title}]({prefix}{path.name})\n" for path in shown)])


def _table(sources: Sources, target: str) -> Section:
    rows = table_rows(target, sources.results, seeds=sources.seeds, quick=sources.quick)
    title = f"Table {target[-1]}: {', '.join(TABLES[target])}"
    return Section(title, table_markdown(target, rows), rows, short=short_table(rows))


def _figure1(sources: Sources, target: str) -> Section:
    return Section("Figure 1: the elements of D4", prose("figure1"), None, _draw("figure1", sources.folder))


def _figure2(sources: Sources, target: str) -> Section:
    records = sources.records(target)
    pairs: dict[str, list[dict[str, Any]]] = {}
    lines, means_only = [], []
    for graph, recipe in (("WN18", "case/wn18-d4-gumbel"), ("FB15k", "paper/fb15k-d4-gumbel")):
        if not (runs := records.get(recipe)):
            continue
        rows = pairs[graph] = []
        for row in runs[0]["studies"]["inverses"]:
            same = [_same_relations(run["studies"]["inverses"], row) for run in runs]
            means = {key: mean(each[key] for each in same) for key in ("share", "ones")}
            rows.append({**row, **means, "seeds": len(runs)})
        lines += [[graph, *(f"`{name}`" for name in row["relations"]), row["support"], share(row["share"]),
                   share(row["ones"]), row["seeds"]] for row in rows]  # fmt: skip
        overall = [share(mean(row[key] for row in rows)) for key in ("share", "ones")]
        lines.append([graph, "**mean**", "", "", *overall, len(runs)])
        means_only.append([graph, f"{len(rows)} pairs", "", "", *overall, len(runs)])
    text, short = prose("figure2", lines), prose("figure2", means_only)
    models = _inverses_of_models(sources)
    if models:
        measures = ("cosine", "diagonality", "spread")
        lines = [[row["model"], row["objective"], *(share(row[key]) for key in measures)] for row in models]
        text += prose("figure2-models", lines)
        cosines = {(row["model"], row["objective"]): share(row["cosine"]) for row in models}
        names, objectives = (list(dict.fromkeys(row[key] for row in models)) for key in ("model", "objective"))
        by_model = [[name, *(cosines.get((name, each), "") for each in objectives)] for name in names]
        short += prose("figure2-short", table=markdown(["model", *objectives], by_model))
    figures = _draw("figure2", sources.folder, pairs) if pairs else []
    return Section("Figure 2: inverse pairs", text, {"pairs": pairs, "models": models}, figures, short)


def _inverses_of_models(sources: Sources) -> list[dict[str, Any]]:
    rows = []
    for objective in ("logistic", "softmax"):
        for run in same_setup("WN18", objective):
            record = find_record(run, sources.results / "runs")
            if record is not None and "inverses" in record["studies"]:
                pairs = record["studies"]["inverses"]
                means = {key: mean(pair[key] for pair in pairs) for key in ("cosine", "diagonality", "spread")}
                rows.append({"model": label(run.recipe), "objective": objective, **means})
    return rows


def _figure3(sources: Sources, target: str) -> Section:
    records = sources.records(target)
    content: dict[str, Any] = {}
    lines = []
    for name, recipe in SYMMETRY.items():
        if not (runs := records.get(recipe)):
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
    text = prose("figure3", lines)
    shown = [content[name]["relations"][0] for name in ("1 negative", "1 negative, skew") if name in content]
    figures = _draw("figure3", sources.folder, *shown) if len(shown) == 2 else []
    return Section("Figure 3: symmetry and skew-symmetry on WN18", text, content, figures)


def _mean_of(runs: Iterable[Record], kind: str, key: str, *, by_facts: bool = False) -> float:
    """Return the mean over the relations of a kind, optionally weighted by their training facts."""
    rows = [row for run in runs for row in run["studies"]["symmetry"] if row["kind"] == kind]
    weights = [row["triples"] if by_facts else 1 for row in rows]
    return sum(w * row[key] for w, row in zip(weights, rows, strict=True)) / sum(weights) if rows else math.nan


def _figure4(sources: Sources, target: str) -> Section:
    records = sources.records(target)
    content: dict[str, Any] = {}
    drawn, lines, shortened = {}, [], []
    for recipe, title in COMPOSITIONS.items():
        if not (runs := records.get(recipe)):
            continue
        if runs[0]["recipe"]["K"] == 4:  # larger groups have too many values for the histograms
            drawn[title] = runs[0]["studies"]["compositions"]
        rows = content[title] = []
        for row in runs[0]["studies"]["compositions"]:
            same = [_same_relations(run["studies"]["compositions"], row) for run in runs]
            right, swapped = (mean(each[order]["share"] for each in same) for order in ("right", "swapped"))
            rows.append({"relations": row["relations"], "right": right, "swapped": swapped, "seeds": len(runs)})
            ratio = f"{right / swapped:.2f}" if swapped else ""
            names = [f"`{name}`" for name in row["relations"]]
            counts = [row.get("support", ""), share(row.get("confidence"))]
            lines.append([title, *names, *counts, share(right), share(swapped), ratio, len(runs)])
        if "FAMILY" in title:
            shortened += [
                [title, "{} · {} ⇒ {}".format(*row["relations"]), share(row["right"]), share(row["swapped"])]
                for row in rows
            ]
        else:  # the names of its relations are long
            overall = (share(mean(row[order] for row in rows)) for order in ("right", "swapped"))
            shortened.append([title, f"mean of {len(rows)} chains", *overall])
    text = prose("figure4", lines)
    short = prose("figure4-short", table=markdown(["graph", "rule", "right order", "swapped"], shortened))
    figures = _draw("figure4", sources.folder, drawn) if drawn else []
    return Section("Figure 4: compositions", text, content, figures, short)


def _same_relations(rows: Iterable[dict[str, Any]], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the row of another seed that has the same relations."""
    return next(row for row in rows if row["relations"] == wanted["relations"])


def _discreteness(sources: Sources, target: str) -> Section:
    panels: dict[str, dict[str, Any]] = defaultdict(dict)
    lines = []
    for runs in sources.records(target).values():
        record = runs[0]
        model, weight = record["recipe"]["model"], record["recipe"]["regulariser_weight"]
        panel = f"{record['graph']}, {f'L2 {weight:g}' if weight else 'no regulariser'}"
        epochs, train = [epoch for epoch, _, _ in record["curve"]], record["train_curve"]
        valid = [mrr for _, _, mrr in record["curve"]]
        panels[panel][model] = {"epochs": epochs, "valid": valid, "train": train}
        best = valid.index(max(valid))
        at_best = [f"{valid[best]:.4f}", epochs[best], f"{train[best] - valid[best]:.3f}"]
        lines.append([panel, model, *at_best, f"{record['test']['both']['mrr']:.4f}"])
    text = prose("discreteness", sorted(lines), sample=TRAIN_SAMPLE)
    models = dict.fromkeys(model for _, model, *_ in sorted(lines))
    cells = {(panel, model): f"{valid}, {gap}" for panel, model, valid, _, gap, _ in lines}
    rows = [[model, *(cells.get((panel, model), "") for panel in sorted(panels))] for model in models]
    table = markdown(["valid MRR, gap", *sorted(panels)], rows)
    short = prose("discreteness-short", table=table, sample=TRAIN_SAMPLE)
    figures = _draw("discreteness", sources.folder, panels) if panels else []
    return Section("Does discreteness regularise?", text, panels, figures, short)


def _small(sources: Sources, target: str) -> Section:
    lines, remark = [], ""
    for name, runs in sources.records(target).items():
        means = [mean(run["test"]["both"][key] for run in runs) for key in METRICS]
        model = label(Recipe.from_dict(runs[0]["recipe"]))
        lines.append([runs[0]["graph"], f"{model} (`{name}`)", *map(share, means), len(runs)])
    path = sources.results / "neural.json"
    if path.exists():
        content = read_json(path)
        remark = f" {content['note']}"
        for row in content["rows"]:
            means = [mean(run["test"][key] for run in row["runs"]) for key in METRICS]
            note = f"; {row['note'].split(',')[0]}" if row.get("note") else ""
            lines.append([row["graph"], f"{row['model']} (PyKEEN{note})", *map(share, means), len(row["runs"])])
    path = sources.results / "minerva.json"
    walkers: dict[str, list[Record]] = defaultdict(list)
    for row in read_json(path)["rows"] if path.exists() else []:
        walkers[row["graph"]].append(row)
    for graph, rows in walkers.items():
        means = [mean(row["test"][key] for row in rows) for key in METRICS]
        lines.append([graph, "MINERVA (tails only)", *map(share, means), len(rows)])
    text = prose("small", sorted(lines), remark=remark)
    short = [[graph, model.split(" (")[0], mrr, top_10] for graph, model, mrr, _, _, top_10, _ in sorted(lines)]
    table = markdown(["graph", "model", "MRR", "Hits@10"], short)
    return Section("Comparison with ConvE, R-GCN and MINERVA", text, lines, short=prose("small-short", table=table))


SECTIONS: dict[str, Callable[[Sources, str], Section]] = {
    "table3": _table, "table4": _table, "figure1": _figure1, "figure2": _figure2, "figure3": _figure3,
    "figure4": _figure4, "discreteness": _discreteness, "small": _small,
}  # fmt: skip


def _draw(name: str, folder: Path, *content: Any) -> list[Path]:
    try:
        from paper import figures
    except ModuleNotFoundError:
        raise DihedralError("figures need matplotlib: pip install 'dihedral[plots]'") from None
    drawn: list[Path] = getattr(figures, name)(*content, folder)
    return drawn
