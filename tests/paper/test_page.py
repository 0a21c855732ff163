"""Files that `reproduce` writes: numbers, text and figures of every target, and the results page."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest

from dihedral.learn import load_recipe
from paper.page import KEPT, write_page, write_target
from paper.plan import TARGETS, plan, reduced, same_setup
from paper.runs import Run
from paper.studies import compositions, inverses, symmetry

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.thorough  # writes every page and figure


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
    assert "| WN18 | D4-STE | paper's objective | 200 | 0.9431 |" in text
    for title in ("Table 3", "Table 4", "Figure 2", "Does discreteness", "Differences from the paper"):
        assert f"\n## {title}" in text
    assert {path.suffix for path in (tmp_path / "page-files").iterdir()} == {".png", ".svg"}


def test_the_end_of_an_existing_page_is_kept(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"# Old\n\n{KEPT}\n\n## More\n")
    text = write_page(tmp_path / "results", path).read_text()
    assert text.startswith("# Results") and text.endswith(f"\n{KEPT}\n\n## More\n")
    assert write_page(tmp_path / "results", path).read_text() == text


@pytest.mark.parametrize(("target", "figures"), [("figure1", ["figure1.png"]), ("figure2", []), ("figure3", []),
                                                 ("figure4", []), ("discreteness", [])])  # fmt: skip
def test_text_links_only_to_figures_that_exist(without_records, target, figures):
    path = without_records(target)[f"{target}.md"]
    assert re.findall(r"!\[[^]]*\]\(([^)]+)\)", path.read_text()) == figures
    assert all((path.parent / name).exists() for name in figures)


def test_page_compares_models_with_the_same_training_setup(put, tmp_path):
    for run in same_setup("FB15k", "softmax"):
        put(run, test=0.7 if run.recipe.name.endswith("complex") else 0.5)
    text = write_page(tmp_path / "results", tmp_path / "page.md").read_text()
    assert "| model | FB15k, softmax | paper: FB15k |" in text  # no other graph and objective has records
    assert "| ComplEx | 0.700 | 0.692 |" in text and "| D4-Gumbel | 0.500 |  |" in text
