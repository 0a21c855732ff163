"""The reference page of the command line is up to date."""

from __future__ import annotations

from benchmarks.cli_page import PAGE, page


def test_the_committed_page_equals_the_generated_one():
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m benchmarks.cli_page`"
