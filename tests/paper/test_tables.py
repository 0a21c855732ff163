"""Tables of records next to the paper's values."""

from __future__ import annotations

from statistics import mean, stdev

import pytest

from dihedral.io.files import write_json
from dihedral.learn import load_recipe
from paper.plan import recipes_of, reduced, same_setup
from paper.reported import REPORTED, TABLES
from paper.runs import Run
from paper.tables import COMPARED, OURS, QUOTED, markdown, table_markdown, table_rows

PAPER_STE = Run("WN18", load_recipe("paper/wn18-d4-ste"))


def of_recipe(rows, name):
    (row,) = [row for row in rows if row.get("recipe") == name]
    return row


def lines_of(text, graph):
    """Return the cells of every table row in the section of a graph."""
    section = text.split(f"### {graph}\n")[1].split("\n### ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


@pytest.mark.parametrize("target", TABLES)
def test_tables_without_records_have_only_the_papers_values(target, tmp_path):
    rows = table_rows(target, tmp_path)
    for graph in TABLES[target]:
        ours = [row for row in rows if row["graph"] == graph and row["group"] == OURS]
        assert [row["recipe"] for row in ours] == recipes_of(graph)
        assert all(row["missing"].startswith("not run") and "test" not in row for row in ours)
        quoted = {row["model"] for row in rows if row["graph"] == graph and row["group"] == QUOTED}
        compared = {row["model"] for row in rows if row["graph"] == graph and row["group"] == COMPARED}
        assert set(REPORTED[graph]) <= quoted | compared | {"D4-STE", "D4-Gumbel"}  # no value of the paper is missing
    assert all("not run" in row["missing"] for row in rows if row["group"] == COMPARED)
    text = table_markdown(target, rows)
    for graph in TABLES[target]:
        lines = lines_of(text, graph)
        assert len({len(line) for line in lines}) == 1  # every row has as many cells as the header
        (line,) = [line for line in lines if line[0] == "D4-STE" and line[9]]  # the paper's recipe
        assert line[1].startswith("not run") and line[4] == ""
        assert line[9] == f"{REPORTED[graph]['D4-STE'][3] / 100:.3f}"


def test_record_is_next_to_the_papers_value(put, tmp_path):
    record = put(PAPER_STE, test=0.9321, valid=0.9)
    rows = table_rows("table3", tmp_path / "results")
    row = of_recipe(rows, "paper/wn18-d4-ste")
    assert row["test"] == {key: record["test"]["both"][key] for key in ("mrr", "hits@1", "hits@3", "hits@10")}
    assert row["paper"] == {"hits@1": 0.942, "hits@3": 0.948, "hits@10": 0.952, "mrr": 0.946}
    assert row["seeds"] == [0] and row["test_spread"] is None and row["valid_mrr"] == 0.9
    assert [r["recipe"] for r in rows if r["group"] == OURS and "test" in r] == ["paper/wn18-d4-ste"]
    lines = lines_of(table_markdown("table3", rows), "WN18")
    header = lines[0]
    (line,) = [line for line in lines if "0.9321" in line]
    cells = dict(zip(header, line, strict=True))
    assert cells["model"] == "D4-STE" and cells["training"] == "paper's objective, logistic"
    assert cells["MRR"] == "0.9321" and cells["paper: MRR"] == "0.946" and cells["2L"] == "200"
    assert cells["MRR, seen entities only"] == f"{record['test']['seen_only']['mrr']:.3f}"
    assert sum(line[1].startswith("not run") for line in lines) == len(recipes_of("WN18")) - 1


def test_seeds_are_summarised_by_mean_and_standard_deviation(put, tmp_path):
    values = [0.5, 0.6, 0.52]
    for seed, value in enumerate(values):
        put(Run("WN18", PAPER_STE.recipe, seed), test=value)
    row = of_recipe(table_rows("table3", tmp_path / "results"), "paper/wn18-d4-ste")
    assert row["seeds"] == [0, 1, 2] and len(row["seconds"]) == len(row["best_epochs"]) == 3
    assert row["test"]["mrr"] == mean(values) and row["test_spread"] == stdev(values)
    text = table_markdown("table3", table_rows("table3", tmp_path / "results"))
    assert f"{mean(values):.4f} ± {stdev(values):.4f}" in text
    assert of_recipe(table_rows("table3", tmp_path / "results", seeds=2), "paper/wn18-d4-ste")["seeds"] == [0, 1]


def test_record_with_other_settings_is_not_in_the_table(put, tmp_path):
    put(Run("WN18", PAPER_STE.recipe.replace(epochs=1)))
    row = of_recipe(table_rows("table3", tmp_path / "results"), "paper/wn18-d4-ste")
    assert row["missing"].startswith("not run")


def test_recipes_with_another_objective_are_not_compared_with_the_paper(put, tmp_path):
    put(Run("WN18", load_recipe("best/wn18-d4-ste")), test=0.95)
    row = of_recipe(table_rows("table3", tmp_path / "results"), "best/wn18-d4-ste")
    assert row["kind"] == "best recipe" and "paper" not in row and row["objective"] == "softmax"


def test_model_name_includes_the_size_of_the_group(tmp_path):
    rows = table_rows("table4", tmp_path)
    assert of_recipe(rows, "best/fb15k-237-d8-gumbel")["model"] == "D8-Gumbel"


def test_quick_records_are_only_in_quick_tables(put, tmp_path):
    put(reduced(PAPER_STE), test=0.25)
    quick = of_recipe(table_rows("table3", tmp_path / "results", quick=True), "paper/wn18-d4-ste")
    assert quick["test"]["mrr"] == 0.25 and quick["dimension"] == 100
    assert "test" not in of_recipe(table_rows("table3", tmp_path / "results"), "paper/wn18-d4-ste")


def test_models_with_the_same_training_setup_are_rows_and_baselines_have_the_papers_value(put, tmp_path):
    for number, run in enumerate(same_setup("WN18", "softmax") + same_setup("WN18", "logistic")):
        if run.recipe.model in ("complex", "dihedral-ste", "rescal"):
            put(run, test=0.01 * number)
    rows = [row for row in table_rows("table3", tmp_path / "results") if row["group"] == COMPARED]
    rows = [row for row in rows if "test" in row]
    found = {(row["model"], row["objective"]): row.get("paper", {}).get("mrr") for row in rows}
    assert found == {
        (model, objective): {"ComplEx": 0.941}.get(model)
        for model in ("D4-STE", "ComplEx", "RESCAL")
        for objective in ("logistic", "softmax")
    }
    assert {row["kind"] for row in rows} == {"same training setup, logistic", "same training setup, softmax"}


def test_table_gives_the_number_of_concurrent_runs(put, tmp_path):
    record = put(PAPER_STE)
    write_json(PAPER_STE.path(tmp_path / "results" / "runs"), record | {"concurrent_runs": 3, "seconds": 12.4})
    header, *lines = lines_of(table_markdown("table3", table_rows("table3", tmp_path / "results")), "WN18")
    (cells,) = [dict(zip(header, line, strict=True)) for line in lines if line[header.index("MRR")] == "0.5000"]
    assert cells["seconds"] == "12" and cells["concurrent runs"] == "3"


def test_markdown_is_a_table():
    assert markdown(["a", "b"], [[1, "x"], [2.5, ""]]) == "| a | b |\n|---|---|\n| 1 | x |\n| 2.5 |  |\n"
