"""`dihedral classify`."""

from __future__ import annotations

import pytest


def test_a_triple_is_judged_like_in_the_library(cli, model_folder, predictor):
    triple = ("man_0000", "spouse", "woman_0010")
    (judged,) = predictor.classify([triple])
    (row,) = cli("classify", model_folder, *triple, "--json").rows
    assert row == judged._asdict() | {"score": pytest.approx(predictor.score(*triple), abs=1e-6)}
    assert "probability" in cli("classify", model_folder, *triple).out


def test_a_file_of_triples_is_judged_and_written(cli, model_folder, tmp_path):
    (tmp_path / "triples.tsv").write_text("man_0000\tspouse\twoman_0010\nman_0001\tparent\tman_0000\n")
    done = cli("classify", model_folder, "--triples", tmp_path / "triples.tsv", "--out", tmp_path / "judged.csv")
    assert done.code == 0 and len((tmp_path / "judged.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize("words", [("man_0000",), ("man_0000", "spouse"), ()])
def test_a_triple_needs_three_parts(cli, model_folder, words):
    done = cli("classify", model_folder, *words)
    assert done.code == 2 and "give all three, or a file with --triples" in done.err


def test_an_incomplete_triple_in_a_file_is_refused(cli, model_folder, tmp_path):
    (tmp_path / "triples.tsv").write_text("man_0000\tspouse\t?\n")
    done = cli("classify", model_folder, "--triples", tmp_path / "triples.tsv")
    assert done.code == 2 and "triple 1 of" in done.err
