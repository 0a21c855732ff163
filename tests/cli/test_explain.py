"""`dihedral explain`."""

from __future__ import annotations

import json
import sys


def test_explanations_are_printed_as_text_and_json_and_drawn(cli, model_folder, family, tmp_path):
    triple = next(iter(family.names_of(family.test)))
    figure = tmp_path / "why.svg"
    done = cli("explain", model_folder, *triple, "--figure", figure)
    assert done.code == 0 and "similar facts" in done.out and figure.stat().st_size > 1000
    content = json.loads(cli("explain", model_folder, *triple, "--json").out)
    assert content["triple"] == list(triple) and content["known"] is True and "supported" in content
    assert cli("explain", model_folder, *triple, "--figure", tmp_path / "why.gif").code == 2
    assert cli("explain", model_folder, "nobody", triple[1], triple[2]).code == 2


def test_the_paths_of_a_path_model_are_printed_and_drawn(cli, path_predictor, path_model_folder, tmp_path):
    triple = next(iter(path_predictor.graph.names_of(path_predictor.graph.test)))
    figure = tmp_path / "why.svg"
    done = cli("explain", path_model_folder, *triple, "--figure", figure)
    assert done.code == 0 and "  adds " in done.out and "): rank " in done.out and figure.stat().st_size > 1000
    assert "similar facts" not in done.out and "elements" not in done.out
    content = json.loads(cli("explain", path_model_folder, *triple, "--json").out)
    shares = [path["share"] for path in content["paths"]]
    assert shares and shares == sorted(shares, reverse=True) and content["longest"] == 3


def test_a_figure_without_matplotlib_is_one_sentence(cli, model_folder, family, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "dihedral.figures", raising=False)
    done = cli("explain", model_folder, *next(iter(family.names_of(family.test))), "--figure", tmp_path / "why.png")
    assert done.code == 2 and done.err.strip() == "error: --figure needs matplotlib: pip install 'dihedral[plots]'"
