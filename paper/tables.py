"""Tables 3 and 4: our results next to the paper's, as rows for JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from dihedral.graph.benchmarks import find_benchmark
from dihedral.io.jsonl import read_lines
from dihedral.learn import Recipe, load_recipe
from dihedral.models import build_model
from dihedral.tune.space import PAPER_GRIDS
from paper.plan import SAME_SETUP_EPOCHS, available, recipes_of, reduced, same_setup
from paper.reported import BASELINES, NAMES, REPORTED, TABLES
from paper.runs import Record, Run, find_record

METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
OURS, COMPARED, QUOTED = "ours", "same training setup", "quoted"


def table_rows(target: str, results: Path, *, seeds: int = 3, quick: bool = False) -> list[dict[str, Any]]:
    """Return the rows of a table: our runs, all models with the same training setup, and values quoted by the paper."""
    rows: list[dict[str, Any]] = []
    for graph in TABLES[target]:
        reported = REPORTED[graph]
        for name in recipes_of(graph):
            recipe = load_recipe(name)
            kind = "best recipe" if name.startswith("best/") else "paper's objective"
            runs = [Run(graph, recipe, seed) for seed in range(seeds)]
            runs = [reduced(run) for run in runs] if quick else runs
            records = [record for run in runs if (record := find_record(run, results / "runs"))]
            paper = reported.get(NAMES[recipe.model]) if kind == "paper's objective" else None
            row = {"graph": graph, "model": label(recipe), "group": OURS, "kind": kind, "recipe": name, **_paper(paper)}
            if records:
                rows.append(row | summary(records))
            else:
                rows.append(row | {"missing": "not run" if available(graph) else "not run: dataset not available"})
        rows += [{"graph": graph, "group": OURS, **row} for row in _inside_grid(graph, results)]
        for objective in ("logistic", "softmax"):
            rows += _same_setup_rows(graph, objective, results, reported, quick)
        rows += [
            {"graph": graph, "model": name, "group": QUOTED, "kind": "quoted by the paper", **_paper(values)}
            for name, values in reported.items()
            if name not in NAMES.values() or (graph not in SAME_SETUP_EPOCHS and not name.startswith("D4"))
        ]
    return rows


def label(recipe: Recipe) -> str:
    """The name of a recipe's model in tables."""
    name = NAMES[recipe.model].replace("D4", f"D{recipe.K}")
    return f"{name}, graded" if recipe.levels != "1" else name


def _paper(values: Sequence[float | None] | None) -> dict[str, Any]:
    """Convert the paper's values, percent in the order Hits@1, Hits@3, Hits@10, MRR, to shares by name."""
    if values is None:
        return {}
    order = ("hits@1", "hits@3", "hits@10", "mrr")
    return {"paper": {key: None if value is None else round(value / 100, 3)
                      for key, value in zip(order, values, strict=True)}}  # fmt: skip


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """Return the means over seeds, and the cost of each run."""
    of_test = [record["test"]["both"] for record in records]
    first = records[0]
    return {
        "relation_bytes": relation_bytes(Recipe.from_dict(first["recipe"]), find_benchmark(first["graph"]).size[1]),
        "objective": first["recipe"]["objective"],
        "dimension": first["recipe"]["dimension"],
        "test": {key: mean(row[key] for row in of_test) for key in METRICS},
        "test_spread": stdev(row["mrr"] for row in of_test) if len(records) > 1 else None,
        "test_seen_only": {key: mean(record["test"]["seen_only"][key] for record in records) for key in METRICS},
        "valid_mrr": mean(record["valid"]["both"]["mrr"] for record in records),
        "seeds": [record["seed"] for record in records],
        "epochs": first["epochs"],
        "best_epochs": [record["best_epoch"] for record in records],
        "seconds": [record["seconds"] for record in records],
        "concurrent_runs": max(record["concurrent_runs"] for record in records),
        "hardware": first["hardware"],
    }


@cache
def relation_bytes(recipe: Recipe, num_relations: int) -> int:
    """The size of the relations in a model folder."""
    model = build_model(
        recipe.model,
        1,
        num_relations,
        dimension=recipe.dimension,
        K=recipe.K,
        scaled=recipe.relation_scale,
        levels=recipe.levels,
        reciprocal=recipe.reciprocal,
    )
    return sum(tensor.numel() * tensor.element_size() for tensor in model.relations.stored().values())


def _same_setup_rows(
    graph: str, objective: str, results: Path, reported: dict[str, Any], quick: bool
) -> list[dict[str, Any]]:
    if graph not in SAME_SETUP_EPOCHS or quick:
        return []
    rows = []
    for run in same_setup(graph, objective):
        record = find_record(run, results / "runs")
        model = run.recipe.model
        paper = reported.get(NAMES[model]) if model in BASELINES else None
        kind = f"same training setup, {objective}"
        row = {"graph": graph, "model": label(run.recipe), "group": COMPARED, "kind": kind}
        found = summary([record]) if record else {"missing": f"{kind}: not run"}
        rows.append(row | _paper(paper) | found)
    return rows


