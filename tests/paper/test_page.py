"""Files that `reproduce` writes: numbers, text and figures of every target, and the results page."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest

from dihedral.learn import load_recipe
from paper.page import write_page, write_target
from paper.plan import TARGETS, plan, reduced, same_setup
from paper.runs import Run
from paper.studies import compositions, inverses, symmetry

pytest.importorskip("matplotlib")


def written(paths):
    """Return the files by name; none of them may be empty."""
    found = {path.name: path for path in paths}
    assert len(found) == len(paths) and all(path.stat().st_size > 0 for path in paths)
    return found


def content_of(path):
    return json.loads(path.read_text(), parse_constant=pytest.fail)["content"]


@pytest.fixture(scope="module")
def without_records(tmp_path_factory):
    """without_records("table3"): the files of a target by name, written once into a folder with new parents."""

    @cache
    def write(target, quick=False):
        folder = tmp_path_factory.mktemp("empty")
        found = written(write_target(target, folder / "none", folder / "a" / "new" / "folder", quick=quick))
        assert not (folder / "none").exists()
        return found

    return write


@pytest.mark.parametrize(("target", "quick"), [*((target, False) for target in TARGETS), ("figure2", True)])
def test_every_target_is_written_without_records(without_records, target, quick):
    found = without_records(target, quick)
    figures = {"figure1.png", "figure1.svg"} if target == "figure1" else set()
    assert set(found) == {f"{target}.md", f"{target}.json"} | figures
    text = found[f"{target}.md"].read_text()
    assert text.startswith("# ") and ("A quick run" in text) == quick
    assert json.loads(found[f"{target}.json"].read_text())["target"] == target


def test_figure_1_is_drawn_as_png_and_svg(without_records):
    found = without_records("figure1")
    assert found["figure1.png"].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in found["figure1.svg"].read_text()
    assert "](figure1.png)" in found["figure1.md"].read_text()


def test_table_3_without_records_has_the_papers_values(without_records):
    found = without_records("table3")
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


def test_figure_2_compares_models_with_the_same_training_setup(put, predictor, tmp_path):
    for run in plan("figure2", 1):
        if run.recipe.name == "same-setup-softmax/wn18-complex":
            put(run, studies={"inverses": inverses(predictor)})
    found = written(write_target("figure2", tmp_path / "results", tmp_path / "out"))
    (model,) = content_of(found["figure2.json"])["models"]
    assert model["model"] == "ComplEx" and model["objective"] == "softmax"
    assert "| ComplEx | softmax |" in found["figure2.md"].read_text()


def test_figure_3_needs_records_without_and_with_skew_negatives(put, predictor, tmp_path):
    rows = symmetry(predictor)
    assert {row["kind"] for row in rows} == {"symmetric", "skew"}
    plain, scheme = (Run("WN18", load_recipe(f"case/wn18-symmetry{end}")) for end in ("", "-skew"))
    put(plain, test=0.9, studies={"symmetry": rows, "inverses": []})
    alone = written(write_target("figure3", tmp_path / "results", tmp_path / "out"))
    assert "figure3.png" not in alone  # nothing to compare yet
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
def test_quick_run_of_a_table_also_serves_the_figure(put, predictor, tmp_path, target, graph, name, study):
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
    expected = {"train": record["train_curve"], "epochs": [1], "valid": [record["curve"][0][2]]}
    models = {run.recipe.model: expected for run in runs}
    assert panels == {"WN18RR, no regulariser": models, "WN18RR, L2 0.1": models}


def test_page_covers_all_targets(put, tmp_path):
    put(Run("WN18", load_recipe("paper/wn18-d4-ste")), test=0.9431)
    path = write_page(tmp_path / "results", tmp_path / "page.md")
    text = path.read_text()
    assert text.startswith("# Results")
    assert "](page-files/figure1.png)" in text and (tmp_path / "page-files" / "figure1.png").exists()
    assert "| WN18 | 0.946 | 0.9431 (D4-STE, 1 seed) |" in text
    assert "| FB15k | 0.733 | not run |" in text
    assert "- WN18, D4-STE, paper's objective: 0.9431, paper 0.946 (-0.003), not reached." in text
    for title in ("Table 3", "Table 4", "Figure 2", "Does discreteness", "Differences from the paper", "Training cost"):
        assert f"\n## {title}" in text
    for target in TARGETS:
        assert (tmp_path / "page-files" / f"{target}.json").exists()


@pytest.mark.parametrize(("target", "figures"), [("figure1", ["figure1.png"]), ("figure2", []), ("figure3", []),
                                                 ("figure4", []), ("discreteness", [])])  # fmt: skip
def test_text_links_only_to_figures_that_exist(without_records, target, figures):
    path = without_records(target)[f"{target}.md"]
    assert re.findall(r"!\[[^]]*\]\(([^)]+)\)", path.read_text()) == figures
    assert all((path.parent / name).exists() for name in figures)


@pytest.mark.parametrize(("best", "finding"), [
    ("dihedral-gumbel", "D4-Gumbel ranks 1 and graded D4-Gumbel 3 of 10; D4-Gumbel is best with 0.7000."),
    ("complex", "D4-Gumbel ranks 3 and graded D4-Gumbel 4 of 10; ComplEx is best with 0.7000."),
])  # fmt: skip
def test_page_ranks_d4_gumbel_among_models_with_the_same_training_setup(put, tmp_path, best, finding):
    for number, run in enumerate(same_setup("FB15k", "softmax")):  # D4-STE is first and D4-Gumbel second in the list
        put(run, test=0.7 if run.recipe.name.endswith(best) else 0.5 - 0.01 * number)
    text = write_page(tmp_path / "results", tmp_path / "page.md").read_text()
    assert f"- FB15k, same training setup, softmax: {finding}" in text
    assert "same training setup, logistic: D4-Gumbel ranks" not in text  # no records
