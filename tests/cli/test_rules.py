"""`dihedral rules`."""

from __future__ import annotations

import json

import dihedral as dh


def test_rules_are_printed_as_tables_json_and_csv(cli, model_folder):
    options = ("rules", model_folder, "--min-support", 1)
    done = cli(*options, "--top", "3")
    assert done.code == 0 and "compositions" in done.out and "order matters" in done.out
    assert cli(*options, "--top", "2", "--csv").out.startswith("kind,body,head,score")
    rules = cli(*options, "--top", "2", "--json").rows
    assert {"pca_confidence", "head_coverage", "agreement"} <= rules[0].keys()
    assert {"share", "chance", "kappa", "p"} <= rules[0]["agreement"].keys()
    refused = cli(*options, "--kind", "odd")
    assert refused.code == 2 and "kind is 'odd'; choose symmetric" in refused.err


def test_the_kinds_of_rules_are_those_that_python_finds(cli, model_folder, predictor):
    found = cli("rules", model_folder, "--top", "3", "--json").rows
    assert [rule["kind"] for rule in found] == [rule.kind for rule in dh.find_rules(predictor, top=3)]
    assert any(rule["kind"] == "skew-symmetric" for rule in found)


def test_rules_are_listed_for_one_relation(cli, model_folder):
    options = ("rules", model_folder, "--min-support", 1, "--min-score", 0, "--kind", "composition", "--json")
    heads = [rule["head"] for rule in cli(*options).rows]
    found = [rule["head"] for rule in cli(*options, "--relation", heads[-1]).rows]
    assert found == [head for head in heads if head == heads[-1]]
    refused = cli("rules", model_folder, "--constants", "tail", "--relation", heads[-1])
    assert refused.code == 2 and "--constants is given with --relation" in refused.err


def test_mined_rules_are_printed_in_other_formats_and_read_back(cli, model_folder, tmp_path):
    options = ("rules", model_folder, "--min-support", 1, "--top", 5)
    amie = cli(*options, "--format", "amie")
    assert amie.code == 0 and amie.out.startswith("Rule\tHead Coverage\tStd Confidence")
    path = tmp_path / "rules.tsv"
    path.write_text(amie.out, "utf-8")
    again = cli("rules", model_folder, "--read", path)
    assert again.code == 0 and again.out == amie.out
    anyburl = cli("rules", model_folder, "--read", path, "--format", "anyburl").out
    assert " <= " in anyburl and len(anyburl.splitlines()) == len(amie.out.splitlines()) - 1
    assert cli(*options, "--format", "sparql").out.startswith("# 1. ")
    refused = cli(*options, "--format", "prolog")
    assert refused.code == 2 and "format is 'prolog'; choose one of amie, anyburl" in refused.err


def test_a_file_of_rules_is_counted_in_a_graph_without_a_model(cli, tmp_path):
    (tmp_path / "graph.tsv").write_text("ann\tspouse\tbob\nbob\tspouse\tann\neve\tspouse\tfred\n")
    rules = tmp_path / "rules.txt"
    rules.write_text(
        "9\t9\t1.0\tspouse(X,Y) <= spouse(Y,X)\n9\t9\t1.0\tspouse(X,Y) <= married(X,Y)\n9\t9\t1.0\tr(X,a) <= \n"
    )
    done = cli("rules", tmp_path / "graph.tsv", "--read", rules, "--format", "anyburl")
    assert done.out == "3\t2\t0.666666667\tspouse(X,Y) <= spouse(Y,X)\n"
    assert "left out 1 rules with names that the graph does not have, such as 'married'" in done.err
    assert "such as line 3: the body is empty" in done.err
    derived = cli("materialise", rules, tmp_path / "graph.tsv", "--json").rows
    assert [(row["head"], row["relation"], row["tail"], row["reason"]) for row in derived] == [
        ("fred", "spouse", "eve", "spouse(eve,fred)")
    ]
    out = tmp_path / "new.nt"
    assert cli("materialise", rules, tmp_path / "graph.tsv", "--out", out, "--base", "http://example.org/").code == 0
    assert out.read_text() == "<http://example.org/fred> <http://example.org/spouse> <http://example.org/eve> .\n"
    refused = cli("materialise", rules, tmp_path / "graph.tsv", "--out", tmp_path / "new.xml")
    assert refused.code == 2 and "its name must end in .tsv, .csv, .parquet, .nt or .nq" in refused.err


def test_rules_are_sorted_and_left_out_as_asked(cli, model_folder):
    options = ("rules", model_folder, "--kind", "composition", "--min-support", 1, "--json")
    sure = cli(*options, "--min-confidence", 0.8).rows
    assert sure and all(rule["confidence"] >= 0.8 for rule in sure)
    believed = [rule["score"] for rule in cli(*options, "--sort", "belief").rows]
    assert len(believed) > 5 and believed == sorted(believed, reverse=True)
    refused = cli(*options, "--sort", "score")
    assert refused.code == 2 and "sort is 'score'; choose confidence, belief, support" in refused.err
    options = (*options[:2], "--constants", "tail", "--min-support", 1, "--min-confidence", 0.5, "--sort", "support")
    of_constants = json.loads(cli(*options, "--json").out)
    assert of_constants and all(rule["confidence"] >= 0.5 for rule in of_constants)
    supports = [rule["support"] for rule in of_constants]
    assert supports == sorted(supports, reverse=True)
