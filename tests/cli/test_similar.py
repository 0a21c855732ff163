"""`dihedral similar`."""

from __future__ import annotations

import pytest


def test_entities_are_sorted_by_similarity_without_the_query_entity(cli, model_folder, predictor):
    rows = cli("similar", model_folder, "man_0000", "--top", 5, "--json").rows
    assert [row["entity"] for row in rows] == [each.entity for each in predictor.similar("man_0000", top=5)]
    values = [row["similarity"] for row in rows]
    assert values == sorted(values, reverse=True) and "man_0000" not in [row["entity"] for row in rows]


def test_prints_a_table(cli, model_folder):
    lines = cli("similar", model_folder, "man_0000", "--top", 3).out.splitlines()
    assert lines[0].split() == ["entity", "similarity"] and len(lines) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("man_000",), "entity 'man_000' is not among the 40 known to the graph; did you mean"),
        (("man_0000", "--top", "0"), "top is 0; ask for at least 1 entity"),
    ],
)
def test_invalid_queries_exit_with_2(cli, model_folder, words, message):
    done = cli("similar", model_folder, *words)
    assert done.code == 2 and done.err.startswith(f"error: {message}")
