"""The files of a target, and the results page that covers all targets."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from dihedral.io.files import make_folder, read_json, write_json
from dihedral.io.jsonl import read_lines
from paper.paper import TABLES
from paper.plan import SAME_SETUP, TARGETS
from paper.sections import SECTIONS, Section, Sources
from paper.tables import OURS, prose, table_rows

OTHERS = ("ComplEx", "RESCAL", "DistMult")  # models with recipes of their own


def write_target(target: str, results: Path, out: Path, *, seeds: int = 3, quick: bool = False) -> list[Path]:
    """Write TARGET.json, TARGET.md and the figures of a target to the folder `out`."""
    return _write(target, Sources(results, out, seeds, quick))[1]


def _write(target: str, sources: Sources) -> tuple[Section, list[Path]]:
    out, quick = sources.folder, sources.quick
    make_folder(out)
    section = SECTIONS[target](sources, target)
    numbers, text = out / f"{target}.json", out / f"{target}.md"
    write_json(numbers, {"target": target, "quick": quick, "content": section.content})
    warning = "*A quick run tests the pipeline; its values say nothing about model quality.*\n\n" if quick else ""
    text.write_text(f"# {section.title}\n\n{warning}{section.body('')}", encoding="utf-8")
    return section, [text, numbers, *section.figures]


def write_page(results: Path, path: Path, *, seeds: int = 3) -> Path:
    """Write one page that covers all targets, and the files of each target to the folder next to it."""
    folder = files_of(path)
    parts = [prose("introduction"), _overview(results, seeds), _findings(results, seeds)]
    for target in TARGETS:
        section, _ = _write(target, Sources(results, folder, seeds, quick=False))
        parts.append(f"## {section.title}\n\n{section.body(f'{folder.name}/')}")
    parts += [prose("differences"), _costs(results)]
    path.write_text("\n".join(part for part in parts if part), encoding="utf-8")
    return path


def files_of(page: Path) -> Path:
    """Return the folder for the figures and tables of a page."""
    return page.with_name(f"{page.stem}-files")


def _overview(results: Path, seeds: int) -> str:
    """Return a table with the test MRR of each kind at its best on valid, one row per graph."""
    lines = []
    for target in TABLES:
        rows = [row for row in table_rows(target, results, seeds=seeds) if row["group"] == OURS]
        for graph in TABLES[target]:
            here = [row for row in rows if row["graph"] == graph]
            paper = max(row["paper"]["mrr"] for row in here if "paper" in row)
            best = [row for row in here if row["kind"] == "best recipe"]
            graded = [row for row in best if row["model"].endswith("graded")]
            others = [[row for row in best if row["model"] == name] for name in OTHERS]
            strict = [row for row in best if row not in graded and row["model"] not in OTHERS]
            faithful = [row for row in here if row["kind"] == "paper's objective"]
            lines.append([graph, f"{paper:.3f}", *map(_best_of, (faithful, strict, graded, *others))])
    return prose("overview", lines)


def _best_of(rows: list[dict[str, Any]]) -> str:
    """Return the test MRR of the row that is best on valid, and what it is."""
    measured = [row for row in rows if "test" in row]
    if not measured:
        return "not run"
    best = max(measured, key=lambda row: row["valid_mrr"])
    count = len(best["seeds"])
    spread = "" if best["test_spread"] is None else f" ± {best['test_spread']:.4f}"
    return f"{best['test']['mrr']:.4f}{spread} ({best['model']}, {count} seed{'s' if count > 1 else ''})"


def _findings(results: Path, seeds: int) -> str:
    """Return a list: our test MRR against the paper's, then the ranks of D4-Gumbel with the same training setup."""
    lines = []
    for target in TABLES:
        rows = table_rows(target, results, seeds=seeds)
        for row in rows:
            if row["group"] == OURS and "paper" in row and "test" in row:
                ours, paper = row["test"]["mrr"], row["paper"]["mrr"]
                verdict = "reached" if ours >= paper - 0.0005 else "not reached"
                values = f"{ours:.4f}, paper {paper:.3f} ({ours - paper:+.3f}), {verdict}"
                lines.append(f"- {row['graph']}, {row['model']}, paper's objective: {values}.")
        for graph in TABLES[target]:
            for objective in SAME_SETUP:
                kind = f"same training setup, {objective}"
                compared = [r for r in rows if r["graph"] == graph and r["kind"] == kind]
                measured = sorted((r for r in compared if "test" in r), key=lambda r: -r["test"]["mrr"])
                if len(measured) < len(compared) or not measured:
                    continue
                models = [row["model"] for row in measured]
                strict, graded = (1 + models.index(name) for name in ("D4-Gumbel", "D4-Gumbel, graded"))
                best = f"{models[0]} is best with {measured[0]['test']['mrr']:.4f}"
                ranks = f"D4-Gumbel ranks {strict} and graded D4-Gumbel {graded} of {len(models)}"
                lines.append(f"- {graph}, {kind}: {ranks}; {best}.")
    return "\n".join(lines) + "\n"


def _costs(results: Path) -> str:
    groups: dict[str, list[float]] = defaultdict(list)
    for path in sorted((results / "runs").rglob("*.json")):
        groups[path.parent.name].append(read_json(path)["train_seconds"])
    for log in sorted((results / "search").glob("*.jsonl")):
        groups["searches"] += [row["train_seconds"] for row in read_lines(log) if "train_seconds" in row]
    if not groups:
        return ""
    lines = [[name, len(seconds), f"{sum(seconds):.0f}", f"{max(seconds):.0f}"] for name, seconds in groups.items()]
    return prose("costs", lines)
