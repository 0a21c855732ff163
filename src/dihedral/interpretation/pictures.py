"""Small SVG pictures of elements of D_K, for notebooks."""

from __future__ import annotations

import math
import re

from dihedral.elements.group import grade_of
from dihedral.io.display import Markup

_NAME = re.compile(r"([OF])(\d+)\^(\d+)(?:·(.+))?")
_FLAG = "M-4.5 7.5V-7.5H5.5M-4.5 -1H3"  # the letter F, which no symmetry leaves as it is
_DRAWN = 'fill="none" stroke="currentColor"'


def element_picture(name: str, pixels: int = 26) -> Markup:
    """A polygon with the letter F in it, moved by the element, of the area of its size; with the axis of a reflection.

    >>> element_picture("O4^1").startswith("<svg") and "line" in element_picture("F4^1")
    True
    """
    found = _NAME.fullmatch(name)
    letter, K, m = (found[1], int(found[2]), int(found[3])) if found else ("O", 4, 0)
    size = 2.0 ** -grade_of(found[4] or "1") if found else 0.0
    angle = 2 * math.pi * m / K
    cos, sin = math.cos(angle), math.sin(angle)
    moved = (cos, -sin, -sin, -cos) if letter == "F" else (cos, -sin, sin, cos)  # Eq. 1, with the y axis down
    corners = max(K, 3)
    first = math.pi / K if K % 4 == 0 else math.pi / 2
    turns = [2 * math.pi * i / corners + first for i in range(corners)]
    points = " ".join(f"{15 * math.cos(turn):.2f},{-15 * math.sin(turn):.2f}" for turn in turns)
    inside = f'<polygon points="{points}" {_DRAWN}/>'
    if size:
        x, y = 15 * math.cos(angle / 2), 15 * math.sin(angle / 2)
        axis = f'<line x1="{-x:.2f}" y1="{y:.2f}" x2="{x:.2f}" y2="{-y:.2f}" stroke-dasharray="2" {_DRAWN}/>'
        matrix = " ".join(f"{value:.4f}" for value in moved)
        flag = f'<path d="{_FLAG}" stroke-width="2" transform="matrix({matrix} 0 0)" {_DRAWN}/>'
        inside += (axis if letter == "F" else "") + flag
    frame = f'viewBox="-15.5 -15.5 31 31" width="{pixels}" height="{pixels}" role="img" aria-label="{name}"'
    return Markup(f'<svg {frame}><g transform="scale({math.sqrt(size or 1):.4f})">{inside}</g></svg>')
