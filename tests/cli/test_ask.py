"""`dihedral ask`."""

from __future__ import annotations

import csv
import io
import json

import pytest

import dihedral as dh

QUERY = "SELECT ?x WHERE { <man_0020> <spouse> ?y . ?y <parent> ?x }"


def test_answers_equal_those_of_the_library(cli, model_folder):
    found = cli("ask", model_folder, QUERY, "--json", "--top", "3").rows
    expected = dh.load(model_folder).ask(QUERY, top=3)
    assert [(row["entity"], row["variables"]) for row in found] == [(a.entity, a.variables) for a in expected]
    assert [[fact["known"] for fact in row["facts"]] for row in found] == [[f.known for f in a.facts] for a in expected]


def test_the_table_shows_variables_and_facts(cli, model_folder):
    done = cli("ask", model_folder, QUERY, "--top", "2")
    assert done.code == 0 and "?y" in done.out and "rests on" in done.out and "spouse" in done.out


def test_csv_has_a_row_per_answer(cli, model_folder):
    rows = list(csv.reader(io.StringIO(cli("ask", model_folder, f"{QUERY} LIMIT 4", "--csv").out)))
    assert rows[0] == ["answer", "value", "probability", "known", "?y", "rests on"] and len(rows) == 5


def test_a_value_that_is_not_fitted_is_not_called_probability(cli, model_folder):
    for more in ([], ["--ways", "max"]):
        fitted = dh.load(model_folder).ask(QUERY, **({"ways": "max"} if more else {}))[0].probability is not None
        header = cli("ask", model_folder, QUERY, *more).out.splitlines()[0].split()
        assert header[1] == ("probability" if fitted else "value")
        row = cli("ask", model_folder, QUERY, *more, "--json").rows[0]
        assert (row["probability"] is not None) == fitted and row["value"] > 0
        csv_row = next(csv.DictReader(io.StringIO(cli("ask", model_folder, QUERY, *more, "--csv").out)))
        assert (csv_row["probability"] != "") == fitted
    assert not fitted


def test_explain_prints_the_plan_with_candidates(cli, model_folder):
    done = cli("ask", model_folder, QUERY, "--explain")
    lines = done.out.splitlines()
    assert lines[0].startswith("parent from ?y: ") and "candidates" in lines[0]
    assert lines[2].strip() == "man_0020: 1 candidate"
    content = json.loads(cli("ask", model_folder, QUERY, "--explain", "--json").out)
    assert content["plan"] == lines[:3] and content["answers"]


def test_the_json_form_is_read(cli, model_folder):
    query = {"select": "x", "where": {"fact": ["man_0020", "spouse", {"variable": "x"}]}}
    by_json = cli("ask", model_folder, json.dumps(query), "--json").out
    assert by_json == cli("ask", model_folder, "SELECT ?x { <man_0020> <spouse> ?x }", "--json").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SELECT ?x { <man_0020> <spouze> ?x }"], "relation 'spouze' is not among"),
        (["SELECT ?x"], "the query is not SPARQL"),
        (["{"], "the query is not JSON"),
        ([QUERY, "--json", "--csv"], "both --json and --csv are given"),
        ([QUERY, "--ways", "all"], "ways is 'all'; choose noisy-or or max"),
        ([QUERY, "--top", "0"], "top is 0"),
        ([QUERY, "--known", "some"], "known is 'some'"),
    ],
)
def test_invalid_words_are_refused(cli, model_folder, words, message):
    done = cli("ask", model_folder, *words)
    assert done.code == 2 and message in done.err
