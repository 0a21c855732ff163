"""`dihedral predict`."""

from __future__ import annotations

import json

import pytest

from dihedral import Graph, Predictor
from dihedral.models import build_model
from dihedral.store.trained import TrainedModel


@pytest.mark.parametrize(
    "question",
    [
        {"head": "man_0000", "relation": "spouse"},
        {"relation": "parent", "tail": "man_0001"},
        {"head": "man_0020", "tail": "man_0001"},
    ],
    ids=["tails", "heads", "relations"],
)
@pytest.mark.parametrize("known", ["include", "exclude"])
def test_json_equals_the_predictions_of_the_library(cli, model_folder, predictor, question, known):
    options = [word for key, value in question.items() for word in (f"--{key}", value)]
    done = cli("predict", model_folder, *options, "--top", 4, "--known", known, "--json")
    rows = done.rows
    assert done.code == 0 and done.err == "" and len(rows) == 4
    expected = [p._asdict() for p in predictor.predict(**question, top=4, known=known)]
    assert [list(row) for row in rows] == [["head", "relation", "tail", "score", "known", "probability"]] * 4
    assert rows == expected


def test_a_complete_triple_is_refused(cli, model_folder):
    done = cli("predict", model_folder, "--head", "man_0000", "--relation", "spouse", "--tail", "woman_0010")
    assert done.code == 2 and "3 of head, relation and tail given; give two" in done.err


def test_prints_a_table(cli, model_folder, predictor):
    lines = cli("predict", model_folder, "--head", "man_0000", "--relation", "spouse", "--top", 40).out.splitlines()
    assert lines[0].split() == ["head", "relation", "tail", "score", "probability", "known"] and len(lines) == 41
    for line, p in zip(lines[1:], predictor.predict(head="man_0000", relation="spouse", top=40), strict=True):
        assert (
            line.split() == [p.head, p.relation, p.tail, f"{p.score:.4f}", f"{p.probability:.4f}"] + ["yes"] * p.known
        )


def test_prints_ten_predictions_by_default(cli, model_folder):
    assert len(cli("predict", model_folder, "--head", "man_0000", "--relation", "spouse", "--json").rows) == 10


SPOUSE = ["--head", "man_0000", "--relation", "spouse"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SPOUSE[:2], "1 of head, relation and tail given; give two, and the third is predicted\n"),
        ([], "0 of head, relation and tail given; give two, and the third is predicted\n"),
        ([*SPOUSE[:3], "spose"], "relation 'spose' is not among the 6 known to the graph; did you mean 'spouse'?\n"),
        (["--head", "", *SPOUSE[2:]], "entity '' is not among the 40 known to the graph\n"),
        ([*SPOUSE, "--top", "0"], "top is 0; ask for at least 1 answer\n"),
        ([*SPOUSE, "--known", "no"], "known is 'no'; choose include or exclude\n"),
    ],
)
def test_invalid_queries_exit_with_2(cli, model_folder, options, message):
    done = cli("predict", model_folder, *options)
    assert done.code == 2 and done.out == "" and done.err == f"error: {message}"


def test_names_with_brackets_are_shown_literally(cli, tmp_path):
    graph = Graph.from_names([("list[int]", "r[bold]", "a[/b]"), ("a[/b]", "r[bold]", "list[int]")])
    Predictor(TrainedModel(build_model("distmult", 2, 1, dimension=4), graph)).save(tmp_path / "model")
    done = cli("predict", tmp_path / "model", "--head", "list[int]", "--relation", "r[bold]")
    assert done.code == 0 and all(name in done.out for name in ("list[int]", "r[bold]", "a[/b]"))


def test_among_limits_the_answers_to_the_entities_with_a_fact(cli, model_folder, predictor, family):
    head, relation, tail = next(iter(family.names_of(family.train)))
    question = ("--head", "man_0000", "--relation", "spouse", "--known", "include", "--json")
    done = cli("predict", model_folder, *question, "--among", f"{relation}={tail}")
    found = {row["tail"] for row in done.rows}
    assert done.code == 0 and head in found
    members = {subject for subject, name, entity in family.names_of(family.known) if (name, entity) == (relation, tail)}
    assert found <= members
    refused = cli("predict", model_folder, *question, "--among", relation)
    assert (
        refused.code == 2 and f"among is '{relation}'; write signature, range, all, or RELATION=ENTITY" in refused.err
    )


def test_a_model_without_calibration_gives_scores_and_no_judgement(cli, family, tmp_path):
    plain = Predictor(
        TrainedModel(build_model("distmult", family.num_entities, family.num_relations, dimension=4), family)
    )
    plain.save(tmp_path / "plain")
    done = cli("predict", tmp_path / "plain", "--head", "man_0000", "--relation", "spouse")
    assert "score" in done.out and "probability" not in done.out
    refused = cli("classify", tmp_path / "plain", "man_0000", "spouse", "woman_0010")
    assert refused.code == 2 and "this model has no probabilities" in refused.err


def test_all_candidates_are_no_limit_for_a_relation(cli, model_folder):
    question = ("predict", model_folder, "--head", "man_0000", "--tail", "woman_0010", "--json")
    assert cli(*question, "--among", "all").out == cli(*question).out
    refused = cli(*question, "--among", "range")
    assert refused.code == 2 and "among limits entities, but the relation is asked for" in refused.err


def test_a_path_model_answers_from_another_graph(cli, path_predictor, tmp_path):
    path_predictor.save(tmp_path / "model")
    other = tmp_path / "other.tsv"
    other.write_text("ann\tspouse\tbob\nbob\tparent\tcid\n")
    asked = ("predict", tmp_path / "model", "--head", "ann", "--relation", "spouse", "--json")
    done = cli(*asked, "--graph", other)
    assert done.code == 0 and {json.loads(line)["tail"] for line in done.out.splitlines()} == {"ann", "bob", "cid"}
    told = cli("explain", tmp_path / "model", "ann", "spouse", "bob", "--graph", other)
    assert told.code == 0 and "ann" in told.out
    other.write_text("ann\tlikes\tbob\n")
    done = cli(*asked, "--graph", other)
    assert done.code == 2 and "has relations that the model does not know: 'likes'; leave" in done.err
