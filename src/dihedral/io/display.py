"""How results are shown: text without control characters, HTML tables for notebooks, tables of other libraries."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from dihedral.errors import optional_module

MAX_ROWS = 20  # of a table in HTML
MAX_LINE = 60  # characters of a cell in HTML that are not broken
# C0 and C1 controls, line and paragraph separators, marks that change the direction of text, and half characters
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_HIDDEN = re.compile(f"[{_CONTROLS}]")
_HIDDEN_OR_BREAK = re.compile(f"[{_CONTROLS}\t\n]")


def visible(text: str, *, one_line: bool = False) -> str:
    """Text with control characters, which could command a terminal, escaped; also tabs and line breaks if one line.

    >>> visible("a\\x1b[2Jb\\n", one_line=True)
    'a\\\\x1b[2Jb\\\\n'
    """
    return (_HIDDEN_OR_BREAK if one_line else _HIDDEN).sub(
        lambda found: found[0].encode("unicode_escape").decode(), text
    )


def visible_json(text: str) -> str:
    """JSON with control characters as JSON escapes them; it is still the same value."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def probability_text(probability: float) -> str:
    """A probability; never as 0 or 1."""
    return "< 0.01" if probability < 0.01 else "> 0.99" if probability > 0.99 else f"{probability:.2f}"


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
    texts = [any(type(cell) is str for cell in column) for column in zip(*shown[:MAX_ROWS], strict=True)]

    def line(tag: str, row: Sequence[Any]) -> str:
        return f"<tr>{''.join(map(_cell, [tag] * len(row), row, texts or [True] * len(row)))}</tr>"

    top = f'<caption style="text-align:left">{escaped(caption)}</caption>' if caption else ""
    body = "".join(line("td", row) for row in shown[:MAX_ROWS])
    more = f"<p>{len(shown) - MAX_ROWS} more</p>" if len(shown) > MAX_ROWS else ""
    return Markup(f"<table>{top}<thead>{line('th', header)}</thead><tbody>{body}</tbody></table>{more}")


def _cell(tag: str, value: Any, is_text: bool) -> str:
    """A cell: notebooks put text to the right, and break it where there are many columns."""
    wide = "white-space:nowrap" if len(str(value)) <= MAX_LINE else f"min-width:{MAX_LINE // 2}em"
    style = f' style="text-align:left;{wide}"' if is_text else ""
    return f"<{tag}{style}>{escaped(value)}</{tag}>"


class Tabular:
    """A result with `to_arrow`, from which the other tables are made."""

    def to_arrow(self) -> pa.Table:
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame."""
        optional_module("pandas", "to_pandas needs pandas: pip install pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The same as a polars DataFrame."""
        polars = optional_module("polars", "to_polars needs polars: pip install polars")
        return polars.from_arrow(self.to_arrow())
