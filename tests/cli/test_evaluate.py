"""`dihedral evaluate`."""

from __future__ import annotations

import json

import pytest

import dihedral as dh
from dihedral.graph.readers import write_folder

METRICS = {"mrr", "hits@1", "hits@3", "hits@10", "mr"}


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_json_has_the_documented_shape(cli, model_folder, predictor, split):
    done = cli("evaluate", model_folder, "--split", split, "--json")
    report = json.loads(done.out, parse_constant=pytest.fail)
    assert done.code == 0 and done.err == ""
    assert report["split"] == split and report["triples"] == len(predictor.graph.split(split))
    for side in ("both", "head", "tail"):
        assert set(report[side]) == METRICS
    assert set(report["seen_only"]) == METRICS | {"triples"}
    assert sum(row["triples"] for row in report["per_relation"]) == report["triples"]
    for row in report["per_relation"]:
        assert METRICS | {"relation", "category", "triples"} <= set(row)
    assert report == dh.evaluate(predictor, split=split).to_dict()


def test_answers_can_be_ranked_in_the_order_they_are_shown(cli, model_folder, predictor):
    report = json.loads(cli("evaluate", model_folder, "--order", "auto", "--json").out)
    assert (
        report["order"] == predictor.resolve_order("auto") and report == dh.evaluate(predictor, order="auto").to_dict()
    )
    done = cli("evaluate", model_folder, "--order", "probability")
    assert "filtered by all splits, realistic ties, answers in order of probability" in done.out
    assert cli("evaluate", model_folder, "--order", "rank").err == (
        "error: order is 'rank'; choose auto, probability, score\n"
    )


def test_evaluates_the_test_split_by_default(cli, model_folder):
    assert json.loads(cli("evaluate", model_folder, "--json").out)["split"] == "test"


def test_metrics_do_not_depend_on_the_memory_limit(cli, model_folder):
    default, limited = (
        json.loads(cli("evaluate", model_folder, "--json", "--split", "train", *more).out)
        for more in ((), ("--memory-mb", "1"))
    )
    assert default == limited


def test_prints_tables(cli, model_folder, predictor):
    done = cli("evaluate", model_folder)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "test, filtered by all splits, realistic ties"
    assert lines[1].split() == ["MRR", "Hits@1", "Hits@3", "Hits@10", "mean", "rank"]
    assert lines[2].split()[:3] == ["both", "sides", f"{dh.evaluate(predictor).mrr:.4f}"]
    assert {"optimistic", "pessimistic", "spouse", "N-N"} <= {line.split()[0] for line in lines if line.split()}


def test_other_data_are_matched_by_name(cli, model_folder, predictor, family, tmp_path):
    write_folder(family, tmp_path / "again")  # read from disk, the same names have other ids
    report = json.loads(cli("evaluate", model_folder, "--data", tmp_path / "again", "--json").out)
    assert report["both"] == dh.evaluate(predictor).to_dict()["both"]


def test_other_data_with_unknown_names_are_rejected(cli, model_folder, tmp_path):
    (tmp_path / "train.txt").write_text("man_0000\tspouse\tstranger\n")
    (tmp_path / "test.txt").write_text("stranger\tspouse\tman_0000\n")
    done = cli("evaluate", model_folder, "--data", tmp_path)
    assert done.code == 2 and "entity 'stranger' is not among the 40 known" in done.err


def test_data_without_the_split_are_rejected(cli, model_folder, tmp_path):
    (tmp_path / "train.txt").write_text("man_0000\tspouse\twoman_0010\n")
    done = cli("evaluate", model_folder, "--data", tmp_path)
    assert done.code == 2 and done.err.endswith("has no test triples to evaluate on; choose a split that has some\n")


def test_all_triples_of_a_single_file_are_ranked(cli, model_folder, family, tmp_path):
    lines = ["\t".join(labels) for labels in family.names_of(family.test)]
    (tmp_path / "new.tsv").write_text("\n".join(lines))
    done = cli("evaluate", model_folder, "--data", tmp_path / "new.tsv", "--json")
    own = cli("evaluate", model_folder, "--json")
    assert json.loads(done.out)["both"] == json.loads(own.out)["both"]


def test_an_unknown_split_of_a_single_file_is_rejected(cli, model_folder, tmp_path):
    (tmp_path / "new.tsv").write_text("man_0000\tspouse\twoman_0010\n")
    done = cli("evaluate", model_folder, "--data", tmp_path / "new.tsv", "--split", "dev")
    assert (done.code, done.err) == (2, "error: split 'dev' does not exist; choose train, valid or test\n")


def test_an_unknown_split_is_rejected(cli, model_folder):
    done = cli("evaluate", model_folder, "--split", "dev")
    assert (done.code, done.err) == (2, "error: split 'dev' does not exist; choose train, valid or test\n")


def test_a_sample_is_reported_with_its_standard_error(cli, model_folder, predictor):
    found = dh.evaluate(predictor, split="train", sample=20, seed=3).to_dict()
    done = cli("evaluate", model_folder, "--split", "train", "--sample", "20", "--seed", "3")
    mrr, error = found["both"]["mrr"], found["standard_error"]["mrr"]
    assert f"train, filtered by train and valid, 20 of {len(predictor.graph.train)} triples," in done.out
    rows = [line.split() for line in done.out.splitlines()]
    assert ["both", "sides", f"{mrr:.4f}"] == rows[2][:3] and 0 < error < 0.3
    assert ["±", "standard", "error", f"{error:.4f}"] == rows[3][:4]
    as_json = cli("evaluate", model_folder, "--split", "train", "--sample", "20", "--seed", "3", "--json")
    assert json.loads(as_json.out, parse_constant=pytest.fail) == found


def test_only_the_named_split_of_a_file_with_splits_is_ranked(cli, model_folder, predictor, family, tmp_path):
    rows = family.to_arrow().rename_columns(["head", "relation", "tail", "Split"]).to_pylist()
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    (tmp_path / "facts.csv").write_text("\n".join(lines))
    done = cli("evaluate", model_folder, "--data", tmp_path / "facts.csv", "--json")
    assert json.loads(done.out)["both"] == dh.evaluate(predictor).to_dict()["both"]
    assert "tail are read, and Split as the split" in done.err


def test_notes_about_a_file_of_test_triples_are_shown(cli, model_folder, tmp_path):
    (tmp_path / "facts.csv").write_text("source,target,type\nman_0000,man_0001,parent\n")
    done = cli("evaluate", model_folder, "--data", tmp_path / "facts.csv", "--json")
    assert json.loads(done.out)["triples"] == 1
    assert done.err == (
        "note: facts.csv: the first line is a header; columns source, type, target are read as head, relation, tail\n"
    )
