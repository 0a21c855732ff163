"""What `reproduce` writes: numbers, text and pictures of every target, and one page of all."""

from __future__ import annotations

import json
import re

import pytest

from dihedral.reproduction.page import write_page, write_target
from dihedral.reproduction.plan import TARGETS, plan, reduced
from dihedral.reproduction.runs import Run
from dihedral.reproduction.studies import compositions, inverses, symmetry
from dihedral.training import load_recipe

pytest.importorskip("matplotlib")


def written(paths):
    """The files by name, none of them empty."""
    found = {path.name: path for path in paths}
    assert len(found) == len(paths) and all(path.stat().st_size > 0 for path in paths)
    return found


def content_of(path):
    return json.loads(path.read_text(), parse_constant=pytest.fail)["content"]


@pytest.mark.parametrize(("target", "quick"), [*((target, False) for target in TARGETS), ("figure2", True)])
def test_every_target_is_written_without_any_record(target, quick, tmp_path):
    found = written(write_target(target, tmp_path / "none", tmp_path / "out", quick=quick))
    pictures = {"figure1.png", "figure1.svg"} if target == "figure1" else set()
    assert set(found) == {f"{target}.md", f"{target}.json"} | pictures
    text = found[f"{target}.md"].read_text()
    assert text.startswith("# ") and ("A quick run" in text) == quick and "PICTURES/" not in text
    assert json.loads(found[f"{target}.json"].read_text())["target"] == target
    assert not (tmp_path / "none").exists()


def test_figure_1_is_drawn_as_png_and_svg(tmp_path):
    found = written(write_target("figure1", tmp_path, tmp_path / "a" / "new" / "folder"))
    assert found["figure1.png"].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in found["figure1.svg"].read_text()
    assert "](figure1.png)" in found["figure1.md"].read_text()


def test_table_3_without_records_holds_the_papers_numbers(tmp_path):
    found = written(write_target("table3", tmp_path, tmp_path / "out"))
    text = found["table3.md"].read_text()
    assert "not run" in text and "0.946" in text and "### FB15k" in text
    assert any(row.get("paper", {}).get("mrr") == 0.946 for row in content_of(found["table3.json"]))


def test_figure_2_is_drawn_from_records(put, predictor, tmp_path):
    rows = inverses(predictor)
    for seed in (0, 1):
        run = Run("WN18", load_recipe("case/wn18-d4-gumbel"), seed)
        put(run, studies={"inverses": rows, "symmetry": []})
    found = written(write_target("figure2", tmp_path / "results", tmp_path / "out"))
    assert {"figure2.png", "figure2.svg"} <= set(found)
    pairs = content_of(found["figure2.json"])["pairs"]["WN18"]
    assert [row["seeds"] for row in pairs] == [2] * len(rows)
    assert [row["share"] for row in pairs] == [row["share"] for row in rows]
    assert f"| {rows[0]['share']:.3f} |" in found["figure2.md"].read_text()


def test_figure_2_compares_the_models_of_the_frame(put, predictor, tmp_path):
    for run in plan("figure2", 1):
        if run.recipe.name == "frame-softmax/wn18-complex":
            put(run, studies={"inverses": inverses(predictor)})
    found = written(write_target("figure2", tmp_path / "results", tmp_path / "out"))
    (model,) = content_of(found["figure2.json"])["models"]
    assert model["model"] == "ComplEx" and model["objective"] == "softmax"
    assert "| ComplEx | softmax |" in found["figure2.md"].read_text()


