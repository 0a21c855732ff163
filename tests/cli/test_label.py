"""`dihedral label`, and labels in what the other commands print and accept."""

from __future__ import annotations

import shutil

import pyarrow.parquet as papq
import pytest

import dihedral as dh


@pytest.fixture
def labelled(cli, model_folder, tmp_path):
    """A model folder whose people and relations have labels."""
    shutil.copytree(model_folder, tmp_path / "model")
    text = "id\tlabel\nman_0000\tJosé\nman_0001\tKarl\nman_0002\tKarl\nspouse\tmarried to\n"
    (tmp_path / "labels.tsv").write_text(text, encoding="utf-8")
    done = cli("label", tmp_path / "model", tmp_path / "labels.tsv")
    assert done.code == 0 and done.out.startswith("labels: 3 of ")
    return tmp_path / "model"


def test_labels_are_counted_as_json(cli, labelled, tmp_path):
    (tmp_path / "more.json").write_text('{"parent": "parent of"}')
    assert cli("label", labelled, tmp_path / "more.json", "--json").rows == [{"entities": 3, "relations": 2}]


def test_a_label_is_printed_with_its_id_and_accepted(cli, labelled):
    out = cli("predict", labelled, "--head", "José", "--relation", "married to", "--top", 2).out
    assert out.count("José (man_0000)") >= 2 and out.count("married to (spouse)") == 2
    row = cli("predict", labelled, "--head", "José", "--relation", "married to", "--top", 1, "--json").rows[0]
    assert row["head"] == "man_0000" and row["labels"].items() >= {"man_0000": "José", "spouse": "married to"}.items()


def test_every_command_shows_labels(cli, labelled):
    runs = [
        ("similar", labelled, "man_0020", "--top", 300),
        ("missing", labelled, "--relation", "spouse"),
        ("explain", labelled, "man_0000", "spouse", "woman_0010"),
        ("classify", labelled, "man_0000", "spouse", "woman_0010"),
        ("query", labelled, "--from", "man_0020", "--via", "spouse", "--via", "married to", "--top", 300),
        ("rules", labelled, "--kind", "symmetric", "--min-support", 1),
        ("evaluate", labelled),
    ]
    for words in runs:
        done = cli(*words)
        assert done.code == 0 and ("José (man_0000)" in done.out or "married to (spouse)" in done.out), words


def test_a_label_of_several_is_refused_with_the_ids(cli, labelled):
    done = cli("predict", labelled, "--head", "Karl", "--relation", "spouse")
    assert done.code == 2
    assert done.err == "error: entity 'Karl' is the label of 2 entities: man_0001, man_0002; give the id\n"


def test_files_of_answers_have_columns_of_labels(cli, labelled, tmp_path):
    cli("missing", labelled, "--relation", "spouse", "--out", tmp_path / "facts.parquet")
    table = papq.read_table(tmp_path / "facts.parquet")
    assert set(table["relation_label"].to_pylist()) == {"married to"} and "tail_label" in table.column_names
    cli("export", labelled, "--out", tmp_path / "vectors.parquet")
    assert "José" in papq.read_table(tmp_path / "vectors.parquet")["label"].to_pylist()


def test_training_takes_labels(cli, tmp_path):
    (tmp_path / "facts.tsv").write_text("Q1\tP1\tQ2\nQ2\tP1\tQ3\nQ3\tP1\tQ1\n")
    (tmp_path / "labels.csv").write_text("id,label,language\nQ1,eins,de\nQ1,one,en\nP1,next,en\n")
    words = ("train", tmp_path / "facts.tsv", "--out", tmp_path / "model", "--set", "epochs=1")
    done = cli(*words, "--labels", tmp_path / "labels.csv", "--language", "de,en")
    assert done.code == 0 and "labels: 1 of 3 entities, 1 of 1 relations" in done.err
    assert dh.load(tmp_path / "model").graph.entities.shown("Q1") == "eins (Q1)"


def test_ids_that_the_graph_does_not_have_are_counted(cli, labelled, tmp_path):
    (tmp_path / "more.tsv").write_text("id\tlabel\nNobody\tNo one\nman_0004\tMax\n")
    done = cli("label", labelled, tmp_path / "more.tsv")
    assert done.err == "ids that are not in the graph: 1, such as 'Nobody'\n"
