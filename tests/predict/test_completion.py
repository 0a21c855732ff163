"""Files and lists of questions, and missing facts: the same answers as one question at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as papq
import pytest

import dihedral as dh
from dihedral import DihedralError, load_graph
from dihedral.io.table_files import write_table
from dihedral.predict.completion import complete, missing_facts, read_questions
from dihedral.predict.predictor import Predictor
from dihedral.probability import proposals
from dihedral.store.trained import TrainedModel

QUESTIONS = [
    ("man_0000", "spouse", None), (None, "parent", "man_0001"), ("man_0002", None, "man_0003"),
    ("man_0004", "parent", None),
]  # fmt: skip


@pytest.mark.parametrize("known", ["include", "exclude"])
def test_a_table_of_answers_equals_single_predictions(predictor, known):
    rows = complete(predictor, QUESTIONS, top=4, known=known).to_pylist()
    for number, (head, relation, tail) in enumerate(QUESTIONS):
        expected = predictor.predict(head=head, relation=relation, tail=tail, top=4, known=known)
        found = [row for row in rows if row["question"] == number + 1]
        assert found
        assert [row["rank"] for row in found] == list(range(1, len(found) + 1))
        triples = [(row["head"], row["relation"], row["tail"], row["known"]) for row in found]
        assert triples == [(*p[:3], p.known) for p in expected]
        assert [r["score"] for r in found] == pytest.approx([p.score for p in expected], abs=1e-5)
        assert [r["probability"] for r in found] == pytest.approx([p.probability for p in expected], abs=1e-5)


def test_answers_can_be_limited_to_the_range_of_a_relation(predictor, family):
    parents = {t for _, r, t in family.names_of(family.known) if r == "parent"}
    rows = complete(predictor, [("man_0004", "parent", None)], top=40, among="range").to_pylist()
    assert {row["tail"] for row in rows} == parents
    assert {p.tail for p in predictor.predict(head="man_0004", relation="parent", top=40, among="range")} == parents


def test_answers_can_be_limited_to_the_members_of_a_type(predictor, family):
    members = predictor.members("parent", "man_0001")
    expected = {h for h, r, t in family.names_of(family.known) if (r, t) == ("parent", "man_0001")}
    assert members and set(members) == expected
    found = predictor.predict(head="man_0004", relation="sibling", top=40, among=members)
    assert {p.tail for p in found} == set(members)


def test_missing_facts_are_the_most_probable_triples_that_are_not_known(predictor, family):
    found = missing_facts(predictor, top=25, among="all").to_pylist()
    known = set(family.names_of(family.known))
    everything = [
        p
        for head in family.entities
        for relation in family.relations
        for p in predictor.predict(head=head, relation=relation, top=family.num_entities, known="exclude")
        if p.head != p.tail
    ]
    best = sorted((p.probability for p in everything), reverse=True)[:25]
    assert [row["probability"] for row in found] == pytest.approx(best, abs=1e-5)
    assert not known & {(row["head"], row["relation"], row["tail"]) for row in found}
    assert [row["rank"] for row in found] == list(range(1, 26))


@pytest.mark.parametrize("relations", [(), ["parent", "spouse"], "parent"])
def test_missing_facts_do_not_depend_on_the_tiles(predictor, monkeypatch, relations):
    together = missing_facts(predictor, top=10, relations=relations)
    monkeypatch.setattr(proposals, "TILE", 100)
    apart = missing_facts(predictor, top=10, relations=relations)
    assert apart["score"].to_pylist() == pytest.approx(together["score"].to_pylist(), abs=1e-5)


@pytest.mark.parametrize("among", ["range", "signature"])
def test_missing_facts_stay_among_the_candidates_of_their_relation(predictor, family, among):
    facts = list(family.names_of(family.known))
    found = missing_facts(predictor, relations=["parent"], top=10_000, among=among).to_pylist()
    heads, tails = ({fact[column] for fact in facts if fact[1] == "parent"} for column in (0, 2))
    proposed = {(row["head"], row["tail"]) for row in found}
    inside = {(head, tail) for head, tail in proposed if head in heads and tail in tails}
    assert inside and (inside == proposed) == (among == "range")  # forty people all fit both sides of `parent`
    assert not {(head, "parent", tail) for head, tail in proposed} & set(facts)


def test_the_expected_precision_is_the_mean_probability_down_to_a_row(predictor):
    rows = missing_facts(predictor, top=50).to_pylist()
    likely = [row["probability"] for row in rows]
    for number, row in enumerate(rows, start=1):
        assert row["precision"] == pytest.approx(sum(likely[:number]) / number, abs=1e-5)
        assert row["precision_low"] <= row["precision"] <= row["precision_high"]
    limit = rows[20]["precision"]
    shorter = missing_facts(predictor, top=50, min_precision=limit - 1e-6).to_pylist()
    assert len(shorter) >= 21 and shorter == rows[: len(shorter)]
    assert len(shorter) == 50 or rows[len(shorter)]["precision"] < limit
    assert missing_facts(predictor, top=50, min_precision=1.0).num_rows == 0


def test_more_missing_facts_mean_higher_probabilities_in_the_same_order(predictor, family):
    plain = dh.missing_facts(predictor, top=20).to_pylist()
    more = dh.missing_facts(predictor, top=20, missing=3 * len(family.valid)).to_pylist()
    assert [row["tail"] for row in more] == [row["tail"] for row in plain]
    fewer = dh.missing_facts(predictor, top=20, missing=len(family.valid)).to_pylist()
    for one, three in zip(fewer, more, strict=True):  # μ s / (1 - s)
        assert three["probability"] == pytest.approx(min(3 * one["probability"], 1), rel=0.02)
        assert three["precision_low"] is None
    with pytest.raises(DihedralError, match="missing is 0"):
        dh.missing_facts(predictor, missing=0)


def test_a_list_of_one_relation_has_no_interval(predictor):
    row = dh.missing_facts(predictor, relations=["spouse"], top=1).to_pylist()[0]
    assert row["precision"] is not None and row["precision_low"] is None


def test_a_precision_needs_probabilities(predictor, family):
    bare = dh.Predictor(dh.TrainedModel(predictor.model, family))
    assert missing_facts(bare, top=3)["probability"].null_count == 3
    with pytest.raises(DihedralError, match="min_precision needs probabilities: it was not calibrated"):
        missing_facts(bare, min_precision=0.5)
    with pytest.raises(DihedralError, match="min_precision is 2; it must be between 0 and 1"):
        missing_facts(predictor, min_precision=2)


def test_progress_ends_with_the_number_of_questions_or_relations(predictor):
    seen: list[tuple[int, int]] = []
    complete(predictor, QUESTIONS, on_progress=lambda *counts: seen.append(counts))
    assert seen[-1] == (4, 4) and seen == sorted(seen)
    seen.clear()
    missing_facts(predictor, relations=["parent", "spouse"], on_progress=lambda *counts: seen.append(counts))
    assert seen == [(1, 2), (2, 2)]


def test_no_questions_give_an_empty_table(predictor):
    table = complete(predictor, [])
    assert table.num_rows == 0 and table.schema == complete(predictor, QUESTIONS).schema


@pytest.mark.parametrize(
    ("questions", "options", "message"),
    [
        ([("man_0000", "spouse", None), ("man_0000", None, None)], {}, "2: 1 of head, relation and tail given"),
        ([("man_0000", "spouze", None)], {}, "relation 'spouze' is not among"),
        (
            [("man_0000", None, "man_0001")],
            {"among": "range"},
            "question 1: among limits entities, but the",
        ),
        (
            [("man_0000", "spouse", None)],
            {"among": "domain"},
            "among is 'domain'; choose signature, range, all, or",
        ),
    ],
)
def test_invalid_questions_are_named_in_the_error(predictor, questions, options, message):
    with pytest.raises(DihedralError, match=message):
        complete(predictor, questions, **options)


WITH_UNKNOWN = [
    ("man_0000", "spouse", None), ("man_9999", "spouse", None), ("man_0002", "likes", None),
    (None, "parent", "man_0001"), ("man_9999", None, "nobody"),
]  # fmt: skip


def test_all_unknown_names_are_reported_with_the_numbers_of_their_questions(predictor):
    with pytest.raises(DihedralError) as refused:
        complete(predictor, WITH_UNKNOWN)
    assert str(refused.value) == (
        "3 names are unknown: entity 'man_9999' (questions 2, 5), entity 'nobody' (question 5), relation 'likes' "
        "(question 3); correct them, or leave these questions out with --skip-unknown (skip_unknown=True)"
    )
    with pytest.raises(DihedralError, match=r"^question 2: relation 'spuse' is not among .*; did you mean 'spouse'"):
        complete(predictor, [QUESTIONS[0], ("man_0000", "spuse", None)])


def test_questions_with_unknown_names_can_be_skipped(predictor):
    seen = []
    table = complete(predictor, WITH_UNKNOWN, skip_unknown=True, on_progress=lambda *counts: seen.append(counts))
    alone = complete(predictor, [WITH_UNKNOWN[0], WITH_UNKNOWN[3]])
    assert set(table["question"].to_pylist()) == {1, 4} and seen[-1] == (2, 2)
    assert table.drop_columns("question").equals(alone.drop_columns("question"))
    assert len(complete(predictor, WITH_UNKNOWN[1:3], skip_unknown=True)) == 0


def test_a_long_list_of_unknown_names_is_shortened(predictor):
    with pytest.raises(DihedralError, match=r"60 names are unknown: .* and 10 more; correct them"):
        complete(predictor, [(f"nobody {i}", "spouse", None) for i in range(60)])
    with pytest.raises(DihedralError, match=r"^questions 1, 2, 3, 4, 5 and 3 more: entity 'nobody' is not among"):
        complete(predictor, [("nobody", "spouse", None)] * 8)


def test_missing_facts_about_some_entities_without_some_facts(predictor):
    entities = predictor.graph.entities
    about = np.array([entities.id("man_0000"), entities.id("man_0001")])
    found = missing_facts(predictor, top=20, about=about)
    facts = list(zip(*(found[part].to_pylist() for part in ("head", "relation", "tail")), strict=True))
    assert len(facts) == 20 and all({"man_0000", "man_0001"} & {head, tail} for head, _, tail in facts)
    left = missing_facts(predictor, top=20, about=about, exclude=[*facts[:5], ("nobody", "spouse", "man_0000")])
    assert left["tail"].to_pylist()[:15] == found["tail"].to_pylist()[5:]


def test_a_relation_by_name_and_by_label_is_listed_once(predictor):
    labelled = Predictor(
        TrainedModel(predictor.model, predictor.graph.with_labels({"sibling": "brother or sister of"}))
    )
    twice = missing_facts(labelled, relations=["sibling", "brother or sister of"], top=10)
    assert twice.equals(missing_facts(labelled, relations=["sibling"], top=10))


def test_missing_facts_per_relation_are_the_best_of_each(predictor, family):
    limited = missing_facts(predictor, top=1000, per_relation=3).to_pylist()
    own = {each: missing_facts(predictor, relations=[each], top=3).to_pylist() for each in family.relations}
    expected = {(row["head"], row["relation"], row["tail"]) for rows in own.values() for row in rows}
    assert {(row["head"], row["relation"], row["tail"]) for row in limited} == expected and len(expected) > 6
    assert [row["rank"] for row in limited] == list(range(1, len(limited) + 1))
    likely = [row["probability"] for row in limited]
    assert likely == sorted(likely, reverse=True) and limited[0]["precision_low"] is None
    assert missing_facts(predictor, top=4, per_relation=3).to_pylist() == limited[:4]
    with pytest.raises(DihedralError, match="per_relation is 0"):
        missing_facts(predictor, per_relation=0)


def test_tables_of_facts_have_columns_of_labels(predictor):
    trained = TrainedModel(predictor.model, predictor.graph.with_labels({"spouse": "married to", "man_0000": "Abe"}))
    labelled = Predictor(trained)
    (row,) = missing_facts(labelled, relations=["spouse"], top=1).to_pylist()
    assert row["relation_label"] == "married to" and "head_label" in row
    found = complete(labelled, [("man_0000", "spouse", None)], top=1).to_pylist()
    assert found[0]["head_label"] == "Abe"


# --- files of questions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.tsv", "man_0000\tspouse\t?\n\tparent\tman_0001\n"),
        ("q.csv", "head,relation,tail\nman_0000,spouse,\n?,parent,man_0001\n"),
        ("q.CSV", "Predicate,Subject,Object\nspouse,man_0000,\nparent,?,man_0001\n"),
    ],
)
def test_questions_are_read_from_text_with_or_without_a_header(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_questions(tmp_path / name) == [("man_0000", "spouse", None), (None, "parent", "man_0001")]


def test_questions_are_read_from_parquet_with_columns_in_any_order(tmp_path):
    table = pa.table({"tail": [None], "head": ["man_0000"], "relation": ["spouse"]})
    papq.write_table(table, tmp_path / "q.parquet")
    assert read_questions(tmp_path / "q.parquet") == [("man_0000", "spouse", None)]


def test_files_that_cannot_be_read_are_named_in_the_error(tmp_path):
    (tmp_path / "two.tsv").write_text("a\tb\n")
    with pytest.raises(DihedralError, match=r"two\.tsv, line 1: 2 columns; questions have head, relation, tail"):
        read_questions(tmp_path / "two.tsv")
    papq.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "two.parquet")
    with pytest.raises(DihedralError, match=r"two\.parquet' has 2 columns; questions have head, relation, tail"):
        read_questions(tmp_path / "two.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(DihedralError, match=r"broken\.parquet: it cannot be read"):
        read_questions(tmp_path / "broken.parquet")
    with pytest.raises(DihedralError, match="does not exist; give a TSV, CSV or Parquet file"):
        read_questions(tmp_path / "none.tsv")


STRANGE = ['"quoted"', '"a', '5" pipe', "x\x85y", "x\u2028y", "x\x0by", "x\x1cy", "é, ü", "a;b", "NA", "null"]
BROKEN = ["two\nlines", "two\r\nlines", "a\ttab"]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_names_that_are_written_are_read_back_exactly(tmp_path, suffix):
    names = STRANGE + (BROKEN if suffix != "tsv" else [])
    answers = pa.table(
        {"question": range(len(names)), "head": names, "relation": names[::-1], "tail": ["t"] * len(names)}
    )
    path = tmp_path / f"answers.{suffix}"
    write_table(answers, path)
    graph = load_graph(path, valid=0, test=0)
    expected = list(zip(names, names[::-1], ["t"] * len(names), strict=True))
    assert sorted(graph.names_of(graph.train)) == sorted(expected)
    assert read_questions(path) == expected


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_questions_have_the_names_that_a_graph_has(tmp_path, suffix):
    delimiter = "," if suffix == "csv" else "\t"
    names = ["x\x85y", "x\u2028y", "x\x0by", *(['"two\nlines"', '"a ""b"""'] if suffix == "csv" else ['"a'])]
    text = "".join(delimiter.join((f"{name} ", "r", "c")) + "\n" for name in names)
    (tmp_path / f"facts.{suffix}").write_text(text)
    (tmp_path / f"questions.{suffix}").write_text(text.replace(f"{delimiter}c\n", f"{delimiter}?\n\n"))
    graph = load_graph(tmp_path / f"facts.{suffix}", valid=0, test=0)
    questions = read_questions(tmp_path / f"questions.{suffix}")
    assert questions == [(head, "r", None) for head in dict.fromkeys(q[0] for q in questions)]
    assert {head for head, _, _ in questions} == set(graph.entities) - {"c"}


def test_a_bad_question_has_the_number_of_its_line(tmp_path):
    (tmp_path / "q.csv").write_text('"two\nlines",r,?\n\na,b\n')
    with pytest.raises(DihedralError, match=r"q\.csv, line 4: 2 columns"):
        read_questions(tmp_path / "q.csv")