def test_figure_3_is_drawn_from_records_of_both_ways(put, predictor, tmp_path):
    rows = symmetry(predictor)
    assert {row["kind"] for row in rows} == {"symmetric", "skew"}
    plain, scheme = (Run("WN18", load_recipe(f"case/wn18-symmetry{end}")) for end in ("", "-skew"))
    put(plain, test=0.9, studies={"symmetry": rows, "inverses": []})
    alone = written(write_target("figure3", tmp_path / "results", tmp_path / "out"))
    assert "figure3.png" not in alone  # there is nothing to compare yet
    put(scheme, test=0.8, studies={"symmetry": rows, "inverses": []})
    found = written(write_target("figure3", tmp_path / "results", tmp_path / "out"))
    assert {"figure3.png", "figure3.svg"} <= set(found)
    content = content_of(found["figure3.json"])
    assert content["1 negative"]["test_mrr"] == 0.9 and content["1 negative, skew"]["test_mrr"] == 0.8
    skewness = [row["skewness"] for row in rows if row["kind"] == "skew"]
    assert content["1 negative"]["skew_in_skew"] == pytest.approx(sum(skewness) / len(skewness))


@pytest.mark.parametrize("quick", [False, True])
def test_figure_4_is_drawn_from_records(put, predictor, tmp_path, quick):
    rows = compositions(predictor)
    recipe = load_recipe("case/family-d4-gumbel").replace(name="case/family-1-d4-gumbel")
    put(Run("family-1", recipe), studies={"compositions": rows})
    found = written(write_target("figure4", tmp_path / "results", tmp_path / "out", quick=quick))
    assert {"figure4.png", "figure4.svg"} <= set(found)
    (section,) = content_of(found["figure4.json"]).values()
    assert [row["right"] for row in section] == [row["right"]["share"] for row in rows]


@pytest.mark.parametrize(
    ("target", "graph", "name", "study"),
    [
        ("figure2", "FB15k", "paper/fb15k-d4-gumbel", "inverses"),
        ("figure4", "FB15k-237", "paper/fb15k-237-d4-gumbel", "compositions"),
    ],
)
def test_a_quick_run_of_a_table_serves_the_figure_too(put, predictor, tmp_path, target, graph, name, study):
    rows = {"inverses": inverses, "compositions": compositions}[study](predictor)
    put(reduced(Run(graph, load_recipe(name))), studies={study: rows})
    found = written(write_target(target, tmp_path / "results", tmp_path / "out", seeds=1, quick=True))
    assert f"{target}.png" in found and graph in found[f"{target}.md"].read_text()


def test_discreteness_is_drawn_from_the_curves_of_records(put, tmp_path):
    runs = [run for run in plan("discreteness") if run.graph == "WN18RR"][:4]
    for run in runs:
        record = put(run)
    found = written(write_target("discreteness", tmp_path / "results", tmp_path / "out"))
    assert {"discreteness.png", "discreteness.svg"} <= set(found)
    panels = content_of(found["discreteness.json"])
    assert len(panels) == 2 and all(len(lines) == 2 for lines in panels.values())
    for lines in panels.values():
        for curve in lines.values():
            assert curve["train"] == record["train_curve"] and len(curve["epochs"]) == len(curve["valid"])


def test_one_page_of_everything(put, tmp_path):
    put(Run("WN18", load_recipe("paper/wn18-d4-ste")), test=0.9431)
    path = write_page(tmp_path / "results", tmp_path / "page.md")
    text = path.read_text()
    assert text.startswith("# Results") and "PICTURES/" not in text
    assert "](page-files/figure1.png)" in text and (tmp_path / "page-files" / "figure1.png").exists()
    assert "| WN18 | 0.946 | 0.9431 (D4-STE, 1 seed) |" in text
    assert "| FB15k | 0.733 | not run |" in text
    for title in ("## Table 3", "## Table 4", "## Figure 2", "## Does discreteness", "## What differs", "## What it"):
        assert title in text
    for target in TARGETS:
        assert (tmp_path / "page-files" / f"{target}.json").exists()


@pytest.mark.parametrize("target", ["figure2", "figure3", "figure4", "discreteness"])
def test_the_text_names_no_picture_that_is_not_there(target, tmp_path):
    text, _ = write_target(target, tmp_path / "none", tmp_path / "out")
    named = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text.read_text())
    assert [name for name in named if not (tmp_path / "out" / name).exists()] == []
