"""The files of a target, and the results page that covers all targets."""

from __future__ import annotations

from pathlib import Path

from dihedral.io.files import make_folder, write_json
from paper.plan import TARGETS
from paper.reported import TABLES
from paper.sections import SECTIONS, Sources
from paper.tables import COMPARED, markdown, prose, share, table_rows

KEPT = "<!-- from here on, `python -m paper` keeps the page as it is -->"


def write_target(target: str, results: Path, out: Path, *, seeds: int = 3, quick: bool = False) -> list[Path]:
    """Write TARGET.json, TARGET.md and the figures of a target to the folder `out`."""
    make_folder(out)
    section = SECTIONS[target](Sources(results, out, seeds, quick), target)
    numbers, text = out / f"{target}.json", out / f"{target}.md"
    write_json(numbers, {"target": target, "quick": quick, "content": section.content})
    warning = "*A quick run tests the pipeline; its values say nothing about model quality.*\n\n" if quick else ""
    text.write_text(f"# {section.title}\n\n{warning}{section.body('')}", encoding="utf-8")
    return [text, numbers, *section.figures]


def write_page(results: Path, path: Path, *, seeds: int = 3) -> Path:
    """Write one page that covers all targets, and the figures to the folder next to it.

    What an existing page holds from the line KEPT on stays.
    """
    folder = files_of(path)
    make_folder(folder)
    parts = [prose("introduction")]
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
