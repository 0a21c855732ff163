"""Decisions about facts: the latest stands, undo restores, and reviewers do not take away from each other."""

from __future__ import annotations

import re
import shutil
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError
from dihedral.store.reviews import Decision, Reviews, clean, to_text

FACT, OTHER = ("ann", "knows", "bob"), ("bob", "knows", "ann")


@pytest.fixture
def reviews(tmp_path) -> Reviews:
    return Reviews(tmp_path)


def decide(reviews: Reviews, decision: str, fact=FACT, reviewer="eve", note="") -> None:
    reviews.add(Decision(fact, decision, reviewer, "", note))


def verdict_of(reviews: Reviews, fact) -> str | None:
    return verdict(reviews, fact)


def verdict(reviews: Reviews, fact=FACT) -> str | None:
    found = reviews.standing().get(fact)
    return found and found.decision


def test_a_decision_is_kept_with_who_when_and_why(reviews, tmp_path):
    reviews.add(Decision(FACT, "accept", " Eve  E. ", "", "seen\nin the\tarchive", 0.25))
    found = Reviews(tmp_path).standing()[FACT]
    assert (found.reviewer, found.note, found.probability) == ("Eve E.", "seen in the archive", 0.25)
    assert found.time.endswith("+00:00") and reviews.standing() == Reviews(tmp_path).standing()
    assert (tmp_path / "reviews.jsonl").read_text().count("\n") == 1


def test_the_latest_stands_and_undo_restores_the_one_before(reviews):
    for decision in ("accept", "reject", "skip"):
        decide(reviews, decision)
    assert verdict(reviews) is None and reviews.facts("skip") == [FACT]
    assert reviews.undo("eve").decision == "skip" and verdict(reviews) == "reject"
    reviews.undo("eve", FACT)
    assert verdict(reviews) == "accept"
    reviews.undo("eve")
    assert reviews.standing() == {} and reviews.facts("skip") == []
    with pytest.raises(DihedralError, match="reviewer 'eve' has made no decision that can be undone"):
        reviews.undo("eve")


def test_undo_takes_back_only_what_the_same_reviewer_decided(reviews):
    decide(reviews, "accept", reviewer="eve")
    decide(reviews, "reject", reviewer="kim")
    decide(reviews, "skip", reviewer="lou")
    assert verdict(reviews) == "reject" and reviews.disputed() == {FACT}
    reviews.undo("eve")
    assert verdict(reviews) == "reject" and reviews.disputed() == set()
    with pytest.raises(DihedralError, match="no decision about"):
        reviews.undo("eve", FACT)
    reviews.undo("kim")
    assert verdict(reviews) is None and reviews.opinions("lou")[FACT].decision == "skip"


def test_the_latest_decision_of_a_reviewer_is_undone_first(reviews):
    decide(reviews, "accept", FACT)
    decide(reviews, "reject", OTHER)
    assert reviews.facts("accept") == [FACT] and reviews.facts("reject") == [OTHER]
    assert reviews.undo("eve").fact == OTHER and reviews.undo("eve").fact == FACT


def test_the_same_decision_again_is_not_written(reviews):
    decide(reviews, "accept")
    decide(reviews, "accept")  # an answer was lost, and the client asks again
    assert reviews.path.read_text().count("\n") == 1
    decide(reviews, "accept", note="sure")
    assert reviews.path.read_text().count("\n") == 2


def test_decisions_of_another_process_are_seen_at_once(reviews, tmp_path):
    other = Reviews(tmp_path)
    decide(other, "accept")
    assert verdict(reviews) == "accept"
    decide(reviews, "reject", OTHER)
    assert verdict(other, OTHER) == "reject"


@pytest.mark.parametrize(
    "line",
    ["{}", "[]", '{"head": 1}', '{"head":"a","relation":"r","tail":"b","decision":"no","reviewer":"e","time":""}'],
)
def test_lines_that_are_no_decisions_are_skipped(reviews, line):
    decide(reviews, "accept")
    with reviews.path.open("a") as stream:
        stream.write(line + "\n")
    decide(reviews, "reject", OTHER)
    assert len(reviews.standing()) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decision": "undo"}, "decision is 'undo'; choose accept, reject, skip"),
        ({"reviewer": " "}, "reviewer is ''; give a name of 1 to 100 characters"),
        ({"reviewer": "x" * 101}, "give a name of 1 to 100"),
        ({"note": "x" * 2001}, "the note has 2,001 characters"),
        ({"time": "yesterday"}, "time is 'yesterday'; write it as 20"),
    ],
)
def test_invalid_decisions_are_refused(reviews, change, message):
    with pytest.raises(DihedralError, match=message):
        reviews.add(replace(Decision(FACT, "accept", "eve", ""), **change))
    assert not reviews.path.exists()


def test_half_characters_do_not_reach_the_file():
    assert clean("a\ud800b") == "a?b"


