"""Signed steps: a relation walked forwards or backwards."""

from __future__ import annotations

from typing import Literal

Side = Literal["head", "tail"]  # the side that a question asks for
SIDES: tuple[Side, ...] = ("head", "tail")
