"""The generated reference pages are up to date."""

from __future__ import annotations

import pytest

from benchmarks import cli_page, recipe_page


@pytest.mark.parametrize("generator", [cli_page, recipe_page])
def test_the_committed_page_equals_the_generated_one(generator):
    assert generator.PAGE.read_text(encoding="utf-8") == generator.page(), f"run `python -m {generator.__name__}`"
