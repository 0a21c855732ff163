"""Probabilities in tests: graphs that train in a moment have few valid triples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def small_probabilities() -> Iterator[None]:
    """A few valid triples are too few for good probabilities, but enough to test with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dihedral.probability.calibration.MIN_TRUE", 5)
        yield
