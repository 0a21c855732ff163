"""Writes the generated tables of README.md and docs/ from the records: `python -m benchmarks.tables`.

A table stands between `<!-- begin: MODULE.FUNCTION -->` and `<!-- end -->`; FUNCTION of benchmarks.MODULE returns it.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from benchmarks.record import RESULTS

BLOCK = re.compile(r"(<!-- begin: (\w+)\.(\w+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def pages() -> list[Path]:
    """The pages that hold generated tables."""
    root = RESULTS.parent
    found = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in found if BLOCK.search(page.read_text(encoding="utf-8"))]


def rewritten(text: str) -> str:
    """A page with its tables made again."""

    def block(match: re.Match[str]) -> str:
        begin, module, function, end = match.groups()
        content = getattr(import_module(f"benchmarks.{module}"), function)()
        return f"{begin}\n{content.strip()}\n\n{end}"

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    for page in pages():
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
