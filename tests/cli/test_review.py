"""`dihedral review`: decisions one by one, in files, as corrections, and in an update."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest

import dihedral as dh
from dihedral.cli.review import Session
from dihedral.store.folder import replace_metrics
from dihedral.store.manifest import read_manifest
from dihedral.store.reviews import Decision, Reviews


@pytest.fixture
def folder(model_folder, tmp_path) -> Path:
    return Path(shutil.copytree(model_folder, tmp_path / "model"))


@pytest.fixture
def review(cli, folder, monkeypatch):
    """review("accept", "quit", "--top", 3): run the command with lines of input, options after them."""

    def run(*words: object, lines: str = ""):
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        return cli("review", folder, "--reviewer", "eve", *words)

    return run


def test_facts_are_accepted_rejected_skipped_and_undone(review, folder):
    done = review("--top", 5, lines="a\nreject no such marriage\nmaybe\ns\nundo\ne\naccept\nq\n")
    assert done.code == 0, done.err
    assert "command 'maybe' is not known; write accept, reject, skip, undo, evidence or quit" in done.err
    assert "undone: skip" in done.out and "similar facts:" in done.out
    assert "2 accepted, 1 rejected, 0 skipped; decisions are in" in done.out
    standing = list(Reviews(folder).standing().values())
    assert [each.decision for each in standing] == ["accept", "reject", "accept"]
    assert standing[1].note == "no such marriage" and {each.reviewer for each in standing} == {"eve"}
    assert done.out.startswith("1 of 5: ") and ", probability " in done.out


def test_decided_facts_are_not_shown_again_and_the_end_of_the_input_ends(review):
    first = review("--top", 3, lines="a\n").out.splitlines()[0]
    again = review("--top", 3, lines="").out
    assert first.split(": ")[1] not in again and "0 accepted" in again


def test_nothing_to_undo_is_said(review):
    assert "has made no decision that can be undone" in review("--top", 1, lines="u\nq\n").err


def test_filters(review, folder):
    shown = review("--relation", "spouse", "--top", 3, lines="s\ns\ns\n").out
    assert shown.count("  spouse  ") == 3
    assert "no facts are left to review" in review("--min-probability", 1.0).out
    assert "min_probability is 2.0; it must be between 0 and 1" in review("--min-probability", 2.0).err
    assert "type is 'Person', but the graph has no types" in review("--type", "Person").err
    dh.store.folder.relabel_model(folder, {"man_0000": {"label": "Abe", "type": "Person"}}, "en")
    assert review("--type", "Person", "--top", 3, lines="s\ns\ns\n").out.count("Abe") >= 3


def test_export_and_import(review, folder, cli, tmp_path, model_folder):
    review("--top", 3, lines="a seen\nr\ns\n")
    assert review("--export", tmp_path / "out.tsv").code == 0
    rows = list(csv.DictReader((tmp_path / "out.tsv").open(), delimiter="\t"))
    assert [(row["decision"], row["note"], row["reviewer"]) for row in rows] == [
        ("accept", "seen", "eve"), ("reject", "", "eve"),
    ]  # fmt: skip
    facts = [(row["head"], row["relation"], row["tail"]) for row in rows]
    review("--export", tmp_path / "out.nt")
    assert (tmp_path / "out.nt").read_text() == " ".join(f"<urn:dihedral:{name}>" for name in facts[0]) + " .\n"
    review("--export", tmp_path / "out.nq", "--base", "http://a.org/")
    assert "<http://a.org/review#rejected> ." in (tmp_path / "out.nq").read_text()
    other = shutil.copytree(model_folder, tmp_path / "other")
    done = cli("review", other, "--import", tmp_path / "out.tsv")
    assert done.code == 0 and "imported 2 decisions" in done.out
    standing = Reviews(other).standing()
    assert list(standing) == facts and standing[facts[0]].time == rows[0]["time"]
    assert standing[facts[0]].probability == pytest.approx(float(rows[0]["probability"]), rel=1e-3)
    assert (
        "imported 0 decisions; 2 left out: known already" in cli("review", other, "--import", tmp_path / "out.tsv").out
    )
    assert (other / "reviews.jsonl").read_text().count("\n") == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("no.tsv", None, "give a file that exists and ends in"),
        ("a.tsv", "man_0000\tspouse\tman_0001\n", "has no columns head, relation, tail and decision"),
        ("a.csv", "head,relation,tail,decision\nman_0000,spouse,man_0002\n", "line 2: 3 columns; expected 4"),
        ("a.csv", "head,relation,tail,decision\nman_0000,spouse,man_0002,perhaps\n", "decision is 'perhaps'"),
        ("a.csv", "head,relation,tail,decision,time\nman_0000,spouse,man_0002,accept,once\n", "time is 'once'"),
    ],
)
def test_invalid_imports_change_nothing(review, folder, tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    done = review("--import", tmp_path / name)
    assert done.code == 2 and message in done.err and not (folder / "reviews.jsonl").exists()


def test_rejected_facts_are_not_listed_as_missing_and_accepted_ones_are_marked(review, cli, folder):
    before = cli("missing", folder, "--json", "--top", 4).rows
    review("--top", 2, lines="a\nr\n")
    after = cli("missing", folder, "--json", "--top", 3).rows
    parts = ("head", "relation", "tail")
    assert [[row[part] for part in parts] for row in after] == [[before[i][part] for part in parts] for i in (0, 2, 3)]
    assert [row["decision"] for row in after] == ["accepted", None, None]


def test_decisions_correct_the_probabilities_of_the_model(review, cli, folder):
    before = cli("missing", folder, "--json", "--top", 30).rows
    review("--top", 10, lines="a\n" * 10)
    done = review("--calibrate")
    assert "probabilities now follow 10 decisions" in done.out
    after = cli("missing", folder, "--json", "--top", 30).rows
    assert sum(row["probability"] for row in after) > sum(row["probability"] for row in before)
    assert "precision_low" not in after[0] and dh.load(folder).calibration.corrections.accepted == 10


@pytest.mark.usefixtures("probabilities_of_small_graphs")
def test_an_update_adds_accepted_facts_and_keeps_the_decisions(review, cli, folder, tmp_path):
    assert "no accepted fact is missing from the graph" in cli("update", folder, "--reviews").err
    review("--top", 3, lines="a\nr\na\n")
    accepted, rejected = (Reviews(folder).facts(name) for name in ("accept", "reject"))
    done = cli("update", folder, "--reviews", "--out", tmp_path / "two")
    assert done.code == 0 and "version 1: added 2" in done.out
    assert Reviews(tmp_path / "two").facts("accept") == accepted
    assert cli("update", folder, "--reviews").code == 0
    updated = dh.load(folder)
    assert set(accepted) <= set(updated.graph.names_of(updated.graph.train))
    assert updated.calibration.corrections.accepted == 2 and Reviews(folder).facts("reject") == rejected
    assert "no accepted fact is missing" in cli("update", folder, "--reviews").err
    more = updated.update(add=[("zoe", "sibling", "man_0001")], progress=False)
    assert more.calibration.corrections == updated.calibration.corrections
    (tmp_path / "gone.tsv").write_text("\t".join(accepted[0]) + "\n")
    assert cli("update", folder, "--remove", tmp_path / "gone.tsv", "--out", tmp_path / "three").code == 0
    assert Reviews(tmp_path / "three").facts("accept") == accepted[1:] and Reviews(folder).facts("accept") == accepted
    assert cli("update", folder, "--remove", tmp_path / "gone.tsv").code == 0
    assert "no accepted fact is missing" in cli("update", folder, "--reviews").err
    assert Reviews(folder).standing()[accepted[0]].reviewer == "update"


def test_a_folder_without_a_model_is_an_error(cli, tmp_path):
    assert "is not a model folder" in cli("review", tmp_path).err
    assert list(tmp_path.iterdir()) == []


def test_skipped_facts_make_room_for_others(review):
    first = review("--top", 3, lines="s\ns\ns\n").out
    second = review("--top", 3, lines="q\n").out
    assert "1 of 3" in second and second.splitlines()[0].split(": ")[1] not in first


def test_a_fact_that_another_decides_meanwhile_is_passed_over(review, folder, cli, tmp_path):
    shown = review("--top", 1, lines="q\n").out.split(": ")[1].split(",")[0].split("  ")
    (tmp_path / "bob.tsv").write_text("head\trelation\ttail\tdecision\n" + "\t".join(shown) + "\trejected\n")
    assert "imported 1 decision" in cli("review", folder, "--import", tmp_path / "bob.tsv", "--reviewer", "bob").out
    session = Session(dh.load(folder), Reviews(folder), "ann")
    names = dict(zip(("head", "relation", "tail"), shown, strict=True))
    assert session._decided({**names, "score": 0.0, "probability": None}).reviewer == "bob"


def test_old_and_unknown_decisions_are_left_out_of_an_import(review, folder, tmp_path):
    review("--top", 1, lines="a\n")
    (fact,) = Reviews(folder).standing()
    rows = [(*fact, "reject", "eve", "2020-01-01"), ("nobody", *fact[1:], "reject", "eve", "")]
    text = "\n".join("\t".join(row) for row in [("head", "relation", "tail", "decision", "reviewer", "time"), *rows])
    (tmp_path / "old.tsv").write_text(text + "\n")
    out = review("--import", tmp_path / "old.tsv").out
    assert "imported 0 decisions; 1 left out: older" in out and "1 left out: with names" in out
    assert Reviews(folder).standing()[fact].decision == "accept"


def test_a_note_that_is_too_long_is_asked_for_again(review):
    done = review("--top", 2, lines=f"a {'x' * 3000}\na short\nq\n")
    assert done.code == 0 and "the note has 3,000 characters" in done.err and "1 accepted" in done.out


def test_a_reviewer_without_a_name_is_refused_before_the_search(review):
    assert "reviewer is ''" in review("--reviewer", "").err


def test_decisions_without_probabilities_correct_nothing(folder, review):
    Reviews(folder).add(Decision(("man_0000", "spouse", "man_0002"), "reject", "eve", ""))
    done = review("--calibrate")
    assert done.code == 2 and "nothing to correct by" in done.err


def test_metrics_of_a_model_that_was_replaced_are_not_stored(folder):
    before = read_manifest(folder)
    predictor = dh.load(folder)
    predictor.save(folder, overwrite=True)
    with pytest.raises(dh.DihedralError, match="was replaced in the meantime"):
        replace_metrics(folder, predictor.metrics, since=before)


@pytest.mark.parametrize("line", ["n hello", "y"])
def test_a_letter_that_means_something_else_in_the_explorer_decides_nothing(review, folder, line):
    done = review("--top", 1, lines=f"{line}\nq\n")
    assert f"command '{line[0]}' is not known" in done.err and not Reviews(folder).standing()