def _inside_grid(graph: str, results: Path) -> list[dict[str, Any]]:
    """Return the best run on valid among the logged runs whose settings all lie in the paper's grid (K = 4)."""
    rows = []
    logged = [row for log in sorted((results / "search").glob("*.jsonl")) for row in read_lines(log)]
    for variant, model in (("ste", "D4-STE"), ("gumbel", "D4-Gumbel")):
        dimension = load_recipe(f"paper/{graph.lower()}-d4-{variant}").dimension
        grid = {key: PAPER_GRIDS[variant][key] for key in ("regulariser_weight", "batch_size", "negatives")}
        grid |= {"model": [f"dihedral-{variant}"], "objective": ["logistic"], "regulariser": ["l2"], "K": [4]}
        grid |= {"dimension": [dimension], "entity_lr": PAPER_GRIDS[variant]["lr"]}
        inside = []
        for row in logged:
            recipe, measured = row["recipe"], row["graph"].lower() == graph.lower() and "valid" in row
            if measured and recipe["entity_lr"] == recipe["relation_lr"] and all(recipe[k] in grid[k] for k in grid):
                inside.append(row)
        if inside:
            best = max(inside, key=lambda row: row["valid"]["mrr"])
            rows.append(
                {
                    "model": model,
                    "kind": f"best of {len(inside)} inside the paper's grid{_reading(best['recipe'])}",
                    "relation_bytes": relation_bytes(Recipe.from_dict(best["recipe"]), find_benchmark(graph).size[1]),
                    "objective": "logistic",
                    "dimension": dimension,
                    "test": {key: best["test"][key] for key in METRICS},
                    "test_spread": None,
                    "test_seen_only": {key: best["test_seen_only"][key] for key in METRICS},
                    "valid_mrr": best["valid"]["mrr"],
                    "seeds": [best["seed"]],
                    "epochs": best["recipe"]["epochs"],
                    "best_epochs": [best["best_epoch"]],
                    "seconds": [best["seconds"]],
                    "hardware": best["device"],
                }
            )
    return rows


def _reading(recipe: dict[str, Any]) -> str:
    return ", λ on all sampled triples" if recipe.get("regularise_negatives") else ""


def markdown_row(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    return "\n".join([markdown_row(header), "|" + "---|" * len(header), *map(markdown_row, rows)]) + "\n"


def prose(name: str, rows: Iterable[Sequence[Any]] = (), **values: object) -> str:
    """Return a text from the folder `prose`, with table rows in place of {rows} and values in place of other names."""
    text = (resources.files(__package__) / "prose" / f"{name}.md").read_text("utf-8")
    return text.format(rows="\n".join(map(markdown_row, rows)), **values).rstrip("\n") + "\n"


def table_markdown(target: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return one Markdown section per graph."""
    lines = {graph: [_cells(row) for row in rows if row["graph"] == graph] for graph in TABLES[target]}
    return "\n".join(prose("table", cells, graph=graph) for graph, cells in lines.items())


def short_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return our measured results, one line per graph and recipe."""
    header = ["graph", "model", "training", "2L", "MRR", "Hits@10", "MRR, seen entities", "paper: MRR"]
    lines = [
        [row["graph"], row["model"], row["kind"], row["dimension"], with_spread(row),
         share(row["test"]["hits@10"]), share(row["test_seen_only"]["mrr"]), share(row.get("paper", {}).get("mrr"))]
        for row in rows if "recipe" in row and "test" in row
    ]  # fmt: skip
    return markdown(header, lines)


def with_spread(row: dict[str, Any]) -> str:
    """Return the test MRR, with its standard deviation over seeds if there are several."""
    spread = f" ± {row['test_spread']:.4f}" if row["test_spread"] is not None else ""
    return f"{row['test']['mrr']:.4f}{spread}"


def _cells(row: dict[str, Any]) -> list[str]:
    paper = row.get("paper", {})
    quoted = [share(paper.get(key)) for key in METRICS]
    if "test" not in row:
        return [row["model"], row.get("missing", row["kind"]), *[""] * 7, *quoted, *[""] * 5]
    ours = [with_spread(row), *(share(row["test"][key]) for key in METRICS[1:])]
    return [
        row["model"], row["kind"] if row["group"] == COMPARED else f"{row['kind']}, {row['objective']}",
        str(row["dimension"]), f"{row['relation_bytes'] / 1e6:.2f}", *ours,
        share(row["test_seen_only"]["mrr"]), *quoted,
        ", ".join(map(str, row["seeds"])), ", ".join(map(str, row["best_epochs"])) + f" of {row['epochs']}",
        f"{mean(row['seconds']):.0f}", str(row.get("concurrent_runs", "")), row["hardware"].replace("NVIDIA ", ""),
    ]  # fmt: skip


def share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
