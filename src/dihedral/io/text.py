"""Text that is shown: names come from files, and control characters in them could command a terminal."""

from __future__ import annotations

import re

# C0 and C1 controls, line and paragraph separators, marks that change the direction of text, and half characters
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_HIDDEN = re.compile(f"[{_CONTROLS}]")
_HIDDEN_OR_BREAK = re.compile(f"[{_CONTROLS}\t\n]")


def visible(text: str, *, one_line: bool = False) -> str:
    """Text with control characters escaped; tabs and line breaks too if it must be one line.

    >>> visible("a\\x1b[2Jb\\n", one_line=True)
    'a\\\\x1b[2Jb\\\\n'
    """
    return (_HIDDEN_OR_BREAK if one_line else _HIDDEN).sub(
        lambda found: found[0].encode("unicode_escape").decode(), text
    )


def visible_json(text: str) -> str:
    """JSON with control characters as JSON escapes them; it is still the same value."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
