"""HTML for notebooks: tables in which every text is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from dihedral.io.text import visible

MAX_ROWS = 20


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(value: Any) -> str:
    """A value as HTML: numbers with four digits, "yes" or nothing for a bool, nothing for None.

    >>> escaped("a<b"), escaped(0.123456), escaped(True), escaped(None)
    ('a&lt;b', '0.1235', 'yes', '')
    """
    if isinstance(value, Markup):
        return value
    if value is None or value is False:
        return ""
    if value is True:
        return "yes"
    return html.escape(visible(f"{value:.4f}" if isinstance(value, float) else str(value), one_line=True))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> Markup:
    """Rows below a header; of more than 20 rows, the first."""
    shown = list(rows)
    lines = [f"<caption>{escaped(caption)}</caption>"] if caption else []
    lines.append("<thead><tr>" + "".join(f"<th>{escaped(name)}</th>" for name in header) + "</tr></thead><tbody>")
    for row in shown[:MAX_ROWS]:
        lines.append("<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in row) + "</tr>")
    lines.append("</tbody>")
    more = f"<p>{len(shown) - MAX_ROWS} more</p>" if len(shown) > MAX_ROWS else ""
    return Markup(f"<table>{''.join(lines)}</table>{more}")