def test_decisions_survive_saving_another_model_into_the_folder(predictor, model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    decide(Reviews(folder), "accept")
    predictor.save(folder, overwrite=True)
    assert verdict(Reviews(folder)) == "accept"
    (tmp_path / "other").mkdir()
    Reviews(folder).copy_to(tmp_path / "other")
    assert Reviews(tmp_path / "other").standing() == Reviews(folder).standing()


def test_a_reviewer_may_insist_on_an_earlier_decision(reviews):
    decide(reviews, "accept", reviewer="eve")
    decide(reviews, "reject", reviewer="kim")
    decide(reviews, "accept", reviewer="eve")
    assert verdict(reviews) == "accept" and reviews.standing()[FACT].reviewer == "eve"


def test_a_time_is_stored_in_utc(reviews):
    reviews.add(Decision(FACT, "accept", "eve", "2020-01-01T02:00:00+02:00"))
    reviews.add(Decision(OTHER, "accept", "eve", "2020-01-01"))
    assert {each.time for each in reviews.standing().values()} == {"2020-01-01T00:00:00.000+00:00"}


def test_several_decisions_about_a_fact_are_kept_in_their_order(reviews):
    fact = ("a", "r", "b")
    accept, reject = (Decision(fact, name, "ann", "") for name in ("accept", "reject"))
    reviews.add(accept)
    assert reviews.add(reject, accept) == 2 and reviews.standing()[fact].decision == "accept"
    assert reviews.add(accept, accept) == 0
    assert reviews.undo("ann").decision == "accept" and reviews.standing()[fact].decision == "reject"


def test_the_latest_in_time_stands_and_not_what_was_imported_last(reviews):
    fact = ("a", "r", "b")
    reviews.add(Decision(fact, "reject", "ann", ""))
    reviews.add(Decision(fact, "accept", "bob", "2020-01-01"))
    assert reviews.standing()[fact].decision == "reject" and reviews.disputed() == {fact}


def test_a_skip_does_not_move_what_another_has_decided(reviews):
    first, second = ("a", "r", "b"), ("b", "r", "a")
    reviews.add(Decision(first, "accept", "ann", ""), Decision(second, "accept", "ann", ""))
    reviews.add(Decision(first, "skip", "bob", ""))
    assert list(reviews.standing()) == [first, second]


def test_a_copy_does_not_replace_decisions(reviews, tmp_path):
    reviews.add(Decision(("a", "r", "b"), "accept", "ann", ""))
    other = tmp_path / "other"
    other.mkdir()
    Reviews(other).add(Decision(("b", "r", "a"), "reject", "bob", ""))
    with pytest.raises(DihedralError, match="decisions are never overwritten"):
        reviews.copy_to(other)
    assert Reviews(other).facts("reject") == [("b", "r", "a")]


def test_many_decisions_about_one_fact_are_added_at_once(reviews, monkeypatch):
    written = []
    append = reviews.journal._append
    monkeypatch.setattr(reviews.journal, "_append", lambda *given: written.append(1) or append(*given))
    verdicts = ["accept", "reject", "reject"] * 1000
    assert reviews.add(*(Decision(FACT, each, "eve", "") for each in verdicts)) == 2000 and written == [1]
    assert verdict(reviews) == "reject"


@given(st.lists(st.tuples(st.sampled_from(["accept", "reject", "skip", "undo"]), st.integers(0, 1), st.integers(0, 2))))
def test_what_stands_is_what_a_reader_of_the_journal_would_find(tmp_path_factory, steps):
    reviews, left = Reviews(tmp_path_factory.mktemp("reviews")), []
    for number, (verdict, which, who) in enumerate(steps):
        fact, reviewer = (FACT, OTHER)[which], f"reviewer {who}"
        own = [each for each in left if each[1:3] == (fact, reviewer)]
        if verdict == "undo":
            if own:
                reviews.undo(reviewer, fact)
                left.remove(own[-1])
            continue
        decision = Decision(fact, verdict, reviewer, f"2026-01-01T00:00:{number:02}+00:00", note=str(number))
        assert reviews.add(decision) == 1
        left.append((verdict, fact, reviewer, number))
    for fact in (FACT, OTHER):
        latest = {each[2]: each for each in left if each[1] == fact}
        judged = [each for each in latest.values() if each[0] != "skip"]
        stands = max(judged, key=lambda each: each[3])[0] if judged else None
        assert verdict_of(reviews, fact) == verdict_of(Reviews(reviews.path.parent), fact) == stands


def test_who_waits_for_the_lock_keeps_nobody_from_reading(reviews, monkeypatch):
    decide(reviews, "accept")
    waiting, go = threading.Event(), threading.Event()
    monkeypatch.setattr(reviews.journal, "_wait", lambda descriptor: waiting.set() or go.wait())
    writer = threading.Thread(target=decide, args=(reviews, "reject"))
    writer.start()
    waiting.wait()
    assert verdict(reviews) == "accept"
    go.set()
    writer.join()
    assert verdict(reviews) == "reject"


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00", "3000-01-01"])
def test_a_time_that_nobody_can_have_is_refused(reviews, time):
    with pytest.raises(DihedralError, match=f"time is '{re.escape(time)}'"):
        reviews.add(Decision(FACT, "accept", "eve", time))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 5.0, -0.1])
def test_a_probability_is_from_0_to_1(reviews, value):
    with pytest.raises(DihedralError, match=f"the probability of .* is {value}; it must be between 0 and 1"):
        reviews.add(Decision(FACT, "accept", "eve", "", "", value))


def test_half_a_character_in_the_journal_does_not_stop_an_export(reviews, tmp_path):
    decide(reviews, "accept", ("ann", "knows", "😀"))
    decide(reviews, "accept")
    path = tmp_path / "reviews.jsonl"
    path.write_text(path.read_text().replace("\\ud83d", "\\ud93d\\u0041"))
    assert to_text(Reviews(tmp_path), "tsv").count("\n") == 2 and list(Reviews(tmp_path).standing()) == [FACT]
