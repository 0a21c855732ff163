"""Results: plain lists that show as tables in notebooks and convert to the tables of other libraries."""

from __future__ import annotations

import copy
import re
from dataclasses import replace

import pytest

import dihedral as dh
from dihedral.ask.tree import path_query
from dihedral.io.display import table
from dihedral.predict.results import Results


@pytest.fixture(scope="module")
def labelled(predictor):
    graph = predictor.graph.with_labels({"man_0000": "José <b>", "spouse": "married to"})
    return dh.Predictor(replace(predictor.trained, graph=graph))


def all_results(predictor):
    return {
        "predict": predictor.predict(head="man_0000", relation="spouse", top=3),
        "relations": predictor.predict(head="man_0000", tail="man_0001", top=3),
        "similar": predictor.similar("man_0001", top=3),
        "query": predictor.ask(path_query("man_0000", ["spouse", "~spouse"], predictor.graph.relations), top=3),
        "classify": predictor.classify([("man_0000", "spouse", "woman_0010")]),
        "ask": predictor.ask("SELECT ?x WHERE { <man_0000> <spouse> ?x }", top=3),
        "rules": dh.find_rules(predictor, min_support=1, top=3),
    }


KINDS = ("predict", "relations", "similar", "query", "classify", "ask", "rules")


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_of_results_converts_to_every_table(labelled, kind):
    found = all_results(labelled)[kind]
    table = found.to_arrow()
    assert table.num_rows == len(found) > 0
    assert found.to_pandas().shape == (table.num_rows, table.num_columns)
    assert found.to_polars().shape == (table.num_rows, table.num_columns)
    assert found == list(found) and isinstance(found, list)


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_of_results_is_a_table_in_a_notebook_with_labels_escaped(labelled, kind):
    html = all_results(labelled)[kind]._repr_html_()
    assert html.startswith("<table>") and "<b>" not in html
    if kind in ("predict", "relations", "classify"):
        assert "José &lt;b&gt; (man_0000)" in html


def test_tables_have_columns_of_labels(labelled, predictor):
    rows = labelled.predict(head="man_0000", relation="spouse", top=2).to_arrow().to_pylist()
    assert rows[0]["head_label"] == "José <b>" and rows[0]["relation_label"] == "married to"
    assert "head_label" not in predictor.predict(head="man_0000", relation="spouse").to_arrow().column_names


def test_results_can_be_copied(predictor):
    found = predictor.predict(head="man_0000", relation="spouse", top=2)
    again = copy.deepcopy(found)
    assert again == found and isinstance(again, Results)


def test_no_results_are_said_to_be_none(predictor):
    assert Results([], predictor.graph)._repr_html_() == "<p>no results</p>"
    assert Results([], predictor.graph).to_arrow().num_rows == 0


def test_notebooks_show_text_to_the_left_and_unbroken(predictor):
    rules = dh.find_rules(predictor, top=1, min_support=1, min_score=0)
    html = rules._repr_html_()
    (header,) = re.findall("<thead>(.*)</thead>", html)
    names = re.findall(r">([^<>]+)</th>", header)
    assert names == ["rule", "confidence", "support", "score", "pca_confidence", "head_coverage", "order_matters"]
    first = re.findall(r"<tr><td([^>]*)>", html)
    assert first and all("text-align:left" in style and "nowrap" in style for style in first)
    assert f"<td>{rules[0].support}</td>" in html
    long = table(("text", "number"), [["word " * 40, 1]])
    assert "min-width" in long and "nowrap" not in long.split("<tbody>")[1] and "<td>1</td>" in long


def test_graphs_predictors_reports_explanations_and_rows_show_in_notebooks(labelled):
    graph = labelled.graph
    assert "entities" in graph._repr_html_() and "the first training facts" in graph._repr_html_()
    assert "MRR" in labelled._repr_html_() and "model" in labelled._repr_html_()
    report = dh.evaluate(labelled)
    assert "both sides" in report._repr_html_() and report.to_pandas().shape[0] == report.to_arrow().num_rows > 0
    explained = dh.explain(labelled, "man_0000", "spouse", "woman_0010")
    assert "José &lt;b&gt; (man_0000)" in explained._repr_html_() and explained.labels["spouse"] == "married to"
    row = dh.algebra(labelled)["spouse"]
    assert "<svg" in row._repr_html_() and "married to (spouse)" in row._repr_html_()
    assert "<svg" in (row @ ~row)._repr_html_()
