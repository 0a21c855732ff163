"""The generated parts of docs/, made from the records in results/: `python -m benchmarks.pages`.

A region stands between `<!-- begin: MODULE.FUNCTION -->` and `<!-- end -->`; FUNCTION of benchmarks.pages.MODULE
returns it.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from benchmarks.record import RESULTS

ROOT = RESULTS.parent
DOCS = ROOT / "docs"
REGION = re.compile(r"(<!-- begin: (\w+)\.(\w+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def pages() -> list[Path]:
    """The pages with generated regions."""
    return [page for page in sorted(DOCS.rglob("*.md")) if REGION.search(page.read_text(encoding="utf-8"))]


def rewritten(text: str) -> str:
    """A page with its regions made again."""

    def region(match: re.Match[str]) -> str:
        begin, module, function, end = match.groups()
        content = getattr(import_module(f"benchmarks.pages.{module}"), function)()
        return f"{begin}\n{content.strip()}\n\n{end}"

    return REGION.sub(region, text)
