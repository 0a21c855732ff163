"""Tables as aligned lines of text that fit the terminal: one line per row, words are never broken."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

GAP = "  "
MIN_TEXT, MIN_TEXTS = 14, 36  # that a column of text, and all of them, should have before others are left out
MIN_CUT = 5  # the narrowest column
_LABELLED = re.compile(r"([^()]*\S) (\([^\s()]+\))", re.DOTALL)  # a label with its id
_NUMBER = re.compile(r"-?[\d.,]*%?|yes|no|true|false")


def fit(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, least: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """The lines of a table, the header first, and the names of columns that are left out.

    width: of the terminal; None shows everything. least: columns by importance, the least important first: text in
    them is cut first, and those of numbers are left out if the text would become too short.
    """
    places = list(range(len(header)))
    dropped: list[str] = []
    widths = [max(cell_len(row[i]) for row in [header, *rows]) for i in places]
    texts = [i for i in places if any(not _NUMBER.fullmatch(row[i]) for row in rows)]

    def excess() -> int:
        return 0 if width is None else sum(widths[i] for i in places) + len(GAP) * (len(places) - 1) - width

    for name in least:
        room = sum(max(0, widths[i] - max(MIN_TEXT, MIN_TEXTS // len(texts))) for i in texts)
        i = header.index(name) if name in header else -1
        if i in places and i not in texts and excess() > room:
            places.remove(i)
            dropped.append(name)
    order = [header.index(name) for name in least if name in header]
    order = [i for i in order if i in texts] + [i for i in reversed(texts) if i not in order]
    for narrowest in (MIN_TEXT, MIN_CUT):
        for i in order:
            widths[i] -= max(0, min(excess(), widths[i] - max(narrowest, min(cell_len(header[i]), MIN_TEXT))))
    lines = [_line([row[i] for i in places], [widths[i] for i in places]) for row in [header, *rows]]
    return lines, dropped


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Cells side by side: the first to the left, the others to the right of their column."""
    shown = [cut(cell, width) for cell, width in zip(cells, widths, strict=True)]
    padded = [" " * (width - cell_len(cell)) for cell, width in zip(shown, widths, strict=True)]
    parts = [shown[0] + padded[0], *(space + cell for space, cell in zip(padded[1:], shown[1:], strict=True))]
    return GAP.join(parts).rstrip() if len(parts) == 1 else GAP.join(parts)


def cut(text: str, width: int) -> str:
    """Text of at most this width: a label is cut before its id, a path at its beginning, other text at its end.

    >>> cut("Douglas Noel Adams (Q42)", 16), cut("/people/person/profession", 14), cut("a long text", 8)
    ('Douglas N… (Q42)', '…on/profession', 'a long …')
    """
    if cell_len(text) <= width:
        return text
    labelled = _LABELLED.fullmatch(text)
    if labelled and cell_len(labelled[2]) + 8 <= width:
        return f"{cut(labelled[1], width - cell_len(labelled[2]) - 1)} {labelled[2]}"
    if "/" in text and " " not in text:
        return "…" + text[-(width - 1) :]
    return set_cell_size(text, width - 1) + "…"
