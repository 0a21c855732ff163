"""The files of a target, and the results page that covers all targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dihedral.io.files import make_folder, write_json
from paper.plan import TARGETS
from paper.reported import TABLES
from paper.sections import SECTIONS, Section, Sources
from paper.tables import COMPARED, OURS, markdown, prose, share, table_rows, with_spread

BASELINES = ("ComplEx", "RESCAL", "DistMult")  # models with recipes of their own; the first is on the overview
KEPT = "<!-- from here on, `python -m paper` keeps the page as it is -->"


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
    """Write one page that covers all targets, and the figures to the folder next to it.

    What an existing page holds from the line KEPT on stays.
    """
    folder = files_of(path)
    make_folder(folder)
    parts = [prose("introduction"), _overview(results, seeds)]
    for target in TARGETS:
        section = SECTIONS[target](Sources(results, folder, seeds, quick=False), target)
        parts.append(f"## {section.title}\n\n{section.body(f'{folder.name}/', short=True)}")
    parts += [_same_setup(results, seeds), prose("differences")]
    _, mark, rest = (path.read_text(encoding="utf-8") if path.exists() else "").partition(KEPT)
    path.write_text("\n".join(part for part in [*parts, mark + rest] if part), encoding="utf-8")
    return path


def files_of(page: Path) -> Path:
    """Return the folder for the figures of a page."""
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
            baseline = [row for row in best if row["model"] == BASELINES[0]]
            strict = [row for row in best if row not in graded and row["model"] not in BASELINES]
            faithful = [row for row in here if row["kind"] == "paper's objective"]
            lines.append([graph, f"{paper:.3f}", *map(_best_of, (faithful, strict, graded, baseline))])
    return prose("overview", lines)


def _best_of(rows: list[dict[str, Any]]) -> str:
    """Return the test MRR of the row that is best on valid, and what it is."""
    measured = [row for row in rows if "test" in row]
    if not measured:
        return "not run"
    best = max(measured, key=lambda row: row["valid_mrr"])
    return f"{with_spread(best)} ({best['model'].removesuffix(', graded')})"


def _same_setup(results: Path, seeds: int) -> str:
    """Return a table of test MRR with the same training setup: a row per model, a column per graph and objective."""
    rows = [row for target in TABLES for row in table_rows(target, results, seeds=seeds) if row["group"] == COMPARED]
    columns = {(row["graph"], row["kind"]): None for row in rows if "test" in row}
    measured = {(row["model"], row["graph"], row["kind"]): share(row["test"]["mrr"]) for row in rows if "test" in row}
    quoted = {(row["model"], row["graph"]): share(row["paper"]["mrr"]) for row in rows if "paper" in row}
    graphs = list(dict.fromkeys(graph for graph, _ in columns))
    lines = [
        [model, *(measured.get((model, *column), "") for column in columns),
         *(quoted.get((model, graph), "") for graph in graphs)]
        for model in dict.fromkeys(row["model"] for row in rows)
    ]  # fmt: skip
    titles = [f"{graph}, {kind.split(', ')[-1]}" for graph, kind in columns]
    return prose("same-setup", table=markdown(["model", *titles, *(f"paper: {graph}" for graph in graphs)], lines))
