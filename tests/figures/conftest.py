"""Access to the figures that a function saves."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure


@pytest.fixture
def saved(monkeypatch):
    """The figures saved during a test, in order; each is drawn and listed once, even if saved in two formats."""
    figures = []
    savefig = Figure.savefig

    def record(self, *arguments, **options):
        if self not in figures:
            figures.append(self)
            savefig(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", record)
    return figures
